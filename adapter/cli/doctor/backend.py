"""Checks of `doctor`: Prometheus, its GPU exporters, pod labels, scrapes and clock."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from adapter import errors
from adapter.cli.doctor import installation
from adapter.clients import detection, reachability
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from rules import rbac
from rules.document.sources import DEFAULT
from rules.exporters import detect
from rules.findings import Finding, State, failure, ok, skipped, warning

_NAMES = f"group by (__name__) ({detection.SELECTOR})"
_MAX_AGE = 90.0
"""Seconds; an HPA syncs every 15 s, and Prometheus' default scrape interval is 60 s."""
_PODS_SECONDS = 4.0
"""Seconds for the list of pods, less than the check as a whole has."""
EMPTY = "empty"
"""Reason of the finding that Prometheus has no series at all."""
_NO_PRESET = "no-gpu-series"
"""Reason of the finding that no preset reads what Prometheus has: other rules may."""
_LABELS = frozenset({"no-pods"})
"""Reasons of observations about labels of pods."""


async def findings(
    prometheus: Prometheus,
    presets: frozenset[str] = frozenset(),
    *,
    api: Kube | None = None,
    elsewhere: str = "",
) -> Sequence[Finding]:
    """Return whether Prometheus answers, and if it does, what is wrong with its series.

    `presets` are those in use, unless they are detected. The pods of `api` are compared with what
    is scraped, if they may be listed. With `elsewhere`, the URL is one for
    the pods, which need not be reachable from here, and that is what to do then.
    """
    began = time.time()
    try:
        result = await prometheus.query("time()")
    except errors.BackendError as error:
        if isinstance(error, errors.Unreachable) and elsewhere:
            return [skipped("prometheus", f"is not reachable from here: {error}", elsewhere)]
        return [_unreachable(error)]
    skew = (began + time.time()) / 2 - (result.samples[0].value if result.samples else math.nan)
    found = [ok("prometheus", "answers queries")]
    if math.isfinite(skew):
        found.append(installation.clock("Prometheus", skew))
    found += await _replicas(prometheus)
    found.append(await _scrapes(prometheus))
    report = await detection.report(prometheus)
    found += _of_report(report, presets)
    if api is not None:
        found += await _pods(api, prometheus, report)
    if (state := prometheus.reachability.check()).state is State.WARNING:
        cure = "restore what does not answer; --allow-partial-responses serves what is left"
        found.append(warning("prometheus", state.fact, cure=cure))
    return found


async def _pods(api: Kube, prometheus: Prometheus, report: detect.Detection) -> Sequence[Finding]:
    """Return what is wrong with the scrapes of running pods; nothing if they may not be listed."""
    try:
        async with asyncio.timeout(_PODS_SECONDS):
            found = await detection.in_cluster(api, prometheus, report)
    except errors.BackendError as error:
        refused = isinstance(error, errors.Refused) and error.status in rbac.STATUSES
        return [] if refused else [skipped("pods", f"not compared with the targets: {error}")]
    except TimeoutError:
        fact = f"not compared with the targets within {_PODS_SECONDS:g} s"
        cure = "`presets detect --kubeconfig=FILE` compares them, however many there are"
        return [skipped("pods", fact, cure)]
    return [replace(each, subject="pods") for each in found]


async def _replicas(prometheus: Prometheus) -> Sequence[Finding]:
    """Return whether several servers answer at the URL, each with samples of its own."""
    await prometheus.count_replicas()
    replicas = prometheus.replicas
    addresses = replicas.addresses.servers if replicas.addresses else 1
    if replicas.processes > 1:
        fact = f"{replicas.processes} Prometheus servers answer behind one address"
        if replicas.kept:
            queried = f"{fact}, of which one is queried while it answers"
            return [ok("prometheus-replicas", queried)]
        return [
            warning(
                "prometheus-replicas",
                fact,
                cause="each request may go to another, so values alternate, and series come and go",
                cure="query one of them directly, or one that deduplicates",
            )
        ]
    if addresses > 1:
        fact = f"the name has {addresses} addresses, of which one is queried while it answers"
        return [ok("prometheus-replicas", fact)]
    return []


def _unreachable(error: errors.BackendError) -> Finding:
    status = error.status if isinstance(error, errors.Refused) else 0
    if reachability.is_tenant_missing(error):
        fact = f"Prometheus asks for a tenant ({status})"
        cure = f"set X-Scope-OrgID in {reachability.setting(DEFAULT, 'header')}"
    elif status in {401, 403, 407}:
        fact = f"Prometheus refuses the credentials ({status})"
        cure = f"set {reachability.credentials_setting(DEFAULT)}"
    elif status == 404:
        fact, cure = "there is no Prometheus at this URL", "correct --prometheus-url"
    elif isinstance(error, errors.NoCredentials):
        fact = "there are no credentials for Prometheus"
        cure = f"check {reachability.credentials_setting(DEFAULT)}"
    elif isinstance(error, errors.Unreachable):
        fact, cure = "Prometheus cannot be reached", "correct --prometheus-url, or the network"
    elif isinstance(error, errors.TimedOut):
        fact, cure = "Prometheus does not respond in time", "check its load and the network"
    else:
        fact, cure = "what answers is not Prometheus, or it fails", "correct --prometheus-url"
    return failure("prometheus", fact, cause=str(error), cure=cure)


def _of_report(report: detect.Detection, presets: frozenset[str]) -> Iterator[Finding]:
    if not report.exporters:
        reason = report.findings[0].reason
        cures = [each.cure for each in report.findings]
        if reason == _NO_PRESET:
            cures.append("Ignore this if all rules are about other series")
        found = warning(
            "exporters",
            "Prometheus has no series that a preset reads",
            cause="; ".join(each.fact for each in report.findings),
            cure=". ".join(filter(None, cures)),
        )
        yield replace(found, reason=reason)
        return
    flags = " ".join(report.flags) or "no preset reads it"
    titles = ", ".join(each.generation.title for each in report.exporters)
    yield ok("exporters", f"{titles}: {flags}")
    for exporter in report.exporters:
        if presets and not presets.issuperset(exporter.presets):
            used = " ".join(f"--preset={each}" for each in sorted(presets))
            wanted = " ".join(f"--preset={each}" for each in exporter.presets)
            yield warning(
                f"exporter {exporter.generation.title}",
                f"is scraped, but the adapter has {used}",
                cause="these presets do not read all its series",
                cure=f"use {wanted}, or --preset=auto",
            )
        if not exporter.generation.external:
            yield _of_labels(exporter)
        for each in exporter.findings:
            if each.state is not State.OK and each.reason not in _LABELS:
                cure = "`presets detect` has the details"
                yield warning(f"exporter {exporter.generation.title}", each.sentence, cure=cure)


def _of_labels(exporter: detect.DetectedExporter) -> Finding:
    title = exporter.generation.title
    for each in exporter.findings:
        if each.reason in _LABELS:
            fact = f"the series of {title} name no pod"
            place = "scrape config" if exporter.generation.server else "exporter"
            return warning(
                "pod-labels", fact, cause=each.sentence, cure=f"let the {place} add pods"
            )
    if not exporter.pods:
        return skipped("pod-labels", f"the series of {title} name no pod now: no GPU is in use")
    return ok("pod-labels", f"series of {title} name pods by {exporter.pods[0]}")


async def _scrapes(prometheus: Prometheus) -> Finding:
    """Return how old the samples of exporters and model servers are."""
    names = sorted(each.labels["__name__"] for each in (await prometheus.query(_NAMES)).samples)
    # timestamp() drops the name, and Prometheus refuses a result with equal labels.
    times = " or ".join(
        f'label_replace(timestamp({each}), "n", "{each}", "", "")' for each in names
    )
    newest, oldest = [
        (await prometheus.query(f"{function}(time() - ({times}))")).samples if names else ()
        for function in ("min", "max")
    ]
    if not newest or not oldest:
        return skipped("scrapes", "Prometheus has no series that a preset reads")
    ages = dict.fromkeys(f"{each[0].value:.0f} s" for each in (newest, oldest))
    fact = f"samples of exporters are {' to '.join(ages)} old"
    if oldest[0].value <= _MAX_AGE:
        return ok("scrapes", fact)
    return warning(
        "scrapes",
        fact,
        cause="the scrape interval is long, or scrapes fail; from 5 minutes on, Prometheus "
        "ignores samples (--query.lookback-delta)",
        cure="set scrape_interval to 15s for the exporters, and check /targets",
    )
