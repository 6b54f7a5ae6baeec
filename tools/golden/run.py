"""Runs the adapter and its commands in this process, and returns every line that a user reads."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp

from adapter import settings
from adapter.cli import program
from adapter.cli.local_prometheus.process import free_port
from adapter.server.app import server as app
from adapter.server.evaluation import demand
from tools.golden.events import Watch
from tools.golden.exchanges import PROMETHEUS
from tools.waiting import until

_SECONDS = 90.0
_NEVER = 1000
"""Requests of a case, and more."""
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{2,5}\b")
_TOOK = re.compile(r"\b\d+(\.\d+)? ms\b")
_STAMP = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_STARTING = "health check first-relist"
"""Log line of a health check that is requested too early."""


def normalized(text: str) -> str:
    """Return text without times and ports."""
    return _STAMP.sub("TIME", _PORT.sub("PORT", _TOOK.sub("N ms", text)))


class Adapter:
    """An adapter without a cluster, on a thread of its own."""

    def __init__(
        self,
        folder: Path,
        objects: Sequence[Any],
        flags: Sequence[str],
        hpas: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._watch = Watch(hpas)
        self.log: list[str] = []
        file = folder / "objects.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]}))
        self._flags = (
            f"--prometheus-url=http://{PROMETHEUS}:9090",
            f"--objects={file}",
            f"--secure-port={free_port()}",
            *flags,
        )
        self._loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()
        self._started = threading.Event()
        self._problem: BaseException | None = None
        self.url = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[Adapter]:
        """Run it, ready or not, until the context ends."""
        handler = _Lines(self.log)
        logger = logging.getLogger("adapter")
        logger.addHandler(handler)
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        thread.start()
        try:
            # How many requests share a query depends on the speed of the machine.
            with mock.patch.object(demand, "_BUSY", _NEVER):
                self._started.wait(_SECONDS)
                if self._problem is not None:
                    raise self._problem
                yield self
        finally:
            self._loop.call_soon_threadsafe(self._ends.set)
            thread.join(_SECONDS)
            self._loop.close()
            logger.removeHandler(handler)

    async def _run(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                with self._watch.installed():
                    running = app.running(settings.parse(self._flags))
                    self.url = await stack.enter_async_context(running)
                await until(self._relisted)
                self._started.set()
                await self._ends.wait()
        except BaseException as error:  # noqa: BLE001 - raised by `running`
            self._problem = error
            self._started.set()

    async def _relisted(self) -> bool:
        status, _, _ = await self._get("/readyz/first-relist")
        return status == 200

    async def _get(self, path: str) -> tuple[int, str, list[str]]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.url + path, ssl=False) as response,
        ):
            warnings = response.headers.getall("Warning", [])
            return response.status, (await response.read()).decode(), warnings

    def get(self, path: str) -> tuple[int, str, list[str]]:
        """Return status, body and Warning headers of the answer to a request."""
        return asyncio.run_coroutine_threadsafe(self._get(path), self._loop).result(_SECONDS)

    def request(self, path: str) -> Iterator[str]:
        """Yield what a client reads of the answer to a request for a metric."""
        status, body, warnings = self.get(path)
        yield f"$ GET {path}"
        document = json.loads(body)
        if status == 200:
            for item in document["items"]:
                described = item.get("describedObject") or {"name": item.get("metricLabels")}
                yield f"{described['name']}: {item['value']}"
            if not document["items"]:
                yield "no items"
        else:
            yield f"{status} {document['reason']}: {document['message']}"
            for cause in (document.get("details") or {}).get("causes", ()):
                yield f"cause {cause.get('reason', '')}: {cause['message']}"
        yield from (f"Warning: {each}" for each in warnings)

    def health(self) -> Iterator[str]:
        """Yield the lines of the health checks that are not `ok`."""
        _, body, _ = self.get("/readyz?verbose")
        yield "$ GET /readyz?verbose"
        yield from (each for each in body.splitlines() if not each.endswith(" ok"))

    def events(self, seconds: float) -> Iterator[str]:
        """Yield the Events on HPAs that are written until so many seconds have passed."""
        passing = asyncio.run_coroutine_threadsafe(self._watch.passed(seconds), self._loop)
        yield "$ kubectl get events"
        events = passing.result(_SECONDS)
        if not events:
            yield "no Events"
        for each in events:
            name = f"{each['involvedObject']['namespace']}/{each['involvedObject']['name']}"
            yield f"{each['type']} {each['reason']} {name}: {each['message']}"

    def logged(self) -> Iterator[str]:
        """Yield the warnings and errors in the log."""
        yield "$ log"
        yield from (each for each in self.log if _STARTING not in each)


def command(*arguments: str) -> Iterator[str]:
    """Yield the output of a command of the program, and its exit code."""
    shown = " ".join(each for each in arguments if not each.startswith("--kubeconfig"))
    yield f"$ gpu-metrics-adapter {shown}"
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = program.main(arguments)
    yield from output.getvalue().splitlines()
    yield f"exit {code}"


def shown(folder: Path, *names: str) -> Iterator[str]:
    """Yield the lines of files that a command wrote."""
    for name in names:
        yield f"$ cat {name}"
        path = folder / name
        yield from path.read_text().splitlines() if path.exists() else ("no such file",)


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{record.levelname}: {record.getMessage()}")
