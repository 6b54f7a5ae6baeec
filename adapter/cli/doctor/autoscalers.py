"""Check of `doctor`: the metrics of autoscalers, requested as the HPA controller does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.cli.doctor import client
from adapter.cli.doctor.installation import Installed
from adapter.clients.kubernetes import Kube
from adapter.settings.kubectl import NamespaceSettings
from rules import rbac
from rules.errors import UnreadableError
from rules.findings import Finding, failure, ok, skipped
from rules.hpa import judgement, reaction, reading
from rules.hpa.reaction import Reaction
from rules.hpa.reading import ApiReply, ApiRequest, Observation
from rules.quoting import counted

_PATH = "/apis/autoscaling/v2/{}horizontalpodautoscalers"
_MAX_HPAS = 50
_AT_ONCE = 10
"""Autoscalers that are checked at the same time."""
_MAX_EXPLAINED = 10
"""Metrics whose reaction is read; each takes a dozen queries."""
_EXPLAIN_SECONDS = 4.0


_Metric = tuple[str, str]
"""Type and name."""


class _Checked(NamedTuple):
    """What was found of an autoscaler."""

    number: int | None
    """Of its metrics; None if they were not requested."""
    findings: Sequence[Finding]
    observed: Observation | None = None
    """None if nothing was observed."""


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
    checked = [found[index] for index in sorted(found)]
    findings = [*unlisted, *(finding for each in checked for finding in each.findings)]
    findings += await _slow(installed.api, [each.observed for each in checked if each.observed])
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
        for number, findings, _ in found
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


async def _of_hpa(
    api: Kube, document: Mapping[str, Any], discovered: dict[str, ApiReply]
) -> _Checked:
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

    subject = f"autoscaler {document['metadata']['namespace']}/{document['metadata']['name']}"
    try:
        hpa = reading.parsed(document)
    except UnreadableError as error:
        return _Checked(None, [skipped(subject, str(error), error.cure)])
    try:
        observed = await client.run(reading.observe(hpa, time.time), send)
    except UnreadableError as error:
        if error.status in rbac.STATUSES:
            return _Checked(None, [rbac.forbidden(subject, error.status, str(error))])
        cure = error.cure or ("correct scaleTargetRef" if error.status else "see api-server")
        return _Checked(None, [failure(subject, " ".join(str(error).split()), cure=cure)])
    if observed.blocked:
        return _Checked(0, [failure(subject, observed.blocked, cure=judgement.unblock(observed))])
    observed = await client.ApiClient(api).with_queries(observed)
    found = judgement.findings(observed, "see apiservices")
    findings = [replace(each, subject=f"{subject}, metric {each.subject}") for each in found]
    return _Checked(len(observed.proposals), findings, observed)


async def _slow(api: Kube, observations: Sequence[Observation]) -> list[Finding]:
    """Return which autoscalers react slowly, by their slowest metric.

    A metric of several autoscalers is explained once, for the first of them.
    """
    explaining = client.ApiClient(api)
    requests: dict[_Metric, ApiRequest] = {}
    for each in observations:
        for metric, request in _with_values(each):
            requests.setdefault(metric, request)
    found: dict[_Metric, Reaction] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_EXPLAIN_SECONDS):
            for metric, request in [*requests.items()][:_MAX_EXPLAINED]:
                with contextlib.suppress(UnreadableError):
                    explained = reaction.of_explanation(await explaining.explanation(request))
                    if explained is not None:
                        found[metric] = explained
    findings = []
    for each in observations:
        known = [(found[metric], metric) for metric, _ in _with_values(each) if metric in found]
        if known:
            slowest, (_, name) = max(known, key=lambda one: one[0].seconds)
            subject = f"autoscaler {each.hpa.namespace}/{each.hpa.name}, metric {name}"
            findings.append(reaction.slow(subject, slowest))
    return [each for each in findings if each is not None]


def _with_values(observed: Observation) -> Iterator[tuple[_Metric, ApiRequest]]:
    """Yield type and name, and the request, of each metric that has a value and is explained."""
    for proposed, request in zip(observed.proposals, observed.requests, strict=True):
        if proposed.replicas is not None and request is not None and request.is_explained:
            yield (proposed.metric.type, proposed.metric.name), request
