"""Queries that `Lister` sends as one, on a real Prometheus behind a recording proxy."""

from __future__ import annotations

import asyncio
import collections

import pytest
from aiohttp import web

from adapter import errors
from adapter.clients import lister as lister_module
from adapter.clients.lister import Lister
from adapter.clients.prometheus import Prometheus
from tools.fakes import prometheus as fakes

ANSWER = (
    '{"status":"success","data":{"resultType":"vector","result":'
    '[{"metric":{"__name__":"union_a"},"value":[0,"1"]}]}}'
)
SELECTOR = '{__name__=~"union_.*"}'


@pytest.fixture(scope="module")
def running(empty_prometheus):
    empty_prometheus.put('union_a{pod="p",node="n"} 1', 'union_b{node="n"} 1')
    return empty_prometheus


@pytest.fixture
def start(serve, session):
    """Starts a fake Prometheus; returns it and a lister that queries it."""

    async def start(behave):
        fake = await serve(behave)
        return fake, Lister(Prometheus(session, fake.url), max_age=60.0)

    return start


async def test_live_series_of_several_matchers_are_one_query(running, start):
    proxy, lister = await start(fakes.through(running.url))

    names = await lister.live(SELECTOR, [('pod!=""',), ('none!=""',), ('node="n"',)])

    assert names.content == ({"union_a"}, set(), {"union_a", "union_b"})
    assert len(proxy.requests) == 1


async def test_query_of_one_vector_has_no_ordinal(running, start):
    proxy, lister = await start(fakes.through(running.url))

    assert (await lister.live(SELECTOR, [('pod!=""',)])).content == ({"union_a"},)

    (request,) = proxy.requests
    assert "label_replace" not in request.parameters["query"]


async def test_long_queries_are_split_in_order(running, start):
    proxy, lister = await start(fakes.through(running.url))
    vectors = [f'{{__name__="union_{each}",long!="{"x" * 1500}"}}' for each in "abba"]

    names = await lister.names_in(vectors)

    assert names.content == ({"union_a"}, {"union_b"}, {"union_b"}, {"union_a"})
    assert len(proxy.requests) == 2
    assert all(len(each.parameters["query"]) < 4200 for each in proxy.requests)


async def test_nothing_is_queried_without_vectors(running, start):
    proxy, lister = await start(fakes.through(running.url))

    assert (await lister.live(SELECTOR, [])).content == ()
    assert not proxy.requests


async def test_backend_that_drops_the_label_is_broken(start):
    _, lister = await start(fakes.says(ANSWER))

    with pytest.raises(errors.Broken, match="has not the label of its query"):
        await lister.live(SELECTOR, [('pod!=""',), ('node!=""',)])


@pytest.mark.parametrize("match_supported", [True, False])
async def test_of_very_many_labels_only_those_that_fit_are_kept_and_other_tasks_run(
    start, monkeypatch, match_supported
):
    labels = [*(f"l{number}" for number in range(20_000)), *(f"P{number}" for number in range(20))]
    monkeypatch.setattr(lister_module, "_MAX_FITTING", 3)
    calls: list[int] = []
    turns = 0

    async def behave(request, received):
        data: object = ["many", "other"]
        if received.path.endswith("/series"):
            data = [{"__name__": "many", "pod": "p", "node": "n", **dict.fromkeys(labels, "x")}]
        elif received.path.endswith("/labels"):
            data = ["__name__", "pod", "node", *labels]
        elif received.parameters["match[]"] == lister_module._MATCHES_NOTHING and match_supported:
            data = []
        elif "pod" in received.parameters["match[]"]:
            data = ["many"]
        return web.json_response({"status": "success", "data": data})

    def fits(label):
        calls.append(turns)
        return label == "pod" or label.startswith("P")

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    _, lister = await start(behave)
    counting = asyncio.create_task(count())

    found = await lister.index("many", ("node",), fits)
    counting.cancel()

    assert found.names["many"] >= {"pod"}
    assert found.names["many"] <= {"pod", "node", "P0", "P1"}
    assert found.exact is not match_supported
    assert len(calls) == 20_022
    assert max(collections.Counter(calls).values()) <= 100
