"""Cache of parsed heads."""

from __future__ import annotations

import dataclasses

import pytest
from multidict import CIMultiDict

from adapter.http.request import Heads, Request
from adapter.http.request_info import MalformedError

HEADERS = (("Host", "adapter"), ("X-Remote-User", "jane"))


@dataclasses.dataclass
class Message:
    """What aiohttp's parser returns."""

    path: str
    pairs: tuple[tuple[str, str], ...]
    method: str = "GET"
    should_close: bool = False
    version: tuple[int, int] = (1, 1)

    @property
    def headers(self):
        return CIMultiDict(self.pairs)

    @property
    def raw_headers(self):
        return tuple((name.encode(), value.encode()) for name, value in self.pairs)


@pytest.fixture
def parse():
    heads = Heads()
    return lambda *args, **kwargs: heads.parse(Request(Message(*args, **kwargs), None))


@pytest.mark.parametrize("name", ["Audit-Id", "Traceparent"])
def test_equal_heads_are_one_object_whatever_the_headers_of_the_trace_say(parse, name):
    one, other = (parse("/apis", (*HEADERS, (name, value))) for value in "ab")

    assert one is other
    assert one.is_remembered


@pytest.mark.parametrize("name", ["Audit-Id", "audit-id", "Traceparent", "TRACEPARENT"])
def test_a_head_has_no_headers_that_differ_between_equal_heads(parse, name):
    head = parse("/apis", (*HEADERS, (name, "jane")))

    assert name not in head.headers
    assert head.headers.getall("X-Remote-User") == ["jane"]


@pytest.mark.parametrize(
    "other",
    [
        Message("/api", HEADERS),
        Message("/apis", HEADERS, method="POST"),
        Message("/apis", (HEADERS[0], ("X-Remote-User", "root"))),
        Message("/apis", (*HEADERS, ("X-Remote-Group", "system:masters"))),
        Message("/apis", (*HEADERS, ("audit-id", "x"))),
    ],
)
def test_heads_that_differ_are_different_objects(parse, other):
    assert parse("/apis", HEADERS) is not parse(other.path, other.pairs, other.method)


@pytest.mark.parametrize(
    "headers",
    [(("Authorization", "Bearer x"),), (("authorization", "Bearer x"),), (("A", "x" * 5000),)],
    ids=["token", "lower case", "large"],
)
def test_tokens_and_large_heads_are_not_kept(parse, headers):
    one, other = parse("/apis", headers), parse("/apis", headers)

    assert one is not other
    assert not one.is_remembered


def test_the_least_recently_used_heads_are_forgotten():
    heads = Heads()
    first = heads.parse(Request(Message("/0", HEADERS), None))
    for number in range(1, 5000):
        heads.parse(Request(Message(f"/{number}", HEADERS), None))

    assert heads.parse(Request(Message("/0", HEADERS), None)) is not first
    assert heads.cache.misses == 5001


def test_a_malformed_target_is_not_remembered(parse):
    for _ in range(2):
        with pytest.raises(MalformedError):
            parse("/%zz", HEADERS)
