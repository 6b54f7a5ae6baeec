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
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import aiohttp
import multidict
import yarl

from adapter.clients.transport import Transport

PROMETHEUS = "prometheus.example"
"""Host of the recorded Prometheus."""
_VOLATILE = frozenset(("start", "end", "time", "timeout", "step"))
"""Parameters that differ from run to run."""
_LOST = frozenset(("content-length", "content-encoding", "date", "audit-id", "transfer-encoding"))


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

    def text(self) -> str:
        """Return the text of a file."""
        rows = [
            {name: value for name in Exchange.__slots__ if (value := getattr(each, name))}
            for each in self.exchanges
        ]
        return json.dumps({"at": self.at, "exchanges": rows}, indent=1) + "\n"

    @classmethod
    def of(cls, text: str) -> Recording:
        """Return the recording in the text of a file."""
        document = json.loads(text)
        rows = tuple(Exchange(**each) for each in document["exchanges"])
        return cls(at=document["at"], exchanges=rows)


class Recorder:
    """Collects exchanges."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def recording(self, at: float) -> Recording:
        """Return what was recorded; equal neighbours of one request count once."""
        last: dict[str, Exchange] = {}
        kept = []
        for each in self.exchanges:
            if last.get(each.request) != each:
                kept.append(each)
            last[each.request] = each
        return Recording(at=at, exchanges=tuple(kept))


@contextlib.contextmanager
def recorded(servers: Mapping[str, str]) -> Iterator[Recorder]:
    """Record the requests to the hosts in `servers`, which are sent to the URLs beside them."""
    recorder, send = Recorder(), Transport.send

    @contextlib.asynccontextmanager
    async def recording(
        self: Transport, method: str, url: yarl.URL, **options: Any
    ) -> AsyncIterator[Any]:
        target = servers.get(url.host or "")
        if target is None:
            async with send(self, method, url, **options) as response:
                yield response
            return
        key = _key(method, url, options)
        base = yarl.URL(target)
        moved = url.with_scheme(base.scheme).with_host(base.host or "").with_port(base.port)
        direct = Transport(self.session, base, advice="")
        options = {name: each for name, each in options.items() if name != "middlewares"}
        try:
            async with send(direct, method, moved, **options) as response:
                body = await response.read()
                headers = {
                    name: text
                    for name, text in response.headers.items()
                    if name.lower() not in _LOST
                }
                status = response.status
        except (TimeoutError, asyncio.CancelledError):
            recorder.exchanges.append(Exchange(request=key, failure="timeout"))
            raise
        except (aiohttp.ClientError, OSError) as error:
            text = str(error).replace(f"{base.host}:{base.port}", url.authority)
            recorder.exchanges.append(Exchange(request=key, failure=text))
            raise
        exchange = Exchange(request=key, status=status, headers=headers, body=_text(body))
        recorder.exchanges.append(exchange)
        yield _response(exchange)

    Transport.send = recording  # type: ignore[method-assign]
    try:
        yield recorder
    finally:
        Transport.send = send  # type: ignore[method-assign]


@contextlib.contextmanager
def replayed(recording: Recording, hosts: frozenset[str]) -> Iterator[list[str]]:
    """Answer the requests to `hosts` as recorded; yield those for which there is no answer."""
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
        if (url.host or "") not in hosts:
            async with send(self, method, url, **options) as response:
                yield response
            return
        key = _key(method, url, options)
        known = answers.get(key) or [*always]
        if not known:
            missing.append(key)
            raise aiohttp.ClientConnectionError(f"not recorded: {key}")
        exchange = known.pop(0) if len(known) > 1 else known[0]
        if exchange.failure == "timeout":
            raise TimeoutError
        if exchange.failure:
            raise aiohttp.ClientConnectionError(exchange.failure)
        await asyncio.sleep(0)
        yield _response(exchange)

    Transport.send = replaying  # type: ignore[method-assign]
    try:
        yield missing
    finally:
        Transport.send = send  # type: ignore[method-assign]


def _key(method: str, url: yarl.URL, options: Mapping[str, Any]) -> str:
    """Return a request without what differs from run to run."""
    form = options.get("data") or {}
    pairs = [*url.query.items(), *form.items()]
    lasting = sorted((name, text) for name, text in pairs if name not in _VOLATILE)
    query = f"?{urlencode(lasting)}" if lasting else ""
    document = options.get("json")
    body = f" {json.dumps(document, sort_keys=True)}" if document is not None else ""
    return f"{method} {url.host}{url.raw_path}{query}{body}"


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(body).decode()}"


def _response(exchange: Exchange) -> Any:
    """Return what the clients use of an aiohttp.ClientResponse."""
    text = exchange.body
    body = base64.b64decode(text[7:]) if text.startswith("base64:") else text.encode()
    headers: multidict.CIMultiDict[str] = multidict.CIMultiDict(exchange.headers)

    async def chunks(*_: int) -> AsyncIterator[bytes]:
        if body:
            yield body

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
