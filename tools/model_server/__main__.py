"""`make model-server`: a plain HPA scales real vLLM servers on the requests that wait in them.

Installs vLLM for machines without a GPU (eight GiB, once), and runs two servers, a control plane,
Prometheus and the adapter on 127.0.0.1. With --record, writes what the first server exposes before,
under and after the load into tests/fixtures/recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from adapter.cli.local_prometheus.process import free_ports
from tools.cluster import cluster
from tools.cluster.walkthrough import Walkthrough, echo
from tools.control_plane import build, foreground, plane
from tools.model_server import install, server, story

RECORDINGS = Path(__file__).parents[2] / "tests" / "fixtures" / "recorded"
_SECONDS = 20.0
"""Between a change of the load and a recording; the first batches compile kernels."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the story, printed as it happens."""
    parser = argparse.ArgumentParser(prog="python -m tools.model_server", description=__doc__)
    parser.add_argument("--record", action="store_true", help="record the first server")
    record = parser.parse_args(argv).record
    installation = install.ensure()
    programs = build.ensure_programs()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="model-server-")))
        servers = []
        for number, port in enumerate(free_ports(2)):
            echo(
                f"starting server {number + 1} of 2: vLLM {install.VERSION}, a minute on two cores"
            )
            servers.append(stack.enter_context(server.running(installation, folder, port)))
        if record:
            _record(servers[0])
        service = story.Service(servers, folder)
        echo(f"starting Kubernetes {programs.version} and Prometheus")
        control_plane = stack.enter_context(plane.running(folder, programs))
        c = stack.enter_context(
            cluster.running(
                control_plane,
                folder,
                generation="dcgm",
                nodes=len(servers),
                gpus=1,
                jobs=[service.scrape_job],
                clean_up=False,
            )
        )
        stack.enter_context(story.following(service, c.fleet))
        stack.enter_context(c.adapter("--preset=gpu-dcgm", "--preset=inference-vllm"))
        clients = stack.enter_context(closing(story.Clients(service.complete)))
        story.tell(Walkthrough(c, hpa=story.APP), clients.set)


def _record(running: server.Server) -> None:
    """Record a server when idle, with the clients of the story, and after them."""
    release = ".".join(install.VERSION.split(".")[:2])
    RECORDINGS.mkdir(exist_ok=True)

    def write(state: str, requests: int) -> None:
        time.sleep(_SECONDS)
        # The requests of a batch end together; for a moment fewer run than could.
        while server.running_requests(text := running.exposition()) != requests:
            time.sleep(0.1)
        path = RECORDINGS / f"vllm-{release}-{state}.prom"
        path.write_text(text)
        echo(f"recorded {path}")

    write("idle", 0)
    clients = story.Clients(lambda: running.complete(story.PROMPT, tokens=story.TOKENS))
    with closing(clients):
        clients.set(story.MANY)
        write("loaded", server.MAX_RUNNING)
    write("after", 0)


if __name__ == "__main__":
    with foreground.program():
        main()
