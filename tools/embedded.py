"""Generated configuration of the Prometheus in the adapter's pod, for the chart and kustomize.

`rules.scrape` makes the scrape jobs; the chart writes the times and the namespaces. Tools and tests
run the same configuration on this machine.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rules import limits
from rules.scrape import formats, jobs
from rules.scrape.jobs import Job

_HEADER = "# Written by `make fix` from the key `scrape` of the presets.\n"
_TRUSTED, _TOKENS = "TRUSTED_NAMESPACES", "TOKEN_NAMESPACES"
"""Stand for the names in the chart's files, which are joined as a pattern."""
INTERVAL = "5s"
_TIMES = {"scrape_interval": INTERVAL, "scrape_timeout": "4500ms"}
STORAGE: Mapping[str, Any] = {"storage": {"tsdb": {"out_of_order_time_window": "5m"}}}
"""Otherwise samples may be at most half a block older than the newest: npu-exporter's are a minute
old, and those of a node whose clock is ahead would end the series of all."""
_COMPONENT = Path(__file__).parents[1] / "manifests" / "components" / "embedded-prometheus"
_OF_POD = ("--config.", "--web.listen-address=", "--storage.tsdb.path=")
"""Flags that say where files and the port are in the pod."""
_TRUSTED_LIMITS = dataclasses.replace(limits.DEFAULT, scrape_body=4 << 20, scrape_samples=5_000)
LIMITS = dataclasses.replace(
    limits.DEFAULT, scrape_body=1 << 20, scrape_samples=1_000, scrape_labels=32
)
"""Limits of a page without trust. New series each time fill the memory that all namespaces share. A
pod has up to eight engines, each with 50 kB and about a hundred series that presets read. The
largest series known, of LiteLLM, have 16 labels beside those of the target."""
_OF_VALUES = {
    f"sample_limit: {LIMITS.scrape_samples}\n": "sample_limit: SAMPLE_LIMIT\n",
    f"body_size_limit: {LIMITS.scrape_body >> 20}MB\n": "body_size_limit: BODY_SIZE_LIMIT\n",
}
"""Limits -> what stands for them in the chart's file."""


def _jobs(
    trusted: Collection[str], tokens: Collection[str] = (), *, minimal: bool = True
) -> Sequence[Job]:
    found = jobs.of_presets(minimal=minimal, trusted=trusted, tokens=tokens, limits=_TRUSTED_LIMITS)
    return [
        dataclasses.replace(each, limits=LIMITS) if each.kind == "servers" else each
        for each in found
    ]


def _configuration(found: Sequence[Job], **more: Any) -> str:
    """Return the configuration with these jobs."""
    return _text({**more, **STORAGE, **formats.prometheus(found)})


def _text(document: Any) -> str:
    return _HEADER + yaml.safe_dump(document, sort_keys=False, width=10_000)


def _of_chart() -> str:
    """Return the configuration without the job that sends a token, which is a file of its own."""
    text = _configuration([each for each in _jobs([_TRUSTED], [_TOKENS]) if each.kind != "token"])
    for written, placeholder in _OF_VALUES.items():
        text = text.replace(written, placeholder)
    return text


def _of_token() -> str:
    """Return the job, in a list, that sends a token."""
    found = [each for each in _jobs((), [_TOKENS]) if each.kind == "token"]
    return _text(formats.prometheus(found)["scrape_configs"])


FILES: Mapping[str, Callable[[], str]] = {
    "manifests/chart/files/prometheus.yaml": _of_chart,
    "manifests/chart/files/prometheus-token.yaml": _of_token,
    "manifests/components/embedded-prometheus/prometheus.yml": lambda: _configuration(
        _jobs(("gpu-metrics-adapter", "gpu-operator")), **{"global": _TIMES}
    ),
}
"""File -> its generated text."""


def local(
    kubeconfig: Path, *, interval: float, trusted: Collection[str] = (), minimal: bool = True
) -> str:
    """Return the configuration of a Prometheus on this machine, which reads pods by `kubeconfig`.

    `interval` is in seconds. Arguments as in `jobs.of_presets`.
    """
    found = _jobs(trusted, minimal=minimal)
    document = {**STORAGE, **formats.prometheus(found, interval=interval)}
    for job in document["scrape_configs"]:
        for discovery in job["kubernetes_sd_configs"]:
            discovery["kubeconfig_file"] = str(kubeconfig)
    return json.dumps(document)


def sidecar() -> Mapping[str, Any]:
    """Return the container in the component of kustomize, whose values are those of the chart."""
    component = yaml.safe_load((_COMPONENT / "kustomization.yaml").read_text())
    (containers,) = (
        each["value"]
        for patch in component["patches"]
        for each in yaml.safe_load(patch["patch"])
        if each["path"].endswith("/initContainers")
    )
    container: Mapping[str, Any] = containers[0]
    return container


def flags() -> list[str]:
    """Return the flags of the sidecar, without those about files and the port."""
    return [each for each in sidecar()["args"] if not each.startswith(_OF_POD)]
