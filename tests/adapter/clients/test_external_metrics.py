"""Another server of external metrics: what it answers wrongly, and the bounds of its list."""

from __future__ import annotations

import asyncio

import pytest

from adapter import errors
from adapter.clients import external_metrics
from adapter.clients.external_metrics import ExternalMetrics
from tests.fakes.kubernetes import Failure
from tests.waiting import until

VALUE = (
    b'{"items":[{"metricName":"m","metricLabels":{"a":"b"},"timestamp":"2026-05-04T03:02:01Z",'
    b'"value":"1500m"},{"metricLabels":null,"timestamp":"2026-05-04T03:02:01Z","value":"2Gi"}]}'
)
PATH = "/apis/external.metrics.k8s.io/v1beta1"


async def values(server: ExternalMetrics, seconds: float = 5.0):
    deadline = asyncio.get_running_loop().time() + seconds
    return await server.values("m/n", namespace="a b", selector="x in (y)", deadline=deadline)


@pytest.fixture
def other(api):
    return ExternalMetrics(api, "keda/metrics")


async def test_values_keep_labels_time_and_quantity(cluster, other):
    cluster.failures.append(Failure(path=PATH, body=VALUE))

    first, second = await values(other)

    assert (first.labels, first.value.milli, first.value.time) == ({"a": "b"}, 1500, 1777863721)
    assert (second.labels, second.value.milli) == (None, 2**31 * 1000)
    (request,) = cluster.requests
    assert request.path == f"{PATH}/namespaces/a%20b/m%2Fn"
    assert request.query == {"labelSelector": "x in (y)"}


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"items":[1]}',
        b'{"items":[{"timestamp":"2026-05-04T03:02:01Z","value":"much"}]}',
        b'{"items":[{"timestamp":"soon","value":"1"}]}',
        b'{"items":[{"timestamp":1,"value":"1"}]}',
        b'{"items":[{"metricLabels":1,"timestamp":"2026-05-04T03:02:01Z","value":"1"}]}',
    ],
)
async def test_what_is_no_list_of_values_is_broken(cluster, other, body):
    cluster.failures.append(Failure(path=PATH, body=body))

    with pytest.raises(errors.Broken):
        await values(other)


async def test_it_is_not_awaited_beyond_the_deadline(cluster, other):
    cluster.failures.append(Failure(path=PATH, delay=30))

    with pytest.raises(errors.TimedOut):
        await values(other, seconds=0.05)


async def run_until(other: ExternalMetrics, text: str) -> None:
    task = asyncio.create_task(other.run())
    await until(lambda: text in other.check())
    task.cancel()


async def test_a_list_is_kept_while_the_next_ones_fail(cluster, other, monkeypatch):
    monkeypatch.setattr(external_metrics, "_INTERVAL", 0.01)
    listed = b'{"resources":[{"name":"b"},{"name":"a"},{"name":"b"},{"name":"/"}]}'
    cluster.failures += [
        Failure(path=PATH, body=listed),
        Failure(path=PATH, body=b'{"resources":[1]}', times=1000),
    ]
    await run_until(other, "discovery of keda/metrics fails")

    assert other.listed == ("a", "b")
    assert isinstance(other.check(), errors.Degradation)


async def test_the_list_has_a_bound(cluster, other, monkeypatch):
    monkeypatch.setattr(external_metrics, "_MAX_LISTED", 2)
    listed = b'{"resources":[{"name":"c"},{"name":"a"},{"name":"b"}]}'
    cluster.failures.append(Failure(path=PATH, body=listed))
    await run_until(other, "2 metrics listed")

    assert other.listed == ("a", "b")
