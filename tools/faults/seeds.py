"""Forty-five faults of an installation, and the words that name cause and cure of each.

Each fault of series or rules has a metric of its own, so one adapter and one Prometheus serve all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tools.documents import external_metric, object_metric, pods_metric
from tools.faults.gate import Mode
from tools.presets.table import EXPORTERS

PLAIN = "avg by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})"
AGO = 60.0
"""Seconds since the last sample of a series that the fault ended."""

Place = Literal[
    "", "gate", "restarted", "adapter's rights", "reviews", "controller's rights", "elsewhere",
    "deleted", "caBundle", "expired", "stopped", "request-header CA", "second HPA",
    "metrics.k8s.io",
]  # fmt: skip
"""What differs from a healthy installation, besides series, rule and HPA."""


_CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "100m"}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault."""

    title: str
    cause: str
    """Pattern of the words that name the cause, in the condition of the HPA or doctor's line."""
    cure: str
    """Pattern of the words that name the cure, in the same line."""
    metric: str = "util_healthy"
    live: tuple[str, ...] = ()
    """Samples of now, in the text format."""
    age: float = 0.0
    """Age of these samples, in seconds; they are written once. 0 for a scrape each second."""
    ended: tuple[str, ...] = ()
    """Samples until AGO."""
    rare: tuple[str, ...] = ()
    """Samples of 930, 630 and 330 s ago."""
    query: str = ""
    """`metricsQuery` of the rule for `metric`; empty for one of a preset, or none."""
    target: str = "web"
    """ReplicaSet that the HPA scales."""
    hpa: Mapping[str, Any] | None = None
    """`spec.metrics[0]`; a metric of pods without."""
    minimum: int = 1
    gate: Mode = ""
    place: Place = ""
    why_not: str = ""
    """Why neither the condition nor `doctor` can name it, if they cannot."""
    active: bool = False
    """Whether the controller sees no fault: the condition ScalingActive stays True."""
    quick: bool = False
    """Whether pytest seeds it, too."""

    def __hash__(self) -> int:
        return hash(self.title)

    @property
    def spec(self) -> Mapping[str, Any]:
        """`spec.metrics[0]` of the HPA."""
        return self.hpa or pods_metric(self.metric, "10")

    def is_named(self, *lines: str) -> bool:
        """Return whether one of the lines has the words of cause and cure."""
        return any(
            re.search(self.cause, line, re.DOTALL) and re.search(self.cure, line, re.DOTALL)
            for line in lines
        )


_WEB = 'namespace="default",pod="web-0"'
_STOPPED, _HONORED, _POD, _RENAMED, _NAMESPACE, _RARE = (
    f'job="dcgm",instance="10.0.0.{number}:9400"' for number in range(2, 8)
)
"""Targets, one for each fault."""
_OWN = f'namespace="gpu",pod="dcgm-x",{_HONORED}'
_EXPORTED = 'exported_namespace="default",exported_pod="web-0"'
HEALTHY = (f"util_healthy{{{_WEB}}} 10", f"util_workload{{{_WEB}}} 10")
_EXPORTER = tuple(
    line
    for path in sorted((EXPORTERS / "c4-4.8.2-default").glob("*.prom"))
    for line in path.read_text().splitlines()
    if not line.startswith("#")
)
"""What a whole dcgm-exporter 4.8 reports."""

_OF_PROMETHEUS = (
    Fault(
        title="Prometheus refused",
        gate="refused",
        cause="Prometheus cannot be reached|refused",
        cure="--prometheus-url",
    ),
    Fault(title="wrong path", gate="404", cause="404", cure="--prometheus-url"),
    Fault(
        title="other web server",
        gate="html",
        cause="not Prometheus|is no JSON|not JSON",
        cure="--prometheus-url",
    ),
    Fault(
        title="no tenant header",
        gate="no tenant",
        cause="401.*no org id|no org id",
        cure="--prometheus-header",
    ),
    Fault(
        title="wrong tenant",
        gate="wrong tenant",
        cause="no `up` of any target",
        cure="tenant|X-Scope-OrgID",
    ),
    Fault(
        title="Prometheus hangs",
        gate="hangs",
        cause="not respond in time|no answer|did not answer|does not answer",
        cure="[Cc]heck (it|its load)",
    ),
    Fault(
        title="Prometheus answers after 8 s, also after a restart",
        gate="slow",
        place="restarted",
        cause="slow|in time|within",
        cure="[Cc]heck (it|its load)|--prometheus-timeout",
        active=True,
    ),
)
_OF_EXPORTERS = (
    Fault(
        title="exporter stopped",
        metric="util_stopped",
        live=(f"up{{{_STOPPED}}} 0",),
        ended=(f"util_stopped{{{_WEB},{_STOPPED}}} 10",),
        query=PLAIN,
        cause="TargetGone",
        cure="Check the exporter",
        quick=True,
    ),
    Fault(
        title="exporter upgraded to 4.9, with --preset=gpu-dcgm",
        metric="duty_cycle_current",
        live=(f'DCGM_FI_DEV_GPU_UTIL_RATIO{{UUID="u",{_WEB}}} 0.2',),
        ended=(f'DCGM_FI_DEV_GPU_UTIL{{UUID="u",{_WEB}}} 20',),
        cause="4.9",
        cure="--preset=gpu-dcgm49",
        quick=True,
    ),
    Fault(
        title="honorLabels flipped",
        metric="util_honored",
        live=(
            f"util_honored{{{_OWN},{_EXPORTED}}} 10",
            f"up{{{_OWN}}} 1",
        ),
        ended=(f"util_honored{{{_WEB},{_HONORED}}} 10",),
        query=PLAIN,
        cause="OtherNamespace|ExporterOnly|LabelsMissing",
        cure="honorLabels",
    ),
    Fault(
        title="pod label renamed",
        metric="util_relabelled",
        live=(f'util_relabelled{{namespace="default",container_pod="web-0",{_POD}}} 10',),
        ended=(f"util_relabelled{{{_WEB},{_POD}}} 10",),
        query=PLAIN,
        cause="LabelsMissing",
        cure="Map|`resources`",
        quick=True,
    ),
    Fault(
        title="metric renamed",
        metric="util_before",
        live=(f"util_before_percent{{{_WEB},{_RENAMED}}} 10", f"up{{{_RENAMED}}} 1"),
        ended=(f"util_before{{{_WEB},{_RENAMED}}} 10",),
        query=PLAIN,
        cause="SeriesEnded.*another name",
        cure="compare its /metrics",
    ),
    Fault(
        title="namespace label changed",
        metric="util_elsewhere",
        live=(
            f'util_elsewhere{{namespace="gpu-operator",pod="web-0",{_NAMESPACE}}} 10',
            f"up{{{_NAMESPACE}}} 1",
        ),
        ended=(f"util_elsewhere{{{_WEB},{_NAMESPACE}}} 10",),
        query=PLAIN,
        cause="OtherNamespace|NamespaceChanged",
        cure="namespace label|honorLabels",
        quick=True,
    ),
    Fault(
        title="scrape every 5 minutes",
        metric="util_rare",
        rare=(f"util_rare{{{_WEB},{_RARE}}} 10",),
        query=PLAIN,
        cause="too old|older than 5",
        cure="more often|scrape interval",
    ),
    Fault(
        title="samples 200 s old",
        metric="temperature_celsius_current",
        live=(f'DCGM_FI_DEV_GPU_TEMP{{UUID="u",{_WEB}}} 10', *_EXPORTER),
        age=200.0,
        cause="samples of exporters are 2.. s( to 2.. s)? old",
        cure="[Ss]et scrape_interval",
        active=True,
    ),
    Fault(
        title="pods without GPU",
        metric="gpu_util_idle",
        live=('gpu_util_idle{namespace="default",pod="other"} 10',),
        query=PLAIN,
        cause="NotScraped",
        cure="uses (the device|no GPU)|requests a GPU",
        quick=True,
    ),
    Fault(
        title="0 to 1 instead of 0 to 100",
        metric="share_duty_cycle_current",
        live=(f"share_duty_cycle_current{{{_WEB}}} 0.5",),
        query=PLAIN,
        cause="less than 1 %",
        cure="multiply by 100",
        hpa=pods_metric("share_duty_cycle_current", "50"),
        active=True,
    ),
    Fault(
        title="values above 100",
        metric="util_above",
        live=(f"util_above{{{_WEB}}} 250",),
        query="avg by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>} <= 100)",
        cause="has 1 series|NoSample",
        cure="comparison",
    ),
    Fault(
        title="NaN",
        metric="util_divided",
        live=(f"util_divided{{{_WEB}}} NaN",),
        query=PLAIN,
        cause="NotFinite.*NaN",
        cure="onNaN",
        quick=True,
    ),
)
_OF_HPAS = (
    Fault(
        title="wrong metric name",
        metric="duty_cycle",
        cause="WrongName",
        cure="[Uu]se one of the names|did you mean",
        quick=True,
    ),
    Fault(
        title="wrong kind",
        hpa=object_metric("util_healthy", "v1", "Service", "web"),
        cause="OtherResource",
        cure="Request it for|resources",
    ),
    Fault(
        title="Object metric of a Deployment",
        hpa=object_metric("util_healthy", "apps/v1", "Deployment", "web"),
        cause="OtherResource",
        cure="type: Pods|workloads",
    ),
    Fault(
        title="selector that matches nothing",
        target="renamed",
        cause="NoObject",
        cure="selector",
        quick=True,
    ),
    Fault(
        title="target 0.2",
        metric="near_duty_cycle_current",
        live=(f"near_duty_cycle_current{{{_WEB}}} 30",),
        query=PLAIN,
        hpa=pods_metric("near_duty_cycle_current", "0.2"),
        cause="less than 1 %",
        cure="Write the percentage",
        active=True,
    ),
    Fault(
        title="target 20k",
        metric="far_duty_cycle_current",
        live=(f"far_duty_cycle_current{{{_WEB}}} 30",),
        query=PLAIN,
        hpa=pods_metric("far_duty_cycle_current", "20k"),
        cause="above 100 %",
        cure="Write the percentage",
        active=True,
    ),
    Fault(
        title="minReplicas 0, with a metric of pods",
        target="empty",
        metric="util_workload",
        live=('util_workload{namespace="default",pod="empty-0"} 0',),
        hpa=object_metric("util_workload", "apps/v1", "ReplicaSet", "empty"),
        minimum=0,
        cause="no (running )?pod|0 replicas|no replicas",
        cure="external|External",
    ),
    Fault(
        title="two HPAs on one target",
        place="second HPA",
        cause="AmbiguousSelector|controlled by|several|other",
        cure="one of them|pods of its own|[Dd]elete",
    ),
    Fault(
        title="scaleTargetRef missing",
        target="missing",
        cause="not found",
        cure="scaleTargetRef",
    ),
    Fault(
        title="cpu without metrics.k8s.io",
        hpa=_CPU,
        cause="metrics.k8s.io",
        cure="metrics-server",
    ),
    Fault(
        title="metrics.k8s.io without series",
        hpa=_CPU,
        place="metrics.k8s.io",
        cause="no (metrics|series|value)|NoSample|NoSeries",
        cure="scrape|kubelet|cAdvisor",
    ),
    Fault(
        title="external metric without a rule",
        hpa=external_metric("queue_length", "10"),
        cause="WrongName|NoRule",
        cure="[Aa]dd|names in discovery|externalRules",
        quick=True,
    ),
)
_OF_RIGHTS = (
    Fault(
        title="rights of the adapter withdrawn",
        place="adapter's rights",
        cause="MissingRight|no permission",
        cure="[Gg]rant|apply",
    ),
    Fault(
        title="rights of its reviews withdrawn",
        place="reviews",
        cause="no permission to create subjectaccessreviews|subjectaccessreviews|tokenreviews",
        cure="[Gg]rant|auth-delegator",
    ),
    Fault(
        title="rights of the HPA controller withdrawn",
        place="controller's rights",
        cause="forbidden|no permission",
        cure="[Bb]ind the ClusterRole|[Gg]rant",
    ),
)
_OF_REGISTRATION = (
    Fault(
        title="APIService elsewhere",
        place="elsewhere",
        cause="belongs to",
        cure="uninstall the other|Uninstall the other",
    ),
    Fault(
        title="APIService deleted",
        place="deleted",
        cause="does not exist",
        cure="[Aa]pply the manifests",
    ),
    Fault(
        title="wrong caBundle",
        place="caBundle",
        cause="caBundle",
        cure="caBundle",
    ),
    Fault(
        title="expired certificate from files",
        place="expired",
        cause="expired",
        cure="[Rr]enew",
    ),
    Fault(
        title="adapter stopped",
        place="stopped",
        cause="nothing listens|not run|no ready",
        cure="[Ss]tart|kubectl",
    ),
    Fault(
        title="request-header CA replaced",
        place="request-header CA",
        cause="front proxy",
        cure="requestheader",
    ),
)
_OF_RULES = (
    Fault(
        title="several series of an object",
        metric="util_several",
        live=(f'util_several{{{_WEB},gpu="0"}} 10', f'util_several{{{_WEB},gpu="1"}} 30'),
        query="<<.Series>>{<<.LabelMatchers>>}\n  aggregate: error",
        cause="several|2 samples|more than one",
        cure="[Aa]ggregate",
    ),
    Fault(
        title="label dropped",
        metric="util_dropped",
        live=(f"util_dropped{{{_WEB}}} 10",),
        query="avg(<<.Series>>{<<.LabelMatchers>>})",
        cause="LabelDropped",
        cure="by|GroupBy",
        quick=True,
    ),
    Fault(
        title="broken PromQL",
        metric="util_broken",
        live=(f"util_broken{{{_WEB}}} 10",),
        query="avg(<<.Series>>{<<.LabelMatchers>>}",
        cause="QueryRefused",
        cure="Correct",
        quick=True,
    ),
    Fault(
        title="rate of a gauge",
        metric="rated_duty_cycle_current",
        live=(f"rated_duty_cycle_current{{{_WEB}}} 50",),
        query="avg by (<<.GroupBy>>) (rate(<<.Series>>{<<.LabelMatchers>>}[1m]))",
        cause="gauge",
        cure="[Rr]emove `?rate|avg_over_time",
        active=True,
        why_not="the value is a number like any other; `explain hpa`, `check` and the log warn",
    ),
    Fault(
        title="counter as gauge",
        metric="requests_total",
        live=(f"requests_total{{{_WEB}}} 100000",),
        query=PLAIN,
        cause="counter",
        cure="rate",
        active=True,
    ),
)
FAULTS = (
    *_OF_RIGHTS,  # first: later, the pods are in the watch cache
    *_OF_EXPORTERS,
    *_OF_RULES,
    *_OF_HPAS,
    *_OF_PROMETHEUS,
    *_OF_REGISTRATION,
)


def rules(metric: str = "") -> str:
    """Return the rules file for all metrics that are not of a preset, or for one of them."""
    queries = {
        each.metric: each.query
        for each in FAULTS
        if each.query and (not metric or each.metric == metric)
    }
    queries |= {"util_healthy": PLAIN, "util_workload": f"{PLAIN}\n  workloads: avg"}
    return "rules:\n" + "".join(
        f"- seriesQuery: '{metric}'\n"
        "  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}\n"
        f"  metricsQuery: {query}\n"
        for metric, query in queries.items()
    )
