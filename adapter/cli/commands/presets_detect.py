"""Prints for `presets detect` which presets match the series in Prometheus."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from adapter import errors, settings
from adapter.cli import output
from adapter.clients import detection, sources
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from adapter.settings.kubectl import KubectlSettings
from rules import presets
from rules.causes.explanation_text import wrapped
from rules.exporters import detect
from rules.findings import Finding, State

_QPS = 50
_TIMEOUT = 5.0
"""Seconds for a request to the API server."""


def run(prometheus: settings.PrometheusSettings, cluster: KubectlSettings, form: str) -> int:
    """Return 0 if a preset matches, 1 if none does or Prometheus cannot be queried."""
    for notice in prometheus.notices():
        print(notice, file=sys.stderr)
    try:
        report = asyncio.run(_observe(prometheus, cluster))
    except (errors.StartError, errors.BackendError) as error:
        print(f"Prometheus cannot be queried: {error}", file=sys.stderr)
        return 1
    if form == "text":
        print("\n".join(_lines(report)))
    else:
        output.write(_document(report), form)
    return 0 if report.presets else 1


async def _observe(
    flags: settings.PrometheusSettings, cluster: KubectlSettings
) -> detect.Detection:
    async with sources.connect_prometheus(flags) as prometheus:
        report = await detection.report(prometheus, unknown=True)
        findings = await _in_cluster(cluster, prometheus, report)
    return replace(report, findings=(*report.findings, *findings))


async def _in_cluster(
    cluster: KubectlSettings, prometheus: Prometheus, report: detect.Detection
) -> Sequence[Finding]:
    """Return what is not scraped of the cluster that flags name; nothing without one."""
    if not (cluster.kubeconfig or cluster.selects):
        return ()
    try:
        kube = await Kube.connect(cluster, qps=_QPS, burst=_QPS, timeout=_TIMEOUT)
        try:
            return await detection.in_cluster(kube, prometheus, report)
        finally:
            await kube.close()
    except errors.BackendError as error:
        return [Finding(state=State.SKIPPED, fact=f"pods were not compared: {error}")]


def _lines(report: detect.Detection) -> Iterator[str]:
    for sighting in report.exporters:
        yield (
            f"dcgm-exporter, {sighting.release} by its labels"
            if sighting.release
            else sighting.generation.title
        )
        for label in sighting.pods:
            yield from wrapped("  pods     ", label)
        if sighting.nodes:
            yield f"  nodes    `{sighting.nodes[0]}`"
        if sighting.metrics:
            yield from wrapped("  metrics  ", ", ".join(_names(sighting)))
        for finding in sighting.findings:
            yield from wrapped("  - ", finding.sentence)
        yield ""
    for finding in report.findings:
        yield from wrapped("", finding.sentence)
    if report.presets:
        yield "Matching presets, in this order:"
        yield f"  {' '.join(report.flags)}"
        if report.waiting:
            yield from wrapped(
                "",
                f"--preset=auto also loads {report.waiting}, for pods that use a GPU later.",
            )
    else:
        yield "No preset matches."


def _names(sighting: detect.DetectedExporter) -> Iterator[str]:
    """Yield the metrics as the presets name them; rates and percentiles have no `_current`."""
    rules = "".join(map(presets.text, sighting.presets))
    for each in sighting.metrics:
        yield f"{each}_current" if f"{each}_current" in rules else f"{each}_over_time"


def _document(report: detect.Detection) -> dict[str, Any]:
    return {
        "presets": report.presets,
        "flags": report.flags,
        "provisional": report.provisional,
        "exporters": [
            {
                "name": sighting.generation.name,
                "title": sighting.generation.title,
                "release": sighting.release,
                "schemes": sighting.schemes,
                "nodes": sighting.nodes,
                "metrics": sighting.metrics,
                "presets": sighting.presets,
                "findings": output.documents(sighting.findings),
            }
            for sighting in report.exporters
        ],
        "findings": output.documents(report.findings),
    }
