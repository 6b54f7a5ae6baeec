"""HTTP server of the fleet's exporters: one scrape target for each node, all on one port."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from adapter.demo import exposition
from adapter.demo.fleet import Fleet
from adapter.demo.generations import Generation


def application(
    fleet: Fleet, generation: Generation, seconds: Callable[[], float]
) -> web.Application:
    """Return an application with `/NODE/metrics`; `seconds` returns the time since the start."""

    async def metrics(request: web.Request) -> web.Response:
        node = request.match_info["node"]
        if node not in fleet.nodes:
            raise web.HTTPNotFound(text=f"{node}: no such node; nodes: {', '.join(fleet.nodes)}\n")
        text = exposition.render(fleet.readings(node, seconds()), generation)
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/{node}/metrics", metrics)
    return app
