"""A real Prometheus for each exporter generation and scrape scheme.

It scrapes the expositions in tests/fixtures as in a cluster, so that label conflicts are resolved
by Prometheus itself.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeVar

from tools import http_server
from tools.http_server import METRICS, Answer
from tools.presets.table import ACCELERATORS, EXPORTERS
from tools.real import prometheus
from tools.workload.page import stamped

EXPORTER_PODS = {
    "gpu-node-a": "dcgm-exporter-b6sgj",
    "gpu-node-b": "dcgm-exporter-n8v2q",
    "gpu-node-c": "dcgm-exporter-x4k7w",
}


Key = TypeVar("Key")
_UNDATED = re.compile(r"^(?!#)(?:.*\}|[^\s{]+) +\S+$", re.MULTILINE)
"""A sample without a timestamp."""


@dataclass(frozen=True, slots=True)
class World:
    """One exporter generation and scrape scheme."""

    variant: str
    scheme: str

    def __str__(self) -> str:
        return f"{self.variant}/{self.scheme}"


def _target_labels(node: str, scheme: str) -> dict[str, str]:
    if scheme == "bare":
        return {"node": node, "instance": f"{node}:9400"}
    return {
        "namespace": "gpu-operator",
        "service": "nvidia-dcgm-exporter",
        "pod": EXPORTER_PODS[node],
        "container": "nvidia-dcgm-exporter",
        "endpoint": "gpu-metrics",
        "instance": f"{node}:9400",
    }


def configuration(worlds: Mapping[str, str], port: int, *, seconds: int = 2) -> str:
    """Return a Prometheus config for `worlds` (file below EXPORTERS -> scheme).

    `seconds` is the time between scrapes, and that until all targets have been scraped.
    """
    jobs = (
        _job(file, file, scheme, _target_labels(node_of(file), scheme), port)
        for file, scheme in worlds.items()
    )
    return _config(jobs, seconds)


def accelerators(names: Iterable[str], port: int, *, scheme: str, copies: int = 1) -> str:
    """Return a Prometheus config for exporters of ACCELERATORS, each scraped by `copies` jobs.

    The labels are those of a ServiceMonitor, and `node` where the exporter does not name the node.
    """
    jobs = (
        _job(f"{name}/{copy}", f"{name}.prom", scheme, _accelerator_labels(name, copy), port)
        for name in names
        for copy in range(copies)
    )
    return _config(jobs)


def _accelerator_labels(name: str, copy: int) -> dict[str, str]:
    relabelled = {"node": f"{name}-node"} if "scheme" in ACCELERATORS[name] else {}
    return {
        "namespace": "monitoring",
        "service": f"{name}-{copy}",
        "pod": f"{name}-exporter",
        "container": "exporter",
        "endpoint": "metrics",
        "instance": f"{name}:9400",
        **relabelled,
    }


def _job(name: str, file: str, scheme: str, labels: Mapping[str, str], port: int) -> dict[str, Any]:
    target = {
        "targets": [f"127.0.0.1:{port}"],
        "labels": {"__metrics_path__": f"/{file}", **labels},
    }
    return {"job_name": name, "honor_labels": scheme == "honored", "static_configs": [target]}


def _config(jobs: Iterable[Mapping[str, Any]], seconds: int = 2) -> str:
    intervals = {"scrape_interval": f"{seconds}s", "scrape_timeout": f"{seconds}s"}
    return json.dumps({"global": intervals, "scrape_configs": [*jobs]})


def node_of(file: str) -> str:
    """Return the node of an exposition file of NVIDIA GPUs."""
    stem = Path(file).stem
    return stem if stem in EXPORTER_PODS else "gpu-node-c"


def files(variant: str) -> tuple[str, ...]:
    """Return the exposition files of a variant, which is a folder or one file."""
    path = EXPORTERS / variant
    if path.suffix == ".prom":
        return (variant,)
    return tuple(f"{variant}/{each.name}" for each in sorted(path.glob("*.prom")))


def stored(exposed: Mapping[str, str], file: str, scheme: str) -> dict[str, str]:
    """Return the labels of a series as Prometheus stores them: it renames those in conflict."""
    target = _target_labels(node_of(file), scheme)
    if scheme == "honored":
        return {**target, **exposed}
    own = {(f"exported_{name}" if name in target else name): each for name, each in exposed.items()}
    return {**own, **target}


@contextmanager
def exporters(folder: Path = EXPORTERS, *, dated: bool = True) -> Iterator[int]:
    """Serve the expositions below `folder`; yield the port.

    Unless `dated` is false, all samples have timestamps: then a scrape that fails, as on a busy
    machine, does not end their series.
    """

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        file = folder / request.path.removeprefix("/")
        if not file.is_file():
            return 404, METRICS, b""
        text = stamped(file.read_text())
        return 200, METRICS, (_dated(text) if dated else text).encode()

    with http_server.serving(answer) as port:
        yield port


def _dated(exposition: str) -> str:
    """Return an exposition in which each sample has a timestamp: now, if it has none."""
    return _UNDATED.sub(rf"\g<0> {time.time() * 1000:.0f}", exposition)


@contextmanager
def scraping(
    folder: Path, configs: Mapping[Key, str]
) -> Iterator[Mapping[Key, prometheus.Prometheus]]:
    """Run a Prometheus for each config, below `folder`; yield when all targets are scraped.

    All start at once, because each begins to scrape only five seconds after its start.
    """
    with ExitStack() as stack, ThreadPoolExecutor(len(configs)) as pool:

        def start(number: int, config: str) -> prometheus.Prometheus:
            own = folder / str(number)
            own.mkdir()
            return stack.enter_context(prometheus.run(own, config))

        started = pool.map(start, itertools.count(), configs.values())
        servers = dict(zip(configs, started, strict=True))
        for key, config in configs.items():
            wait_until_scraped(servers[key], len(json.loads(config)["scrape_configs"]))
        yield servers


def wait_until_scraped(server: prometheus.Prometheus, targets: int) -> None:
    """Wait until all `targets` of a server are scraped."""
    what = f"{targets} targets are scraped"
    prometheus.wait_for(partial(_all_up, server, targets), what)


def _all_up(server: prometheus.Prometheus, count: int) -> bool:
    result = server.get("/api/v1/query", query="count(up == 1)")["result"]
    return bool(result) and int(result[0]["value"][1]) == count
