"""Cache of parsed heads."""

from __future__ import annotations

import asyncio
import dataclasses
import tracemalloc
from unittest import mock

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import HttpRequestParser
from multidict import CIMultiDict

from adapter.server.apimachinery.heads import Heads
from adapter.server.apimachinery.request_info import MalformedError
from adapter.server.http.request import Request

HEADERS = (("Host", "adapter"), ("X-Remote-User", "jane"))


@dataclasses.dataclass
class Received:
    """A request as aiohttp parsed it."""

    raw_path: str
    pairs: tuple[tuple[str, str], ...]
    method: str = "GET"

    @property
    def headers(self):
        return CIMultiDict(self.pairs)

    @property
    def head(self):
        lines = (f"{name}: {value}\r\n" for name, value in self.pairs)
        return f"{self.method} {self.raw_path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


def parse_head(raw):
    """Return a request as aiohttp parses it."""
    loop = asyncio.new_event_loop()
    try:
        parser = HttpRequestParser(
            BaseProtocol(loop), loop, 2**16, max_line_size=2**16, max_headers=10_000
        )
        [(message, _)], _, _ = parser.feed_data(raw)
    finally:
        loop.close()
    return Request(
        mock.Mock(method="GET", raw_path=message.path, headers=message.headers), raw, None, 0.0
    )


def request_of(received):
    return Request(received, received.head, None, 0.0)


def parse_and_remember(heads, request):
    head = heads.parse(request)
    heads.remember(request, head)
    return head


@pytest.fixture
def parse():
    heads = Heads()
    return lambda *args: parse_and_remember(heads, request_of(Received(*args)))


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
        Received("/api", HEADERS),
        Received("/apis", HEADERS, method="POST"),
        Received("/apis", (HEADERS[0], ("X-Remote-User", "root"))),
        Received("/apis", (*HEADERS, ("X-Remote-Group", "system:masters"))),
        Received("/apis", (*HEADERS, ("audit-id", "x"))),
    ],
)
def test_heads_that_differ_are_different_objects(parse, other):
    assert parse("/apis", HEADERS) is not parse(other.raw_path, other.pairs, other.method)


@pytest.mark.parametrize(
    "headers",
    [(("Authorization", "Bearer x"),), (("authorization", "Bearer x"),), (("A", "x" * 20_000),)],
    ids=["token", "lower case", "large"],
)
def test_tokens_and_large_heads_are_not_kept(parse, headers):
    one, other = parse("/apis", headers), parse("/apis", headers)

    assert one is not other
    assert not one.is_remembered


@pytest.mark.parametrize(
    "message",
    [
        Received("/apis", (("ab", ""),) * 200),
        Received("/apis?" + "&".join(f"{number}" for number in range(100)), HEADERS),
        Received("/apis?labelSelector=" + ",".join("a" for _ in range(100)), HEADERS),
        Received("/apis/" + "/".join("a" for _ in range(200)), HEADERS),
    ],
    ids=["headers", "parameters", "requirements", "segments"],
)
def test_a_head_of_many_parts_is_not_kept(message):
    assert not parse_and_remember(Heads(), request_of(message)).is_remembered


def test_a_head_is_kept_only_when_its_request_is_authorized():
    heads = Heads()

    one, other = (heads.parse(request_of(Received("/apis", HEADERS))) for _ in range(2))

    assert one is not other
    assert not one.is_remembered


CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/team-a/pods"
PROXIED = "".join(
    f"{line}\r\n"
    for line in (
        "User-Agent: kube-controller-manager/v1.33.0 (linux/amd64) horizontal-pod-autoscaler",
        "Accept: application/json, */*",
        "Accept-Encoding: gzip",
        "X-Forwarded-For: 10.0.0.1",
        "X-Remote-User: system:serviceaccount:kube-system:horizontal-pod-autoscaler",
        "X-Remote-Group: system:serviceaccounts",
        "X-Remote-Group: system:serviceaccounts:kube-system",
        "X-Remote-Group: system:authenticated",
        "X-Remote-Extra-Authentication.kubernetes.io%2Fcredential-Id: JTI=0123456789",
    )
)


def words(count, separator, form="{}"):
    """Return different short texts, each of which is an object of its own."""
    return separator.join(form.format(f"a{number}") for number in range(count))


LARGE = {
    "as forwarded": (f"{CUSTOM}/*/duty_cycle?labelSelector=app%3Dbert", PROXIED),
    "empty headers": (f"{CUSTOM}/*/m", "ab:\r\n" * 90),
    "short headers": (f"{CUSTOM}/*/m", words(70, "", "{}: x1\r\n")),
    "long names": (f"{CUSTOM}/*/m", words(70, "", "x-{}-012345: \r\n")),
    "wide header": (f"{CUSTOM}/*/m", "A: \N{GRINNING FACE}" + 3500 * "x" + "\r\n"),
    "keys": (f"{CUSTOM}/*/m?{words(18, '&')}", ""),
    "pairs": (f"{CUSTOM}/*/m?{words(20, '&', '{0}={0}xyz')}", ""),
    "values of one key": (f"{CUSTOM}/n/m?{words(35, '&', 'a={}')}", ""),
    "requirements": (f"{CUSTOM}/n/m?labelSelector={words(45, ',')}", ""),
    "equalities": (f"{CUSTOM}/n/m?labelSelector={words(40, ',', '{0}=1{0}')}", ""),
    "sets": (f"{CUSTOM}/n/m?labelSelector={words(40, ',', '{0}+in+(1{0})')}", ""),
    "values of one set": (f"{CUSTOM}/n/m?metricLabelSelector=a+in+({words(45, ',')})", ""),
    "segments": (f"{CUSTOM}/{words(80, '/')}", ""),
    "wide text": (f"{CUSTOM}/n/%F0%9F%98%80{800 * 'x'}?a=%F0%9F%98%80{800 * 'x'}", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize(("target", "headers"), LARGE.values(), ids=LARGE)
def test_a_remembered_head_takes_no_more_memory_than_is_counted(target, headers):
    raw = f"GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n".encode()
    parse_and_remember(Heads(), parse_head(raw))  # fills the caches of the libraries
    heads = Heads()
    count = 20

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            head = parse_and_remember(heads, parse_head(raw.replace(b" a\r", b" %d\r" % number)))
            for info in (head.info, head.info.without_namespace):
                _ = info.labels, info.metric_labels, info.below_version
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert head.is_remembered
    assert taken / count <= head.size


@pytest.mark.slow
def test_the_least_recently_used_heads_are_forgotten():
    heads = Heads()
    first = parse_and_remember(heads, request_of(Received("/0", HEADERS)))
    for number in range(1, 20_000):
        parse_and_remember(heads, request_of(Received(f"/{number}", HEADERS)))

    assert parse_and_remember(heads, request_of(Received("/0", HEADERS))) is not first
    assert heads.cache.misses == 20_001


def test_a_malformed_target_is_not_remembered(parse):
    for _ in range(2):
        with pytest.raises(MalformedError):
            parse("/%zz", HEADERS)


def test_an_answer_is_kept_with_its_head_unless_it_is_large():
    heads, request = Heads(), request_of(Received("/apis", HEADERS))
    head = parse_and_remember(heads, request)
    alone = heads.cache.size

    heads.keep(head, "answer", size=1000)
    assert (head.answer, heads.cache.size) == ("answer", alone + 1000)

    heads.keep(head, "large answer", size=32 << 10)
    assert (head.answer, heads.cache.size) == (None, alone)
