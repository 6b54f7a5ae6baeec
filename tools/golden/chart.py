"""The notes that Helm prints after an installation of the chart, for its main choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools import helm

_URL = {"url": "http://prometheus-operated.monitoring.svc"}
TITLES: Mapping[str, Mapping[str, Any]] = {
    "chart: default values": {},
    "chart: presets": {"prometheus": _URL, "presets": ["auto"], "rules": {"default": False}},
    "chart: values of prometheus-adapter": {
        "image": {"repository": "registry.k8s.io/prometheus-adapter/prometheus-adapter"},
        "psp": {"create": True},
        "rules": {
            "external": [{"seriesQuery": "queue", "metricsQuery": "sum(<<.Series>>)"}],
            "resource": {"window": "3m"},
        },
        "replica": 2,
    },
}
"""Title of a section -> values."""


def section(title: str) -> str:
    """Return the notes."""
    return f"=== {title}\n$ helm install\n{helm.notes(TITLES[title]).strip()}\n\n"
