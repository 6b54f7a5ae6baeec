"""Configuration of the Prometheus that scrapes a live fleet and its kube-state-metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from adapter.local_prometheus import process

STATE_METRICS = "/kube-state-metrics"
"""Path of kube-state-metrics on the exporters' port."""


def config(nodes: Sequence[str], exporters_port: int, *, rules: Path | None = None) -> str:
    """Return the text of process.yml; scrapes and evaluates rules every second."""
    state_metrics = {
        "job_name": "kube-state-metrics",
        "honor_labels": True,
        "metrics_path": STATE_METRICS,
        "static_configs": [
            {
                "targets": [f"127.0.0.1:{exporters_port}"],
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
    intervals = ("scrape_interval", "scrape_timeout", "evaluation_interval")
    return yaml.safe_dump(
        {
            "global": dict.fromkeys(intervals, "1s"),
            "rule_files": [str(rules)] if rules else [],
            "scrape_configs": [
                process.job(nodes, exporters_port, honor_labels=True),
                state_metrics,
            ],
        }
    )
