"""The HTTP API of Prometheus, and of what speaks it (Thanos, Mimir, VictoriaMetrics).

Answers are typed, and cut off while they arrive if they grow too long. Every failure is a
BackendError whose text has what was asked and what the other side said: for the log only.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NoReturn, Protocol, TypeVar

import aiohttp
import orjson
import yarl

from adapter import errors, telemetry
from adapter.clients import abort, json_stream
from adapter.clients.credentials import Authorization
from adapter.clients.prometheus_result import QueryResult, data, query_result, strings

log = logging.getLogger(__name__)

Verb = Literal["GET", "POST"]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LIMIT = 64 << 20
"""Bytes of one answer, decompressed."""

_QUERY, _SERIES, _LABELS = "/api/v1/query", "/api/v1/series", "/api/v1/labels"
_NAMES = "/api/v1/label/__name__/values"
_CHUNK = 64 << 10
_GRACE = 1.0
"""Seconds that Prometheus has, after its own timeout, to say that it timed out."""


class Prometheus:
    """Knows how to ask one Prometheus.

    `url` is the base: its path is kept, its query is ignored. `authorization` is sent where
    neither `headers` nor a user in the URL says who asks. `trust` is asked for the TLS of each
    connection, without which it is the session's; `server_name` is whom the certificate is for, if
    not the URL's host. `verb` is how queries are sent; listing is always a GET. `timeout` (seconds)
    bounds each request that has no nearer deadline. Deadlines are times of the running event loop.
    Methods raise BackendError subclasses only.

    https://prometheus.io/docs/prometheus/latest/querying/api/
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: Authorization | None = None,
        trust: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
        verb: Verb = "GET",
        timeout: float = 30.0,
        limit: int = LIMIT,
        requests: telemetry.Requests | None = None,
        monotonic: Callable[[], float] = time.perf_counter,
    ) -> None:
        base = yarl.URL(url)
        if base.scheme not in {"http", "https"} or not base.host:
            raise ValueError(
                f"not the URL of a Prometheus: {url!r}: http:// or https:// and a host"
            )
        if any(name.lower() == "authorization" for name in headers or ()):
            base = base.with_user(None)  # aiohttp refuses both; Go prefers the header
            authorization = None
        elif base.user is not None or base.password is not None:
            authorization = None
        self._session = session
        self._base = base.with_path(base.path.rstrip("/"))
        self._headers = {**(headers or {}), "Accept": "application/json", "Accept-Encoding": "gzip"}
        self._authorization = authorization
        self._trust = trust
        self._server_name = server_name
        self._verb: Verb = verb
        self._timeout = timeout
        self._limit = limit
        self._requests = requests
        self._monotonic = monotonic

    @property
    def address(self) -> str:
        """The base URL without credentials, for the log."""
        return str(self._base.with_user(None))

    async def query(self, promql: str, *, deadline: float | None = None) -> QueryResult:
        """Evaluate `promql` now; Prometheus is told to stop at the deadline."""
        if self._verb == "POST":
            try:
                return await self._query("POST", promql, deadline)
            except errors.Refused as e:
                if e.status != 405:
                    raise
                self._verb = "GET"
        return await self._query("GET", promql, deadline)

    async def names(
        self, selector: str, start: float, end: float, *, deadline: float | None = None
    ) -> tuple[str, ...]:
        """The names of the series that `selector` matches, by the index (start, end: Unix seconds).

        What is still in the head block counts, whatever the window says.
        """
        asked = _window(selector, start, end)
        return await self._ask("GET", _NAMES, asked, self._left(deadline), _Whole(strings))

    async def label_names(
        self, selector: str, start: float, end: float, *, deadline: float | None = None
    ) -> tuple[str, ...]:
        """The label names (`__name__` left out) that any series of `selector` carries."""
        asked = _window(selector, start, end)
        found = await self._ask("GET", _LABELS, asked, self._left(deadline), _Whole(strings))
        return tuple(name for name in found if name != "__name__")

    async def series(
        self, selector: str, start: float, end: float, *, deadline: float | None = None
    ) -> dict[str, set[str]]:
        """Each series name with its label names (`__name__` left out), reduced while it arrives."""
        asked = _window(selector, start, end)
        return await self._ask("GET", _SERIES, asked, self._left(deadline), _LabelSets())

    async def _query(self, verb: Verb, promql: str, deadline: float | None) -> QueryResult:
        left = self._left(deadline)
        # Prometheus would take 0 for "no time at all".
        asked = {"query": promql, "timeout": f"{max(1, int(left * 1000))}ms"}
        return await self._ask(verb, _QUERY, asked, left + _GRACE, _Whole(query_result))

    def _left(self, deadline: float | None) -> float:
        if deadline is None:
            return self._timeout
        left = min(deadline - asyncio.get_running_loop().time(), self._timeout)
        if left <= 0:
            raise errors.TimedOut(f"no time was left to ask {self.address}")
        return left

    async def _ask(
        self, verb: Verb, path: str, asked: Mapping[str, str], seconds: float, reader: _Reader[T]
    ) -> T:
        began = self._monotonic()
        outcome, received = "Cancelled", 0
        try:
            async with asyncio.timeout(seconds):
                response = await self._session.request(
                    verb,
                    self._base / path[1:],
                    params=asked if verb == "GET" else None,
                    data=asked if verb == "POST" else None,
                    headers=await self._signed(),
                    timeout=aiohttp.ClientTimeout(),
                    ssl=self._trust() if self._trust else True,
                    server_hostname=self._server_name,
                )
                async with abort.abort_on_exit(response):
                    try:
                        if response.status // 100 != 2:
                            await _refuse(response)
                        answer = await self._read(response, reader)
                    finally:
                        received = _received(response.content)
            outcome = "ok"
        except (errors.BackendError, aiohttp.ClientError, OSError) as e:
            question = asked.get("query") or asked.get("match[]")
            where = f"{verb} {self.address}{path} {_shown(question or '')}"
            error = _told(e, where, seconds)
            outcome = type(error).__name__
            raise error from e
        finally:
            spent = self._monotonic() - began
            if self._requests:
                self._requests.ended(path, outcome=outcome, seconds=spent, received=received)
            if log.isEnabledFor(logging.DEBUG):
                subject = _shown(asked.get("query") or asked.get("match[]") or "")
                url = f"{self.address}{path}"
                log.debug("%s %s %s: %s in %.0f ms", verb, url, subject, outcome, spent * 1000)
        return answer

    async def _signed(self) -> Mapping[str, str]:
        if self._authorization is None:
            return self._headers
        return {**self._headers, "Authorization": await self._authorization()}

    async def _read(self, response: aiohttp.ClientResponse, reader: _Reader[T]) -> T:
        size = 0
        async for chunk in response.content.iter_chunked(_CHUNK):
            size += len(chunk)
            if size > self._limit:
                raise errors.TooLarge(f"cut off: the answer is longer than {self._limit} bytes")
            reader.feed(chunk)
        return reader.close()


class _Reader(Protocol[T_co]):
    """Knows how to make an answer of its bytes. Both methods raise Broken."""

    def feed(self, chunk: bytes) -> None: ...
    def close(self) -> T_co: ...


class _Whole(Generic[T]):
    """A document that is only read when all of it is there."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._bytes = bytearray()
        self._shape = read

    def feed(self, chunk: bytes) -> None:
        self._bytes += chunk

    def close(self) -> T:
        try:
            document = orjson.loads(self._bytes)
        except orjson.JSONDecodeError as e:
            raise errors.Broken(f"the answer is not JSON: {e}: {_text(self._bytes)}") from e
        return self._shape(document)


class _LabelSets:
    """`/api/v1/series`, of which only names and label names are kept."""

    def __init__(self) -> None:
        self._elements = json_stream.ObjectArray("data")
        self._found: dict[str, set[str]] = {}

    def feed(self, chunk: bytes) -> None:
        try:
            for labels in self._elements.feed(chunk):
                self._found.setdefault(labels.pop("__name__", ""), set()).update(labels)
        except json_stream.MalformedError as e:
            raise errors.Broken(f"the answer is no list of series: {e}") from e

    def close(self) -> dict[str, set[str]]:
        try:
            data(self._elements.close(), list)
        except json_stream.MalformedError as e:
            raise errors.Broken(f"the answer is no list of series: {e}") from e
        return self._found


def _window(selector: str, start: float, end: float) -> dict[str, str]:
    return {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}


async def _refuse(response: aiohttp.ClientResponse) -> NoReturn:
    """Raise what a status other than 2xx means, with the error's type and text if there is one."""
    body = await response.content.read(_CHUNK)
    try:
        document = orjson.loads(body)
        kind, text = document["errorType"], document["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        kind, text = response.reason or "", _text(body)
    said = f"{response.status} {kind}: {text}"
    if kind == "timeout":
        raise errors.TimedOut(said)
    if response.status // 100 == 4:
        raise errors.Refused(said, status=response.status)
    raise errors.Broken(said)


def _told(error: Exception, where: str, seconds: float) -> errors.BackendError:
    """The error as one of ours, with `where` in front."""
    if isinstance(error, errors.Refused):
        return errors.Refused(f"{where}: {error}", status=error.status)
    if isinstance(error, errors.BackendError):
        return type(error)(f"{where}: {error}")
    if isinstance(error, TimeoutError):
        return errors.TimedOut(f"{where}: no whole answer within {seconds:.1f} s")
    told = f"{where}: {str(error) or type(error).__name__}"
    if isinstance(error, aiohttp.ClientConnectionError | OSError):
        return errors.Unreachable(told)
    if isinstance(error, aiohttp.ClientPayloadError) and not isinstance(
        error.__cause__, aiohttp.http_exceptions.ContentEncodingError
    ):
        return errors.Unreachable(told)
    return errors.Broken(told)


def _received(content: aiohttp.StreamReader) -> int:
    """Bytes as they came over the wire; the reader of an empty answer counts nothing."""
    compressed: int = getattr(content, "total_compressed_bytes", None) or 0
    plain: int = getattr(content, "total_bytes", 0)
    return compressed or plain


def _text(body: bytes | bytearray) -> str:
    return _shown(body[:1000].decode(errors="replace"))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 1000 else f"{text[:1000]}…")
