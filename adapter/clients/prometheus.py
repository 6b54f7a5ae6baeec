"""Client of the Prometheus HTTP API (also Thanos, Mimir, VictoriaMetrics).

Responses are limited in size while they arrive and returned as typed values. Every failure is a
BackendError whose text names the request and quotes the server; it is meant for the log only.
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
"""Maximum size of a response in bytes, decompressed."""

_QUERY, _SERIES, _LABELS = "/api/v1/query", "/api/v1/series", "/api/v1/labels"
_NAMES = "/api/v1/label/__name__/values"
_CHUNK = 64 << 10
_MAX_QUOTED = 1000
_GRACE = 1.0
"""Seconds after Prometheus' own timeout in which its error response may arrive."""
_POST_RETRY = 300.0
"""Seconds for which queries are sent by GET after a 405 to POST."""


class Prometheus:
    """Client of one Prometheus.

    `url` is the base URL; its query string is ignored. `authorization` is used unless `headers` or
    the URL contain credentials. `tls_context` returns the TLS context of each new connection, by
    default that of the session; `server_name` is the name in the server's certificate, by default
    the host of the URL. `verb` is the HTTP method of queries; listings always use GET. `timeout`
    (seconds) bounds requests without a nearer deadline. Deadlines are times of the running event
    loop. Methods raise BackendError subclasses only.

    https://prometheus.io/docs/prometheus/latest/querying/api/
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: Authorization | None = None,
        tls_context: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
        verb: Verb = "GET",
        timeout: float = 30.0,
        requests: telemetry.PrometheusRequestMetrics | None = None,
        monotonic: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Parse the URL. Raises ValueError if it is not an HTTP URL."""
        base = yarl.URL(url)
        if base.scheme not in {"http", "https"} or not base.host:
            raise ValueError(
                f"{url!r} is not the URL of a Prometheus: it needs http:// or https:// and a host"
            )
        if any(name.lower() == "authorization" for name in headers or ()):
            base = base.with_user(None)  # aiohttp refuses both; Go prefers the header
            authorization = None
        elif base.user is not None or base.password is not None:
            authorization = None
        self._session = session
        self._base = base.with_path(base.path.rstrip("/"))
        self._address = str(self._base.with_user(None))  # without credentials, for the log
        self._headers = {**(headers or {}), "Accept": "application/json", "Accept-Encoding": "gzip"}
        self._authorization = authorization
        self._tls_context = tls_context
        self._server_name = server_name
        self._verb: Verb = verb
        self._timeout = timeout
        self._requests = requests
        self._monotonic = monotonic
        self._post_refused_at: float | None = None

    async def query(self, promql: str, *, deadline: float | None = None) -> QueryResult:
        """Evaluate an instant query at the current time; Prometheus stops at the deadline.

        A Prometheus that refuses POST with 405 is queried by GET for the next five minutes.
        """
        if self._verb == "POST" and not self._post_was_refused():
            try:
                result = await self._query("POST", promql, deadline)
            except errors.Refused as error:
                if error.status != 405:
                    raise
                self._note_refused_post(error)
            else:
                self._post_refused_at = None
                return result
        return await self._query("GET", promql, deadline)

    async def names(self, selector: str, start: float, end: float) -> tuple[str, ...]:
        """Return the names of the series that `selector` matches (start, end: Unix seconds).

        The index of the head block ignores the time range, so ended series may be included.
        """
        return await self._list(_NAMES, selector, start, end, _Document(strings))

    async def label_names(self, selector: str, start: float, end: float) -> tuple[str, ...]:
        """Return the label names of the series that `selector` matches, without `__name__`."""
        names = await self._list(_LABELS, selector, start, end, _Document(strings))
        return tuple(name for name in names if name != "__name__")

    async def series(self, selector: str, start: float, end: float) -> dict[str, set[str]]:
        """Return the label names, without `__name__`, of each series name that `selector` matches.

        Label sets are reduced while they arrive.
        """
        return await self._list(_SERIES, selector, start, end, _LabelSets())

    def _post_was_refused(self) -> bool:
        at = self._post_refused_at
        return at is not None and self._monotonic() - at < _POST_RETRY

    def _note_refused_post(self, error: errors.Refused) -> None:
        log.log(
            logging.WARNING if self._post_refused_at is None else logging.DEBUG,
            "POST refused: queries are sent by GET, and POST is tried again every %.0f minutes; "
            "set --prometheus-verb=GET if it is never allowed: %s",
            _POST_RETRY / 60,
            error,
        )
        self._post_refused_at = self._monotonic()

    async def _query(self, verb: Verb, promql: str, deadline: float | None) -> QueryResult:
        left = self._timeout
        if deadline is not None:
            left = min(left, deadline - asyncio.get_running_loop().time())
        if left <= 0:
            raise errors.TimedOut(f"deadline exceeded before a request to {self._address}")
        # With a timeout of 0 ms, Prometheus fails at once.
        params = {"query": promql, "timeout": f"{max(1, int(left * 1000))}ms"}
        return await self._request(verb, _QUERY, params, left + _GRACE, _Document(query_result))

    async def _list(
        self, path: str, selector: str, start: float, end: float, reader: _Reader[T]
    ) -> T:
        params = {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        return await self._request("GET", path, params, self._timeout, reader)

    async def _request(
        self, verb: Verb, path: str, params: Mapping[str, str], seconds: float, reader: _Reader[T]
    ) -> T:
        subject = params.get("query") or params.get("match[]", "")
        description = f"{verb} {self._address}{path} {_quoted(subject)}"
        started = self._monotonic()
        outcome, received = "Cancelled", 0
        try:
            async with asyncio.timeout(seconds):
                response = await self._session.request(
                    verb,
                    self._base / path[1:],
                    params=params if verb == "GET" else None,
                    data=params if verb == "POST" else None,
                    headers=await self._request_headers(),
                    timeout=aiohttp.ClientTimeout(),
                    ssl=self._tls_context() if self._tls_context else True,
                    server_hostname=self._server_name,
                )
                async with abort.abort_on_exit(response):
                    try:
                        if response.status // 100 != 2:
                            await _raise_for_status(response)
                        result = await _read(response, reader)
                    finally:
                        received = _received(response.content)
            outcome = "ok"
        except (errors.BackendError, aiohttp.ClientError, OSError) as e:
            error = _backend_error(e, description, seconds)
            outcome = type(error).__name__
            raise error from e
        finally:
            elapsed = self._monotonic() - started
            if self._requests:
                self._requests.ended(path, outcome=outcome, seconds=elapsed, received=received)
            log.debug("%s: %s in %.0f ms", description, outcome, elapsed * 1000)
        return result

    async def _request_headers(self) -> Mapping[str, str]:
        if self._authorization is None:
            return self._headers
        return {**self._headers, "Authorization": await self._authorization()}


class _Reader(Protocol[T_co]):
    """Parser of a response body. Both methods raise Broken."""

    def feed(self, chunk: bytes) -> None: ...
    def close(self) -> T_co: ...


class _Document(Generic[T]):
    """Reader that parses the whole JSON document at the end."""

    def __init__(self, parse: Callable[[Any], T]) -> None:
        self._body = bytearray()
        self._parse = parse

    def feed(self, chunk: bytes) -> None:
        self._body += chunk

    def close(self) -> T:
        try:
            document = orjson.loads(self._body)
        except orjson.JSONDecodeError as e:
            raise errors.Broken(f"the response is not JSON: {e}: {_excerpt(self._body)}") from e
        return self._parse(document)


class _LabelSets:
    """Reader of `/api/v1/series` that keeps only series names and their label names."""

    def __init__(self) -> None:
        self._elements = json_stream.ObjectArray("data")
        self._label_names: dict[str, set[str]] = {}

    def feed(self, chunk: bytes) -> None:
        try:
            for labels in self._elements.feed(chunk):
                self._label_names.setdefault(labels.pop("__name__", ""), set()).update(labels)
        except json_stream.MalformedError as e:
            raise errors.Broken(f"the response is not a list of series: {e}") from e

    def close(self) -> dict[str, set[str]]:
        try:
            data(self._elements.close(), list)
        except json_stream.MalformedError as e:
            raise errors.Broken(f"the response is not a list of series: {e}") from e
        return self._label_names


async def _read(response: aiohttp.ClientResponse, reader: _Reader[T]) -> T:
    size = 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        size += len(chunk)
        if size > LIMIT:
            raise errors.TooLarge(f"the response is longer than {LIMIT} bytes")
        reader.feed(chunk)
    return reader.close()


async def _raise_for_status(response: aiohttp.ClientResponse) -> NoReturn:
    """Raise the BackendError for a status other than 2xx, with Prometheus' error type and text."""
    body = await response.content.read(_CHUNK)
    try:
        document = orjson.loads(body)
        kind, text = document["errorType"], document["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        kind, text = response.reason or "", _excerpt(body)
    message = f"{response.status} {kind}: {text}"
    if kind == "timeout":
        raise errors.TimedOut(message)
    if response.status // 100 == 4:
        raise errors.Refused(message, status=response.status)
    raise errors.Broken(message)


def _backend_error(error: Exception, request: str, seconds: float) -> errors.BackendError:
    """Convert an error of a request to a BackendError whose text starts with the request."""
    if isinstance(error, errors.Refused):
        return errors.Refused(f"{request}: {error}", status=error.status)
    if isinstance(error, errors.BackendError):
        return type(error)(f"{request}: {error}")
    if isinstance(error, TimeoutError):
        return errors.TimedOut(f"{request}: no complete response within {seconds:.1f} s")
    message = f"{request}: {str(error) or type(error).__name__}"
    if isinstance(error, aiohttp.ClientConnectionError | OSError):
        return errors.Unreachable(message)
    if isinstance(error, aiohttp.ClientPayloadError) and not isinstance(
        error.__cause__, aiohttp.http_exceptions.ContentEncodingError
    ):
        return errors.Unreachable(message)
    return errors.Broken(message)


def _received(content: aiohttp.StreamReader) -> int:
    """Return the bytes received over the wire; the reader of an empty body has no counters."""
    compressed: int = getattr(content, "total_compressed_bytes", None) or 0
    plain: int = getattr(content, "total_bytes", 0)
    return compressed or plain


def _excerpt(body: bytes | bytearray) -> str:
    return _quoted(body[:_MAX_QUOTED].decode(errors="replace"))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")
