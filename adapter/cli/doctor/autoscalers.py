"""Check of `doctor`: the metrics of all autoscalers, requested as the HPA controller does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adapter.background import gather_or_cancel
from adapter.cli.doctor import client
from adapter.cli.doctor.installation import Installed
from adapter.clients.kubernetes import Kube
from rules.errors import UnreadableError
from rules.findings import Finding, failure, ok, skipped, warning
from rules.hpa import judgement, reading
from rules.hpa.reading import ApiReply, ApiRequest
from rules.quoting import counted

_PATH = "/apis/autoscaling/v2/horizontalpodautoscalers"
_MAX_HPAS = 50
_AT_ONCE = 10
"""Autoscalers that are checked at the same time."""
_SECONDS = 6.0
"""Seconds after which the other autoscalers are not checked."""


async def metrics(installed: Installed) -> Iterable[Finding]:
    """Return which metrics of autoscalers have no value, and why the adapter says so."""
    listed = await installed.api.get(_PATH, {"limit": str(_MAX_HPAS)})
    hpas = listed.get("items") or ()
    found = await _of_hpas(installed.api, hpas)
    number = sum(count for count, _ in found.values())
    findings = [finding for index in sorted(found) for finding in found[index][1]]
    more = " (of more)" if (listed.get("metadata") or {}).get("continue") else ""
    verb = "uses" if len(found) == 1 else "use"
    fact = f"{counted(len(found), 'autoscaler')}{more} {verb} {counted(number, 'metric')}"
    if len(found) < len(hpas):
        rest = f"{len(hpas) - len(found)} of {len(hpas)} were not checked within {_SECONDS:g} s"
        findings.append(skipped("autoscalers", rest, "`explain hpa NAMESPACE/NAME` checks one"))
    return [ok("autoscalers", fact), *findings]


async def _of_hpas(
    api: Kube, hpas: Sequence[Mapping[str, Any]]
) -> Mapping[int, tuple[int, Sequence[Finding]]]:
    """Return the results of `_of_hpa` by position, without those that take too long together."""
    found: dict[int, tuple[int, Sequence[Finding]]] = {}
    discovered: dict[str, ApiReply] = {}
    slots = asyncio.Semaphore(_AT_ONCE)

    async def check(index: int, hpa: Mapping[str, Any]) -> None:
        async with slots:
            found[index] = await _of_hpa(api, hpa, discovered)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS):
            await gather_or_cancel(check(index, each) for index, each in enumerate(hpas))
    return found


async def _of_hpa(
    api: Kube, hpa: Mapping[str, Any], discovered: dict[str, ApiReply]
) -> tuple[int, Sequence[Finding]]:
    """Return the number of metrics of an autoscaler, and findings about those without values.

    `discovered` keeps the discovery documents for the next autoscaler.
    """

    async def send(request: ApiRequest) -> ApiReply:
        if request.path in discovered:
            return discovered[request.path]
        reply = await client.send(api, request)
        if "/namespaces/" not in request.path:
            discovered[request.path] = reply
        return reply

    subject = f"autoscaler {hpa['metadata']['namespace']}/{hpa['metadata']['name']}"
    try:
        observed = await client.run(reading.observe(hpa, time.time), send)
    except UnreadableError as error:
        text = " ".join(str(error).split())
        if error.status in judgement.FORBIDDEN:
            return 0, [skipped(subject, text)]
        cure = "correct scaleTargetRef" if error.status else "see api-server"
        return 0, [failure(subject, text, cure=cure)]
    if observed.blocked:
        return 0, [warning(subject, observed.blocked, cure=judgement.UNBLOCK)]
    observed = await client.ApiClient(api).with_queries(observed)
    found = judgement.findings(observed, "see apiservices")
    return len(observed.proposals), [
        replace(each, subject=f"{subject}, metric {each.subject}") for each in found
    ]
