from __future__ import annotations

import pytest
from multidict import CIMultiDict

from adapter.server.auth import request_headers
from adapter.server.auth.trust import RequestHeaderConfig
from adapter.server.auth.user import Impersonation, User
from tests import effort

CONFIG = RequestHeaderConfig(
    username_headers=("X-Remote-User", "X-User"),
    uid_headers=("X-Remote-Uid", "X-Uid"),
    group_headers=("X-Remote-Group", "x-group"),
    extra_prefixes=("X-Remote-Extra-", "x-more-"),
)
AUTHENTICATED = "system:authenticated"


def jane(*groups, uid="", **extra):
    extra = {key.replace("_", "-"): value for key, value in extra.items()}
    return User(name="jane", groups=(*groups, AUTHENTICATED), uid=uid, extra=extra)


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
            [("X-Remote-User", "jane"), ("X-Remote-Group", AUTHENTICATED), ("X-Remote-Group", "g")],
            User(name="jane", groups=(AUTHENTICATED, "g")),
        ),
    ],
)
def test_a_front_proxy_user_is_parsed_as_kubernetes_does(headers, user):
    request = CIMultiDict([("Accept", "*/*"), *headers])

    assert request_headers.front_proxy_user(request, CONFIG) == user


def test_headers_that_are_not_configured_are_ignored():
    request = CIMultiDict({"X-Remote-User": "jane", "X-Remote-Extra-A": "b"})

    assert request_headers.front_proxy_user(request, RequestHeaderConfig()) is None


@pytest.mark.parametrize(
    ("headers", "requested"),
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
def test_impersonation_headers_are_parsed(headers, requested):
    assert request_headers.impersonation(CIMultiDict(headers)) == requested


def test_many_equal_extras_take_linear_time():
    def parse(number):
        headers = CIMultiDict([("Impersonate-Extra-a", "v")] * number)
        requested = request_headers.impersonation(headers)
        assert requested is not None
        assert len(requested.extra["a"]) == number

    assert effort.growth(parse, 5000) < 3
