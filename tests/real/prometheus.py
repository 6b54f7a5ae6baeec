"""A real Prometheus on data that the test wrote.

Data comes by remote write, so that a test says when each sample was taken, and when a series ended,
and waits for neither: Prometheus itself would begin to scrape after five seconds.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from adapter.demo import binary
from tests.control_plane.daemon import Daemon, free_ports

Labels = Mapping[str, str]

STALE: float = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""The value by which a scrape says that a series ended."""

_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Whatever proxy is configured, it is not asked for what is on this machine."""


class Prometheus:
    """A Prometheus that can be stopped and started again on the same port and data."""

    def __init__(
        self,
        directory: Path,
        config: str = "global: {}\n",
        *,
        web: str = "{}\n",
        headers: Mapping[str, str] = MappingProxyType({}),
        context: ssl.SSLContext | None = None,
    ) -> None:
        (self.port,) = free_ports(1)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"
        configured, demanded = directory / "prometheus.yml", directory / "web.yml"
        configured.write_text(config)
        demanded.write_text(web)
        command = [
            binary.find(),
            f"--config.file={configured}",
            f"--web.config.file={demanded}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
            "--log.level=warn",
        ]
        ready = urllib.request.Request(f"{self.url}/-/ready", headers=dict(headers))
        self._daemon = Daemon(
            "Prometheus",
            command,
            directory / "prometheus.log",
            lambda: status(ready, context=context) == 200,
        )

    @property
    def pid(self) -> int:
        return self._daemon.pid

    def start(self) -> None:
        """Returns once it is ready. Raises RuntimeError with its last words where it is not."""
        self._daemon.start()

    def stop(self) -> None:
        self._daemon.stop()

    def kill(self) -> None:
        """As a lost machine ends it."""
        self._daemon.kill()

    def put(self, *lines: str, at: float | None = None) -> None:
        """Samples in the text format, `foo{pod="a"} 1`, taken `at` (Unix seconds; else now)."""
        self.write(_samples(lines), at=at)

    def end(self, *lines: str, at: float | None = None) -> None:
        """The series of these samples end, as when a scrape finds them no more."""
        self.write(((labels, STALE) for labels, _ in _samples(lines)), at=at)

    def write(self, samples: Iterable[tuple[Labels, float]], *, at: float | None = None) -> None:
        moment = int((time.time() if at is None else at) * 1000)
        body = b"".join(_field(1, _series(labels, value, moment)) for labels, value in samples)
        request = urllib.request.Request(
            f"{self.url}/api/v1/write",
            data=_uncompressed_snappy(body),
            headers={
                "Content-Encoding": "snappy",
                "Content-Type": "application/x-protobuf",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
            },
        )
        with _DIRECTLY.open(request, timeout=60):
            pass

    def get(self, path: str, **parameters: str) -> Any:
        """`data` of an API answer."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with _DIRECTLY.open(url, timeout=60) as response:
            return json.load(response)["data"]


@contextlib.contextmanager
def run(
    directory: Path,
    config: str = "global: {}\n",
    *,
    web: str = "{}\n",
    headers: Mapping[str, str] = MappingProxyType({}),
    context: ssl.SSLContext | None = None,
) -> Iterator[Prometheus]:
    """A Prometheus for as long as the context lasts; `config` may tell it to scrape.

    `web` may have it demand TLS and passwords; `headers` and `context` are then what lets us in.
    """
    found = Prometheus(directory, config, web=web, headers=headers, context=context)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def wait_for(condition: Callable[[], object], what: str, *, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def status(asked: str | urllib.request.Request, *, context: ssl.SSLContext | None = None) -> int:
    """What a server on this machine answers; 0 if it does not."""
    opener = _DIRECTLY
    if context is not None:
        secured = urllib.request.HTTPSHandler(context=context)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), secured)
    try:
        with opener.open(asked, timeout=1) as response:
            found: int = response.status
            return found
    except urllib.error.HTTPError as e:
        e.close()
        return e.code
    except (OSError, http.client.HTTPException):
        return 0


def _samples(lines: Iterable[str]) -> Iterator[tuple[Labels, float]]:
    for family in text_string_to_metric_families("".join(f"{line}\n" for line in lines)):
        for sample in family.samples:
            yield {"__name__": sample.name, **sample.labels}, sample.value


def _series(labels: Labels, value: float, moment: int) -> bytes:
    """prometheus.TimeSeries of prompb/types.proto, with one sample."""
    pairs = (
        _field(1, _field(1, name.encode()) + _field(2, text.encode()))
        for name, text in sorted(labels.items())
    )
    sample = b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(moment)
    return b"".join(pairs) + _field(2, sample)


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _uncompressed_snappy(content: bytes) -> bytes:
    """One literal, as format_description.txt of google/snappy has it."""
    return _varint(len(content)) + b"\xfc" + struct.pack("<I", len(content) - 1) + content
