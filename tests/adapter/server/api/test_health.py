"""Health checks, `/version`, `/metrics` and the index of paths."""

from __future__ import annotations

import asyncio
import logging

import pytest
from prometheus_client import CollectorRegistry, Counter

from adapter.server.api import health
from adapter.server.apimachinery import request_info
from rules.findings import degraded, passes

API = ("/apis", "/apis/custom.metrics.k8s.io")


def failing():
    raise RuntimeError("prometheus.example: refused")


async def remarking():
    return passes("not answering")


async def passing():
    return None


@pytest.fixture
def registry():
    return CollectorRegistry()


def endpoints(registry, *ready, live=(), public=False):
    checks = [health.Check(name=name, run=run, public=public) for name, run in ready]
    return health.OperatorEndpoints(live=live, ready=checks, registry=registry, api_paths=API)


async def get(served, target):
    path, _, query = target.partition("?")
    return await served.answer(request_info.parse(path, query))


async def test_a_failing_probe_lists_all_checks_without_the_reason(registry, caplog):
    answer = await get(endpoints(registry, ("rules", failing), ("kinds", passing)), "/readyz")

    assert answer.status == 500
    assert answer.body == (
        b"[+]ping ok\n[+]log ok\n[-]rules failed: reason withheld\n[+]kinds ok\n"
        b"readyz check failed\n"
    )
    assert "health check rules: failed: prometheus.example: refused" in caplog.text


async def test_a_failing_readiness_check_does_not_affect_liveness(registry):
    answer = await get(endpoints(registry, ("rules", failing)), "/livez")

    assert answer.status == 200


async def test_livez_and_healthz_have_the_same_checks(registry):
    served = endpoints(registry, live=[health.Check(name="relist", run=failing)])

    for probe in ("/livez", "/healthz"):
        assert (await get(served, probe)).status == 500
    assert (await get(served, "/readyz")).status == 200


async def test_a_remark_is_shown_by_verbose_and_does_not_fail_the_probe(registry):
    served = endpoints(registry, ("prometheus", remarking), public=True)

    assert (await get(served, "/readyz")).body == b"ok"
    assert (await get(served, "/readyz?verbose")).body == (
        b"[+]ping ok\n[+]log ok\n[+]prometheus ok: not answering\nreadyz check passed\n"
    )


async def test_a_degraded_check_is_shown_and_does_not_fail_the_probe(registry, caplog):
    ages = iter(range(10))
    served = endpoints(
        registry, ("cache", lambda: degraded(f"broken {next(ages)} s ago")), public=True
    )

    assert (await get(served, "/readyz")).body == b"ok"
    verbose = await get(served, "/readyz?verbose")
    assert verbose.status == 200
    assert b"[!]cache degraded: broken 1 s ago\nreadyz check passed\n" in verbose.body
    alone = await get(served, "/readyz/cache")
    assert (alone.status, alone.body) == (200, b"degraded: broken 2 s ago\n")
    assert [record.getMessage() for record in caplog.records] == [
        "health check cache: degraded: broken 0 s ago"
    ]


async def test_a_degradation_that_may_quote_the_api_server_is_logged_only(registry, caplog):
    served = endpoints(registry, ("secret", lambda: degraded("10.0.0.1: forbidden")))

    verbose = await get(served, "/readyz?verbose")

    assert b"[!]secret degraded: see the log of the adapter\n" in verbose.body
    assert "health check secret: degraded: 10.0.0.1: forbidden" in caplog.text


async def test_the_state_of_each_check_is_a_metric(registry):
    outcomes = iter([degraded("x"), RuntimeError("b"), passes("fine")])

    def run():
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    served = endpoints(registry, ("rules", run))
    for state in ("degraded", "failed", "ok"):
        lines = (await get(served, "/metrics")).body.decode().splitlines()
        name = "gpu_metrics_adapter_health_check_state"
        assert [line for line in lines if line.startswith(f'{name}{{check="rules"')] == [
            f'{name}{{check="rules",state="{state}"}} 1.0'
        ]


async def test_checks_can_be_excluded(registry):
    answer = await get(
        endpoints(registry, ("rules", failing)),
        "/readyz?exclude=rules&exclude=b&exclude=a%22&verbose=0",
    )

    assert answer.status == 200
    assert answer.body == (
        b"[+]ping ok\n[+]log ok\n[+]rules excluded: ok\n"
        b'warn: some health checks cannot be excluded: no matches for "a\\"","b"\n'
        b"readyz check passed\n"
    )


async def test_the_path_of_a_public_check_shows_the_reason(registry):
    served = endpoints(registry, ("rules", failing), ("prometheus", remarking), public=True)

    passed = await get(served, "/readyz/prometheus")
    failed = await get(served, "/readyz/rules")

    assert (passed.status, passed.body, passed.headers) == (200, b"ok", {})
    assert failed.status == 500
    assert failed.body == b"internal server error: prometheus.example: refused\n"


async def test_remarks_and_errors_that_may_quote_the_api_server_are_logged_only(registry, caplog):
    caplog.set_level(logging.INFO)
    served = endpoints(registry, ("apiservices", remarking), ("rules", failing))

    verbose = await get(served, "/readyz?verbose&exclude=rules")
    failed = await get(served, "/readyz/rules")

    assert b"[+]apiservices ok: see the log of the adapter\n" in verbose.body
    assert failed.body == b"internal server error: see the log of the adapter\n"
    assert "health check apiservices: not answering" in caplog.text
    assert "health check rules: failed: prometheus.example: refused" in caplog.text


async def test_a_check_is_logged_once_per_change(registry, caplog):
    caplog.set_level(logging.INFO)
    outcomes = iter(
        [None, passes("a"), passes("a"), RuntimeError("b"), RuntimeError("b"), None, None]
    )

    def run():
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    served = endpoints(registry, ("rules", run))
    for _ in range(7):
        await get(served, "/readyz")

    assert [record.getMessage() for record in caplog.records] == [
        "health check rules: a",
        "health check rules: failed: b",
        "health check rules: passes",
    ]


async def test_a_change_is_logged_although_nobody_polls(registry, caplog):
    runs = iter([degraded("partial"), degraded("partial"), None])
    served = endpoints(registry, ("rules", lambda: next(runs)), public=True)

    async def sleep(seconds):
        if seconds <= 0 or served_times.append(seconds) or len(served_times) > 3:
            raise asyncio.CancelledError

    served_times = []
    with pytest.raises(asyncio.CancelledError):
        await served.run(sleep)

    logged = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert logged == ["health check rules: degraded: partial"]


async def test_few_unknown_names_are_repeated(registry):
    names = "&".join(f"exclude={number:03}{'%ff' * 2000}" for number in range(100))

    answer = await get(endpoints(registry), f"/readyz?verbose&{names}")

    assert len(answer.body) < 20 * 4 * 1024 + 1000


async def test_metrics_are_those_of_the_registry(registry):
    Counter("answers", "how many", registry=registry).inc()

    answer = await get(endpoints(registry), "/metrics")

    assert b"answers_total 1.0\n" in answer.body
    assert answer.gzip_threshold == 0
