"""Twelve faults of an installation, each with the data, the rule or the setting that causes it.

Each has a metric of its own, so one adapter and one Prometheus serve most of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PLAIN = "avg by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})"
BEFORE = 420.0
"""Seconds since the last sample of a series that ended: more than Prometheus' lookback, and less
than the window of a relist."""

Place = Literal["series", "selector", "rights", "url", "credentials"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault."""

    title: str
    reason: str
    """Reason in the answer of the API."""
    words: tuple[str, ...]
    """Words in the last line of each output that name the fault to a reader."""
    metric: str = "util_healthy"
    live: tuple[str, ...] = ()
    """Samples of now, in the text format."""
    ended: tuple[str, ...] = ()
    """Samples until BEFORE."""
    query: str = ""
    """`metricsQuery` of the rule for `metric`; empty for one of a preset."""
    place: Place = "series"
    """What differs from a healthy installation; `series` includes the rule."""


HEALTHY = ('util_healthy{namespace="default",pod="web-0"} 1',)
FAULTS = (
    Fault(
        title="the value is NaN",
        reason="NotFinite",
        words=("NaN", "web-0"),
        metric="util_divided",
        live=('util_divided{namespace="default",pod="web-0"} NaN',),
        query=PLAIN,
    ),
    Fault(
        title="the series are in another namespace",
        reason="OtherNamespace",
        words=("namespace is gpu-operator",),
        metric="util_elsewhere",
        live=('util_elsewhere{namespace="gpu-operator",pod="web-0"} 1',),
        query=PLAIN,
    ),
    Fault(
        title="the query drops the label of the pod",
        reason="LabelDropped",
        words=("no label pod", "by (<<.GroupBy>>)"),
        metric="util_dropped",
        live=('util_dropped{namespace="default",pod="web-0"} 1',),
        query="avg(<<.Series>>{<<.LabelMatchers>>})",
    ),
    Fault(
        title="the exporter names only its own pod",
        reason="ExporterOnly",
        words=("only the exporter's own pods", "DCGM_EXPORTER_KUBERNETES=true"),
        metric="util_own",
        live=(
            'util_own{namespace="gpu",pod="dcgm-x",job="dcgm",instance="10.0.0.1:9400"} 1',
            'up{namespace="gpu",pod="dcgm-x",job="dcgm",instance="10.0.0.1:9400"} 1',
        ),
        query=PLAIN,
    ),
    Fault(
        title="the exporter vanished",
        reason="TargetGone",
        words=("target dcgm/10.0.0.2:9400 is not scraped any more",),
        metric="util_vanished",
        ended=(
            'util_vanished{namespace="default",pod="web-0",job="dcgm",instance="10.0.0.2:9400"} 1',
            'up{job="dcgm",instance="10.0.0.2:9400"} 1',
        ),
        query=PLAIN,
    ),
    Fault(
        title="the pod has no GPU, or is not scraped",
        reason="NotScraped",
        words=("web-0", "uses no GPU, or the exporter on its node is not scraped"),
        metric="util_idle",
        live=('util_idle{namespace="default",pod="other"} 1',),
        query=PLAIN,
    ),
    Fault(
        title="the sample is too old",
        reason="SampleTooOld",
        words=("7m", "ignores samples older than"),
        metric="util_old",
        ended=('util_old{namespace="default",pod="web-0"} 1',),
        query=PLAIN,
    ),
    Fault(
        title="Prometheus refuses the query",
        reason="QueryRefused",
        words=("refused the rendered query `avg(util_refused{", "unclosed left parenthesis"),
        metric="util_refused",
        live=('util_refused{namespace="default",pod="web-0"} 1',),
        query="avg(<<.Series>>{<<.LabelMatchers>>}",
    ),
    Fault(
        title="the selector matches no pod",
        reason="NoObject",
        words=("no pod", "label selector app=renamed"),
        place="selector",
    ),
    Fault(
        title="another exporter generation is scraped",
        reason="OtherExporter",
        words=("dcgm-exporter 4.9 or later", "--preset=gpu-dcgm49"),
        metric="duty_cycle_current",
        live=('DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="u",namespace="default",pod="web-0"} 0.2',),
    ),
    Fault(
        title="the adapter may not list pods",
        reason="MissingRight",
        words=("no permission to list and watch pods", "rant {apiGroups"),
        place="rights",
    ),
    Fault(
        title="the URL of Prometheus is wrong",
        reason="PrometheusUnavailable",
        words=("Prometheus cannot be reached", "--prometheus-url"),
        place="url",
    ),
    Fault(
        title="Prometheus refuses the credentials",
        reason="PrometheusUnavailable",
        words=("Prometheus refuses the credentials", "401"),
        place="credentials",
    ),
)
"""The twelfth is seeded in two ways."""


def rules() -> str:
    """Return the rules file for all metrics that are not of a preset."""
    queries = {each.metric: each.query for each in FAULTS if each.query} | {"util_healthy": PLAIN}
    return "rules:\n" + "".join(
        f"- seriesQuery: '{metric}'\n"
        "  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}\n"
        f"  metricsQuery: '{query}'\n"
        for metric, query in queries.items()
    )
