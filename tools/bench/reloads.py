"""Replaces the rules again and again while autoscalers request.

Good and bad files alternate. Each good file changes two rules that merge into one metric, renames
the metric of a third, and leaves a fourth as it is. Results stay fresh for longer than the run, so
any query for the unchanged rule is one too many.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

import aiohttp
from aiohttp.test_utils import TestServer

from adapter.cli.local_prometheus.process import free_port
from tools.bench import processes
from tools.fakes import prometheus as fakes
from tools.presets import api
from tools.presets.api import GROUP, Api
from tools.real import prometheus as real
from tools.waiting import until

_NAMESPACES = 20
_PODS = 2
_FRESH = "6h"
"""Longer than a run: neither a relist nor an expired result causes a query."""
_CONNECTIONS = 50
_PARTS = 10
_RULE = """
- seriesQuery: {series}
  name: {{as: {name}}}
  merge: true
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: '{factor} * sum by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}})'
"""
_BAD = ("rules: [", "rules: [{{metricQuery{}: x}}]", "rules: [{{metricsQuery: '<<'}}]")
_MAX_GROWTH = 1.1
"""Largest RSS at the end, as a multiple of that after half of the reloads."""
_SERVED = "the files are unchanged"
_KEPT = "stay in use"


@dataclasses.dataclass(kw_only=True)
class Result:
    """Measurements of one run."""

    reloads: int = 0
    bad: int = 0
    """Reloads of a bad file, which are among the others."""
    answers: int = 0
    failed: Counter[str] = dataclasses.field(default_factory=Counter)
    """Requests that failed, by status or error."""
    wrong: list[str] = dataclasses.field(default_factory=list)
    """Answers that are not those of one rule set, or of an older one than the answer before."""
    queries: int = 0
    """Queries for the unchanged rule after the first reload."""
    rss: list[float] = dataclasses.field(default_factory=list)
    """RSS in MiB at the start, and after each tenth of the reloads."""

    def __str__(self) -> str:
        rss = " ".join(f"{each:.1f}" for each in self.rss)
        return (
            f"{self.reloads} reloads, of these {self.bad} of bad files; {self.answers} answers; "
            f"RSS in MiB, by tenths: {rss}"
        )

    def problems(self) -> Iterator[str]:
        """Yield the claims that do not hold."""
        if self.failed:
            yield f"requests failed: {dict(self.failed)}"
        if not self.answers:
            yield "nothing was requested"
        if self.wrong:
            yield f"{len(self.wrong)} answers are wrong, the first: {self.wrong[0]}"
        if self.queries:
            yield f"{self.queries} queries for the unchanged rule"
        half = self.rss[len(self.rss) // 2]
        if self.rss[-1] > _MAX_GROWTH * half:
            yield f"RSS grew from {half:.0f} MiB to {self.rss[-1]:.0f} MiB in the second half"


def measure(reloads: int, autoscalers: int, period: float) -> Result:
    """Start Prometheus and the adapter, and replace the rules under load."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prometheus = stack.enter_context(real.run(folder, flags=["--query.lookback-delta=6h"]))
        return asyncio.run(_measure(folder, prometheus, reloads, autoscalers, period))


async def _measure(
    folder: Path, prometheus: real.Prometheus, reloads: int, autoscalers: int, period: float
) -> Result:
    apps = [(f"team-{number % _NAMESPACES}", f"app-{number}") for number in range(autoscalers)]
    pods = [(namespace, f"{app}-{n}") for namespace, app in apps for n in range(_PODS)]
    prometheus.put(
        *(
            f'{series}{{namespace="{namespace}",pod="{pod}"}} 1'
            for namespace, pod in pods
            for series in ("kept_load", "left_load" if pod.endswith("-0") else "right_load")
        )
    )
    objects, rules = folder / "objects.json", folder / "rules.yaml"
    objects.write_text(api.manifests("/".join(each) for each in pods))
    rules.write_text(_rules(1))
    counting = fakes.Prometheus(fakes.through(prometheus.url))
    async with (
        TestServer(counting.app()) as proxy,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=_CONNECTIONS)) as session,
    ):
        port = free_port()
        flags = (
            f"--prometheus-url={proxy.make_url('')}",
            f"--objects={objects}",
            f"--config={rules}",
            f"--secure-port={port}",
            f"--metrics-relist-interval={_FRESH}",
            f"--query-freshness={_FRESH}",
        )
        with processes.start_python(folder, "-m", "adapter", *flags) as pid:
            served = Api(f"https://127.0.0.1:{port}", session)
            await until(lambda: _relisted(served))
            run = _Run(served, pid, rules, counting)
            clients = [_Autoscaler(*app, run) for app in apps]
            for client in clients:
                await client.request("kept")
            async with asyncio.TaskGroup() as tasks:
                loads = [
                    tasks.create_task(client.run(period, period * number / len(clients)))
                    for number, client in enumerate(clients)
                ]
                await run.replace_rules(reloads)
                for load in loads:
                    load.cancel()
    return run.result


async def _relisted(served: Api) -> bool:
    with contextlib.suppress(aiohttp.ClientConnectionError):
        return await served.relisted()
    return False


class _Run:
    """One server, its rules file, and what its clients found."""

    def __init__(self, served: Api, pid: int, rules: Path, backend: fakes.Prometheus) -> None:
        self.served = served
        self.result = Result()
        self._pid = pid
        self._rules = rules
        self._backend = backend

    async def replace_rules(self, reloads: int) -> None:
        """Write good and bad files in turn; wait until each one is in use or refused."""
        self._backend.requests.clear()
        self._measure_memory()
        version = 1
        for number in range(1, reloads + 1):
            if bad := number % 2 == 0:
                text = _BAD[number // 2 % len(_BAD)].format(number)
            else:
                version += 1
                text = _rules(version)
            await self._replace(text, _KEPT if bad else _SERVED, version)
            self.result.reloads += 1
            self.result.bad += bad
            if number * _PARTS // reloads > (number - 1) * _PARTS // reloads:
                self._measure_memory()
            self.result.queries += sum(
                "kept_load" in text
                for request in self._backend.requests
                for text in request.parameters.values()
            )
            self._backend.requests.clear()

    async def _replace(self, text: str, state: str, version: int) -> None:
        """Replace the file; wait until /readyz reports `state` and `version` alone is served."""
        new = self._rules.with_suffix(".new")
        new.write_text(text)
        new.rename(self._rules)
        os.kill(self._pid, signal.SIGHUP)

        async def is_in_use() -> bool:
            if state not in await self._state():
                return False
            return await self._status_of(version) == HTTPStatus.OK

        try:
            await until(is_in_use)
        except TimeoutError:
            raise RuntimeError(f"{text!r} is not in use: {await self._state()}") from None
        if (status := await self._status_of(version - 1)) != HTTPStatus.NOT_FOUND:
            self.result.wrong.append(f"{status} for version {version - 1} after {version}")

    async def _state(self) -> str:
        url = f"{self.served.url}/readyz?verbose"
        async with self.served.session.get(url, ssl=False) as response:
            lines = (await response.text()).splitlines()
        return next((line for line in lines if "]reload" in line), "")

    async def _status_of(self, version: int) -> int:
        """Return the status of the metric that every other version has."""
        path = f"{GROUP}/namespaces/team-0/pods/*/only_{version % 2}?labelSelector=app%3Dapp-0"
        status, _ = await self.served.get(path)
        return status

    def _measure_memory(self) -> None:
        self.result.rss.append(processes.mebibytes(self._pid, "VmRSS"))


class _Autoscaler:
    """Client that requests the changed and the unchanged metric of one application's pods."""

    def __init__(self, namespace: str, app: str, run: _Run) -> None:
        self._path = f"{GROUP}/namespaces/{namespace}/pods/*/{{}}?labelSelector=app%3D{app}"
        self._run = run
        self._version = 0

    async def run(self, period: float, phase: float) -> NoReturn:
        """Request the metrics in turn, one each period, until cancelled."""
        await asyncio.sleep(phase)
        for metric in itertools.cycle(("changed", "kept")):
            await asyncio.gather(self.request(metric), asyncio.sleep(period))
        raise AssertionError

    async def request(self, metric: str) -> None:
        """Request a metric, and note an answer that should not be."""
        result = self._run.result
        path = self._path.format(metric)
        try:
            status, document = await self._run.served.get(path)
        except (aiohttp.ClientError, OSError) as error:
            result.failed[repr(error)] += 1
            return
        if status != HTTPStatus.OK:
            result.failed[f"{status} {document.get('message')}"] += 1
            return
        result.answers += 1
        values = [int(item["value"]) for item in document["items"]]
        if metric == "kept":
            good = values == [1] * _PODS
        else:
            good = len(values) == _PODS and len({*values}) == 1 and values[0] >= self._version
            self._version = max(self._version, *values)
        if not good:
            result.wrong.append(f"{path}: {values} after {self._version}")


def _rules(version: int) -> str:
    """Return a file whose metric `changed` has the value `version` everywhere."""
    return "rules:" + "".join(
        _RULE.format(series=series, name=name, factor=factor)
        for series, name, factor in (
            ("kept_load", "kept", 1),
            ("left_load", "changed", version),
            ("right_load", "changed", version),
            ("left_load", f"only_{version % 2}", 1),
        )
    )
