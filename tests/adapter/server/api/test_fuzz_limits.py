"""Fuzzed sizes: no selector, Accept header, timeout or target costs much time or yields a 500."""

from __future__ import annotations

import gc
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import effort
from tests.adapter import wired
from tests.adapter.server.api.test_path_enumeration import Reads

PODS = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/team/pods"
QUEUE = "/apis/external.metrics.k8s.io/v1beta1/namespaces/team/queue"
STATUSES = {200, 400, 403, 404, 405, 406, 422, 431, 504}
MAX_BYTES = 1_000_000
MAX_RATIO = 5
"""CPU time of a request, in units of that of a harmless one with a head of the same size. It is at
most 2.4 today. Headers of an impersonation took 12."""


class Api:
    """API server that allows everything to anonymous callers."""

    async def post(self, path, document, *, timeout=None):
        return {"status": {"allowed": True}}


@pytest.fixture(scope="module")
def send():
    """A function that sends a request and returns the response.

    As in the server, the collector leaves alone what exists at the start. Otherwise, it would visit
    all that the test process has imported, and count as time of a request.
    """
    gc.collect()
    gc.freeze()
    reads = Reads()
    serve = wired.build_router(reads.catalog, reads, reads, guard=wired.guard(Api()))
    with wired.sending(serve) as opened:
        send: Any = opened
        send.harmless_seconds = min(effort.seconds(lambda: send(HARMLESS)) for _ in range(5))
        yield send
    gc.unfreeze()


def request(target, headers=()):
    lines = [b"GET " + target + b" HTTP/1.1", b"Host: x", b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


HARMLESS = request(b"/version", [b"X-%d: %s" % (number, b"\xff" * 180) for number in range(5000)])


def check(send, target, headers=(), *, also=frozenset()):
    hostile = request(target, headers)
    answers = []

    def exchange():
        answers.append(send(hostile))

    if effort.seconds(exchange) > MAX_RATIO * send.harmless_seconds:
        # Something else may have run, so that both are measured again, in turn.
        assert effort.ratio(exchange, lambda: send(HARMLESS), rounds=5) < MAX_RATIO
    answer = answers[0]
    assert b"Traceback" not in answer
    statuses = {int(each) for each in re.findall(rb"\AHTTP/1\.1 (\d+) ", answer)}
    assert statuses <= STATUSES | also, answer[:2000]
    assert len(answer) < 200_000


def repeated(units, *, limit=MAX_BYTES):
    """Draw bytes that repeat a few units up to the length of a request head."""
    unit = st.lists(st.sampled_from(units), min_size=1, max_size=4).map(b"".join)
    sizes = [size for size in (4096, 4097, 20_000, 65_536, 65_537, 196_608) if size < limit]
    size = st.integers(0, min(200, limit)) | st.sampled_from([*sizes, limit])
    return st.builds(lambda text, size: (text * (size // len(text) + 1))[:size], unit, size)


SELECTOR_UNITS = [
    *(b"a", b"=", b"!", b",", b"(", b")", b"+in+", b"+notin+(", b"%3D", b"%2C", b"%5C", b"%ff"),
    *(b"<", b">", b"1", b"a%3Db,", b"a,", b"-,", b"%20", b".", b"a/b", b"%00", b"%E2%80%A8", b"9"),
]


@pytest.mark.slow
@given(
    target=st.sampled_from(
        [f"{PODS}/*/requests", f"{PODS}//requests", f"{PODS}/a/requests", QUEUE]
    ),
    parameters=st.lists(
        st.tuples(
            st.sampled_from(["labelSelector", "fieldSelector", "metricLabelSelector"]),
            st.sampled_from([b"", b"a+in+(", b"a%3D", b"metadata.name%3D", b"a%3E"]),
            repeated(SELECTOR_UNITS, limit=300_000),
        ),
        min_size=1,
        max_size=3,
    ),
)
@example(
    target=f"{PODS}//requests",
    parameters=[("labelSelector", b"", b"a," * 499), ("fieldSelector", b"", b"a%3Db," * 999)],
)
def test_selectors(send, target, parameters):
    query = b"&".join(key.encode() + b"=" + start + text for key, start, text in parameters)

    # A malformed metricLabelSelector is a 500 in the original, too.
    also = {500} if any(key == "metricLabelSelector" for key, *_ in parameters) else frozenset()
    check(send, target.encode() + b"?" + query, also=also)


ACCEPT_UNITS = [
    *(b"*", b"/", b",", b";", b"=", b"q=0.5", b"*/*", b"application/json", b"a/b,", b";a=b"),
    *(b" ", b'"', b";as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2", b"q=1e999", b"\xff"),
]


@given(
    target=st.sampled_from([b"/version", b"/apis", b"/openapi/v2", PODS.encode() + b"/*/requests"]),
    accept=repeated(ACCEPT_UNITS),
    encoding=repeated([b"gzip", b",", b" ", b";q=1", b"br"], limit=100_000),
)
def test_accept(send, target, accept, encoding):
    check(send, target, [b"Accept: " + accept, b"Accept-Encoding: " + encoding])


DURATION_UNITS = [b"1", b"h", b"1h", b"-", b"+", b".", b"0", b"ns", b"%C2%B5s", b"%ff", b"9", b"%"]


@given(
    key=st.sampled_from(["timeout", "timeoutSeconds", "limit", "pretty", "watch", "exclude"]),
    target=st.sampled_from([b"/version", b"/readyz", QUEUE.encode()]),
    value=repeated(DURATION_UNITS),
)
def test_durations_and_integers(send, key, target, value):
    check(send, target + b"?verbose&" + key.encode() + b"=" + value)


TARGET_UNITS = [
    *(b"/", b"<", b"%3C", b"a", b"%ff", b"%2F", b".", b"?", b"&", b"=", b";", b"a=b&", b"%"),
    *(b"namespaces/", b"*", b"%22", b"https://a/", b"#", b"\xc3\xa9", b"%E2%80%A8", b"%00"),
    *(
        b"apis/",
        b"apis/custom.metrics.k8s.io/v1beta2/",
        b"metrics/",
        b"watch/",
        b"status",
        b"healthz",
    ),
]


@given(
    start=st.sampled_from([b"/", b"", PODS.encode() + b"/", QUEUE.encode() + b"?", b"/readyz?"]),
    rest=repeated(TARGET_UNITS),
)
def test_targets(send, start, rest):
    check(send, start + rest)


@given(
    name=st.sampled_from([b"User", b"Group", b"Uid", b"Extra-a", b"Extra-%ff"]),
    value=repeated([b"a", b"<", b"\xff", b"%"], limit=60),
    times=st.sampled_from([1, 100, 5000]),
)
def test_headers_of_an_impersonation(send, name, value, times):
    check(send, b"/version", [b"Impersonate-" + name + b": " + value] * times)
