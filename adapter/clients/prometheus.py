"""Client of the Prometheus HTTP API (also Thanos, Mimir, VictoriaMetrics).

Responses are parsed and limited in size while they arrive, and returned as typed values. Every
failure is a BackendError whose text names the request and quotes the server; it is meant for the
log only.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime as dt
import email.utils
import logging
import re
import ssl
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypeVar

import aiohttp
import orjson
import yarl

from adapter import bounds, errors, telemetry
from adapter.cache import LRUCache
from adapter.clients import quirks, transport
from adapter.clients.circuit_breaker import OPEN, CircuitBreaker
from adapter.clients.confinement import Confinement
from adapter.clients.credentials import Authorization
from adapter.clients.limits import MAX_HELD, FairSlots, Held
from adapter.clients.prometheus_result import (
    LabelSetsReader,
    Listed,
    QueryResult,
    QueryResultReader,
    RangeResult,
    RangesReader,
    Reader,
    Reduce,
    StringsReader,
    start_reader,
    types_reader,
)
from adapter.clients.quirks import Meaning
from adapter.clients.reachability import Reachability, setting
from adapter.clients.redaction import redacted
from adapter.clients.replicas import Replicas
from adapter.clients.transport import Transport
from rules import promql
from rules.document.sources import DEFAULT
from rules.quoting import shorten
from rules.ruleset import Team

log = logging.getLogger(__name__)

Verb = Literal["GET", "POST"]
T = TypeVar("T", bound=QueryResult | Listed[Any])

MAX_RESULT = 16 << 20
"""Maximum size in bytes, decompressed, of a response that is kept: a query's, or a list of names.

10 000 pods with 8 GPUs each are 80 000 samples. With the pod, its namespace and the GPU as labels,
a sample has 130 bytes, so that all of them are 10 MiB."""
_MAX_SERIES = 64 << 20
"""Maximum size in bytes, decompressed, of a response of `/api/v1/series`, which is not kept."""
_SMALL = 16 << 10
"""Bytes of a response that is read also beyond `MAX_HELD`: about a hundred samples. Otherwise, a
few large responses would make all other requests fail."""

_QUERY, _SERIES, _LABELS = "/api/v1/query", "/api/v1/series", "/api/v1/labels"
_NAMES = "/api/v1/label/__name__/values"
_RANGE = "/api/v1/query_range"
_METADATA = "/api/v1/metadata"
_RUNTIME = "/api/v1/status/runtimeinfo"
_BACKGROUND = 3
"""A request for which no autoscaler waits, such as a relist, has so many timeouts."""
_PROBE, _PROBE_SECONDS = "1", 5.0
"""A query that costs Prometheus nothing, and the time limit of its response."""
_STARTS = 4
"""Requests for the start of a process that have room, one after the other, in the timeout."""
_CHUNK = 16 << 10
"""Bytes that are parsed at once. The slowest input takes 40 ms, in which nothing else runs."""
_MAX_ERROR = 64 << 10
"""Bytes that are read of the body of an error."""
_MAX_QUOTED = 1000
_MAX_SHOWN = 120
"""Characters of a refused query that its cause shows: it then fits in two lines of a terminal."""
_BAD_REQUEST, _EXECUTION_FAILED = 400, 422
_FORBIDDEN = frozenset({401, 403})
_FAULT_OF_QUERY = frozenset({_BAD_REQUEST, _EXECUTION_FAILED})
"""Statuses with which Prometheus refuses a query. Its text quotes the query and label sets."""
_LABEL_SET = re.compile(r'\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\}')
"""Labels of series in an error, such as `{pod="a"}`. The series may belong to other tenants."""
_OVERLOADED = frozenset({429, 503})
_MAX_WAIT = 60.0
"""Maximum seconds for which Retry-After is followed."""
_GRACE = 1.0
"""Seconds after Prometheus' own timeout in which its error response may arrive."""
_POST_RETRY = 300.0
"""Seconds for which queries are sent by GET after a 405 to POST."""


@dataclass(slots=True)
class _Post:
    """When Prometheus refused POST with 405; None if it did not. All namespaces share it."""

    refused_at: float | None = None


class Prometheus:
    """Client of one Prometheus.

    `url` is the base URL; its query string is sent with each request, except parameters that the
    request sets itself. `authorization` is used unless `headers` or the URL contain credentials;
    `more_headers` are added in any case.
    `tls_context` returns the TLS context of each new connection, by default that of the session;
    `server_name` is the name in the server's certificate, by default the host of the URL. `verb` is
    the HTTP method of queries; listings always use GET. `timeout` bounds a request, in seconds.
    `source` is the name that rules use. Clients with the same `held` have a common limit of the
    responses that they read. `replicas` makes the sessions that replace `session` while several
    servers answer. `clock` returns the Unix seconds for which queries are evaluated, by default the
    time at Prometheus. Methods raise BackendError subclasses only.

    https://prometheus.io/docs/prometheus/latest/querying/api/
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: Authorization | None = None,
        more_headers: Authorization | None = None,
        tls_context: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
        verb: Verb = "GET",
        timeout: float = 30.0,
        source: str = DEFAULT,
        held: Held | None = None,
        replicas: Replicas | None = None,
        requests: telemetry.PrometheusRequestMetrics | None = None,
        clock: Callable[[], float] | None = None,
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
        self.replicas = replicas or Replicas(session)
        self._base = base.with_path(base.path.rstrip("/"))
        self._parameters = tuple(base.query.items())
        self._secrets = transport.secrets_of(base)
        self._address = str(self._base.with_user(None))  # without credentials, for the log
        self._transport = Transport(
            session,
            base,
            advice=f"set {setting(source, 'url')} to the address of Prometheus itself",
            authorizations=tuple(filter(None, [authorization, more_headers])),
            tls_context=tls_context,
            server_name=server_name,
        )
        self._headers = {**(headers or {}), "Accept": "application/json", "Accept-Encoding": "gzip"}
        self._verb: Verb = verb
        self._timeout = timeout
        self._requests = requests
        self._clock = clock
        self._monotonic = monotonic
        self._post = _Post()
        self._source = source
        self.reachability = Reachability(source=source, answers=self.replicas.status)
        name = "Prometheus" if source == DEFAULT else f"the source {source}"
        self._breaker = CircuitBreaker(name, clock=monotonic)
        self._probes: set[asyncio.Task[None]] = set()
        """The task that probes, if the breaker is open. The clients of all teams share it."""
        self._held = (held or Held()).share()
        self._slots: FairSlots | None = None
        """Of all teams, which have the same limits; None before the first."""
        self._teams: LRUCache[Team, Prometheus] = LRUCache(bounds.TEAMS)
        self._confinement: Confinement | None = None

    def close(self) -> None:
        """Stop probing."""
        for task in self._probes:
            task.cancel()

    def for_team(self, team: Team | None) -> Prometheus:
        """Return the client for the rules of `team`: this one without a team.

        Its requests read series of the team's namespace only, wait in turns with those of other
        namespaces, and have limits of their own. The connections are the same.
        """
        if team is None:
            return self
        if (known := self._teams.get(team)) is not None:
            return known
        if self._slots is None:
            self._slots = FairSlots(
                own=team.limits.team_requests, total=team.limits.team_requests_all
            )
        client = copy.copy(self)
        client._confinement = Confinement(  # noqa: SLF001 (of the same class)
            team, self._slots, monotonic=self._monotonic
        )
        self._teams.set(team, client)
        return client

    async def query(self, query: str, reduce: Reduce | None = None) -> QueryResult:
        """Evaluate an instant query at the current time; Prometheus stops at the timeout.

        `reduce` gets the samples as they arrive, and the result has none then. A Prometheus that
        refuses POST with 405 is queried by GET for the next five minutes.
        """
        refused_at = self._post.refused_at
        waits = refused_at is not None and self._monotonic() - refused_at < _POST_RETRY
        if self._verb == "POST" and not waits:
            try:
                result = await self._query("POST", query, reduce)
            except errors.Refused as error:
                if error.status != 405:
                    raise
                self._note_refused_post(error)
            else:
                self._post.refused_at = None
                return result
        return await self._query("GET", query, reduce)

    async def query_range(
        self, query: str, start: float, end: float, step: float
    ) -> Listed[tuple[RangeResult, ...]]:
        """Evaluate a query every `step` seconds (start, end: Unix seconds).

        Prometheus refuses more than 11 000 steps.
        """
        params = {
            "query": query,
            "start": f"{start:.3f}",
            "end": f"{end:.3f}",
            "step": f"{step:.3f}",
            "timeout": f"{int(self._background_seconds * 1000)}ms",
        }
        seconds = self._background_seconds + _GRACE
        return await self._request("GET", _RANGE, params, seconds, RangesReader())

    async def names(self, selector: str, start: float, end: float) -> Listed[tuple[str, ...]]:
        """Return the names of the series that `selector` matches (start, end: Unix seconds).

        The index of the head block ignores the time range, so ended series may be included. Of a
        team, only the first names are returned.
        """
        return await self._list(_NAMES, selector, start, end, StringsReader(self._most_names))

    async def label_names(self, selector: str, start: float, end: float) -> Listed[tuple[str, ...]]:
        """Return the label names of the series that `selector` matches, without `__name__`."""
        names = await self._list(_LABELS, selector, start, end, StringsReader())
        return replace(names, content=tuple(each for each in names.content if each != "__name__"))

    async def series(self, selector: str, start: float, end: float) -> Listed[dict[str, set[str]]]:
        """Return the label names, without `__name__`, of each series name that `selector` matches.

        Label sets are reduced while they arrive.
        """
        return await self._list(_SERIES, selector, start, end, LabelSetsReader(self._most_names))

    async def types(self, series: str) -> set[str]:
        """Return the types of a series name as targets declare them, such as `gauge`.

        Empty if none does, as with series from remote write.
        """
        types = await self._request(
            "GET", _METADATA, {"metric": series}, self._timeout, types_reader()
        )
        return types.content.get(series, set())

    async def count_replicas(self) -> None:
        """Count the servers that answer, and return to the preferred one; see `Replicas.count`.

        If that fails, what was known about them stays.
        """
        with contextlib.suppress(errors.BackendError), self._breaker.request():
            await self.replicas.count(self._started)

    async def started(self) -> float:
        """Return when the process was started, in Unix seconds. Raises BackendError."""
        start = await self._started(self.replicas.session)
        try:
            return dt.datetime.fromisoformat(start).timestamp()
        except ValueError as error:
            raise errors.Broken(f"the start of {self._address} is no time: {start!r}") from error

    async def _started(self, session: aiohttp.ClientSession) -> str:
        """Return when the process that answers `session` was started.

        One that hangs leaves time to try another within the timeout of a query.
        """
        seconds = self._timeout / _STARTS
        start = await self._exchange("GET", _RUNTIME, {}, seconds, start_reader(), session)
        return start.content

    def _note_refused_post(self, error: errors.Refused) -> None:
        log.log(
            logging.WARNING if self._post.refused_at is None else logging.DEBUG,
            "POST refused: queries are sent by GET, and POST is tried again every %.0f minutes; "
            "set %s to GET if it is never allowed: %s",
            _POST_RETRY / 60,
            setting(self._source, "verb"),
            error,
        )
        self._post.refused_at = self._monotonic()

    async def _query(self, verb: Verb, query: str, reduce: Reduce | None) -> QueryResult:
        # With a timeout of 0 ms, Prometheus fails at once.
        params = {"query": query, "timeout": f"{max(1, int(self._timeout * 1000))}ms"}
        if self._clock is not None:
            params["time"] = f"{self._clock():.3f}"
        most = None if self._confinement is None else self._confinement.limits.team_samples
        reader = QueryResultReader(reduce, most=most)
        return await self._request(verb, _QUERY, params, self.query_seconds, reader)

    async def _list(
        self, path: str, selector: str, start: float, end: float, reader: Reader[T]
    ) -> T:
        params = {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        return await self._request("GET", path, params, self._background_seconds, reader)

    async def _request(
        self, verb: Verb, path: str, params: Mapping[str, str], seconds: float, reader: Reader[T]
    ) -> T:
        if self._breaker.needs_probe and not self._probes:
            task = asyncio.create_task(self._probe())
            self._probes.add(task)
            task.add_done_callback(self._probes.discard)
        # Listings have no limit of time at the server: a slow one is no reason to stop queries.
        slow_is_failure = path == _QUERY
        if (team := self._confinement) is None:
            with self._breaker.request(slow_is_failure=slow_is_failure):
                return await self._exchange(verb, path, params, seconds, reader)
        params = team.confined(params)
        async with team.turn() as waited:
            # What fails here stops the queries of its namespace only.
            with (
                self._breaker.request(of=team.namespace, slow_is_failure=False),
                team.request(slow_is_failure=slow_is_failure),
            ):
                result = await self._exchange(verb, path, params, seconds, reader)
        return replace(result, waited=waited)

    async def _probe(self) -> None:
        """Send a cheap query until Prometheus responds, so that no request has to find out."""
        params, seconds = {"query": _PROBE}, min(_PROBE_SECONDS, self.query_seconds)
        while self._breaker.needs_probe:
            await asyncio.sleep(OPEN)
            with contextlib.suppress(errors.BackendError), self._breaker.probe():
                await self._exchange(self._verb, _QUERY, params, seconds, QueryResultReader(None))

    @property
    def query_seconds(self) -> float:
        """Seconds within which a query ends: the timeout, and some for Prometheus' own error."""
        return self._timeout + _GRACE

    @property
    def _background_seconds(self) -> float:
        return _BACKGROUND * self._timeout

    @property
    def _most_names(self) -> int | None:
        return None if self._confinement is None else self._confinement.limits.team_names

    async def _exchange(
        self,
        verb: Verb,
        path: str,
        params: Mapping[str, str],
        seconds: float,
        reader: Reader[T],
        session: aiohttp.ClientSession | None = None,
    ) -> T:
        subject = params.get("query") or params.get("match[]") or params.get("metric", "")

        def described() -> str:
            line = promql.one_line(shorten(subject, _MAX_QUOTED))
            return f"{verb} {self._address}{path} `{line}`"

        started, began = self._monotonic(), self.reachability.now()
        outcome, received = "Cancelled", 0
        secrets: Sequence[str] = self._secrets
        try:
            async with asyncio.timeout(seconds), contextlib.AsyncExitStack() as stack:
                middlewares: Sequence[aiohttp.ClientMiddlewareType] = ()
                if session is None:
                    session, middlewares = stack.enter_context(self.replicas.used(self._started))
                response = await stack.enter_async_context(
                    self._transport.send(
                        verb,
                        self._url(path, params, in_url=verb == "GET"),
                        session=session,
                        middlewares=middlewares,
                        connect=seconds / 2,
                        data=params if verb == "POST" else None,
                        headers=self._headers,
                    )
                )
                secrets = (*secrets, *self._transport.secrets(response))
                try:
                    if response.status // 100 != 2:
                        await self._raise_for_status(response, secrets)
                    result = await self._read(response, path, reader)
                finally:
                    received = _received(response.content)
            outcome = "Partial" if result.partial else "ok"
            if path != _RUNTIME:
                self.reachability.answered(partial=result.partial)
        except (errors.BackendError, aiohttp.ClientError, OSError) as e:
            error = transport.backend_error(e, described(), seconds, secrets=secrets)
            if error.refusal and len(subject) <= _MAX_SHOWN:
                error.query = subject
            outcome = type(error).__name__
            if path != _RUNTIME:  # many backends do not serve that path, and serve queries
                may_last = self.reachability.failed(error, began=began)
                # An expensive query says nothing of the server that answers it, nor does one that
                # was not sent.
                if may_last and not isinstance(error, errors.QueryTimedOut | errors.NoCredentials):
                    self.replicas.failed(began=began)
            raise error from e
        finally:
            elapsed = self._monotonic() - started
            if self._requests:
                self._requests.ended(
                    path, source=self._source, outcome=outcome, seconds=elapsed, received=received
                )
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s: %s in %.0f ms", described(), outcome, elapsed * 1000)
        return result

    async def _raise_for_status(
        self, response: aiohttp.ClientResponse, secrets: Sequence[str]
    ) -> NoReturn:
        """Raise the BackendError for a status other than 2xx, with Prometheus' type and text."""
        body = await transport.read_beginning(response, _MAX_ERROR)
        try:
            document = orjson.loads(body)
            kind, text = document["errorType"], document["error"]
            refusal = f"{kind}: {text}" if response.status in _FAULT_OF_QUERY else ""
            limited = response.status != _BAD_REQUEST and quirks.says(text, Meaning.OVER_LIMIT)
            if response.status == _EXECUTION_FAILED or limited:
                refusal = _LABEL_SET.sub("{...}", f"{kind}: {text}")
        except (orjson.JSONDecodeError, KeyError, TypeError):
            quoted = redacted(body.decode(errors="replace"), secrets)
            excerpt = repr(shorten(quoted, _MAX_QUOTED))
            kind, text, refusal, limited = response.reason or "", excerpt, "", False
            if response.status == 404:
                text += (
                    f"; there is no Prometheus API below {self._address}: correct the path in "
                    f"{setting(self._source, 'url')}"
                )
        if response.status in _FORBIDDEN and self._transport.credentials:
            text += f"; the credentials are those of {self._transport.credentials}"
        message = f"{response.status} {kind}: {text}"
        if response.status in _OVERLOADED and (wait := _retry_after(response.headers)) > 0:
            raise errors.Overloaded(message, status=response.status, retry_after=wait)
        if limited:
            raise errors.TooLarge(message, refusal=refusal or message)
        if kind == "timeout":
            raise errors.QueryTimedOut(message)
        if response.status // 100 == 4:
            raise errors.Refused(message, status=response.status, refusal=refusal)
        raise errors.Broken(message)

    def _url(self, path: str, params: Mapping[str, str], *, in_url: bool) -> yarl.URL:
        """Return the URL of a request.

        All but unreserved characters are quoted, as in signatures of AWS.
        """
        own = [each for each in self._parameters if each[0] not in params]
        query = [*own, *(params.items() if in_url else ())]
        text = urllib.parse.urlencode(query, quote_via=urllib.parse.quote, safe="")
        bare = (self._base / path[1:]).with_query(None)
        return yarl.URL(f"{bare}?{text}" if text else str(bare), encoded=True)

    async def _read(self, response: aiohttp.ClientResponse, path: str, reader: Reader[T]) -> T:
        """Parse a response while it arrives. Raises TooLarge and Broken."""
        limit = _MAX_SERIES if path == _SERIES else MAX_RESULT
        name = f"{limit >> 20} MiB"
        if self._confinement is not None:
            limit = self._confinement.limits.team_response
            name = f"--limit=team-response={limit}"
        size = held = 0
        try:
            async for chunk in response.content.iter_chunked(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise errors.TooLarge.of(
                        f"the response is longer than {name}: select or aggregate so that it has "
                        "fewer series"
                    )
                grown = reader.feed(chunk)
                held += grown
                self._held.bytes += grown
                if held > _SMALL and not self._held.has_room:
                    raise errors.TooLarge.of(
                        f"all responses in flight together have no room in {MAX_HELD >> 20} MiB: "
                        "select or aggregate so that queries return fewer series"
                    )
                await asyncio.sleep(0)  # what has arrived is returned without a pause
            return reader.close()
        finally:
            self._held.bytes -= held


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds, at most a minute, in Retry-After: a number or a date; 0 without it."""
    text = headers.get("Retry-After", "")
    try:
        digits = text.isascii() and text.isdecimal()
        seconds = float(text) if digits else (_date(text) - _now(headers)).total_seconds()
    except ValueError:
        return 0.0
    return min(max(0.0, seconds), _MAX_WAIT)


def _now(headers: Mapping[str, str]) -> dt.datetime:
    """Return the server's time, whose clock may differ from ours."""
    return _date(headers["Date"]) if "Date" in headers else dt.datetime.now(dt.UTC)


def _date(text: str) -> dt.datetime:
    """Parse a date of HTTP. Raises ValueError."""
    date = email.utils.parsedate_to_datetime(text)
    return date if date.tzinfo else date.replace(tzinfo=dt.UTC)


def _received(content: aiohttp.StreamReader) -> int:
    """Return the bytes received over the wire; the reader of an empty body has no counters."""
    compressed: int = getattr(content, "total_compressed_bytes", None) or 0
    plain: int = getattr(content, "total_bytes", 0)
    return compressed or plain
