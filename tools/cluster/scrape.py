"""Configuration of the Prometheus that scrapes a live fleet and its kube-state-metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from adapter.cli.local_prometheus import process

STATE_METRICS = "/kube-state-metrics"
"""Path of kube-state-metrics on the exporters' port."""
EXPORTERS = "nvidia-dcgm-exporter|kube-state-metrics"
"""Jobs with the same targets for the life of a cluster, as a regular expression."""
SERVERS = "/model-servers"
"""Path at which Prometheus discovers model servers, on the same port."""


def config(
    nodes: Sequence[str],
    exporters_port: int,
    *,
    rules: Path | None = None,
) -> str:
    """Return the text of prometheus.yml; scrapes and evaluates rules every second."""
    exporters = f"127.0.0.1:{exporters_port}"
    servers = {
        "job_name": "model-servers",
        "http_sd_configs": [{"url": f"http://{exporters}{SERVERS}", "refresh_interval": "1s"}],
        # All pods share the port of the exporters; the path of a target has its name.
        "relabel_configs": [
            {"source_labels": ["__address__"], "target_label": "instance"},
            {"target_label": "__address__", "replacement": exporters},
        ],
    }
    state_metrics = {
        "job_name": "kube-state-metrics",
        "honor_labels": True,
        "metrics_path": STATE_METRICS,
        "static_configs": [
            {
                "targets": [exporters],
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
                servers,
            ],
        }
    )
