from __future__ import annotations

import pytest
from multidict import CIMultiDict

from adapter.auth import request_headers
from adapter.auth.trust import Headers
from adapter.auth.user import Impersonation, User

HEADERS = Headers(
    username_headers=("X-Remote-User", "X-User"),
    uid_headers=("X-Remote-Uid", "X-Uid"),
    group_headers=("X-Remote-Group", "x-group"),
    extra_prefixes=("X-Remote-Extra-", "x-more-"),
)
ALL = "system:authenticated"


def jane(*groups, uid="", **extra):
    extra = {key.replace("_", "-"): value for key, value in extra.items()}
    return User(name="jane", groups=(*groups, ALL), uid=uid, extra=extra)


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        ([], None),
        ([("X-Remote-Group", "g")], None),
        ([("X-Remote-User", "")], None),
        ([("X-Remote-User", "jane")], jane()),
        ([("x-REMOTE-user", "jane")], jane()),
        ([("X-Remote-User", ""), ("X-Remote-User", "ophelia")], None),
        ([("X-Remote-User", "jane"), ("X-Remote-User", "ophelia")], jane()),
        ([("X-User", "jane")], jane()),
        ([("X-User", "ophelia"), ("X-Remote-User", "jane")], jane()),
        ([("X-Remote-User", ""), ("X-User", "jane")], jane()),
        ([("X-Remote-User", "jane"), ("X-Remote-Uid", "u1")], jane(uid="u1")),
        ([("X-Remote-User", "jane"), ("X-Uid", "u2")], jane(uid="u2")),
        ([("X-Remote-User", "jane"), ("X-Remote-Uid", ""), ("X-Remote-Uid", "u")], jane()),
        (
            [
                ("X-Group", "three"),
                ("X-Remote-Group", "one"),
                ("X-Remote-User", "jane"),
                ("X-Remote-Group", ""),
                ("x-remote-group", "two, with a comma"),
                ("X-Group", "one"),
            ],
            jane("one", "two, with a comma", "three", "one"),
        ),
        (
            [
                ("X-Remote-User", "jane"),
                ("X-Remote-Extra-Scopes", "a"),
                ("x-remote-EXTRA-scopes", ""),
                ("X-More-Scopes", "b"),
                ("X-Remote-Extra-", "empty"),
            ],
            jane(scopes=("a", "", "b"), **{"": ("empty",)}),
        ),
        (
            [("X-Remote-User", "jane"), ("X-Remote-Extra-Acme.com%2Fproject", "p1")],
            jane(**{"acme.com/project": ("p1",)}),
        ),
        (
            [("X-Remote-User", "jane"), ("X-Remote-Extra-A%41%C3%9C", "lowered first")],
            jane(aAÜ=("lowered first",)),
        ),
        (
            [("X-Remote-User", "jane"), ("X-Remote-Extra-A%zz%41", "raw")],
            jane(**{"a%zz%41": ("raw",)}),
        ),
        (
            [("X-Remote-User", "jane"), ("X-Remote-Extra-A%FF+", "bytes")],
            jane(**{"a\udcff+": ("bytes",)}),
        ),
        (
            [("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "g")],
            User(name="system:anonymous", groups=("g",)),
        ),
        (
            [("X-Remote-User", "jane"), ("X-Remote-Group", "system:unauthenticated")],
            User(name="jane", groups=("system:unauthenticated",)),
        ),
        (
            [("X-Remote-User", "jane"), ("X-Remote-Group", ALL), ("X-Remote-Group", "g")],
            User(name="jane", groups=(ALL, "g")),
        ),
    ],
)
def test_a_user_is_read_as_kubernetes_reads_it(headers, user):
    reader = request_headers.Reader(HEADERS)

    for _ in range(2):
        assert reader.user(CIMultiDict([("Accept", "*/*"), *headers])) == user


def test_headers_that_nobody_configured_name_nobody():
    reader = request_headers.Reader(Headers())

    assert reader.user(CIMultiDict({"X-Remote-User": "jane", "X-Remote-Extra-A": "b"})) is None


def test_a_user_is_remembered_by_the_headers_that_name_it():
    reader = request_headers.Reader(HEADERS)

    first = reader.user(CIMultiDict({"X-Remote-User": "jane", "Audit-Id": "1"}))
    again = reader.user(CIMultiDict({"Audit-Id": "2", "X-Remote-User": "jane"}))
    other = reader.user(CIMultiDict({"X-Remote-User": "jane", "X-Remote-Group": "g"}))

    assert again is first
    assert other == jane("g")


def test_long_headers_are_not_remembered():
    reader = request_headers.Reader(HEADERS)
    headers = CIMultiDict({"X-Remote-User": "jane", "X-Remote-Group": "g" * 5000})

    assert reader.user(headers) == reader.user(headers) == jane("g" * 5000)
    assert reader.user(headers) is not reader.user(headers)


def test_header_names_do_not_pile_up():
    reader = request_headers.Reader(HEADERS)

    for number in range(3000):
        reader.user(CIMultiDict({f"X-Remote-Extra-{number}": "a"}))

    assert len(reader._relevant) <= 1024


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ([], None),
        ([("X-Remote-User", "jane")], None),
        ([("Impersonate-User", "")], None),
        ([("Impersonate-Other", "x")], None),
        ([("impersonate-user", "jane")], Impersonation(user="jane")),
        ([("Impersonate-Group", "")], Impersonation(user="", groups=("",))),
        ([("Impersonate-Uid", "u")], Impersonation(user="", uid="u")),
        (
            [
                ("Impersonate-User", "jane"),
                ("Impersonate-Group", "a"),
                ("Impersonate-Group", "b"),
                ("Impersonate-Uid", "u"),
                ("Impersonate-Extra-A%2Fb", "1"),
                ("Impersonate-Extra-a%2fb", "2"),
            ],
            Impersonation(user="jane", groups=("a", "b"), uid="u", extra={"a/b": ("1", "2")}),
        ),
    ],
)
def test_a_wish_to_be_somebody_else_is_read(headers, asked):
    assert request_headers.impersonation(CIMultiDict(headers)) == asked


def test_users_can_be_kept_in_sets():
    users = {jane("a", scopes=("x",)), jane("a", scopes=("x",)), jane("a", scopes=("y",))}

    assert len(users) == 2
