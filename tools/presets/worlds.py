"""A real Prometheus for each exporter generation and scrape scheme.

It scrapes the expositions in tests/fixtures/exporters as in a cluster, so that label conflicts are
resolved by Prometheus itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tools import http_server
from tools.http_server import METRICS, Answer
from tools.presets.table import EXPORTERS
from tools.real import prometheus

EXPORTER_PODS = {
    "gpu-node-a": "dcgm-exporter-b6sgj",
    "gpu-node-b": "dcgm-exporter-n8v2q",
    "gpu-node-c": "dcgm-exporter-x4k7w",
}


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


def configuration(worlds: Mapping[str, str], port: int) -> str:
    """Return a Prometheus config for `worlds` (file below EXPORTERS -> scheme)."""
    jobs = [
        {
            "job_name": file,
            "honor_labels": scheme == "honored",
            "static_configs": [
                {
                    "targets": [f"127.0.0.1:{port}"],
                    "labels": {
                        "__metrics_path__": f"/{file}",
                        **_target_labels(_node(file), scheme),
                    },
                }
            ],
        }
        for file, scheme in worlds.items()
    ]
    # Slow: with dozens of servers on two cores, a missed scrape would end series.
    intervals = {"scrape_interval": "5s", "scrape_timeout": "5s"}
    return json.dumps({"global": intervals, "scrape_configs": jobs})


def _node(file: str) -> str:
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
    target = _target_labels(_node(file), scheme)
    if scheme == "honored":
        return {**target, **exposed}
    own = {(f"exported_{name}" if name in target else name): each for name, each in exposed.items()}
    return {**own, **target}


@contextmanager
def exporters(folder: Path = EXPORTERS) -> Iterator[int]:
    """Serve the expositions below `folder`; yield the port."""

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        file = folder / request.path.removeprefix("/")
        return (200, METRICS, file.read_bytes()) if file.is_file() else (404, METRICS, b"")

    with http_server.serving(answer) as port:
        yield port


@contextmanager
def scraping(worlds: Mapping[World, Path]) -> Iterator[Mapping[World, prometheus.Prometheus]]:
    """Run a Prometheus for each world in its folder; yield when all targets are scraped."""
    with ExitStack() as stack:
        port = stack.enter_context(exporters())
        servers: dict[World, prometheus.Prometheus] = {}
        for world, folder in worlds.items():
            scraped = dict.fromkeys(files(world.variant), world.scheme)
            servers[world] = stack.enter_context(
                prometheus.run(folder, configuration(scraped, port))
            )
        for world, server in servers.items():
            prometheus.wait_for(
                partial(_all_up, server, len(files(world.variant))),
                f"{world} is scraped",
                seconds=60,
            )
        yield servers


def _all_up(server: prometheus.Prometheus, count: int) -> bool:
    result = server.get("/api/v1/query", query="count(up == 1)")["result"]
    return bool(result) and int(result[0]["value"][1]) == count
