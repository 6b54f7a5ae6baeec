"""`make model-server`: a plain HPA scales real vLLM servers on the requests that wait in them.

Installs vLLM for machines without a GPU (eight GiB, once), and runs two servers, a control plane,
the adapter, and the Prometheus of its pod, which discovers the servers. With --record, writes what
the first server exposes before, under and after the load into tests/fixtures/recorded. With
--advise, sweeps the load of one server for half an hour, and checks the target of `advise hpa`.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tools.cluster import cluster
from tools.cluster.walkthrough import echo
from tools.control_plane import build, foreground, plane
from tools.model_server import install, server, story, sweep

RECORDINGS = Path(__file__).parents[2] / "tests" / "fixtures" / "recorded"
_SECONDS = 20.0
"""Between a change of the load and a recording; the first batches compile kernels."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the story, printed as it happens."""
    parser = argparse.ArgumentParser(prog="python -m tools.model_server", description=__doc__)
    parser.add_argument("--record", action="store_true", help="record the first server")
    parser.add_argument("--advise", action="store_true", help="check the target of advise hpa")
    options = parser.parse_args(argv)
    addresses = server.ADDRESSES[:1] if options.advise else server.ADDRESSES
    installation = install.ensure()
    programs = build.ensure_programs()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="model-server-")))
        servers = []
        for address in addresses:
            echo(f"starting vLLM {install.VERSION} on {address}: a minute on two cores")
            servers.append(stack.enter_context(server.running(installation, folder, address)))
        if options.record:
            _record(servers[0])
        echo(f"starting Kubernetes {programs.version} and Prometheus")
        control_plane = stack.enter_context(plane.running(folder, programs))
        c = stack.enter_context(
            cluster.running(
                control_plane,
                folder,
                generation="dcgm",
                nodes=len(servers),
                gpus=1,
                clean_up=False,
            )
        )
        (sweep if options.advise else story).tell(c, servers)


def _record(running: server.Server) -> None:
    """Record a server when idle, with the clients of the story, and after them."""
    release = ".".join(install.VERSION.split(".")[:2])
    RECORDINGS.mkdir(exist_ok=True)

    def write(state: str, requests: int) -> None:
        time.sleep(_SECONDS)
        # The requests of a batch end together; for a moment fewer run than could.
        while server.value(text := running.exposition(), story.RUNNING) != requests:
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
