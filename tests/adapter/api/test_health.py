from __future__ import annotations

import json

import pytest
from prometheus_client import CollectorRegistry, Counter

from adapter.api import health
from adapter.http import request_info

API = ("/apis", "/apis/custom.metrics.k8s.io")


def fails():
    raise RuntimeError("prometheus.example: refused")


async def remarks():
    return "not answering"


async def waits():
    return None


@pytest.fixture
def registry():
    return CollectorRegistry()


def made(registry, *ready, live=()):
    checks = [health.Check(name=name, run=run) for name, run in ready]
    return health.Ops(live=live, ready=checks, registry=registry, api_paths=API)


async def get(operations, target):
    path, _, query = target.partition("?")
    return await operations.answer(request_info.parse(path, query))


@pytest.mark.parametrize("probe", ["healthz", "livez", "readyz"])
async def test_a_probe_that_passes_says_ok(registry, probe):
    got = await get(made(registry, ("rules", waits)), f"/{probe}")

    assert (got.status, got.body, got.content_type) == (200, b"ok", "text/plain; charset=utf-8")
    assert got.headers == {"X-Content-Type-Options": "nosniff"}


async def test_a_probe_that_fails_shows_every_check_and_withholds_the_reason(registry, caplog):
    got = await get(made(registry, ("rules", fails), ("kinds", waits)), "/readyz")

    assert got.status == 500
    assert got.body == (
        b"[+]ping ok\n[+]log ok\n[-]rules failed: reason withheld\n[+]kinds ok\n"
        b"readyz check failed\n"
    )
    assert "rules: prometheus.example: refused" in caplog.text


async def test_what_is_not_ready_is_alive(registry):
    got = await get(made(registry, ("rules", fails)), "/livez")

    assert got.status == 200


async def test_liveness_and_healthz_share_their_checks(registry):
    operations = made(registry, live=[health.Check(name="relist", run=fails)])

    for probe in ("/livez", "/healthz"):
        assert (await get(operations, probe)).status == 500
    assert (await get(operations, "/readyz")).status == 200


async def test_a_remark_is_shown_when_asked_for_and_fails_nothing(registry):
    operations = made(registry, ("prometheus", remarks))

    assert (await get(operations, "/readyz")).body == b"ok"
    assert (await get(operations, "/readyz?verbose")).body == (
        b"[+]ping ok\n[+]log ok\n[+]prometheus ok: not answering\nreadyz check passed\n"
    )


async def test_checks_can_be_excluded(registry):
    got = await get(
        made(registry, ("rules", fails)), "/readyz?exclude=rules&exclude=b&exclude=a%22&verbose=0"
    )

    assert got.status == 200
    assert got.body == (
        b"[+]ping ok\n[+]log ok\n[+]rules excluded: ok\n"
        b'warn: some health checks cannot be excluded: no matches for "a\\"","b"\n'
        b"readyz check passed\n"
    )


async def test_a_check_has_a_path_of_its_own_with_the_reason(registry):
    operations = made(registry, ("rules", fails), ("prometheus", remarks))

    passed = await get(operations, "/readyz/prometheus")
    failed = await get(operations, "/readyz/rules")

    assert (passed.status, passed.body, passed.headers) == (200, b"ok", {})
    assert failed.status == 500
    assert failed.body == b"internal server error: prometheus.example: refused\n"


@pytest.mark.parametrize(
    "path", ["/", "/index.html", "/nope", "/healthz/", "/readyz/nope", "", "*"]
)
async def test_the_index_lists_every_path_sorted(registry, path):
    got = await get(made(registry, ("rules", waits)), path)

    assert got.status == (200 if path in {"/", "/index.html"} else 404)
    assert got.body.startswith(b'{\n  "paths": [\n    "/apis",\n')
    paths = json.loads(got.body)["paths"]
    assert paths == sorted(paths)
    assert {"/metrics", "/version", "/readyz/rules", "/livez/ping", *API} <= set(paths)


async def test_metrics_are_those_of_the_registry(registry):
    Counter("answers", "how many", registry=registry).inc()

    got = await get(made(registry), "/metrics")

    assert b"answers_total 1.0\n" in got.body
    assert got.compressed_above == 0


def test_the_version_is_this_programs():
    document = json.loads(health.version().body)

    assert document["gitVersion"].startswith("v")
    assert document["gitVersion"].startswith(f"v{document['major']}.{document['minor']}.")
    assert health.version().body.startswith(b'{\n  "major"')
