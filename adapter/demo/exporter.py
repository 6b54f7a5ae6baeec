"""The exporters of the fleet: readings of GPUs in the text format of Prometheus, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aiohttp import web

from adapter.demo.fleet import Fleet, Gpu, Reading
from adapter.demo.generations import Generation


def render(readings: Iterable[tuple[Gpu, Reading]], generation: Generation) -> str:
    """Return the exposition of one node's exporter.

    https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
    """
    gpus = tuple(readings)
    lines: list[str] = []
    for series in generation.series:
        lines.append(f"# HELP {series.name} {series.help}")
        lines.append(f"# TYPE {series.name} gauge")
        for gpu, reading in gpus:
            if series.whole and gpu.instance is not None:
                continue
            if gpu.pod is None and not generation.idle:
                continue
            labels = label_set(generation.labels(gpu))
            lines.append(f"{series.name}{labels} {series.value(reading):.10g}")
    return "\n".join(lines) + "\n"


def label_set(labels: Mapping[str, str]) -> str:
    """Return the labels of a sample, in braces."""
    pairs: list[str] = []
    for name, value in labels.items():
        escaped = value.replace("\\", r"\\").replace('"', r"\"")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}"


def application(
    fleet: Fleet, generation: Generation, seconds: Callable[[], float]
) -> web.Application:
    """Return an application with `/NODE/metrics` for each node, all on one port.

    `seconds` returns the time since the start.
    """

    async def metrics(request: web.Request) -> web.Response:
        node = request.match_info["node"]
        if node not in fleet.nodes:
            raise web.HTTPNotFound(text=f"{node}: no such node; nodes: {', '.join(fleet.nodes)}\n")
        text = render(fleet.readings(node, seconds()), generation)
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/{node}/metrics", metrics)
    return app
