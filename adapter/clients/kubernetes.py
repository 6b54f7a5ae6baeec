"""Client of the Kubernetes API: raw paths in, documents out.

It uses none of the library's API classes, whose generated models need nine times the CPU. Requests
are rate limited like client-go's, credentials in files are read again as they are renewed, and
every failure is a BackendError that quotes the API server; it is meant for the log only.
`kubeconfig` reads its configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import aiohttp
import orjson
import yarl

from adapter import __version__, errors
from adapter.clients import collection, kube_discovery, kubectl, transport
from adapter.clients import kubeconfig as kubeconfig_file
from adapter.clients.collection import Unreadable
from adapter.clients.credentials import Credentials, ReloadingClientContext
from adapter.clients.limits import TokenBucket
from adapter.clients.redaction import redacted
from adapter.clients.transport import Transport
from adapter.settings.kubectl import KubectlSettings
from rules.kinds import ApiGroup

log = logging.getLogger(__name__)

T = TypeVar("T")

_JSON = "application/json"
_METADATA_LIST = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
"""Accept header for lists of which only the items' metadata are needed."""
_METADATA = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"
"""Accept header for watches of which only the objects' metadata are needed."""

_PAGE = 50
"""Items per page of a list."""
_MAX_PAGE = 1 << 20
"""Bytes of a page of several items, which take 20 ms to parse, and ten times as many afterwards.
Beyond that, the next one has half as many items, and the following ones one more each."""
_GONE = 410
_MAX_DEPTH = 500
"""Levels of a document; orjson accepts 1024."""
_NESTING = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_LIMIT = 64 << 20
"""Maximum size in bytes of a response, and of a line of a stream."""
_MAX_ERROR = 64 << 10
"""Bytes that are read of the body of an error."""
_MAX_QUOTED = 200
"""Characters of it that a message quotes if it is not a Status."""
_TIMEOUT = 30.0
_DISCOVERY_TIMEOUT = 32.0
_RETRIABLE = frozenset({429, 500, 504})
"""Statuses after which Kubernetes' webhook clients repeat a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Response of the API server, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Kube:
    """Client of one cluster's API.

    Create it with `connect` and end it with `close`. A response may take `timeout` seconds. Methods
    raise BackendError subclasses only.
    """

    def __init__(
        self,
        server: Transport,
        url: str,
        *,
        qps: float,
        burst: int,
        flags: str = "",
        timeout: float = _TIMEOUT,
    ) -> None:
        self._transport = server
        self._url = url
        self._bucket = TokenBucket(qps, burst, flags=flags)
        self._timeout = timeout

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | KubectlSettings | None,
        *,
        qps: float,
        burst: int,
        flags: str = "",
        timeout: float = _TIMEOUT,
    ) -> Self:
        """Create a client of the cluster in a kubeconfig file, or of the pod's own cluster.

        KubectlSettings select a cluster as kubectl does, and may set another timeout. `flags` names
        the flags that set `qps` and `burst`, if any. Sends no request yet. Raises Unreachable,
        naming the file and the problem.
        """
        headers: Sequence[tuple[str, str]] = ()
        if isinstance(kubeconfig, KubectlSettings):
            timeout = kubeconfig.request_timeout or timeout
            selected = kubectl.select(kubeconfig)
            origin, headers = selected.origin, selected.headers
            url, credentials = await selected.load()
        else:
            origin = kubeconfig
            url, credentials = await kubeconfig_file.load(kubeconfig)
        with kubeconfig_file.naming(origin):
            advice = "correct the address of the server in the kubeconfig"
            server = _transport(url, credentials, advice=advice, headers=headers)
        return cls(server, url, qps=qps, burst=burst, flags=flags, timeout=timeout)

    @classmethod
    def of_server(
        cls, url: str, credentials: Credentials, *, qps: float, burst: int, timeout: float
    ) -> Self:
        """Create a client of another server of Kubernetes APIs, as `connect`.

        It accepts no compressed response, which could be larger than what is read of it.
        """
        advice = "give the address that it redirects to"
        headers = (("Accept-Encoding", "identity"),)
        server = _transport(url, credentials, advice=advice, headers=headers, compressed=False)
        return cls(server, url, qps=qps, burst=burst, timeout=timeout)

    def with_rate(
        self, *, qps: float, burst: int, flags: str = "", timeout: float | None = None
    ) -> Self:
        """Return a client with these connections and a rate limit of its own, raised by `flags`.

        `timeout` is this client's by default. It is closed with this client.
        """
        return type(self)(
            self._transport,
            self._url,
            qps=qps,
            burst=burst,
            flags=flags,
            timeout=self._timeout if timeout is None else timeout,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.session.close()

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, limit: int | None = None
    ) -> Any:
        """Return the document at `path`, whose segments the caller has escaped.

        Raises TooLarge if it has more than `limit` bytes, of which no more are read.
        """
        return (await self._exchange("GET", path, params=params, limit=limit))[1]

    async def fetch(self, path: str, params: Mapping[str, str] | None = None) -> Reply:
        """Return the response to GET `path`, also if it is an error, then without our secrets."""
        await self._bucket.take(self._timeout)
        async with self._send("GET", path, self._timeout, params=params) as response:
            body = await _read(response, _LIMIT)
            if response.status >= 300:
                text = body.decode("utf-8", "replace")
                body = redacted(text, self._transport.secrets(response)).encode()
        return Reply(status=response.status, headers=response.headers, body=body)

    async def collect(
        self, path: str, params: Mapping[str, str], extract: Callable[[Mapping[str, Any]], T]
    ) -> list[T]:
        """Return `extract(item)` of every item of the list at `path`, in the API's order.

        As `snapshot`, but like client-go, fetches a list again in one page if it takes longer than
        etcd keeps old revisions.
        """
        try:
            return (await self.snapshot(path, params, extract, metadata_only=True))[1]
        except errors.Refused as error:
            if error.status != _GONE:
                raise
        return (await self.snapshot(path, params, extract, metadata_only=True, page_size=0))[1]

    async def snapshot(
        self,
        path: str,
        params: Mapping[str, str],
        extract: Callable[[Mapping[str, Any]], T],
        *,
        metadata_only: bool,
        max_items: int | None = None,
        page_size: int = _PAGE,
        unreadable: Callable[[Unreadable], None] | None = None,
    ) -> tuple[str, list[T]]:
        """Return the resourceVersion of the list at `path`, and `extract(item)` of every item.

        Pages are small and reduced as they arrive, so memory does not grow with the cluster; large
        objects come in smaller pages; with a `page_size` of 0, there is one page. Only the first
        page is rate limited. With `metadata_only`, items are PartialObjectMetadata, or complete
        objects if the API server does not support that. Raises Refused with 410 if the list takes
        longer than etcd keeps old revisions, and TooLarge beyond `max_items`.

        An item is left out if `extract` raises, whatever it is; `unreadable` is called with it, and
        logs it by default.
        """
        report = unreadable or functools.partial(collection.log_unreadable, path)
        extracted: list[T] = []
        token, size, first = "", page_size, True
        while True:
            page_params = {
                **params,
                **({"limit": str(size)} if size else {}),
                **({"continue": token} if token else {}),
            }
            limited, first = first, False
            try:
                _, page = await self._exchange(
                    "GET",
                    path,
                    params=page_params,
                    accept=_METADATA_LIST if metadata_only else _JSON,
                    limit=_MAX_PAGE if size > 1 else _LIMIT,
                    limited=limited,
                )
            except errors.TooLarge:
                if size <= 1:
                    raise
                size //= 2
                continue
            size = min(size + 1, page_size)
            try:
                for item in page["items"] or ():
                    found = collection.read(item, extract)
                    if isinstance(found, Unreadable):
                        report(found)
                    else:
                        extracted.append(found)
                version = str(page["metadata"].get("resourceVersion", ""))
                token = page["metadata"].get("continue", "")
                del page  # before the next one arrives
            except (AttributeError, KeyError, TypeError) as error:
                raise errors.Broken(f"GET {path}: the response is not a list: {error!r}") from error
            if max_items is not None and len(extracted) > max_items:
                raise errors.TooLarge(f"GET {path}: the list has more than {max_items} items")
            if not token:
                return version, extracted

    async def post(self, path: str, document: Any, *, timeout: float | None = None) -> Any:
        """Create an object and return the response; `path` may have a query string."""
        return (await self._exchange("POST", path, document=document, timeout=timeout))[1]

    async def put(self, path: str, document: Any) -> Any:
        """Replace the object at `path` and return it. Raises Refused with 409 on a conflict."""
        return (await self._exchange("PUT", path, document=document))[1]

    async def patch(self, path: str, document: Any) -> Any:
        """Apply a JSON merge patch to the object at `path` and return it."""
        request = {"document": document, "content_type": "application/merge-patch+json"}
        return (await self._exchange("PATCH", path, **request))[1]

    async def delete(self, path: str) -> None:
        """Delete the object at `path`, which may go on to exist until its finalizers are gone."""
        await self._exchange("DELETE", path)

    async def stream(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        ttl: float,
        metadata_only: bool = False,
        on_open: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[Any]:
        """Yield each line of a response, parsed. The response must end within `ttl` seconds.

        `on_open` is called once the API server has accepted the request. `metadata_only` is as for
        `snapshot`.
        """
        await self._bucket.take(self._timeout)
        accept = _METADATA if metadata_only else _JSON
        async with self._send(
            "GET", path, self._timeout, params=params, accept=accept, ttl=ttl
        ) as response:
            await self._raise_for_status(response)
            on_open()
            pending = bytearray()
            async for chunk in response.content.iter_any():
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    yield _decode(line)
                if len(pending) > _LIMIT:
                    raise errors.TooLarge(f"a line is longer than {_LIMIT} bytes")

    async def groups(self) -> tuple[ApiGroup, ...]:
        """Return the API groups that the cluster serves, in discovery order, core first.

        Aggregated discovery takes two requests. Older API servers need one more per group and
        version. Like in client-go, versions whose request fails are left out; so are those whose
        document is malformed, because it is that of any extension API server.
        """
        groups: list[ApiGroup] = []
        for root in ("/api", "/apis"):
            media_type, document = await self._exchange(
                "GET", root, accept=kube_discovery.ACCEPT, timeout=_DISCOVERY_TIMEOUT
            )
            try:
                if kube_discovery.AGGREGATED in media_type:
                    groups += kube_discovery.aggregated_groups(document)
                    continue
                for name, preferred, paths in kube_discovery.legacy_groups(document):
                    resources = {}
                    for version, path in paths.items():
                        with contextlib.suppress(errors.BackendError, *kube_discovery.MALFORMED):
                            listed = await self.get(path)
                            resources[version] = kube_discovery.legacy_resources(listed)
                    if resources:
                        groups.append(kube_discovery.group(name, resources, preferred))
            except kube_discovery.MALFORMED as error:
                raise errors.Broken(
                    f"GET {root}: the response is not a discovery document: {error!r}"
                ) from error
        return tuple(groups)

    async def _exchange(
        self,
        method: str,
        path: str,
        *,
        timeout: float | None = None,
        limit: int | None = None,
        limited: bool = True,
        **request: Any,
    ) -> tuple[str, Any]:
        """Send a request and return the media type and the document of the response.

        The response has at most `limit` bytes; `limited` says whether the request counts towards
        the rate limit. `request` is as for `_send`.
        """
        seconds = self._timeout if timeout is None else timeout
        if limited:
            await self._bucket.take(seconds)
        async with self._send(method, path, seconds, **request) as response:
            await self._raise_for_status(response)
            body = await _read(response, limit or _LIMIT)
            return response.headers.get("Content-Type", ""), _decode(body)

    @contextlib.asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        seconds: float,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = _JSON,
        document: Any = None,
        content_type: str = _JSON,
        ttl: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield the response; failures, also in the block, are BackendErrors.

        The response must end within `seconds`; with `ttl`, it must begin then, and end within that.
        """
        url = yarl.URL(f"{self._url}{path}").update_query(params or {})
        headers = {"Accept": accept, "User-Agent": f"gpu-metrics-adapter/{__version__}"}
        if document is not None:
            headers["Content-Type"] = content_type
        started, outcome = time.perf_counter(), "failed"
        secrets: Sequence[str] = ()
        try:
            async with (
                asyncio.timeout(seconds) as limit,
                self._transport.send(
                    method,
                    url,
                    headers=headers,
                    json=document,
                    seconds=ttl,
                    middlewares=(transport.repeat_when_told,),
                ) as response,
            ):
                outcome = str(response.status)
                secrets = self._transport.secrets(response)
                if ttl is not None:
                    limit.reschedule(None)
                yield response
        except (errors.BackendError, aiohttp.ClientError, OSError, ValueError) as error:
            raise transport.backend_error(
                error, f"{method} {path}", ttl or seconds, secrets=secrets
            ) from error
        finally:
            elapsed = (time.perf_counter() - started) * 1000
            log.debug("%s %s: %s in %.0f ms", method, url, outcome, elapsed)

    async def _raise_for_status(self, response: aiohttp.ClientResponse) -> None:
        """Raise the BackendError for a status of 300 or more, with the text of its Status."""
        if response.status < 300:
            return
        body = await transport.read_beginning(response, _MAX_ERROR)
        message = redacted(body.decode("utf-8", "replace"), self._transport.secrets(response))
        message = message[:_MAX_QUOTED].strip()
        message = status_message(body) or message
        text = f"{response.status}: {message or 'no reason given'}"
        retry_after = 0.0 if response.status in _RETRIABLE else None
        if (given := response.headers.get("Retry-After", "")).isdecimal():
            retry_after = float(given)
        kind = errors.Refused if response.status < 500 else errors.Broken
        raise kind(text, status=response.status, refusal=message, retry_after=retry_after)


def status_message(body: bytes) -> str:
    """Return the message of a metav1.Status; empty for another body."""
    try:
        return str(orjson.loads(body)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""


def _transport(
    url: str,
    credentials: Credentials,
    *,
    advice: str,
    headers: Sequence[tuple[str, str]] = (),
    compressed: bool = True,
) -> Transport:
    """Return what sends requests to `url`. Raises Unreachable, and ValueError for an invalid URL.

    Each request has the `headers`. Without `compressed`, responses are not decompressed.
    """
    origin = yarl.URL(url).origin()
    tls = ReloadingClientContext(credentials)
    return Transport(
        aiohttp.ClientSession(
            proxy=credentials.proxy or transport.proxy_for(url),
            auto_decompress=compressed,
            headers=headers,
        ),
        origin,
        advice=advice,
        authorizations=tuple(filter(None, [credentials.authorization])),
        tls_context=tls.context,
        server_name=credentials.server_name,
    )


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body of a response. Raises TooLarge."""
    body = await transport.read_beginning(response, limit + 1)
    if len(body) > limit:
        raise errors.TooLarge(f"the response is longer than {limit} bytes")
    return body


def _decode(body: bytes | bytearray) -> Any:
    """Parse a JSON body. Raises Broken."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        with contextlib.suppress(orjson.JSONDecodeError):
            return orjson.loads(_shallow(body))
        raise errors.Broken(f"the response is not JSON: {error}") from error


def _shallow(body: bytes | bytearray) -> bytes:
    """Return a JSON text with null for what is nested deeper than `_MAX_DEPTH`.

    A custom resource may be nested ten times as deep as the parser accepts. So may be its
    `managedFields`, which are in each list.
    """
    parts: list[bytes | bytearray] = []
    depth = start = 0
    for token in _NESTING.finditer(body):
        first = body[token.start()]
        if first in b"{[":
            depth += 1
            if depth == _MAX_DEPTH + 1:
                parts += [body[start : token.start()], b"null"]
        elif first in b"}]":
            if depth == _MAX_DEPTH + 1:
                start = token.end()
            depth -= 1
    return b"".join((*parts, body[start:]))
