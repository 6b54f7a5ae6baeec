"""Requests for many pods, on a real Prometheus behind a proxy that limits the length of queries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from aiohttp import web

from adapter import errors
from adapter.clients import prometheus as prometheus_module
from adapter.clients.prometheus import Prometheus
from adapter.server.causes import collector
from adapter.server.evaluation.evaluation import Evaluation
from rules.query.plan import Plan
from tests.adapter.server.evaluation.support import entry_of, pods
from tools.real import prometheus as real

REQUEST_LINE = 8190
"""Bytes of a request line that Apache accepts; nginx accepts 8192."""
QUERY = 16384
"""Bytes of a query that VictoriaMetrics accepts, by GET and POST."""
NAMES = tuple(f"bert-serving-7d9c8b6f5d-{number:05}" for number in range(1000))
SHARED = "sum(busy{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
NOT_SHARED = "topk(2000, busy{<<.LabelMatchers>>})"


@pytest.fixture(scope="module")
def running(empty_prometheus: real.Prometheus) -> str:
    empty_prometheus.put(
        *(
            f'busy{{namespace="{namespace}",pod="{name}"}} {number}'
            for namespace in ("a", "b")
            for number, name in enumerate(NAMES)
        )
    )
    return empty_prometheus.url


class Limited:
    """Proxy before Prometheus; `line` and `query` are the lengths of what arrived."""

    def __init__(self, target: str, session: aiohttp.ClientSession) -> None:
        self.target = target
        self.session = session
        self.line: list[int] = []
        self.query: list[int] = []
        self.texts: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        form = await request.post() or request.query
        text = str(form["query"])
        self.texts.append(text)
        self.query.append(len(text.encode()))
        self.line.append(len(f"{request.method} {request.raw_path} HTTP/1.1"))
        if self.line[-1] > REQUEST_LINE:
            return web.Response(status=414, text="<h1>414 Request-URI Too Large</h1>")
        if self.query[-1] > QUERY:
            error = f"too long query; got {len(text)} bytes; mustn't exceed {QUERY} bytes"
            document = {"status": "error", "errorType": "422", "error": error}
            return web.json_response(document, status=422)
        url = f"{self.target}/api/v1/query"
        async with self.session.post(url, data={"query": text}) as response:
            return web.json_response(await response.json(), status=response.status)


@pytest.fixture
async def limited(
    running: str, session: aiohttp.ClientSession, evaluate: Callable[..., Evaluation]
) -> AsyncIterator[tuple[Limited, Callable[..., Evaluation]]]:
    proxy = Limited(running, session)
    runner = web.ServerRunner(
        web.Server(proxy.answer, max_line_size=1 << 20, max_field_size=1 << 20)
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()

    def evaluation(verb: prometheus_module.Verb = "GET") -> Evaluation:
        client = Prometheus(session, f"http://127.0.0.1:{runner.addresses[0][1]}", verb=verb)
        return evaluate(client, freshness=1000.0)

    yield proxy, evaluation
    await runner.cleanup()


def request_for(*names: str, query: str = SHARED, namespace: str = "a") -> Plan:
    return pods(*names, namespace=namespace, entry=entry_of("busy", query))


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_one_request_for_a_thousand_pods_has_all_values(limited, verb) -> None:
    proxy, evaluation = limited

    values = (await evaluation(verb).values(request_for(*NAMES))).values

    assert [values[name].milli for name in NAMES] == [1000 * each for each in range(1000)]
    assert proxy.texts == ['sum(busy{namespace="a",pod!=""}) by (pod)']


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_merged_requests_for_many_pods_have_all_values(limited, verb) -> None:
    proxy, evaluation = limited
    evaluation = evaluation(verb)
    for namespace, names in (("a", NAMES[:280]), ("b", NAMES[:280]), ("a", NAMES[:290])):
        values = (await evaluation.values(request_for(*names, namespace=namespace))).values
        assert tuple(values) == names

    assert proxy.texts[-1] == 'sum(busy{namespace=~"a|b",pod!=""}) by (pod,namespace)'
    assert max(proxy.line) < 1000


async def test_as_many_names_as_fit_are_matched(limited) -> None:
    proxy, evaluation = limited
    for count in range(150, 300, 10):
        await evaluation().values(request_for(*NAMES[:count]))

    named = [line for line, text in zip(proxy.line, proxy.texts, strict=True) if "=~" in text]
    assert 0 < len(named) < len(proxy.line)
    assert 6000 < max(named) < 7500


@pytest.mark.parametrize(("verb", "limit"), [("GET", REQUEST_LINE), ("POST", QUERY)])
async def test_a_long_query_that_cannot_be_shared_has_a_cause(limited, verb, limit) -> None:
    proxy, evaluation = limited
    request = request_for(*NAMES, query=NOT_SHARED)

    with pytest.raises(errors.Refused) as caught:
        await evaluation(verb).values(request)

    assert (proxy.line if verb == "GET" else proxy.query)[-1] > limit
    cause = collector.query_cause(request.steps[0].rule, caught.value)
    assert cause.reason == "QueryRefused"
    assert f"refused a query of {caught.value.query_length} bytes" in cause.sentence
    assert "-search.maxQueryLen" in cause.sentence


async def test_names_are_matched_after_a_query_without_them_returned_too_much(
    limited, monkeypatch
) -> None:
    proxy, evaluation = limited
    evaluation = evaluation("POST")
    monkeypatch.setattr(prometheus_module, "MAX_RESULT", 30_000)
    request = request_for(*NAMES[:290])

    assert tuple((await evaluation.values(request)).values) == NAMES[:290]
    assert ["=~" in text for text in proxy.texts] == [False, True]
