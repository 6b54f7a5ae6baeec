"""The exporters of the fleet: readings of GPUs in the text format of Prometheus, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aiohttp import web

from adapter.cli.demo import series
from adapter.cli.demo.fleet import Fleet, Gpu, Reading
from adapter.cli.demo.generations import Generation
from adapter.cli.demo.serving import Page


def render(readings: Iterable[tuple[Gpu, Reading]], generation: Generation) -> str:
    """Return the exposition of one node's exporter."""
    sources = [
        (reading, generation.labels(gpu))
        for gpu, reading in readings
        if gpu.pod is not None or generation.idle != "unreported"
    ]
    return series.render(generation.series, sources)


def pages(fleet: Fleet, generation: Generation) -> Mapping[str, Page]:
    """Return the page of each node's exporter."""

    def page(node: str) -> Page:
        return lambda seconds: render(fleet.readings(node, seconds), generation)

    return {node: page(node) for node in fleet.nodes}


def application(pages: Mapping[str, Page], seconds: Callable[[], float]) -> web.Application:
    """Return an application with `/NAME/metrics` for each page, all on one port.

    `seconds` returns the time since the start.
    """

    async def metrics(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in pages:
            raise web.HTTPNotFound(text=f"{name}: not there; known: {', '.join(pages)}\n")
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        return web.Response(text=pages[name](seconds()), headers=headers)

    app = web.Application()
    app.router.add_get("/{name}/metrics", metrics)
    return app
