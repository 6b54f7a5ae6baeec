"""`demo`: a fleet of GPUs, a real Prometheus that scrapes it, and the server, on one machine."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from aiohttp import web

from adapter import errors, settings
from adapter.app import server as app
from adapter.commands import serve, shutdown
from adapter.demo import binary, exporter, manifests, prometheus
from adapter.demo.fleet import Fleet
from adapter.demo.generations import DEFAULT, GENERATIONS
from rules.errors import ConfigError

NAME = "demo"
SUMMARY = "serve the metrics of a fleet of GPUs that needs neither a GPU nor a cluster"

FIRST_ANSWER_WITHIN = 60.0
_APP = "bert-intent-detection"
_METRIC = (
    "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/duty_cycle_current"
    f"?labelSelector=app%3D{_APP}"
)
_NODES = "/apis/custom.metrics.k8s.io/v1beta1/nodes/*/duty_cycle_current"
_LIST = "/apis/custom.metrics.k8s.io/v1beta1"


def main(argv: Sequence[str]) -> int:
    """0 when told to stop, 1 when something could not start, 2 for a wrong command line."""
    asked = _parser().parse_args(argv)
    serve.set_up_logging(logging.DEBUG if asked.verbose else logging.WARNING)
    try:
        _check_free(asked.secure_port)
        program = binary.find()
        shutdown.run(_demo(asked, program))
    except (
        errors.StartError,
        binary.NoPrometheusError,
        prometheus.PrometheusFailedError,
        ConfigError,
    ) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu-metrics-adapter demo", description=SUMMARY)
    parser.add_argument("--secure-port", type=int, default=6443, help="port of the server")
    parser.add_argument(
        "--generation",
        choices=sorted(GENERATIONS),
        default=DEFAULT,
        help="whose exporter's format the fleet speaks; the matching preset goes with it",
    )
    parser.add_argument("--nodes", type=_nodes, default=3, help="nodes, of four GPUs each")
    parser.add_argument(
        "--load",
        type=_load,
        default=3.0,
        help="factor on the recorded utilisation, or `fixed` for values that stand still",
    )
    parser.add_argument(
        "--honor-labels",
        action="store_true",
        help="scrape with honor_labels: the pod is then `pod`, not `exported_pod`",
    )
    parser.add_argument("--verbose", action="store_true", help="log each step")
    return parser


def _nodes(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{text}: a fleet has 1 to 1000 nodes")
    return number


def _load(text: str) -> float | None:
    """A factor; None for `fixed`."""
    if text == "fixed":
        return None
    factor = float(text)
    if not 0 <= factor <= 1000:
        raise argparse.ArgumentTypeError(f"{text}: the factor is 0 to 1000")
    return factor


def _check_free(port: int) -> None:
    """Say so early when somebody else has the port: Prometheus takes a while."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise errors.StartError(
                f"port {port} of 127.0.0.1 cannot be had ({error.strerror}); "
                "`make run PORT=N` or --secure-port=N names another"
            ) from error


async def _demo(asked: argparse.Namespace, program: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stop = stack.enter_context(shutdown.stopping())
        await shutdown.run_until(stop, _start(asked, program, stack))
        await stop.wait()
        _say("stopping")


async def _start(
    asked: argparse.Namespace, program: Path, stack: contextlib.AsyncExitStack
) -> None:
    """Returns once every pod has a value, and it was said where to look."""
    generation = GENERATIONS[asked.generation]
    fleet = Fleet.of(
        nodes=asked.nodes,
        load=3.0 if asked.load is None else asked.load,
        fixed=asked.load is None,
        mig=generation.mig,
    )
    began = time.monotonic()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-fleet-")))
    exporters = await _serve_exporters(
        exporter.application(fleet, generation, lambda: time.monotonic() - began), stack
    )
    _say(f"{len(fleet.gpus)} GPUs on {asked.nodes} nodes, as {generation.summary} reports them")
    text = prometheus.config(fleet.nodes, exporters, honor_labels=asked.honor_labels)
    port = _free_port()
    _say(f"starting {program}")
    url = await stack.enter_async_context(prometheus.running(program, text, port, folder))
    objects = folder / "objects.yaml"
    objects.write_text(json.dumps(manifests.document(fleet)), encoding="utf-8")
    flags = [
        f"--secure-port={asked.secure_port}",
        f"--prometheus-url={url}",
        f"--objects={objects}",
        f"--preset={generation.preset}",
        "--metrics-relist-interval=10s",
        "--metrics-max-age=1m",
    ]
    if generation.preset == "gpu-dcgm":
        flags.append("--preset=gpu-dcgm-prof")
    server = await stack.enter_async_context(app.running(settings.parse(flags)))
    by_node = generation.preset == "gpu-node"
    question = _NODES if by_node else _METRIC
    expected = len(fleet.nodes) if by_node else sum(pod.app == _APP for pod in fleet.pods)
    await _first_answer(server.url + question, expected)
    _say(_TO_TRY.format(url=server.url, metric=question, nodes=_NODES, list=_LIST, prometheus=url))


_TO_TRY = """
Ready. Try, in another terminal:

  curl -sk '{url}{metric}'
  curl -sk '{url}{nodes}'
  curl -sk '{url}{list}'
  curl -sk '{url}/readyz?verbose'

  kubectl --server={url} --insecure-skip-tls-verify --token=none get --raw '{metric}'

Prometheus is at {prometheus}. Ctrl-C ends everything."""


async def _serve_exporters(application: web.Application, stack: contextlib.AsyncExitStack) -> int:
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return int(runner.addresses[0][1])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _first_answer(url: str, expected: int) -> None:
    """Return once so many values are served; raises StartError if that takes too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FIRST_ANSWER_WITHIN
    async with aiohttp.ClientSession() as session:
        while loop.time() < deadline:
            async with session.get(url, ssl=False) as answer:
                if answer.status == 200 and len((await answer.json())["items"]) == expected:
                    return
            await asyncio.sleep(0.2)
    raise errors.StartError(f"not every pod had a value within {FIRST_ANSWER_WITHIN:.0f} s")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
