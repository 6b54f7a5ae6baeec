"""Another server of external metrics: what it answers wrongly, and the bounds of its list."""

from __future__ import annotations

import asyncio
import time

import pytest

from adapter import errors
from adapter.clients import external_metrics
from adapter.clients.external_metrics import ExternalMetrics
from rules.findings import State
from rules.limits import DEFAULT, Limits
from tools.fakes.kubernetes import Failure
from tools.waiting import until

VALUE = (
    b'{"items":[{"metricName":"m","metricLabels":{"a":"b"},"timestamp":"2026-05-04T03:02:01Z",'
    b'"value":"1500m"},{"metricLabels":null,"timestamp":"2026-05-04T03:02:01Z","value":"2Gi"}]}'
)
PATH = "/apis/external.metrics.k8s.io/v1beta1"


async def values(
    server: ExternalMetrics,
    seconds: float = 5.0,
    *,
    metric: str = "m n",
    namespace: str = "team-a",
    selector: str = "x in (y)",
):
    deadline = asyncio.get_running_loop().time() + seconds
    return await server.values(metric, namespace=namespace, selector=selector, deadline=deadline)


@pytest.fixture
def other(api):
    return ExternalMetrics(api, "keda/metrics")


async def test_values_keep_labels_time_and_quantity(cluster, other):
    cluster.failures.append(Failure(path=PATH, body=VALUE))

    first, second = await values(other)

    assert (first.labels, first.value.milli, first.value.time) == ({"a": "b"}, 1500, 1777863721)
    assert (second.labels, second.value.milli) == (None, 2**31 * 1000)
    (request,) = cluster.requests
    assert request.path == f"{PATH}/namespaces/team-a/m%20n"
    assert request.query == {"labelSelector": "x in (y)"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"items":[1]}',
        b'{"items":[{"timestamp":"2026-05-04T03:02:01Z","value":"much"}]}',
        b'{"items":[{"timestamp":"soon","value":"1"}]}',
        b'{"items":[{"timestamp":1,"value":"1"}]}',
        b'{"items":[{"metricLabels":1,"timestamp":"2026-05-04T03:02:01Z","value":"1"}]}',
        b'{"items":1}',
        b'{"items":{"a":1}}',
        b'{"items":[{"timestamp":"0001-01-01T00:00:00","value":"1"}]}',
        b'{"items":[{"timestamp":"' + b"9" * 500_000 + b'","value":"1"}]}',
        b'{"items":[{"timestamp":"2026-05-04T03:02:01Z","value":"' + b"9" * 500_000 + b'"}]}',
        b'{"items":[{"timestamp":"2026-05-04T03:02:01Z","value":"1e999999999999"}]}',
        b"[" * 500_000,
    ],
    ids=lambda body: str(body[:80]),
)
async def test_what_is_no_list_of_values_is_broken_and_quoted_shortly(cluster, other, body):
    cluster.failures.append(Failure(path=PATH, body=body))
    began = time.process_time()

    with pytest.raises(errors.Broken) as caught:
        await values(other)

    assert len(str(caught.value)) < 500
    assert time.process_time() - began < 1


ITEM = '{"timestamp":"2026-05-04T03:02:01Z","value":"1"}'


def listing(items: int, size: int = 0) -> bytes:
    """Return a list with `items`, filled with blanks to `size` bytes."""
    return f'{{"items":[{",".join([ITEM] * items)}]}}'.ljust(size).encode()


async def test_an_answer_may_have_as_many_bytes_and_items_as_the_limits_say(cluster, other):
    cluster.failures.append(Failure(path=PATH, body=listing(1000, DEFAULT.fallback_answer)))

    assert len(await values(other)) == 1000


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (listing(1001), "more than 1000 items, which is the limit fallback-items"),
        (
            listing(1, DEFAULT.fallback_answer + 1),
            "more than 1048576 bytes, which is the limit fallback-answer",
        ),
    ],
    ids=["items", "bytes"],
)
async def test_a_larger_answer_is_refused_and_the_limit_named(cluster, other, body, limit):
    cluster.failures.append(Failure(path=PATH, body=body))

    with pytest.raises(errors.TooLarge, match=limit) as caught:
        await values(other)

    assert caught.value.refusal == f"answers with {limit}"


async def test_the_limits_can_be_set(cluster, api):
    other = ExternalMetrics(api, "keda/metrics", limits=Limits(fallback_items=2))
    cluster.failures += [
        Failure(path=PATH, body=listing(2)),
        Failure(path=PATH, body=listing(3)),
    ]

    assert len(await values(other)) == 2
    with pytest.raises(errors.TooLarge, match="more than 2 items"):
        await values(other)


@pytest.mark.slow
async def test_all_namespaces_have_so_many_requests_in_flight_and_the_others_wait(cluster, other):
    answered = asyncio.Event()
    cluster.failures.append(Failure(path=PATH, until=answered, times=40))
    tasks = [
        asyncio.create_task(values(other, namespace=f"team-{each % 8}", seconds=90))
        for each in range(40)
    ]
    await until(lambda: len(cluster.requests) >= DEFAULT.fallback_requests_all)
    await asyncio.sleep(0.1)

    assert len(cluster.requests) == DEFAULT.fallback_requests_all
    answered.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(cluster.requests) == 40


@pytest.mark.slow
async def test_who_waits_until_the_deadline_learns_which_limit_it_was(cluster, api, skip):
    other = ExternalMetrics(api, "keda/metrics", limits=Limits(fallback_requests=1))
    cluster.failures.append(Failure(path=PATH, until=asyncio.Event()))
    first = asyncio.create_task(values(other, seconds=20))
    await until(lambda: cluster.requests)

    with pytest.raises(errors.TimedOut) as caught:
        await values(other, seconds=0.05)
    assert caught.value.refusal == (
        "did not answer 1 other requests of the namespace, or 16 of all, in time: these are the "
        "limits fallback-requests and fallback-requests-all"
    )
    skip(20)
    with pytest.raises(errors.TimedOut) as caught:
        await first
    assert caught.value.refusal == ""


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["..", ".", "%2e%2e", "a/b", "..%2f", "", "\udcff", "x" * 254])
async def test_a_metric_that_is_no_segment_of_a_path_is_not_sent(cluster, other, metric):
    with pytest.raises(ValueError, match=r"no metric can have the name .*not forwarded to keda/"):
        await values(other, metric=metric)

    assert cluster.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("namespace", ["..", ".", "%2e%2e", "a/b", "", "*", "\udcff", "A"])
async def test_a_namespace_that_cannot_exist_is_not_sent(cluster, other, namespace):
    with pytest.raises(ValueError, match="no namespace can have the name"):
        await values(other, namespace=namespace)

    assert cluster.requests == []


async def test_a_selector_that_is_not_utf_8_is_not_sent(cluster, other):
    with pytest.raises(ValueError, match="labelSelector is not UTF-8"):
        await values(other, selector="a=\udcff")

    assert cluster.requests == []


async def run_until(other: ExternalMetrics, text: str) -> None:
    task = asyncio.create_task(other.run())
    await until(lambda: text in other.check().fact)
    task.cancel()


async def test_it_is_not_awaited_longer_than_its_own_limit(cluster, api, monkeypatch):
    monkeypatch.setattr(external_metrics, "TIMEOUT", 0.05)
    other = ExternalMetrics(api, "keda/metrics", limits=Limits(fallback_requests=1))
    cluster.failures.append(Failure(path=PATH, delay=30, times=3))

    outcomes = await asyncio.gather(
        *(values(other, seconds=60) for _ in range(3)), return_exceptions=True
    )

    assert {type(each) for each in outcomes} == {errors.TimedOut}


async def test_a_list_is_kept_while_the_next_ones_fail(cluster, other, monkeypatch):
    monkeypatch.setattr(external_metrics, "_INTERVAL", 0.01)
    listed = b'{"resources":[{"name":"b"},{"name":"a"},{"name":"b"},{"name":"/"}]}'
    cluster.failures += [
        Failure(path=PATH, body=listed),
        Failure(path=PATH, body=b'{"resources":[1]}', times=1000),
    ]
    await run_until(other, "discovery of keda/metrics fails")

    assert other.listed == ("a", "b")
    assert other.check().state is State.WARNING


async def test_the_list_has_a_bound(cluster, other, monkeypatch):
    monkeypatch.setattr(external_metrics, "_MAX_LISTED", 2)
    listed = b'{"resources":[{"name":"c"},{"name":"a"},{"name":"b"}]}'
    cluster.failures.append(Failure(path=PATH, body=listed))
    await run_until(other, "2 metrics listed")

    assert other.listed == ("a", "b")
