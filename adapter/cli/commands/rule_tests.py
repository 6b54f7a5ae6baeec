"""Runs unit tests of rules for `test`, with a Prometheus process for each test."""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from adapter import errors, settings
from adapter.cli.commands import check_inputs, local_backend, without_log
from adapter.cli.commands.local_backend import Backend
from adapter.cli.local_prometheus import binary, debian, process, remote_write
from adapter.clients.prometheus import Prometheus
from adapter.files import read_file
from rules import quantity, ruleset, unit_tests
from rules.document.sources import DEFAULT
from rules.errors import ConfigError
from rules.findings import State, in_file
from rules.query.plan import ExternalPlan
from rules.quoting import counted
from rules.ruleset import RuleSet
from rules.unit_tests import Case, InputSeries, Suite, UnitTest

_WRITE = 30 * 60 * 1000
"""Milliseconds of one write. Prometheus refuses samples an hour older than the newest one."""
_FLAGS = ("--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=100y")


class _FailedWriteError(Exception):
    """Prometheus refused the series of a test."""


def run(files: Iterable[Path]) -> int:
    """Run the tests in the files, and print the results; return 0 if all pass, else 1."""
    failed = total = 0
    try:
        suites = [_load(file) for file in files]
        program = binary.find()
        for file, suite, rules in suites:
            for test in suite.tests:
                with without_log():
                    failures = asyncio.run(_run(test, rules, program))
                total += 1
                failed += bool(failures)
                print(f"{'FAILED' if failures else 'ok'}: {file}: {test.name}")
                for failure in failures:
                    print(failure)
    except (
        ConfigError,
        debian.NoProgramError,
        errors.BackendError,
        process.PrometheusFailedError,
        _FailedWriteError,
    ) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{counted(total, 'test')}, {failed} failed")
    return 1 if failed else 0


def _load(file: Path) -> tuple[Path, Suite, RuleSet]:
    """Parse a file of tests, and load its rules. Raises ConfigError."""
    try:
        suite = unit_tests.parse(read_file(file, pipes=True), file=str(file))
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        problem = in_file(State.FAILURE, message, file=str(file))
        raise ConfigError([problem]) from error
    sources = [settings.RulesSource(kind="preset", name=name) for name in suite.presets]
    sources += [
        settings.RulesSource(kind="config", name=str(file.parent / name))
        for name in suite.rule_files
    ]
    return file, suite, ruleset.compile(check_inputs.read(sources).parsed)


async def _run(test: UnitTest, rules: RuleSet, program: Path) -> list[str]:
    """Return the failures of a test."""
    with tempfile.TemporaryDirectory(prefix="rule-test-") as folder:
        async with (
            process.running(program, "{}\n", process.free_port(), Path(folder), *_FLAGS) as url,
            aiohttp.ClientSession() as session,
        ):
            await _write(session, url, test)
            results = [await _evaluate(session, url, case, rules) for case in test.cases]
            return [failure for failure in results if failure]


async def _write(session: aiohttp.ClientSession, url: str, test: UnitTest) -> None:
    step = round(test.interval * 1000)
    last = max((len(each.values) for each in test.series), default=0) * step
    for start in range(0, last, max(_WRITE, step)):
        end = start + max(_WRITE, step)
        chunk = [(each.labels, list(_samples(each, step, start, end))) for each in test.series]
        body = remote_write.encode(each for each in chunk if each[1])
        async with session.post(
            f"{url}/api/v1/write", data=body, headers=remote_write.HEADERS
        ) as response:
            if response.status // 100 != 2:
                text = (await response.text()).strip()
                raise _FailedWriteError(f"{test.name}: Prometheus refused the series: {text}")


def _samples(series: InputSeries, step: int, start: int, end: int) -> Iterator[tuple[int, float]]:
    """Yield the samples from `start` until before `end`, in milliseconds."""
    for index in range(math.ceil(start / step), min(math.ceil(end / step), len(series.values))):
        value = series.values[index]
        if value is not None:
            yield index * step, remote_write.STALE if value == "stale" else value


async def _evaluate(session: aiohttp.ClientSession, url: str, case: Case, rules: RuleSet) -> str:
    """Return what differs from the expected values; empty if nothing does."""

    def clock() -> float:
        return case.eval_time

    client = Prometheus(session, url, clock=clock)
    clients = dict.fromkeys((DEFAULT, *(source.name for source in rules.sources)), client)
    backend = await local_backend.connect(rules, clients, scrapes=False, clock=clock)
    try:
        answer = await _answer(case, backend)
    except errors.ApiError as error:
        causes = tuple(map(str, error.causes)) or (error.message,)
        if error.__cause__ is not None:  # it quotes Prometheus
            causes = (str(error.__cause__),)
        answer = _Answer(causes=causes, failed=error.code != 404 or error.__cause__ is not None)
    return "" if answer.values == case.expected and not answer.failed else _failure(case, answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What the adapter would answer."""

    values: Mapping[str, int] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    """Why there are no values."""
    failed: bool = False
    """Whether the request fails, unlike one for a metric without a value."""


async def _answer(case: Case, backend: Backend) -> _Answer:
    """Return the answer to the request of a case. Raises ApiError."""
    namespace = case.namespace
    if case.resource is not None:
        entry = backend.generation.catalog.entry(case.resource, case.metric)
        kind = backend.kinds.resolve(case.resource.resource, case.resource.group)
        namespace = namespace if (entry or kind).namespaced else ""
    steps = await local_backend.evaluate(
        backend,
        case.metric,
        case.resource,
        namespace=namespace,
        names=case.objects,
        selector=case.selector,
    )
    content = await steps.content()
    found, query = steps.found.values, steps.query
    if isinstance(query, ExternalPlan):
        values = {unit_tests.labels_text(each.labels or {}): each.value.milli for each in found}
        queries = [query.promql()]
    else:
        values = {name: value.milli for name, value in found.items()}
        rendered = query.queries() if query else ()
        queries = [text for each in rendered for text in (each.values, each.recent) if text]
    causes = () if values else tuple(map(str, content.causes))
    return _Answer(values=values, queries=tuple(queries), causes=causes)


def _failure(case: Case, answer: _Answer) -> str:
    of = f" of {case.resource}" if case.resource else ""
    lines = [
        f"  {case.place}: {case.metric}{of} in namespace {case.namespace} at {case.eval_time:g}s",
        f"    expected  {_text(case.expected)}",
        f"    got       {_text(answer.values)}",
    ]
    lines += [f"    query     {' '.join(query.split())}" for query in answer.queries]
    lines += [f"    cause     {cause}" for cause in answer.causes]
    return "\n".join(lines)


def _text(values: Mapping[str, int]) -> str:
    listed = (f"{name}: {quantity.decimal(milli)}" for name, milli in sorted(values.items()))
    return ", ".join(listed) or "no value"
