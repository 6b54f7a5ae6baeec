"""Check of `doctor`: the metrics of all autoscalers, requested as the HPA controller does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.cli.doctor import client
from adapter.cli.doctor.installation import Installed
from adapter.clients.kubernetes import Kube, Reply
from rules.errors import UnreadableError
from rules.findings import Finding, failure, ok, skipped, warning
from rules.hpa import reading, report
from rules.hpa.reading import Observation
from rules.metrics_apis import USAGE
from rules.quoting import counted

_PATH = "/apis/autoscaling/v2/horizontalpodautoscalers"
_MAX_HPAS = 50
_AT_ONCE = 10
"""Autoscalers that are checked at the same time."""
_SECONDS = 6.0
"""Seconds after which the other autoscalers are not checked."""
_FORBIDDEN = frozenset({401, 403})
_SEE = "docs/troubleshooting.md#what-do-the-reasons-mean explains the reason"

_Replies = Mapping[int, Reply]
"""`id` of a request -> its reply."""


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
    discovered: dict[str, Reply] = {}
    slots = asyncio.Semaphore(_AT_ONCE)

    async def check(index: int, hpa: Mapping[str, Any]) -> None:
        async with slots:
            found[index] = await _of_hpa(api, hpa, discovered)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS):
            await gather_or_cancel(check(index, each) for index, each in enumerate(hpas))
    return found


async def _of_hpa(
    api: Kube, hpa: Mapping[str, Any], discovered: dict[str, Reply]
) -> tuple[int, Sequence[Finding]]:
    """Return the number of metrics of an autoscaler, and findings about those without values."""
    subject = f"autoscaler {hpa['metadata']['namespace']}/{hpa['metadata']['name']}"
    try:
        observed, replies = await _observe(api, hpa, discovered)
    except UnreadableError as error:
        text = " ".join(str(error).split())
        if error.status in _FORBIDDEN:
            return 0, [skipped(subject, text)]
        return 0, [failure(subject, text, cure="correct scaleTargetRef")]
    except errors.BackendError as error:
        return 0, [failure(subject, str(error), cure="see api-server")]
    if observed.blocked:
        return 0, [warning(subject, observed.blocked, cure=report.UNBLOCK)]
    observed = await client.Client(api).with_queries(observed)
    return len(observed.proposals), [*_of_metrics(subject, observed, replies)]


async def _observe(
    api: Kube, hpa: Mapping[str, Any], discovered: dict[str, Reply]
) -> tuple[Observation, _Replies]:
    """Send the requests of a sync of the HPA controller. Raises UnreadableError, BackendError.

    `discovered` keeps the discovery documents for the next autoscaler.
    """
    replies: dict[int, Reply] = {}
    requests = []  # keeps the ids unique

    async def send(request: reading.Request) -> reading.Reply:
        requests.append(request)
        reply = discovered.get(request.path) or await api.fetch(request.path, request.params)
        replies[id(request)] = reply
        if "/namespaces/" not in request.path:
            discovered[request.path] = reply
        if reply.status != 200:
            return reading.Failure(status=reply.status, message=client.message_of(reply))
        return client.document_of(reply)

    observed = await client.run(reading.observe(hpa, time.time), send)
    return observed, replies


def _of_metrics(subject: str, observed: Observation, replies: _Replies) -> Iterator[Finding]:
    for request, proposed in zip(observed.requests, observed.proposals, strict=True):
        name = f"{subject}, metric {proposed.metric.name}"
        if request is None:
            yield failure(name, proposed.error, cure=proposed.cure or "see apiservices")
        elif finding := judge(name, request, replies[id(request)], "see apiservices"):
            yield finding
        elif doubt := report.doubt_of(proposed):
            yield replace(doubt, subject=name)
        elif len(proposed.items) > 1:
            yield ok(name, f"the HPA controller adds up {len(proposed.items)} items")


def judge(name: str, request: reading.Request, reply: Reply, see: str) -> Finding | None:
    """Return why a metric has no value, or not for all objects; None if it has.

    `see` is what to do if the API server answers instead of the adapter.
    """
    cause = client.cause_of(reply)
    if reply.status == 404 and USAGE.has(request.path):
        return failure(name, reading.NOT_SERVED, cure=reading.NO_USAGE)
    if reply.status == 200:
        if orjson.loads(reply.body).get("items"):
            return warning(name, cause, cure=_SEE) if cause else None
        return failure(name, f"no value. {cause}", cure="" if cause else _SEE)
    if reply.status in _FORBIDDEN:
        return skipped(name, "this account may not read the metric")
    if cause:
        return failure(name, cause, cure="")
    message, status = client.message_of(reply), str(reply.status)
    fact = message if message.startswith(status) else f"status {status}: {message}"
    return failure(name, fact, cure=see)
