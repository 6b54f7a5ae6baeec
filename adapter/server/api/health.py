"""Endpoints for operators: health checks, `/version`, `/metrics` and the index of all paths.

Health is a list of named checks. The plain answers equal the original's to the byte; the list of
checks is our own and is visible with `?verbose`, below each probe's path, and as a metric.
"""

from __future__ import annotations

import asyncio
import collections
import enum
import functools
import inspect
import logging
import platform
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from prometheus_client import CollectorRegistry, generate_latest

import adapter
from adapter import telemetry
from adapter.background import Condition
from adapter.errors import NOSNIFF
from adapter.server.apimachinery import encoding
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.apimachinery.responses import PLAIN, Answer
from rules import findings
from rules.findings import Finding
from rules.quoting import quote_shortened

log = logging.getLogger(__name__)

_SEE_LOG = "see the log of the adapter"
_INTERVAL = 30.0
"""Seconds between runs of the readiness checks."""
_MAX_UNKNOWN = 20
"""Unknown names of `?exclude=` that an answer repeats."""
_NUMBER = re.compile(r"\d+")
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


Outcome = Callable[[], Awaitable[Finding | None] | Finding | None]


class CheckState(enum.StrEnum):
    """Outcome of a check; only FAILED makes the probe fail."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A named condition of a probe.

    `run` may be a coroutine function. If it raises, the probe fails. With a finding that is a
    warning, the check is degraded, and the probe passes.
    """

    name: str
    run: Outcome
    public: bool = False
    """Whether remarks and exceptions are phrases of ours, which everybody may read.

    Others may quote the API server: they are logged, and clients get a fixed phrase.
    """


def _pass() -> None:
    """Pass, like the original's checks `ping` and `log`."""


_ALWAYS = (Check(name="ping", run=_pass), Check(name="log", run=_pass))


class OperatorEndpoints:
    """Handler of all paths that are neither API nor OpenAPI; the method is ignored."""

    def __init__(
        self,
        *,
        live: Sequence[Check],
        ready: Sequence[Check],
        registry: CollectorRegistry,
        api_paths: Sequence[str],
    ) -> None:
        self._probes = {
            "/healthz": (*_ALWAYS, *live),
            "/livez": (*_ALWAYS, *live),
            "/readyz": (*_ALWAYS, *ready),
        }
        self._checks = {
            f"{probe}/{check.name}": check
            for probe, checks in self._probes.items()
            for check in checks
        }
        self._metrics = telemetry.HealthMetrics(registry)
        self._logged = collections.defaultdict[str, Condition](Condition)
        """What was last logged of each check, so that probes do not repeat it."""
        self._registry = registry
        paths = {*api_paths, *self._checks, *self._probes, "/metrics", "/version"}
        self._index = encoding.encode({"paths": sorted(paths)}, pretty=True)

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> NoReturn:
        """Run the readiness checks until cancelled: changes are logged although nobody polls."""
        while True:
            await sleep(_INTERVAL)
            for each in self._probes["/readyz"]:
                await self._run(each)

    async def answer(self, info: RequestInfo) -> Answer:
        """Return the answer; an unknown path gets a 404 with the index of all paths."""
        path = info.path
        if path in {"/", "/index.html"}:
            return Answer(body=self._index)
        if path == "/metrics":
            for each in self._probes["/readyz"]:
                self._metrics.checked(each.name, (await self._run(each))[0])
            return Answer(
                body=generate_latest(self._registry), content_type=_EXPOSITION, gzip_threshold=0
            )
        if path in self._checks:
            return await self._answer_check(self._checks[path])
        if path in self._probes:
            return await self._answer_probe(path[1:], self._probes[path], info.query)
        return Answer(status=404, body=self._index)

    async def _answer_check(self, check: Check) -> Answer:
        state, text = await self._run(check)
        if state is CheckState.FAILED:
            body = _text([f"internal server error: {text}\n"])
            return Answer(status=500, body=body, content_type=PLAIN, headers=NOSNIFF)
        body = _text([f"degraded: {text}\n"]) if state is CheckState.DEGRADED else b"ok"
        return Answer(body=body, content_type=PLAIN)

    async def _answer_probe(
        self, probe: str, checks: Sequence[Check], query: Mapping[str, tuple[str, ...]]
    ) -> Answer:
        excluded = set(query.get("exclude", ()))
        lines: list[str] = []
        any_failed = False
        for check in checks:
            if check.name in excluded:
                excluded.remove(check.name)
                lines.append(f"[+]{check.name} excluded: ok\n")
                continue
            state, text = await self._run(check)
            if state is CheckState.FAILED:
                lines.append(f"[-]{check.name} failed: reason withheld\n")
                any_failed = True
            elif state is CheckState.DEGRADED:
                lines.append(f"[!]{check.name} degraded: {text}\n")
            else:
                lines.append(f"[+]{check.name} ok{text and f': {text}'}\n")
        if excluded:
            names = ",".join(quote_shortened(each) for each in sorted(excluded)[:_MAX_UNKNOWN])
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if any_failed:
            lines.append(f"{probe} check failed\n")
            return Answer(status=500, body=_text(lines), content_type=PLAIN, headers=NOSNIFF)
        lines.append(f"{probe} check passed\n")
        body = _text(lines) if "verbose" in query else b"ok"
        return Answer(body=body, content_type=PLAIN, headers=NOSNIFF)

    async def _run(self, check: Check) -> tuple[CheckState, str]:
        """Run a check; return its state, and its remark or exception for clients."""
        try:
            outcome = check.run()
            found = await outcome if inspect.isawaitable(outcome) else outcome
        except Exception as error:  # noqa: BLE001 - every exception of a check is its failure
            text = str(error)
            self._log_change(check, f"failed: {text}", logging.WARNING)
            return CheckState.FAILED, text if check.public else _SEE_LOG
        text = found.fact if found else ""
        shown = _SEE_LOG if text and not check.public else text
        if found and found.state is findings.State.WARNING:
            self._log_change(check, f"degraded: {text}", logging.WARNING)
            return CheckState.DEGRADED, shown
        self._log_change(check, "passes" if check.public or not text else text, logging.INFO)
        return CheckState.OK, shown

    def _log_change(self, check: Check, text: str, level: int) -> None:
        # Ages and counts in a degradation change with each probe.
        identity = _NUMBER.sub("", text) if text.startswith("degraded") else text
        if self._logged[check.name].becomes("" if text == "passes" else identity):
            log.log(level, "health check %s: %s", check.name, text)


@functools.cache
def version() -> Answer:
    """Return the answer to `/version`: the original's keys with this program's values."""
    major, minor, *_ = adapter.__version__.split(".")
    document = {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{adapter.__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    return Answer(body=encoding.encode(document, pretty=True))


def _text(lines: Sequence[str]) -> bytes:
    return "".join(lines).encode("utf-8", "backslashreplace")
