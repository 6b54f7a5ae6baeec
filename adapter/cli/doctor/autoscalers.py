"""Check of `doctor`: the metrics of autoscalers, requested as the HPA controller does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.cli.doctor import client
from adapter.cli.doctor.installation import Installed
from adapter.clients.kubernetes import Kube
from adapter.settings.kubectl import NamespaceSettings
from rules import rbac
from rules.errors import UnreadableError
from rules.findings import Finding, failure, ok, skipped
from rules.hpa import judgement, reading
from rules.hpa.reading import ApiReply, ApiRequest
from rules.quoting import counted

_PATH = "/apis/autoscaling/v2/{}horizontalpodautoscalers"
_MAX_HPAS = 50
_AT_ONCE = 10
"""Autoscalers that are checked at the same time."""
_Checked = tuple[int | None, Sequence[Finding]]
"""Number of metrics of an autoscaler, None if they were not requested; and findings."""
_SECONDS = 6.0
"""Seconds after which the other autoscalers are not checked."""


async def metrics(
    installed: Installed, namespaces: NamespaceSettings, default: str
) -> Iterable[Finding]:
    """Return which metrics of autoscalers have no value, and why the adapter says so.

    `default` is the namespace to read if the autoscalers of all may not be listed.
    """
    lists, unlisted = await _listed(installed, namespaces, default)
    hpas = [each for listed in lists for each in listed.get("items") or ()]
    found = await _of_hpas(installed.api, hpas)
    findings = [*unlisted, *(finding for index in sorted(found) for finding in found[index][1])]
    if len(found) < len(hpas):
        rest = f"{len(hpas) - len(found)} of {len(hpas)} were not checked within {_SECONDS:g} s"
        findings.append(skipped("autoscalers", rest, "`explain hpa NAMESPACE/NAME` checks one"))
    if not lists:
        return findings
    more = any((each.get("metadata") or {}).get("continue") for each in lists)
    return [_summary(tuple(found.values()), " (of more)" if more else ""), *findings]


def _summary(found: Sequence[_Checked], more: str) -> Finding:
    """Return how many autoscalers and metrics were checked, of those that were found."""
    numbers = [
        number
        for number, findings in found
        if number is not None and all(each.reason != rbac.REASON for each in findings)
    ]
    unread = len(found) - len(numbers)
    if unread and not numbers:
        fact = f"{counted(unread, 'autoscaler')}{more} found, and none could be checked"
        return skipped("autoscalers", fact, "see below")
    verb = "uses" if len(numbers) == 1 else "use"
    fact = f"{counted(len(numbers), 'autoscaler')}{more} {verb} {counted(sum(numbers), 'metric')}"
    return ok("autoscalers", f"{fact}; {unread} not checked, see below" if unread else fact)


async def _listed(
    installed: Installed, namespaces: NamespaceSettings, default: str
) -> tuple[Sequence[Mapping[str, Any]], Sequence[Finding]]:
    """Return lists of autoscalers, and findings about what could not be listed."""
    lists: list[Mapping[str, Any]] = []
    findings: list[Finding] = []

    async def add(subject: str, within: str) -> int | None:
        """Add a list, and return how many autoscalers it has; None if it may not be read."""
        try:
            listed = await installed.api.get(_PATH.format(within), {"limit": str(_MAX_HPAS)})
        except errors.Refused as error:
            if error.status not in rbac.STATUSES:
                raise
            findings.append(rbac.forbidden(subject, error.status, error.refusal))
            return None
        lists.append(listed)
        return len(listed.get("items") or ())

    if not namespaces.names:
        await add("autoscalers of all namespaces", "")
        if lists or namespaces.all:
            return lists, findings
    for name in namespaces.names or (default,):
        subject = f"autoscalers of {name}"
        if await add(subject, f"namespaces/{name}/") != 0:
            continue
        with contextlib.suppress(errors.Refused):
            if await installed.find(f"/api/v1/namespaces/{name}") is None:
                fact = f"namespace {name} does not exist"
                findings.append(failure(subject, fact, cure="correct --namespace, or the context"))
    return lists, findings


async def _of_hpas(api: Kube, hpas: Sequence[Mapping[str, Any]]) -> Mapping[int, _Checked]:
    """Return the results of `_of_hpa` by position, without those that take too long together."""
    found: dict[int, _Checked] = {}
    discovered: dict[str, ApiReply] = {}
    slots = asyncio.Semaphore(_AT_ONCE)

    async def check(index: int, hpa: Mapping[str, Any]) -> None:
        async with slots:
            found[index] = await _of_hpa(api, hpa, discovered)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS):
            await gather_or_cancel(check(index, each) for index, each in enumerate(hpas))
    return found


async def _of_hpa(api: Kube, hpa: Mapping[str, Any], discovered: dict[str, ApiReply]) -> _Checked:
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
        if error.status in rbac.STATUSES:
            return None, [rbac.forbidden(subject, error.status, str(error))]
        cure = error.cure or ("correct scaleTargetRef" if error.status else "see api-server")
        return None, [failure(subject, " ".join(str(error).split()), cure=cure)]
    if observed.blocked:
        return 0, [failure(subject, observed.blocked, cure=judgement.UNBLOCK)]
    observed = await client.ApiClient(api).with_queries(observed)
    found = judgement.findings(observed, "see apiservices")
    return len(observed.proposals), [
        replace(each, subject=f"{subject}, metric {each.subject}") for each in found
    ]
