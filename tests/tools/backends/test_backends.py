"""Each backend that is here, compared with Prometheus 2; `make backends` builds the others."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.clients import prometheus as clients
from adapter.clients.lister import Lister
from tests.presets.test_variants import every_pod, expected_pods
from tests.tools.backends import compare
from tests.tools.backends.compare import Answers
from tools.backends import programs, servers
from tools.backends.servers import BACKENDS, REFUSED, Backend, Server
from tools.control_plane.daemon import Daemon
from tools.presets import api
from tools.presets.table import GOLDEN, PRESETS, SCHEMES, VARIANTS
from tools.presets.worlds import World
from tools.real import prometheus

_RULES = """\
rules:
- seriesQuery: queue_length
  resources:
    overrides: {namespace: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}
  metricsQuery: sum by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})
externalRules:
- seriesQuery: queue_length
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: sum by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})
"""
_EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_length"
_SHOP = f"{api.GROUP}/namespaces/shop"
_SUMS = (
    _EXTERNAL,
    f"{_SHOP}/metrics/queue_length",
    f"{api.GROUP}/nodes/node-a/queue_length",
)
"""What sums the series of both parts of a backend: external, of a namespace, of a node."""
_EXPORTERS = (
    "c4-4.8.2-default",
    "b3-compat-oldns",
    "a2-alibaba",
    "a3-gke-device-plugin",
    "e1-hami",
)
"""Exporters whose series have different names, so that one server can hold all of them."""
_MANY = 1_000
"""Pods whose names are longer together than a query may be in VictoriaMetrics."""


@pytest.fixture(scope="module")
def expected(real_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What Prometheus 2 answers over the public configurations."""
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus.run(folder) as server:
        return compare.answers(server, folder)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" not in metafunc.fixturenames:
        return
    params = []
    for key, each in BACKENDS.items():
        if "parts" in metafunc.fixturenames and each.partial != REFUSED:
            continue
        if "max_series" in metafunc.fixturenames and each.max_series is None:
            continue
        # A mark, and not pytest.skip: pytest then prints one line for all tests of a backend.
        here = programs.find(each.program) is not None
        marks = () if here else (pytest.mark.skip(programs.missing(each.program)),)
        params.append(pytest.param(key, marks=marks))
    metafunc.parametrize("backend", params, indirect=True, scope="module")


@pytest.fixture(scope="module")
def backend(real_servers: None, request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]


@pytest.fixture(scope="module")
def server(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.running(backend, tmp_path_factory.mktemp("backend")) as running:
        yield running


@pytest.fixture
def parts(server: Server) -> Sequence[Daemon]:
    """The processes that hold the samples; only of backends that answer partially."""
    return server.parts


@pytest.fixture
def max_series(backend: Backend) -> int:
    """How many series a query may select; only of backends with that limit."""
    assert backend.max_series is not None
    return backend.max_series


def test_answers_over_public_configurations_are_those_of_prometheus_2(
    expected: Answers, backend: Backend, server: Server, tmp_path: Path
) -> None:
    found = compare.answers(server.client, tmp_path)

    assert backend.answers == f"all {len(expected)}"
    assert not compare.differences(expected, found)


async def test_presets_have_their_expected_values(backend: Backend, tmp_path: Path) -> None:
    objects = api.manifests(GOLDEN["pods"])
    lines = [
        line for variant in _EXPORTERS for line in compare.exposition(World(variant, SCHEMES[0]))
    ]
    with servers.running(backend, tmp_path) as server:
        await _put(server, lines)
        for variant in _EXPORTERS:
            presets = VARIANTS[variant].presets
            folder = tmp_path / variant
            folder.mkdir()
            flags = [f"--preset={preset}" for preset in presets]
            async with api.serving(folder, backend.url(server), objects, flags) as served:
                for metric in dict.fromkeys(each for preset in presets for each in PRESETS[preset]):
                    known = metric in VARIANTS[variant].metrics
                    expected = expected_pods(metric) if known else {}
                    assert await every_pod(served, metric) == expected, variant


async def test_a_value_is_as_old_as_the_documents_say(backend: Backend, server: Server) -> None:
    now = time.time()
    server.client.put('age{pod="a"} 1', at=now - 45)
    await _put(server, ['age{pod="a"} 2'], at=now)

    async with aiohttp.ClientSession() as session:
        urls = (backend.url(server), server.url)
        each = [await clients.Prometheus(session, url).query("age") for url in urls]

    assert [result.samples[0].value for result in each] == [2, 1 if backend.parameters else 2]


async def test_names_are_listed_by_the_index(backend: Backend, server: Server) -> None:
    await _put(server, ['indexed{pod="a"} 1'])

    async with aiohttp.ClientSession() as session:
        client = clients.Prometheus(session, backend.url(server))
        found = await Lister(client, max_age=300).index(
            '{__name__=~"indexed|nothing.*"}', ["pod", "x"]
        )

    assert found.names == {"indexed": {"pod"}}
    assert not found.exact, "`match[]` is not used"


async def test_an_autoscaler_of_a_thousand_pods_gets_values(
    backend: Backend, server: Server, tmp_path: Path
) -> None:
    pods = [f"inference-server-{number:04}-5f7d9c8b6d-x4k7w" for number in range(_MANY)]
    lines = [f'queue_length{{namespace="many",pod="{pod}"}} 3' for pod in pods]
    await _put(server, lines)
    objects = api.manifests(f"many/{pod}" for pod in pods)

    async with api.serving(tmp_path, backend.url(server), objects, rules=_RULES) as served:
        status, document = await served.get(f"{api.GROUP}/namespaces/many/pods/*/queue_length")
    server.client.end(*lines)

    assert status == 200, document
    assert {each["describedObject"]["name"] for each in document["items"]} == {*pods}


async def test_a_query_that_exceeds_a_limit_has_that_reason(
    backend: Backend, server: Server, max_series: int, tmp_path: Path
) -> None:
    lines = [
        f'queue_length{{namespace="full",pod="a",part="{number}"}} 1'
        for number in range(max_series + 1)
    ]
    await _put(server, ['queue_length{namespace="shop",pod="few"} 2'])
    server.client.put(*lines)
    refused = f"{server.url}/api/v1/query?query=queue_length"
    await asyncio.to_thread(
        prometheus.wait_for, lambda: prometheus.status(refused) == 422, "the limit is exceeded"
    )
    objects = api.manifests(["full/a", "shop/few"])

    async with api.serving(tmp_path, backend.url(server), objects, rules=_RULES) as served:
        status, document = await served.get(_EXTERNAL.replace("shop", "full"))
        assert await served.pods("shop", "queue_length", "few") == {"few": 2}
    server.client.end(*lines)

    assert status == 500
    assert _reasons(document) == {"LimitExceeded"}


async def test_a_partial_answer_is_not_taken_for_the_whole(
    backend: Backend, server: Server, parts: Sequence[Daemon], tmp_path: Path
) -> None:
    for shard, pod, value in zip(server.shards, ("a", "b"), (210, 390), strict=True):
        labels = f'namespace="shop",pod="{pod}",node="node-a"'
        await _put(server, [f"queue_length{{{labels}}} {value}"], shard=shard)
    objects = api.manifests(["shop/a", "shop/b"], ["node-a"])
    flags = ["--query-freshness=0"]
    pod, pods = f"{_SHOP}/pods/a/queue_length", f"{_SHOP}/pods/*/queue_length"

    async with api.serving(tmp_path, backend.url(server), objects, flags, rules=_RULES) as served:
        for path in _SUMS:
            assert await _value(served, path) == "600"
        parts[1].stop()  # not `kill`: a storage node would lose what it has not yet written
        try:
            async with asyncio.timeout(30):
                while await _value(served, _EXTERNAL) == "600":
                    pass
            for path in (*_SUMS, pod):
                status, document = await served.get(path)
                assert (status, _reasons(document)) == (500, {"PartialResponse"}), path
            assert await served.pods("shop", "queue_length") == {"a": 210}
            assert "PartialResponse" in await served.warning(pods)
        finally:
            parts[1].start()
        async with asyncio.timeout(60):
            while any([await _value(served, path) != "600" for path in _SUMS]):
                pass
        assert await served.pods("shop", "queue_length") == {"a": 210, "b": 390}
        assert "PartialResponse" not in await served.warning(pods)


async def _value(served: api.Api, path: str) -> str | None:
    """Return the only value; None if the request fails."""
    status, document = await served.get(path)
    return document["items"][0]["value"] if status == 200 else None


def _reasons(document: Any) -> set[str]:
    return {each["reason"] for each in document["details"]["causes"] if "reason" in each}


async def _put(
    server: Server,
    lines: list[str],
    *,
    at: float | None = None,
    shard: prometheus.Client | None = None,
) -> None:
    """Write samples, and wait until all of them are found."""
    (shard or server.client).put(*lines, at=at)
    samples = [*prometheus.samples(lines)]
    # An empty label is no label, and VictoriaMetrics rounds to 15 digits.
    written = {
        (frozenset((each, text) for each, text in labels.items() if text), f"{float(value):.9g}")
        for labels, value in samples
    }
    names = "|".join({labels["__name__"]: None for labels, _ in samples})
    polls = itertools.count()

    def found() -> bool:
        # Only VictoriaMetrics knows `nocache`. For up to ten seconds it does not look for new
        # series of a selector that it knows, so that each poll needs a new one.
        query = f'{{__name__=~"{names}",poll!="{next(polls)}"}}'
        result = server.client.get("/api/v1/query", query=query, nocache="1")["result"]
        return written <= {
            (frozenset(each["metric"].items()), f"{float(each['value'][1]):.9g}") for each in result
        }

    await asyncio.to_thread(prometheus.wait_for, found, f"{names} are found", seconds=20)
