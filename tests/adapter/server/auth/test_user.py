from __future__ import annotations

from adapter.server.auth.user import User


def user(**extra):
    return User(name="jane", groups=("g",), uid="u", extra=extra)


def test_users_that_differ_in_extra_have_different_hashes():
    users = [user(scopes=(str(number),)) for number in range(1000)]

    assert len({hash(each) for each in users}) > 990


def test_equal_users_have_equal_hashes():
    one, other = user(a=("1",), b=("2", "3")), user(b=("2", "3"), a=("1",))

    assert (one, hash(one)) == (other, hash(other))


def test_the_size_counts_every_field():
    assert user(scopes=("read", "all")).size == 4 + 1 + 1 + 6 + 4 + 3
