"""Runs what `demo` shows: a simulated GPU fleet, a Prometheus that scrapes it, and the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from adapter import errors, settings
from adapter.cli.commands import serve, shutdown
from adapter.cli.commands.demo import DEFAULT_LOAD, FIXED, GPU, Simulation
from adapter.cli.demo import serving
from adapter.cli.demo.fleet import APP, Fleet
from adapter.cli.demo.generations import GENERATIONS, MEASURED
from adapter.cli.demo.serving import Page
from adapter.cli.local_prometheus import binary, debian, process
from adapter.server.app import server as app
from rules.errors import ConfigError
from rules.metrics_apis import ALL_OBJECTS, CUSTOM, custom_metric

_START_TIMEOUT = 60.0
"""Seconds for each condition."""
_GROUP = CUSTOM.path()
_PODS = (
    custom_metric("duty_cycle_current", "pods", ALL_OBJECTS, namespace="default")
    + f"?labelSelector=app%3D{APP}"
)
_WAITING = _PODS.replace("duty_cycle", "requests_waiting")
_NODES = custom_metric("duty_cycle_current", "nodes", ALL_OBJECTS)

_READY = """
Ready. Try in another terminal:

  curl -sk '{url}{metric}'
  curl -sk '{url}{nodes}'
  curl -sk '{url}{group}'
  curl -sk '{url}/readyz?verbose'

  kubectl --server={url} --insecure-skip-tls-verify --token=none get --raw '{metric}'

Prometheus is at {prometheus}. Ctrl-C ends everything."""


def run(options: Simulation) -> int:
    """Run the demo until a signal; return 0 after it, 1 if something cannot start."""
    serve.set_up_logging(logging.DEBUG if options.verbose else logging.WARNING)
    try:
        _check_free(options.secure_port)
        program = binary.find()
        shutdown.run(_run_until_stopped(options, program))
    except (
        errors.StartError,
        debian.NoProgramError,
        process.PrometheusFailedError,
        ConfigError,
    ) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _check_free(port: int) -> None:
    """Raise StartError if the port is in use, before Prometheus takes its time to start."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise errors.StartError(
                f"cannot listen on 127.0.0.1:{port}: {error.strerror}; "
                "use `make run PORT=N` or --secure-port=N for another port"
            ) from error


async def _run_until_stopped(options: Simulation, program: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stop = stack.enter_context(shutdown.stopping())
        await shutdown.run_until(stop, _start(options, program, stack))
        await stop.wait()
        _say("stopping")


async def _start(options: Simulation, program: Path, stack: contextlib.AsyncExitStack) -> None:
    """Start everything, wait until discovery and values are complete, print what to try."""
    generation = MEASURED if options.load == GPU else GENERATIONS[options.generation]
    if options.load == GPU:
        fleet = stack.enter_context(_own_gpus())
    else:
        load = options.load if isinstance(options.load, float) else float(DEFAULT_LOAD)
        fleet = Fleet.of(nodes=options.nodes, load=load, mig=generation.mig)
    started = time.monotonic()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-fleet-")))

    def seconds() -> float:
        return 0.0 if options.load == FIXED else time.monotonic() - started

    def exporter(node: str) -> Page:
        return lambda seconds: generation.render(fleet.readings(node, seconds))

    server = generation.server
    servers = serving.pages(fleet, server) if server else {}
    pages = {**{node: exporter(node) for node in fleet.nodes}, **servers}
    port = await _serve(pages, seconds, stack)
    _say(f"{len(fleet.gpus)} GPUs on {len(fleet.nodes)} nodes, exporter: {generation.summary}")
    config = process.config(
        fleet.nodes,
        port,
        honor_labels=options.honor_labels,
        servers=[(pod.namespace, pod.name) for pod in fleet.pods if pod.name in servers],
    )
    _say(f"starting {program}")
    prometheus_url = await stack.enter_async_context(
        process.running(
            program,
            config,
            process.free_port(),
            folder,
            "--storage.tsdb.retention.time=1h",
        )
    )
    # The first relist must find the series, else discovery is empty until the next one.
    await _wait_until(
        f"{prometheus_url}/api/v1/query?query=sum(up)",
        lambda sums: [e["value"][1] for e in sums["data"]["result"]] == [str(len(pages))],
    )
    objects = folder / "objects.yaml"
    objects.write_text(json.dumps(fleet.objects()), encoding="utf-8")
    flags = [
        f"--secure-port={options.secure_port}",
        f"--prometheus-url={prometheus_url}",
        f"--objects={objects}",
        f"--preset={generation.preset}",
        "--metrics-relist-interval=10s",
        "--metrics-max-age=1m",
    ]
    if generation.preset == "gpu-dcgm" and generation is not MEASURED:
        flags.append("--preset=gpu-dcgm-prof")
    if server:
        flags.append(f"--preset={server.preset}")
    url = await stack.enter_async_context(app.running(settings.parse(flags)))
    if server:
        metric, expected = _WAITING, sum(pod.app == APP for pod in fleet.pods)
    elif generation.preset == "gpu-node":
        metric, expected = _NODES, len(fleet.nodes)
    else:
        metric, expected = _PODS, sum(pod.app == APP for pod in fleet.pods)
    await _wait_until(url + metric, lambda values: len(values["items"]) == expected)
    name = metric.partition("?")[0].rpartition("/")[2]
    await _wait_until(url + _GROUP, lambda found: name in str(found["resources"]))
    _say(
        _READY.format(url=url, metric=metric, nodes=_NODES, group=_GROUP, prometheus=prometheus_url)
    )


def _own_gpus() -> contextlib.AbstractContextManager[Fleet]:
    try:
        from adapter.cli.demo import nvml
    except ModuleNotFoundError as error:
        raise errors.StartError(
            "--load=gpu needs NVIDIA's package: pip install nvidia-ml-py"
        ) from error
    return nvml.fleet()


async def _serve(
    pages: Mapping[str, Page], seconds: Callable[[], float], stack: contextlib.AsyncExitStack
) -> int:
    """Serve each page as `/NAME/metrics` on a free port of 127.0.0.1, and return the port.

    `seconds` returns the time since the start.
    """

    async def metrics(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in pages:
            raise web.HTTPNotFound(text=f"{name}: not there; known: {', '.join(pages)}\n")
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        return web.Response(text=pages[name](seconds()), headers=headers)

    application = web.Application()
    application.router.add_get("/{name}/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return int(runner.addresses[0][1])


async def _wait_until(url: str, condition: Callable[[Any], bool]) -> None:
    """Return once the document at `url` fulfils the condition. Raises StartError on timeout."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_TIMEOUT
    async with aiohttp.ClientSession() as session:
        while loop.time() < deadline:
            async with session.get(url, ssl=False) as response:
                if response.status == 200 and condition(await response.json()):
                    return
            await asyncio.sleep(0.2)
    raise errors.StartError(
        f"{url}: too few values after {_START_TIMEOUT:.0f} s; run with --verbose for the log"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
