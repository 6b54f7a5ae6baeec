"""Render scrape jobs as configuration of Prometheus, PodMonitors or ScrapeConfigs.

The configuration needs Prometheus 2.49 or later, a ScrapeConfig Prometheus Operator 0.90 or later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rules.scrape.jobs import NAME, Job, Relabel

Document = dict[str, Any]

SECRET = f"{NAME}-scrape"
"""Secret with the key `token`, which objects of the operator need for pages that get a token."""
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# The text format: with another, Python's client writes `_` for the colon of `lmdeploy:`.
_PROTOCOLS = ["PrometheusText0.0.4"]
_DROPPED = 100
"""Dropped targets that Prometheus keeps for its /targets page; without a limit, all pods."""
_TIMEOUT = 10.0
"""Seconds, the default of Prometheus."""


def prometheus(jobs: Sequence[Job], *, interval: float | None = None) -> Document:
    """Return a configuration file; `interval` is in seconds, by default that of Prometheus.

    The values of jobs that differ in their names only are the same objects, which are aliases in
    YAML.
    """
    settings: dict[Job, Document] = {}
    configs = []
    for each in jobs:
        unnamed = replace(each, name="")
        if unnamed not in settings:
            settings[unnamed] = _snake(_scrape_config(unnamed, interval))
        configs.append({"job_name": each.name, **settings[unnamed]})
    return {"scrape_configs": configs}


def _scrape_config(job: Job, interval: float | None) -> Document:
    """Return a scrape configuration without its name."""
    return {
        **_honor(job),
        "followRedirects": False,
        **_timing(interval),
        **_limits(job),
        **_access(job, {"credentialsFile": f"{_ACCOUNT}/token"}),
        # The same in each job: then they share one watch.
        "kubernetesSdConfigs": [_discovery("pod")],
        "relabelConfigs": _rules(job.relabel),
        "metricRelabelConfigs": _rules(job.metric_relabel),
    }


def _timing(interval: float | None) -> Document:
    if interval is None:
        return {}
    timeout = min(0.9 * interval, _TIMEOUT)  # Prometheus refuses one above the interval
    return {"scrapeInterval": _duration(interval), "scrapeTimeout": _duration(timeout)}


def pod_monitors(jobs: Sequence[Job]) -> list[Document]:
    """Return a PodMonitor for each job."""
    return [
        _object(
            "monitoring.coreos.com/v1",
            "PodMonitor",
            each,
            {
                "namespaceSelector": (
                    {"matchNames": list(each.namespaces)} if each.namespaces else {"any": True}
                ),
                "selector": {},
                **_limits(each),
                "podMetricsEndpoints": [
                    {
                        **_honor(each),
                        "followRedirects": False,
                        **_access(each, _SECRET_KEY),
                        "relabelings": _rules((*_OF_OPERATOR[each.kind], *each.relabel)),
                        "metricRelabelings": _rules(each.metric_relabel),
                    }
                ],
            },
        )
        for each in jobs
    ]


def scrape_configs(jobs: Sequence[Job]) -> list[Document]:
    """Return a ScrapeConfig for each job. These have no setting against redirects."""
    return [
        _object(
            "monitoring.coreos.com/v1alpha1",
            "ScrapeConfig",
            each,
            {
                **_honor(each),
                **_limits(each),
                **_access(each, _SECRET_KEY),
                "kubernetesSDConfigs": [_discovery("Pod")],
                "relabelings": _rules(each.relabel),
                "metricRelabelings": _rules(each.metric_relabel),
            },
        )
        for each in jobs
    ]


_SECRET_KEY = {"credentials": {"name": SECRET, "key": "token"}}
_OF_OPERATOR: Mapping[str, Sequence[Relabel]] = {
    "devices": [Relabel(action="labeldrop", regex="namespace|pod|container")],
    "token": [],
    "servers": [],
}
"""Kind of a job -> rules that undo what the operator's own relabelling sets."""


def _object(version: str, kind: str, job: Job, spec: Document) -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": job.name}, "spec": spec}


def _discovery(role: str) -> Document:
    return {"role": role, "selectors": [{"role": role, "field": "status.phase=Running"}]}


def _honor(job: Job) -> Document:
    # With timestamps of the future, one page ends the series of all: Prometheus refuses samples
    # that are older than the newest by half a block. npu-exporter tells by them which pod ended;
    # without tracking, its series would outlive their pods, and itself, by five minutes.
    honored = job.kind == "devices"
    tracked = {"trackTimestampsStaleness": True} if honored else {}
    return {"honorLabels": False, "honorTimestamps": honored, **tracked}


def _limits(job: Job) -> Document:
    return {
        "scrapeProtocols": _PROTOCOLS,
        "sampleLimit": job.limits.scrape_samples,
        "bodySizeLimit": _size(job.limits.scrape_body),
        "labelLimit": job.limits.scrape_labels,
        "labelValueLengthLimit": job.limits.scrape_label_value,
        "targetLimit": job.limits.scrape_targets,
        "keepDroppedTargets": _DROPPED,
    }


def _size(size: int) -> str:
    """Return a size as Prometheus writes it, whose units are powers of two."""
    return f"{size >> 20}MB" if size % (1 << 20) == 0 else f"{size}B"


def _access(job: Job, token: Document) -> Document:
    """Return the credentials that pages get; without any, their certificates are not verified."""
    if job.kind == "token":
        return {"authorization": token}
    return {"tlsConfig": {"insecureSkipVerify": True}}  # it gets no credentials


def _rules(rules: Sequence[Relabel]) -> list[Document]:
    return [_rule(each) for each in rules]


def _rule(rule: Relabel) -> Document:
    document: Document = {} if rule.action == "replace" else {"action": rule.action}
    if rule.sources:
        document["sourceLabels"] = list(rule.sources)
    if rule.regex:
        document["regex"] = rule.regex
    if rule.modulus:
        document["modulus"] = rule.modulus
    if rule.target:
        document["targetLabel"] = rule.target
    if rule.replacement is not None:
        document["replacement"] = rule.replacement
    return document


def _snake(value: Any) -> Any:
    """Return a document of the operator with the keys of a configuration file."""
    if isinstance(value, list):
        return [_snake(each) for each in value]
    if isinstance(value, dict):
        return {re.sub("[A-Z]", r"_\g<0>", key).lower(): _snake(value[key]) for key in value}
    return value


def _duration(seconds: float) -> str:
    return f"{round(1000 * seconds)}ms"
