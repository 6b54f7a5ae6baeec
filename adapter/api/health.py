"""For operators: health, version, our own metrics, and the index of all paths.

Health is a list of small named checks. The plain answers are the original's to the byte; which
checks there are is our own, and shows under `?verbose` and in sub-paths.
"""

from __future__ import annotations

import inspect
import logging
import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest

import adapter
from adapter.errors import NOSNIFF
from adapter.http import encoding
from adapter.http.request_info import RequestInfo
from adapter.http.responses import PLAIN, Answer
from rules.quoting import quote

log = logging.getLogger(__name__)

_EVERY_SIZE = 0
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must hold for a probe to pass.

    `run` may be a coroutine function. It raises when the thing does not hold; the reason goes to
    the log and to the check's own path. Text that it returns is shown under `?verbose` to anyone,
    and fails nothing.
    """

    name: str
    run: Callable[[], Awaitable[str | None] | str | None]


def _passes() -> None:
    """A process that answers at all passes."""


_ALWAYS = (Check(name="ping", run=_passes), Check(name="log", run=_passes))


class Ops:
    """Answers every path that is no API."""

    def __init__(
        self,
        *,
        live: Sequence[Check],
        ready: Sequence[Check],
        registry: CollectorRegistry,
        api_paths: Sequence[str],
    ) -> None:
        self._probes = {
            "healthz": (*_ALWAYS, *live),
            "livez": (*_ALWAYS, *live),
            "readyz": (*_ALWAYS, *ready),
        }
        self._checks = {
            f"/{probe}/{check.name}": check
            for probe, checks in self._probes.items()
            for check in checks
        }
        self._registry = registry
        paths = {*api_paths, *self._checks, *(f"/{probe}" for probe in self._probes)}
        self._index = encoding.encode(
            {"paths": sorted({*paths, "/metrics", "/version"})}, pretty=True
        )

    async def answer(self, info: RequestInfo) -> Answer:
        """Whatever the method. A path that nobody has gets the index of those that there are."""
        path = info.path
        if path in {"/", "/index.html"}:
            return Answer(body=self._index)
        if path == "/metrics":
            return self._metrics()
        if path in self._checks:
            return await _single(self._checks[path])
        checks = self._probes.get(path[1:])
        if checks is not None and path.startswith("/"):
            return await _all(path[1:], checks, info.query)
        return Answer(status=404, body=self._index)

    def _metrics(self) -> Answer:
        return Answer(
            body=generate_latest(self._registry),
            content_type=_EXPOSITION,
            compressed_above=_EVERY_SIZE,
        )


def version() -> Answer:
    """`/version`: the keys of the original's, with what is true of this program."""
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


async def _outcome(check: Check) -> str:
    """What the check remarks; raises what it raises."""
    outcome = check.run()
    if inspect.isawaitable(outcome):
        outcome = await outcome
    return outcome or ""


async def _single(check: Check) -> Answer:
    try:
        await _outcome(check)
    except Exception as error:  # noqa: BLE001 - whatever a check raises is its verdict
        body = f"internal server error: {error}\n".encode("utf-8", "backslashreplace")
        return Answer(status=500, body=body, content_type=PLAIN, headers=NOSNIFF)
    return Answer(body=b"ok", content_type=PLAIN)


async def _all(probe: str, checks: Sequence[Check], query: Mapping[str, tuple[str, ...]]) -> Answer:
    excluded = set(query.get("exclude", ()))
    lines: list[str] = []
    failures: list[str] = []
    for check in checks:
        if check.name in excluded:
            excluded.remove(check.name)
            lines.append(f"[+]{check.name} excluded: ok\n")
            continue
        try:
            remark = await _outcome(check)
        except Exception as error:  # noqa: BLE001 - whatever a check raises is its verdict
            lines.append(f"[-]{check.name} failed: reason withheld\n")
            failures.append(f"{check.name}: {error}")
        else:
            lines.append(f"[+]{check.name} ok{remark and f': {remark}'}\n")
    if excluded:
        names = ",".join(map(quote, sorted(excluded)))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
    if failures:
        log.warning("%s check failed: %s", probe, "; ".join(failures))
        lines.append(f"{probe} check failed\n")
        return Answer(status=500, body=_text(lines), content_type=PLAIN, headers=NOSNIFF)
    lines.append(f"{probe} check passed\n")
    body = _text(lines) if "verbose" in query else b"ok"
    return Answer(body=body, content_type=PLAIN, headers=NOSNIFF)


def _text(lines: Sequence[str]) -> bytes:
    return "".join(lines).encode("utf-8", "backslashreplace")
