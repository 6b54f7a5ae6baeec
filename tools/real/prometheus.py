"""A real Prometheus that holds samples written by a test.

Samples arrive by remote write. A test can thus set the timestamp of each sample and end a series
at once, without the five seconds that Prometheus waits before its first scrape.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from adapter.cli.local_prometheus import binary, remote_write
from adapter.cli.local_prometheus.process import free_ports
from adapter.cli.local_prometheus.remote_write import Labels
from tools.control_plane.daemon import Daemon

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Ignores HTTP_PROXY: every server that the tests contact listens on this machine."""


class Client:
    """Client of a server that has the HTTP API of Prometheus, and remote write."""

    def __init__(self, url: str, write_url: str = "") -> None:
        self.url = url
        self._write_url = write_url or f"{url}/api/v1/write"

    def put(self, *lines: str, at: float | None = None) -> None:
        """Write samples given in the text format (`foo{pod="a"} 1`).

        `at` is their timestamp in Unix seconds; the default is now.
        """
        self.write(samples(lines), at=at)

    def end(self, *lines: str, at: float | None = None) -> None:
        """Write staleness markers for the series of these samples."""
        self.write(((labels, remote_write.STALE) for labels, _ in samples(lines)), at=at)

    def write(self, samples: Iterable[tuple[Labels, float]], *, at: float | None = None) -> None:
        """Write samples given as labels (with `__name__`) and a value."""
        millis = int((time.time() if at is None else at) * 1000)
        self.put_series((labels, [(millis, value)]) for labels, value in samples)

    def put_series(self, series: Iterable[tuple[Labels, remote_write.Samples]]) -> None:
        """Write series given as labels (with `__name__`) and samples of several times."""
        self.send(remote_write.encode(series))

    def send(self, body: bytes) -> None:
        """Send the body of a remote write."""
        request = urllib.request.Request(self._write_url, data=body, headers=remote_write.HEADERS)
        with OPENER.open(request, timeout=60):
            pass

    def query(self, promql: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query: dictionaries of `metric` and `value`."""
        result: list[dict[str, Any]] = self.get("/api/v1/query", query=promql)["result"]
        return result

    def get(self, path: str, **parameters: str) -> Any:
        """Return the `data` field of an API response."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with OPENER.open(url, timeout=60) as response:
            return json.load(response)["data"]


class Prometheus(Client):
    """Prometheus process that keeps its port and its data between stop and start.

    `program` is its path, by default that of the Prometheus on this machine.
    """

    def __init__(
        self,
        directory: Path,
        config: str = "global: {}\n",
        *,
        web: str = "{}\n",
        headers: Mapping[str, str] = MappingProxyType({}),
        context: ssl.SSLContext | None = None,
        flags: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int | None = None,
        program: Path | None = None,
    ) -> None:
        self.port = port or free_ports(1)[0]
        super().__init__(f"{'https' if context else 'http'}://{host}:{self.port}")
        config_file, web_config_file = directory / "prometheus.yml", directory / "web.yml"
        config_file.write_text(config)
        web_config_file.write_text(web)
        command: list[str | Path] = [
            program or binary.find(),
            f"--config.file={config_file}",
            f"--web.config.file={web_config_file}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={host}:{self.port}",
            "--web.enable-remote-write-receiver",
            "--log.level=warn",
            *flags,
        ]
        readiness = urllib.request.Request(f"{self.url}/-/ready", headers=dict(headers))
        self._daemon = Daemon(
            "Prometheus",
            command,
            directory / "prometheus.log",
            lambda: status(readiness, context=context) == 200,
        )

    @property
    def pid(self) -> int:
        """Process id; Prometheus must be running."""
        return self._daemon.pid

    def start(self) -> None:
        """Start Prometheus and wait until it is ready. Raises RuntimeError with its log."""
        self._daemon.start()

    def stop(self) -> None:
        """Send SIGTERM and wait for the exit."""
        self._daemon.stop()

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit."""
        self._daemon.kill()


@contextlib.contextmanager
def run(
    directory: Path,
    config: str = "global: {}\n",
    *,
    web: str = "{}\n",
    headers: Mapping[str, str] = MappingProxyType({}),
    context: ssl.SSLContext | None = None,
    flags: Sequence[str] = (),
    program: Path | None = None,
) -> Iterator[Prometheus]:
    """Run Prometheus until the context ends.

    `config` is the text of prometheus.yml and may contain scrape configurations. `web` is the text
    of the web configuration file, which may require TLS and a password. `headers` and `context` are
    then what the readiness probe needs to be let in. `flags` are further flags.
    """
    prometheus = Prometheus(
        directory,
        config,
        web=web,
        headers=headers,
        context=context,
        flags=flags,
        program=program,
    )
    try:
        prometheus.start()
        yield prometheus
    finally:
        prometheus.stop()


def wait_for(condition: Callable[[], object], what: str, *, seconds: float = 90) -> None:
    """Poll `condition` until it is true. Raises TimeoutError, whose text contains `what`.

    The limit only ends a test that would wait forever.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out after {seconds} s waiting until {what}")
        time.sleep(0.02)


def status(
    target: str | urllib.request.Request,
    *,
    context: ssl.SSLContext | None = None,
    timeout: float = 1,
) -> int:
    """Return the status code of a response from this machine; 0 when there is no response."""
    opener = OPENER
    if context is not None:
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
    try:
        with opener.open(target, timeout=timeout) as response:
            code: int = response.status
            return code
    except urllib.error.HTTPError as e:
        e.close()
        return e.code
    except (OSError, http.client.HTTPException):
        return 0


def samples(lines: Iterable[str]) -> Iterator[tuple[Labels, float]]:
    """Yield the labels (with `__name__`) and the value of each sample in the text format."""
    for family in text_string_to_metric_families("".join(f"{line}\n" for line in lines)):
        for sample in family.samples:
            yield {"__name__": sample.name, **sample.labels}, sample.value
