"""`make attack`: flood the adapter with hostile input, and print what each flood did to it.

    python -m tools.attack [FLOOD ...]

For each flood a new adapter is started with its default flags. During the flood, `/livez` is
requested without an identity, and the metric of a pod as the HPA controller, whose verdict is
cached. Fails unless, for every flood, the peak RSS stays below the memory limit of the Deployment,
`/livez` takes less than MAX_LIVEZ_SECONDS longer than a bare aiohttp handler that is probed in the
same way, and every request of the HPA controller gets its value. Time in which a busy machine does
not run the adapter is left out. With hostile objects, the metrics of 40 other teams are requested
in turn as well, each value must come within MAX_VALUE_SECONDS, and a second adapter is started
while the objects exist. If the kernel's queue of new connections is full for a moment, a client
repeats its SYN after a second: the time until a connection is open is shown and limited on its own.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import functools
import itertools
import json
import resource
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml

from adapter.cli.local_prometheus.process import free_ports
from tools.attack import floods
from tools.attack.backends import (
    AUTOSCALER,
    LABELLED,
    NAMESPACE,
    OBJECTS,
    POD,
    TEAM_METRIC,
    TEAM_VALUE,
    TEAMS,
)
from tools.attack.floods import FLOODS, SECONDS, request
from tools.attack.hostile import CASES, HOSTILE, SELECTOR
from tools.bench import bare, processes
from tools.certificates import Holder

MAX_LIVEZ_SECONDS = 1.0
MAX_CONNECT_SECONDS = 3.5
"""Three repeated SYNs."""
MAX_VALUE_SECONDS = 1.0
MAX_START_SECONDS, MAX_TEAMS_SECONDS = 1.0, 10.0
"""CPU seconds that hostile objects may add to the start, and seconds until other teams' metrics."""
_GROUP = "/apis/custom.metrics.k8s.io/v1beta2"
_METRIC = f"{_GROUP}/namespaces/{NAMESPACE}/pods/{POD}/duty_cycle_current"
_TEAM_RULES = f"{_GROUP}/namespaces/{HOSTILE}/teamrules"
_VALUES = {_METRIC: "22"}
_TEAM_VALUES = {
    f"{_GROUP}/namespaces/team-{number}/pods/{POD}/{TEAM_METRIC}": str(TEAM_VALUE + number)
    for number in range(TEAMS)
}
_MAX_DATA = 3 << 30
"""Bytes of memory after which the attacked adapter fails: not the machine."""
_ROOT = Path(__file__).parents[2]
_TEMPLATE_RULE = f"""
rules:
- seriesQuery: '{LABELLED}{{namespace!=""}}'
  resources: {{template: "<<.Resource>>"}}
  metricsQuery: sum by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}})
"""
_COLUMNS = (
    *("RSS MiB", "open ms", "/livez ms", "bare ms", "value ms", "values", "failed", "log kB"),
    *("start CPU", "teams ms"),
)
_INTERVAL = 0.1
_START_TIMEOUT = 90.0
_TIMEOUT = 20.0
"""Seconds after which a probe counts as failed."""


@dataclass(kw_only=True)
class Result:
    """Measurements of one flood."""

    rss: float = 0.0
    """Peak RSS in MiB."""
    livez: float = 0.0
    """Longest time until `/livez` answered on an open TCP connection, in seconds."""
    connect: float = 0.0
    """Longest time until a TCP connection for `/livez` was open, in seconds."""
    bare: float = 0.0
    """Longest time until the bare handler answered: what the machine itself costs."""
    autoscaler: float = 0.0
    """Longest time until the HPA controller had its value, in seconds."""
    values: int = 0
    failures: list[str] = field(default_factory=list)
    """What the HPA controller got instead of its value."""
    start: float = 0.0
    """CPU seconds until the adapter had the value of a rule of the cluster."""
    start_of_teams: float = 0.0
    """Time until it had those of other teams, too."""
    among: Result | None = None
    """What another adapter did that was started among hostile objects."""
    log: float = 0.0
    """Growth of the log in kB."""
    statuses: dict[str, int] = field(default_factory=dict)
    """What the clients of the flood got, and how often; states of hostile ConfigMaps."""

    def problems(self, limit: float) -> Iterator[str]:
        """Yield which limits are exceeded; `limit` is that of memory, in MiB."""
        if self.rss >= limit:
            yield f"peak RSS {self.rss:.0f} MiB, must be below {limit:.0f}"
        if self.livez >= self.bare + MAX_LIVEZ_SECONDS:
            yield (
                f"/livez took {self.livez:.1f} s, a bare handler {self.bare:.1f} s; "
                f"the difference must be below {MAX_LIVEZ_SECONDS:.0f} s"
            )
        if self.connect >= MAX_CONNECT_SECONDS:
            yield (f"a connection took {self.connect:.1f} s, must be below {MAX_CONNECT_SECONDS} s")
        if self.failures or not self.values:
            yield f"the HPA controller got {self.failures[:3] or 'nothing'}"
        if self.among is None:
            return
        yield from (f"started among the objects: {each}" for each in self.among.problems(limit))
        slowest = max(self.autoscaler - self.bare, self.among.autoscaler - self.among.bare)
        if slowest >= MAX_VALUE_SECONDS:
            yield (
                f"a value took {slowest:.1f} s longer than the answer of a bare handler; must be "
                f"below {MAX_VALUE_SECONDS:.0f} s"
            )
        for what, first, second, most in (
            ("CPU of the start", self.start, self.among.start, MAX_START_SECONDS),
            ("teams", self.start_of_teams, self.among.start_of_teams, MAX_TEAMS_SECONDS),
        ):
            if second >= first + most:
                yield (
                    f"{what}: {second:.1f} s, {first:.1f} s without the objects; the "
                    f"difference must be below {most:.0f} s"
                )


@dataclass(frozen=True, kw_only=True)
class Testbed:
    """What the adapters of all floods have in common."""

    folder: Path
    """Has the certificates, the kubeconfig and the log."""
    proxy: Holder
    prometheus: str
    fallback: str
    bare_port: int


def main() -> int:
    """Run the floods, print the table, and return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m tools.attack", description=main.__doc__)
    parser.add_argument("floods", nargs="*", help=", ".join(FLOODS))
    arguments = parser.parse_args()
    if unknown := set(arguments.floods) - set(FLOODS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; the floods are {', '.join(FLOODS)}")
    limit = memory_limit()
    print(" ".join(f"{each:>9}" for each in _COLUMNS))
    problems = []
    with backends() as testbed:
        for name in arguments.floods or FLOODS:
            result = attack(name, testbed)
            _print(result, f"{FLOODS[name].__doc__}: {_list(result.statuses)}")
            if result.among is not None:
                _print(result.among, f"  started among them: {_list(result.among.statuses)}")
            problems += [f"{name}: {problem}" for problem in result.problems(limit)]
    print("\n".join(problems) or "all limits kept")
    return 1 if problems else 0


def memory_limit() -> float:
    """Return the memory limit of the Deployment in MiB."""
    deployment = yaml.safe_load((_ROOT / "manifests/base/deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return float(container["resources"]["limits"]["memory"].removesuffix("Mi"))


@contextlib.contextmanager
def backends() -> Iterator[Testbed]:
    """Run the fake API server and Prometheus until the context ends."""
    with tempfile.TemporaryDirectory() as created:
        folder = Path(created)
        proxy = processes.certificates(folder)
        (folder / "proxy.pem").write_bytes(proxy.bundle.chain_pem + proxy.bundle.key_pem)
        (folder / bare.DESCRIPTION).write_text('{"body": "ok", "headers": {}}')
        (bare_port,) = free_ports(1)
        backend = ("-m", "tools.attack.backends")
        handler = ("-m", "tools.bench.bare", str(folder), str(bare_port), "uvloop")
        with (
            processes.start_python(folder, *backend, "prometheus", str(folder)),
            processes.start_python(folder, *backend, "api", str(folder)),
            processes.start_python(folder, *handler),
        ):
            port = processes.read_result(folder, "prometheus")
            processes.read_result(folder, "api")
            yield Testbed(
                folder=folder,
                proxy=proxy,
                prometheus=f"http://127.0.0.1:{port}",
                fallback=f"https://127.0.0.1:{processes.read_result(folder, 'fallback')}",
                bare_port=bare_port,
            )


def attack(name: str, testbed: Testbed) -> Result:
    """Start the adapter, run a flood, and return its measurements.

    While the objects of a case exist, the adapter is started once more.
    """
    if name not in CASES:
        return _flooded(name, testbed)
    try:
        result = _flooded(name, testbed)
        result.among = _flooded(name, testbed)
        return result
    finally:
        floods.change_cluster(testbed.folder, "DELETE", OBJECTS)


def _flooded(name: str, testbed: Testbed) -> Result:
    (port,) = free_ports(1)
    flags = [*processes.flags(testbed.folder, testbed.prometheus, port)]
    if name == floods.label_names.__name__:
        (testbed.folder / "rules.yaml").write_text(_TEMPLATE_RULE)
        flags += (f"--config={testbed.folder / 'rules.yaml'}", "--metrics-relist-interval=1s")
    if name in CASES:
        flags.append(f"--team-rules-selector={SELECTOR}")
    if name in CASES and CASES[name].fallback:
        flags += (
            f"--external-fallback={testbed.fallback}",
            "--external-fallback-service-account=external-metrics",
            f"--external-fallback-ca-file={testbed.folder / 'tls.crt'}",
        )
    values = _VALUES | (_TEAM_VALUES if name in CASES else {})
    with processes.start_python(testbed.folder, "-m", "adapter", *flags) as adapter:
        resource.prlimit(adapter, resource.RLIMIT_DATA, (_MAX_DATA, _MAX_DATA))
        return asyncio.run(_measure(name, testbed, port, adapter, values))


class _Probe(NamedTuple):
    """Status of a response, or why there is none, and the seconds that it took."""

    status: str
    connect: float
    """Until the TCP connection was open."""
    answer: float
    """From then until the end of the response."""
    body: bytes = b""

    @property
    def value(self) -> str:
        """The value in a list with one, or what there is instead."""
        if self.status != "200":
            return self.status
        items = json.loads(self.body)["items"]
        return items[0]["value"] if len(items) == 1 else f"{len(items)} values"


async def _measure(
    name: str, testbed: Testbed, port: int, adapter: int, values: Mapping[str, str]
) -> Result:
    folder, result = testbed.folder, Result()
    context = ssl.create_default_context(cadata=(folder / "tls.crt").read_text())
    anonymous = ssl.create_default_context(cadata=(folder / "tls.crt").read_text())
    testbed.proxy.client(context, folder)
    user = [f"X-Remote-User: {AUTOSCALER}"]
    started = time.monotonic()
    for path, value in values.items():
        while (found := (await _get(port, context, path, user)).value) != value:
            if time.monotonic() - started > _START_TIMEOUT:
                result.failures.append(f"{found} as {path} for {_START_TIMEOUT:.0f} s")
                return result
            await asyncio.sleep(_INTERVAL)
        if path == _METRIC:
            result.start = processes.cpu_seconds(adapter)
    result.start_of_teams = time.monotonic() - started
    log_before = (folder / "log").stat().st_size

    over = asyncio.Event()
    clock = functools.partial(processes.own_time, adapter)

    async def slowest(probed: int, path: str, clock: Callable[[], float]) -> tuple[float, float]:
        """Return the longest times until a connection was open, and from then to the answer."""
        connect, answer = 0.0, 0.0
        while not over.is_set():
            probe = await _get(probed, anonymous, path, [], clock)
            connect = max(connect, probe.connect)
            answer = max(answer, probe.answer if probe.status == "200" else _TIMEOUT)
            await asyncio.sleep(_INTERVAL)
        return connect, answer

    async def probe_metrics(expected: Mapping[str, str]) -> None:
        for path, value in itertools.cycle(expected.items()):
            probe = await _get(port, context, path, user, clock)
            result.autoscaler = max(result.autoscaler, probe.connect + probe.answer)
            if probe.value == value:
                result.values += 1
            else:
                result.failures.append(f"{probe.value} as {path}")
            await asyncio.sleep(_INTERVAL)
            if over.is_set():
                return

    probes = asyncio.gather(
        slowest(port, "/livez", clock),
        slowest(testbed.bare_port, "/", time.monotonic),
        probe_metrics(_VALUES),
        probe_metrics(dict(list(values.items())[1:])),
    )
    flood = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tools.attack.floods", name, str(folder), str(port)),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS + 60):
        output, _ = await flood.communicate()
    result.statuses = json.loads(output)
    if name in CASES:
        probe = await _get(port, context, _TEAM_RULES, user)
        items = json.loads(probe.body)["items"] if probe.status == "200" else ()
        result.statuses |= collections.Counter(each["state"] for each in items)
    over.set()
    (result.connect, result.livez), (_, result.bare), *_ = await probes
    result.rss = processes.mebibytes(adapter, "VmHWM")
    result.log = ((folder / "log").stat().st_size - log_before) / 1000
    return result


async def _get(
    port: int,
    context: ssl.SSLContext,
    path: str,
    headers: list[str],
    clock: Callable[[], float] = time.monotonic,
) -> _Probe:
    """Send a request on a new connection, and measure it by a clock."""
    started = opened = clock()
    status, body = "closed", b""
    try:
        async with asyncio.timeout(_TIMEOUT):
            with socket.socket() as client:
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
                opened = clock()
                reader, writer = await asyncio.open_connection(
                    sock=client, ssl=context, server_hostname="127.0.0.1"
                )
                try:
                    writer.write(request(path, headers))
                    if line := await reader.readline():
                        status = line.split()[1].decode()
                        body = (await reader.read()).partition(b"\r\n\r\n")[2]
                finally:
                    writer.transport.abort()
    except (OSError, TimeoutError) as error:
        status = type(error).__name__
    return _Probe(status, opened - started, clock() - opened, body)


def _print(result: Result, text: str) -> None:
    seconds = (result.connect, result.livez, result.bare, result.autoscaler)
    starts = (result.start, result.start_of_teams)
    numbers = [
        result.rss,
        *(1000 * each for each in seconds),
        result.values,
        len(result.failures),
        result.log,
        *(1000 * each for each in starts),
    ]
    print(" ".join(f"{each:>9.0f}" for each in numbers), f" {text}", flush=True)


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) or "-"


if __name__ == "__main__":
    sys.exit(main())
