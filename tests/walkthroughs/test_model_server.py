"""Scale on the requests that wait in model servers; the engines are simulated.

`make model-server` tells the same story with a real vLLM.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from adapter.cli.demo.engine import Engine
from adapter.cli.demo.serving import SERVERS
from tools import http_server
from tools.cluster import cluster
from tools.control_plane.plane import ControlPlane
from tools.model_server import story
from tools.model_server.server import ADDRESSES, PORT


class Simulated:
    """An engine in real time."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._engine = Engine(story.LIKE_VLLM)
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._submitted = 0

    def complete(self, prompt: str, *, tokens: int) -> None:
        """Return when the engine has answered one more request; all are equally long."""
        with self._running() as engine:
            engine.submit(1)
            self._submitted += 1
            number = self._submitted
        while True:
            time.sleep(0.02)
            with self._running() as engine:
                if engine.finished >= number:
                    return

    def page(self, *_: object) -> http_server.Answer:
        """Return its exposition, whatever the request."""
        with self._running() as engine:
            return 200, http_server.METRICS, SERVERS["vllm"].render(engine).encode()

    @contextlib.contextmanager
    def _running(self) -> Iterator[Engine]:
        with self._lock:
            self._engine.advance(time.monotonic() - self._started)
            yield self._engine


def test_model_server(control_plane: ControlPlane, tmp_path: Path) -> None:
    servers = [Simulated(address) for address in ADDRESSES]
    with contextlib.ExitStack() as stack:
        for each in servers:
            stack.enter_context(http_server.serving(each.page, host=each.address, port=PORT))
        c = stack.enter_context(
            cluster.running(control_plane, tmp_path, generation="dcgm", nodes=len(servers), gpus=1)
        )
        story.tell(c, servers)
