"""Shares of a limit: nobody uses up what belongs to others, and replicas decide the same."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.limits import Admitted, Claim, admit


def claim(namespace, name, created, size=1):
    return Claim(namespace=namespace, name=name, created=f"{created:>04}", size=size)


def test_everything_is_admitted_that_fits():
    claims = [claim("a", "1", 1, size=3), claim("b", "1", 2, size=2)]

    admitted = admit(claims, own=3, total=5)

    assert admitted == Admitted(
        keys=frozenset({("a", "1"), ("b", "1")}), beyond_own=frozenset(), beyond_all=frozenset()
    )


def test_the_oldest_of_a_namespace_come_first():
    claims = [claim("a", "young", 3), claim("a", "old", 1), claim("a", "middle", 2)]

    admitted = admit(claims, own=2, total=10)

    assert admitted.keys == {("a", "old"), ("a", "middle")}
    assert admitted.beyond_own == {("a", "young")}


def test_equal_ages_are_ordered_by_name():
    assert admit([claim("a", "y", 1), claim("a", "x", 1)], own=1, total=1).keys == {("a", "x")}


def test_an_object_that_does_not_fit_leaves_room_for_a_smaller_one():
    claims = [claim("a", "1", 1, size=2), claim("a", "2", 2, size=2), claim("a", "3", 3, size=1)]

    assert admit(claims, own=3, total=3).keys == {("a", "1"), ("a", "3")}


def test_a_namespace_with_many_old_objects_takes_nothing_of_others():
    greedy = [claim("greedy", f"{number:03}", number) for number in range(100)]
    modest = [claim("modest", "1", 1000, size=4), claim("other", "1", 1001, size=4)]

    admitted = admit([*greedy, *modest], own=100, total=12)

    assert {("modest", "1"), ("other", "1")} <= admitted.keys
    assert len(admitted.keys) == 6
    assert admitted.beyond_all == {each.key for each in greedy[4:]}


def test_what_others_leave_goes_to_the_oldest():
    claims = [*(claim("a", str(number), number) for number in range(5)), claim("b", "1", 9)]

    assert admit(claims, own=5, total=4).keys == {("a", "0"), ("a", "1"), ("a", "2"), ("b", "1")}


_CLAIMS = st.lists(
    st.builds(
        claim,
        st.sampled_from("abcd"),
        st.integers(0, 30).map(str),
        st.integers(0, 9),
        st.integers(1, 5),
    ),
    unique_by=lambda each: each.key,
)


@given(claims=_CLAIMS, own=st.integers(1, 12), total=st.integers(1, 30), data=st.data())
def test_limits_and_certain_shares_hold_in_any_order(claims, own, total, data):
    admitted = admit(claims, own=own, total=total)

    shuffled = data.draw(st.permutations(claims))
    assert admit(shuffled, own=own, total=total) == admitted
    sizes = {
        namespace: sum(
            each.size
            for each in claims
            if each.namespace == namespace and each.key in admitted.keys
        )
        for namespace in "abcd"
    }
    assert all(size <= own for size in sizes.values())
    assert sum(sizes.values()) <= total
    namespaces = {each.namespace for each in claims}
    for namespace in namespaces:
        wanted = [each for each in claims if each.namespace == namespace]
        if sum(each.size for each in wanted) <= min(own, total // len(namespaces)):
            assert {each.key for each in wanted} <= admitted.keys
    assert admitted.keys | admitted.beyond_own | admitted.beyond_all == {
        each.key for each in claims
    }


@pytest.mark.parametrize("seed", range(5))
def test_more_objects_of_one_namespace_change_nothing_of_a_modest_one(seed):
    chance = random.Random(seed)
    modest = [claim("modest", str(number), chance.randrange(100)) for number in range(10)]
    hostile = [claim("hostile", str(number), chance.randrange(100)) for number in range(500)]

    for count in (0, 10, 100, 500):
        admitted = admit([*modest, *hostile[:count]], own=100, total=30)
        assert {each.key for each in modest} <= admitted.keys
