"""Records what servers answer to the adapter and its commands, and answers the same again.

with exchanges.recorded(rewrite) as recording: ...
with exchanges.replayed(recording): ...

Every client of the adapter sends by `Transport.send`, so that is where both stand. Only answers of
hosts in `RECORDED` count; other requests, such as those of a command to an adapter in the same
process, are sent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import re
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import aiohttp
import multidict
import yarl

from adapter.clients import detection
from adapter.clients.transport import Transport

PROMETHEUS, KUBERNETES = "prometheus.example", "kubernetes.example"
"""Hosts of the recorded Prometheus and API server."""
_VOLATILE = frozenset(("start", "end", "time", "timeout", "step", "limit"))
"""Parameters that differ from run to run, or from client to client."""
_KEPT = frozenset(("content-type", "warning", "retry-after"))
"""Headers that clients read."""
_LARGE = 400
"""Characters of a body from which on it is in the file of all recordings, and of a request from
which on only its beginning is."""
_LISTS = {
    detection.SELECTOR.strip("{}"): "<presets>",
    detection.LOAD_SELECTOR.strip("{}"): "<load>",
}
"""Matchers that list the series names of all presets, each with the word that replaces it in a
recording, so that recordings stay as they are when a preset gets another series."""
_BODIES = "bodies"
_FOREVER = 600.0
_FOLDER = re.compile(r"/tmp/[\w-]+/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request in its lasting form, and how it ended."""

    request: str
    status: int = 0
    """0 for a failure of the connection."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    """Base64 with the prefix `base64:` if it is not UTF-8."""
    failure: str = ""
    """`timeout`, or the message of a connection that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Exchanges in their order, and when they were recorded."""

    at: float
    """Unix seconds."""
    exchanges: tuple[Exchange, ...]

    def save(self, path: Path) -> None:
        """Write a file; large bodies, which many recordings share, go to one file beside it."""
        rows, bodies = [], _bodies(_file(path))
        for each in self.exchanges:
            row = {name: value for name in Exchange.__slots__ if (value := getattr(each, name))}
            if len(each.body) > _LARGE:
                digest = hashlib.sha256(each.body.encode()).hexdigest()[:16]
                bodies[digest] = each.body
                row["body"] = {"digest": digest}
            rows.append(row)
        path.write_text(json.dumps({"at": self.at, "exchanges": rows}, indent=1) + "\n")
        texts = [other.read_text() for other in path.parent.glob("*.json") if other.stem != _BODIES]
        used = {name: body for name, body in bodies.items() if any(name in text for text in texts)}
        _file(path).write_text(json.dumps(used, indent=1, sort_keys=True) + "\n")

    @classmethod
    def of(cls, at: float, exchanges: Iterable[Exchange]) -> Recording:
        """Return what was recorded; equal neighbours of one request count once."""
        last: dict[str, Exchange] = {}
        kept = []
        for each in exchanges:
            if last.get(each.request) != each:
                kept.append(each)
            last[each.request] = each
        return cls(at=at, exchanges=tuple(kept))

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read a file."""
        document, bodies = json.loads(path.read_text()), _bodies(_file(path))
        rows = document["exchanges"]
        for row in rows:
            if isinstance(row.get("body"), dict):
                row["body"] = bodies[row["body"]["digest"]]
        return cls(at=document["at"], exchanges=tuple(Exchange(**row) for row in rows))


def _file(path: Path) -> Path:
    """Return the file with the bodies beside a recording."""
    return path.with_name(f"{_BODIES}.json")


@functools.cache
def _bodies(file: Path) -> dict[str, str]:
    bodies: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return bodies


@contextlib.contextmanager
def recorded(
    servers: Mapping[str, str], *, names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[list[Exchange]]:
    """Record the requests to the hosts in `servers`, which are sent to the URLs beside them.

    Watches are sent, but not recorded.
    Requests to the hosts in `names` are sent as they are, and recorded as those to these names.
    """
    exchanges, send = list[Exchange](), Transport.send

    @contextlib.asynccontextmanager
    async def recording(
        self: Transport, method: str, url: yarl.URL, **options: Any
    ) -> AsyncIterator[Any]:
        host = url.host or ""
        if host not in {*servers, *names} or "watch" in url.query:
            async with send(self, method, url, **options) as response:
                yield response
            return
        key, sender, moved = _key(method, url.with_host(names.get(host, host)), options), self, url
        base = yarl.URL(servers.get(host, str(url.origin())))
        if host in servers:
            moved = url.with_scheme(base.scheme).with_host(base.host or "").with_port(base.port)
            sender = Transport(self.session, base, advice="")
            options = {name: each for name, each in options.items() if name != "middlewares"}
        try:
            async with send(sender, method, moved, **options) as response:
                body = await response.read()
                headers = {
                    name: _FOLDER.sub("", text)
                    for name, text in response.headers.items()
                    if name.lower() in _KEPT
                }
                status = response.status
        except (TimeoutError, asyncio.CancelledError):
            exchanges.append(Exchange(request=key, failure="timeout"))
            raise
        except (aiohttp.ClientError, OSError) as error:
            text = str(error).replace(f"{base.host}:{base.port}", url.authority)
            exchanges.append(Exchange(request=key, failure=text))
            raise
        exchange = Exchange(
            request=key, status=status, headers=headers, body=_FOLDER.sub("", _text(body))
        )
        exchanges.append(exchange)
        yield _response(exchange)

    Transport.send = recording  # type: ignore[method-assign]
    try:
        yield exchanges
    finally:
        Transport.send = send  # type: ignore[method-assign]


@contextlib.contextmanager
def replayed(
    recording: Recording, names: Mapping[str, str], *, hangs: bool = False
) -> Iterator[list[str]]:
    """Answer requests as recorded; yield those for which there is no answer.

    `names` are the hosts of such requests, each with its name in the recording. A request that had
    no answer in time times out at once, or only when its client gives up, if `hangs`. A watch has
    no event, and does not end.
    """
    answers: dict[str, list[Exchange]] = defaultdict(list)
    for each in recording.exchanges:
        answers[each.request].append(each)
    endings = {(each.status, each.failure) for each in recording.exchanges}
    # A server that fails always fails also for requests that another timing leads to.
    always = recording.exchanges[:1] if len(endings) == 1 and endings != {(200, "")} else ()
    send, missing = Transport.send, list[str]()

    @contextlib.asynccontextmanager
    async def replaying(
        self: Transport, method: str, url: yarl.URL, **options: Any
    ) -> AsyncIterator[Any]:
        if (url.host or "") not in names:
            async with send(self, method, url, **options) as response:
                yield response
            return
        if "watch" in url.query:
            yield _response(Exchange(request="", status=200), ends=False)
            return
        key = _key(method, url.with_host(names[url.host or ""]), options)
        known = answers.get(key) or [*always]
        if not known:
            missing.append(key)
            raise aiohttp.ClientConnectionError(f"not recorded: {key}")
        exchange = known.pop(0) if len(known) > 1 else known[0]
        if exchange.failure == "timeout":
            await asyncio.sleep(_FOREVER if hangs else 0)
            raise TimeoutError
        if exchange.failure:
            raise aiohttp.ClientConnectionError(exchange.failure)
        await asyncio.sleep(0)
        yield _response(exchange)

    Transport.send = replaying  # type: ignore[method-assign]
    waits = hangs and any(each.failure == "timeout" for each in recording.exchanges)
    try:
        # Nothing verifies a certificate here; each client would take 60 ms to read those of CAs.
        with (
            mock.patch.object(ssl.SSLContext, "load_default_certs"),
            contextlib.nullcontext() if waits else _without_limits(),
        ):
            yield missing
    finally:
        Transport.send = send  # type: ignore[method-assign]


@contextlib.contextmanager
def _without_limits() -> Iterator[None]:
    """Let nothing time out while the context lasts.

    A busy machine may need longer than half a second, the shortest limit of the adapter.
    """
    timeout = asyncio.timeout

    def unlimited(_: float | None) -> asyncio.Timeout:
        return timeout(None)

    with (
        mock.patch.object(asyncio, "timeout", unlimited),
        mock.patch.object(asyncio, "timeout_at", unlimited),
    ):
        yield


def _key(method: str, url: yarl.URL, options: Mapping[str, Any]) -> str:
    """Return a request without what differs from run to run, and without lists of series names."""
    form = options.get("data") or {}
    pairs = [*url.query.items(), *form.items()]
    lasting = sorted((name, _unlisted(text)) for name, text in pairs if name not in _VOLATILE)
    query = f"?{urlencode(lasting)}" if lasting else ""
    document = options.get("json")
    body = f" {json.dumps(document, sort_keys=True)}" if document is not None else ""
    return shortened(f"{method} {url.host}{url.raw_path}{query}{body}")


def _unlisted(text: str) -> str:
    """Return the value of a parameter with each of `_LISTS` replaced by its word."""
    for matcher, word in _LISTS.items():
        text = text.replace(matcher, word)
    return text


def shortened(key: str) -> str:
    """Return a long key as its beginning and a digest."""
    if len(key) <= _LARGE:
        return key
    return f"{key[: _LARGE // 2]}... {hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(body).decode()}"
    if "managedFields" in text:  # half of each object, which nobody reads
        with contextlib.suppress(ValueError):
            return json.dumps(_without_managed_fields(json.loads(text)), separators=(",", ":"))
    return text


def _without_managed_fields(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_managed_fields(each)
            for key, each in value.items()
            if key != "managedFields"
        }
    return [*map(_without_managed_fields, value)] if isinstance(value, list) else value


def _response(exchange: Exchange, *, ends: bool = True) -> Any:
    """Return what the clients use of an aiohttp.ClientResponse; one that ends, or never does."""
    text = exchange.body
    body = base64.b64decode(text[7:]) if text.startswith("base64:") else text.encode()
    headers: multidict.CIMultiDict[str] = multidict.CIMultiDict(exchange.headers)

    async def chunks(*_: int) -> AsyncIterator[bytes]:
        if body:
            yield body
        if not ends:
            await asyncio.sleep(_FOREVER)

    async def read(size: int = -1) -> bytes:
        return body if size < 0 else body[:size]

    return SimpleNamespace(
        status=exchange.status,
        reason="",
        headers=headers,
        content=SimpleNamespace(iter_chunked=chunks, iter_any=chunks, read=read),
        connection=None,
        request_info=SimpleNamespace(headers={}),
        read=read,
    )
