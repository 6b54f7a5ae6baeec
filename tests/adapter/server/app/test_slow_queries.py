"""Requests to the whole server while queries take nearly as long as they may."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tools.fakes import prometheus as fakes
from tools.presets import api

RULES = """
rules:
- seriesQuery: 'requests{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
NOTHING_LISTED = b'{"status":"success","data":[]}'
NO_SAMPLES = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
REQUESTS = 60
"""Five times as many as there are slots for queries of single requests."""


async def slow(request: web.Request, query: fakes.Received) -> web.StreamResponse:
    if not query.path.endswith("/query"):
        return await fakes.says(NOTHING_LISTED)(request, query)
    if query.parameters["query"].startswith("sum"):
        await asyncio.sleep(1.5)
    return await fakes.says(NO_SAMPLES)(request, query)


async def test_who_waits_for_a_slot_until_the_limit_of_a_query_is_over_gets_the_cause(
    real_servers: None, aiohttp_server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake = await aiohttp_server(fakes.Prometheus(slow).app())
    pods = [f"ns/web-{number}" for number in range(REQUESTS)]
    flags = ("--prometheus-timeout=1s", "--query-freshness=0s")
    url = str(fake.make_url("")).rstrip("/")
    async with api.serving(tmp_path, url, api.manifests(pods), flags, rules=RULES) as served:
        path = f"{api.GROUP}/namespaces/ns/pods"
        answers = await asyncio.gather(
            *(served.get(f"{path}/web-{number}/requests") for number in range(REQUESTS))
        )

    statuses = [status for status, _ in answers]
    assert {*statuses} <= {404, 500}
    of_cause = [each for each in caplog.messages if "PrometheusUnavailable: " in each]
    assert len(of_cause) == statuses.count(500) > 0
