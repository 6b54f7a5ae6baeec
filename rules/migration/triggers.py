"""Triggers of KEDA as metrics of an HPA, with their external rules and the lines of the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rules import quantity
from rules.document.sources import DEFAULT
from rules.migration import keda, queries, servers
from rules.migration.keda import PrometheusTrigger, Trigger
from rules.migration.lines import METADATA
from rules.migration.notes import Line, Path, differs, left_out, same
from rules.migration.servers import Servers

AUTHENTICATION = "credentials are settings of the adapter, one set for a server: docs/backends.md"

_IDENTITY = "identities are settings of the adapter, one for a server: docs/backends.md"
_LEFT_OUT = {
    "authModes": AUTHENTICATION,
    "authMode": AUTHENTICATION,
    "awsRegion": _IDENTITY,
    "identityOwner": _IDENTITY,
    "azureManagedPrometheusResourceURL": _IDENTITY,
    **dict.fromkeys(
        ("apiKey", "method", "keyParamName", "value", "containerName"),
        "a prometheus trigger does not use it",
    ),
    "cortexOrgID": "ignored since KEDA 2.15, so no header is sent: see customHeaders",
    "metricName": "ignored since KEDA 2.12: the rule has a name of its own",
    "timeout": "--prometheus-timeout, or timeout of a source, is for all its queries",
}
"""Keys that are left out whatever their values are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedMetric:
    """What follows from one trigger."""

    lines: tuple[Line, ...]
    spec: dict[str, Any] | None = None
    """Metric of the HPA; None if the trigger is left out."""
    rule: dict[str, Any] | None = None


def metric(
    trigger: Trigger, path: Path, name: str, known: Servers, *, is_always_active: bool
) -> MigratedMetric:
    """Return the metric of a trigger at `path`; `name` is that of an external one.

    `is_always_active` says whether KEDA never scales the target to zero or idleReplicaCount.
    """
    match trigger:
        case PrometheusTrigger():
            return _external(trigger, path, name, known, is_always_active=is_always_active)
        case keda.ResourceTrigger():
            return _resource(trigger, path)
    message = "write a rule if Prometheus has these values"
    if trigger.type == "cron":
        message = "no HPA has a schedule, so it may give fewer replicas in the window"
    return MigratedMetric(lines=(left_out(path, f"type {trigger.type}: {message}"),))


def _resource(trigger: keda.ResourceTrigger, path: Path) -> MigratedMetric:
    source: dict[str, Any] = {"name": trigger.resource, "target": dict(trigger.target)}
    kind, key = "Resource", "resource"
    if trigger.container:
        kind, key = "ContainerResource", "containerResource"
        source["container"] = trigger.container
    unused = f"a {trigger.resource} trigger does not use it"
    read = ("value", "containerName")
    lines = (
        same(path, f"{kind} metric {trigger.resource}"),
        *(same((*path, "metadata", each)) for each in read),
        *(left_out((*path, "metadata", each), unused) for each in sorted(METADATA - {*read})),
        left_out((*path, "authenticationRef"), unused),
        same((*path, "useCachedMetrics")),
    )
    return MigratedMetric(lines=lines, spec={"type": kind, key: source})


def _external(
    trigger: PrometheusTrigger, path: Path, name: str, known: Servers, *, is_always_active: bool
) -> MigratedMetric:
    query = queries.analyze(trigger.query)
    metadata = (*path, "metadata")
    if (failing := servers.problem_of(trigger.server)) is not None:
        key, message = failing
        message = f"{message}. Each query of KEDA fails, so its HPA has no value"
        return MigratedMetric(lines=(left_out((*metadata, key), message),))
    if problem := _why_unreadable(query):
        return MigratedMetric(lines=(left_out((*metadata, "query"), problem),))
    source = known.name_of(trigger.server)
    text = queries.of_rule(trigger.query, ignore_null=trigger.ignore_null)
    rule: dict[str, Any] = {
        "seriesQuery": query.series or "up",
        "resources": {"namespaced": False},
        "name": {"as": name},
        "metricsQuery": text.replace("<<", '<<"<<">>'),
        **({} if source == DEFAULT else {"source": source}),
    }
    key = "value" if trigger.type == "Value" else "averageValue"
    target = {"type": trigger.type, key: quantity.decimal(trigger.target)}
    where = "" if source == DEFAULT else f" of source {source}"
    lines = (
        same(path, f"External metric {name}{where}, the same in every namespace"),
        left_out((*path, "authenticationRef"), AUTHENTICATION),
        _caching(trigger, path),
        same((*metadata, "threshold"), f"{trigger.type} {quantity.decimal(trigger.target)}"),
        *_value_lines(trigger, query, metadata),
        *_server_lines(trigger, source, metadata),
        _activation(trigger, metadata, is_always_active=is_always_active),
        *(left_out((*metadata, key), message) for key, message in _LEFT_OUT.items()),
    )
    spec = {"type": "External", "external": {"metric": {"name": name}, "target": target}}
    return MigratedMetric(lines=lines, spec=spec, rule=rule)


def _why_unreadable(query: queries.QueryFacts) -> str:
    """Return why KEDA reads no useful value from a result of this kind; empty if it does."""
    if query.kind in ("scalar", "string"):
        return f"returns a {query.kind}, which KEDA cannot read, so its HPA has no value"
    if query.kind == "matrix":
        return "returns a range, which KEDA reads as 0 or as an error: write an instant vector"
    return ""


def _value_lines(
    trigger: PrometheusTrigger, query: queries.QueryFacts, path: Path
) -> Iterator[Line]:
    remarks = []
    several = "if it returns several series, there is no value, as in KEDA"
    if not query.is_single and trigger.ignore_null:
        several += ", unless all but one are NaN or infinite"
    if query.problem:
        remarks.append(f"cannot be checked: {query.problem}. Prometheus may refuse it, as for KEDA")
    if not query.is_single:
        remarks += [several, "for a series of each pod, write a Pods metric: docs/hpa-recipes.md"]
    if query.divides and trigger.ignore_null:
        remarks.append("a division by 0 counts as 0, as in KEDA, even if work waits")
    is_exact = query.is_single or (not query.problem and not trigger.ignore_null)
    yield (same if is_exact else differs)((*path, "query"), "; ".join(remarks))
    if query.nature and trigger.type == "AverageValue":
        yield same(
            (*path, "query"),
            f"as in KEDA, the HPA divides this {query.nature} by the replicas. Better: type Value",
        )
    message = (
        "no result, NaN, infinite and negative values are 0"
        if trigger.ignore_null
        else "no result, NaN and infinite values are no value; negative values are 0"
    )
    yield same((*path, "ignoreNullValues"), default=message)


def _server_lines(trigger: PrometheusTrigger, source: str, path: Path) -> Iterator[Line]:
    url, headers = "prometheus.url", "--prometheus-header"
    if source != DEFAULT:
        url, headers = f"url of source {source}", f"headers of source {source}"
    public = servers.without_secrets(trigger.server)
    yield same((*path, "serverAddress"), url)
    if public.url != trigger.server.url:
        yield left_out((*path, "serverAddress"), f"user and password: {AUTHENTICATION}")
    yield same((*path, "namespace"), f"parameter of each query, in {url}")
    yield same((*path, "queryParameters"), f"parameters of each query, in {url}")
    yield same((*path, "customHeaders"), f"headers of each query: {headers}")
    if public.headers != trigger.server.headers:
        yield left_out((*path, "customHeaders"), f"secret headers: {AUTHENTICATION}")
    if trigger.is_unsafe:
        message = "certificates are verified: set --prometheus-ca-file, or caFile of the source"
        yield left_out((*path, "unsafeSsl"), message)
    yield same((*path, "unsafeSsl"))


def _caching(trigger: PrometheusTrigger, path: Path) -> Line:
    path = (*path, "useCachedMetrics")
    if not trigger.is_cached:
        return same(path)
    return left_out(
        path, "KEDA's value is as old as pollingInterval, here as --query-freshness says"
    )


def _activation(trigger: PrometheusTrigger, path: Path, *, is_always_active: bool) -> Line:
    path = (*path, "activationThreshold")
    if is_always_active:
        return same(path, "no effect: KEDA does not scale this target to zero")
    message = (
        f"a value above {trigger.activation:g} keeps KEDA from zero; an HPA has no such number"
    )
    return differs(path, message)
