"""Backends of one size and the servers in front of them, each in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adapter.cli.local_prometheus.process import child_command, free_ports
from tools.bench import api_server, bare, client, processes, workload
from tools.bench.client import Endpoint
from tools.bench.workload import Size
from tools.control_plane import daemon
from tools.control_plane.daemon import Daemon
from tools.real import prometheus as real

_BATCH = 20_000
"""Series per remote write."""
_EVALUATED = "/api/v1/query"
_OWN_HEADERS = frozenset({"content-length", "date", "server", "connection", "transfer-encoding"})
"""Response headers that each server sets by itself."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """Server to measure. In `command`, {flags} is replaced by its flags."""

    name: str
    command: str
    own_rules: bool
    """Whether it gets the rules of the benchmark and the original's flags; else the preset."""


ADAPTER = Server(
    name="adapter", command=f"{shlex.quote(sys.executable)} -m adapter {{flags}}", own_rules=False
)


def peer(command: str) -> Server:
    """Return the server of `PEER='command {flags}'`. Raises ValueError without {flags}."""
    if "{flags}" not in command:
        raise ValueError(f"PEER={command!r} has no {{flags}}: write PEER='command {{flags}}'")
    return Server(name="peer", command=command, own_rules=True)


def other(checkout: Path) -> Server:
    """Return the adapter of another checkout, such as an older one. Raises ValueError if none."""
    if not (checkout / "adapter" / "__main__.py").is_file():
        raise ValueError(f"--other={checkout} is not a checkout: it has no adapter/__main__.py")
    command = shlex.join(["env", "-C", str(checkout.resolve()), sys.executable, "-m", "adapter"])
    return Server(name="other", command=f"{command} {{flags}}", own_rules=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running:
    """Started server."""

    endpoint: Endpoint
    pid: int


class Testbed:
    """Prometheus with the series of all pods, and the stand-in for kube-apiserver."""

    def __init__(
        self,
        size: Size,
        folder: Path,
        prometheus: real.Prometheus,
        kubernetes: Daemon,
        metric: str,
    ) -> None:
        self.size = size
        self.prometheus = prometheus
        self.kubernetes = kubernetes
        self.paths = size.paths(metric)
        self.folder = folder
        self._numbers = itertools.count()

    def write_series(self) -> None:
        """Write a sample of each series: Prometheus does not return those older than 5 minutes."""
        series = self.size.series()
        while batch := tuple(itertools.islice(series, _BATCH)):
            self.prometheus.write(batch)

    def counts(self) -> dict[str, int]:
        """Return the requests to the API server so far, by verb and resource."""
        port = processes.read_result(self.folder, "kubernetes")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{api_server.COUNTS}") as response:
            counts: dict[str, int] = json.load(response)
            return counts

    def wait_until_quiet(self) -> None:
        """Wait until the API server got no request for half a second: watch caches are complete."""
        last: dict[str, int] = {}

        def quiet() -> bool:
            nonlocal last
            previous, last = last, self.counts()
            time.sleep(0.5)
            return last == previous

        real.wait_for(quiet, "the server sends no request to the API server", seconds=60)

    def queries(self) -> tuple[float, float]:
        """Return the instant queries that Prometheus received so far, and its other API requests.

        The others come from relists, except remote writes, which are not counted.
        """
        evaluated = others = 0.0
        with urllib.request.urlopen(f"{self.prometheus.url}/metrics") as response:
            text = response.read().decode()
        counter = r'^prometheus_http_requests_total\{.*handler="(/api/[^"]*)".*\} (\S+)$'
        for handler, count in re.findall(counter, text, re.MULTILINE):
            if handler == _EVALUATED:
                evaluated += float(count)
            elif handler != "/api/v1/write":
                others += float(count)
        return evaluated, others

    @contextlib.contextmanager
    def start(self, server: Server, *flags: str) -> Iterator[Running]:
        """Run a server until the context ends, when it has values of the last application."""
        (port,) = free_ports(1)
        arguments = [*processes.flags(self.folder, self.prometheus.url, port)]
        if server.own_rules:
            rules, kubeconfig = self.folder / "rules.yaml", self.folder / "kubeconfig"
            rules.write_text(workload.RULES)
            arguments = [each for each in arguments if not each.startswith("--preset=")]
            arguments += [
                f"--config={rules}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
            ]
        command = server.command.replace("{flags}", shlex.join([*arguments, *flags]))
        endpoint = self._endpoint(port)
        *_, (_, app) = self.size.apps()
        *_, pod = self.size.pod_names(app)

        def has_values() -> bool:
            with contextlib.suppress(OSError):
                response = client.get(endpoint, self.paths[-1])
                return client.status(response) == "200" and pod.encode() in response
            return False

        log = self.folder / f"{server.name}.log"
        with daemon.running(server.name, shlex.split(command), log, has_values) as process:
            yield Running(endpoint=endpoint, pid=process.pid)

    @contextlib.contextmanager
    def start_bare(self, response: bytes, loop: str) -> Iterator[Running]:
        """Run the bare handler on an event loop, with the headers and the body of `response`."""
        head, _, body = response.partition(b"\r\n\r\n")
        pairs = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        headers = {name: value for name, value in pairs if name.lower() not in _OWN_HEADERS}
        description = {"headers": headers, "body": body.decode("latin-1")}
        (self.folder / bare.DESCRIPTION).write_text(json.dumps(description))
        (port,) = free_ports(1)
        command = _module(bare.__name__, self.folder, port, loop)
        endpoint = self._endpoint(port)

        def listens() -> bool:
            with contextlib.suppress(OSError):
                return client.status(client.get(endpoint, "/")) == "200"
            return False

        with daemon.running(f"bare-{loop}", command, self.folder / "bare.log", listens) as process:
            yield Running(endpoint=endpoint, pid=process.pid)

    def start_client(self, job: client.OpenJob | client.ClosedJob) -> subprocess.Popen[bytes]:
        """Start a load generator; `result` waits for its end."""
        file = self.folder / f"job-{next(self._numbers)}.json"
        file.write_text(json.dumps(dataclasses.asdict(job)))
        command = child_command(*_module(client.__name__, file))
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    def _endpoint(self, port: int) -> Endpoint:
        file = self.folder.joinpath
        return Endpoint(
            port=port,
            ca=str(file("tls.crt")),
            certificate=str(file("proxy.crt")),
            key=str(file("proxy.key")),
        )


def result(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the result of a load generator. Raises RuntimeError if it fails; stderr is shown."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the load generator exited with status {process.returncode}")
    parsed: dict[str, Any] = json.loads(output)
    return parsed


@contextlib.contextmanager
def running(
    size: Size,
    *,
    prometheus: Callable[[Path], contextlib.AbstractContextManager[real.Prometheus]] = real.run,
    metric: str = workload.METRIC,
    port: int | None = None,
) -> Iterator[Testbed]:
    """Run the backends of a size until the context ends.

    `prometheus` runs one whose files lie in a folder, where that of kubectl is, too. `metric` is
    what autoscalers request. With `port`, each pod has an exporter there.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxy = processes.certificates(folder)
        (folder / "proxy.crt").write_bytes(proxy.pem)
        (folder / "proxy.key").write_bytes(proxy.bundle.key_pem)
        ready = folder / "kubernetes.result"
        command = _module(api_server.__name__, folder, size, *([port] if port else []))
        log = folder / "kubernetes.log"
        kubernetes = stack.enter_context(daemon.running("kubernetes", command, log, ready.exists))
        started = stack.enter_context(prometheus(folder))
        yield Testbed(size, folder, started, kubernetes, metric)


def _module(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", name, *map(str, arguments)]
