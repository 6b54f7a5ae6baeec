"""The configuration of a Prometheus that scrapes a live fleet and its kube-state-metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from adapter.demo import prometheus

STATE_METRICS = "/kube-state-metrics"
"""The path of kube-state-metrics, on the exporters' port."""


def config(
    nodes: Sequence[str], exporters: int, *, honor_labels: bool, rules: Path | None = None
) -> str:
    """Everything each second, the rule file too."""
    state_metrics = {
        "job_name": "kube-state-metrics",
        "honor_labels": True,
        "metrics_path": STATE_METRICS,
        "static_configs": [
            {
                "targets": [f"127.0.0.1:{exporters}"],
                "labels": {
                    "instance": "kube-state-metrics:8080",
                    "namespace": "monitoring",
                    "pod": "kube-state-metrics-0",
                    "container": "kube-state-metrics",
                    "service": "kube-state-metrics",
                    "endpoint": "http",
                },
            }
        ],
    }
    every = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "1s")
    return yaml.safe_dump(
        {
            "global": every,
            "rule_files": [str(rules)] if rules else [],
            "scrape_configs": [
                prometheus.job(nodes, exporters, honor_labels=honor_labels),
                state_metrics,
            ],
        }
    )
