"""Client of the Kubernetes API: raw paths in, documents out.

It uses the library's configuration and transport but none of its API classes, whose generated
models need nine times the CPU. Requests are rate limited like client-go's, credentials in files are
read again as they are renewed, and every failure is a BackendError that quotes the API server; it
is meant for the log only. `kubeconfig` reads its configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, TypeVar

import aiohttp
import yarl
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException

from adapter import __version__, errors
from adapter.clients import bodies, kube_discovery, proxies, redirects, status
from adapter.clients import kubeconfig as kubeconfig_file
from adapter.clients.abort import abort_on_exit
from adapter.clients.rate_limit import TokenBucket
from rules.kinds import ApiGroup

log = logging.getLogger(__name__)

T = TypeVar("T")

_JSON = "application/json"
_HEADERS = MappingProxyType({"Accept": _JSON, "Content-Type": _JSON})
_METADATA_LIST = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
"""Accept header for lists of which only the items' metadata are needed."""
_METADATA = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"
"""Accept header for watches of which only the objects' metadata are needed."""

_MERGE_PATCH = "application/merge-patch+json"
_PAGE = 50
"""Items per page of a list."""
_MAX_PAGE = 4 << 20
"""Bytes of a page of several items; parsed, they take up to ten times as many. Beyond that, the
next one has half as many items, and the following ones one more each."""
_GONE = 410
_LIMIT = 64 << 20
"""Maximum size in bytes of a response, and of a line of a stream."""
_CHUNK = 64 << 10
_TIMEOUT = 30.0
_DISCOVERY_TIMEOUT = 32.0


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
        client: ApiClient,
        *,
        qps: float,
        burst: int,
        flags: str = "",
        timeout: float = _TIMEOUT,
    ) -> None:
        self._client = client
        self._bucket = TokenBucket(qps, burst, flags=flags)
        self._timeout = timeout

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | None,
        *,
        qps: float,
        burst: int,
        flags: str = "",
        timeout: float = _TIMEOUT,
    ) -> Self:
        """Create a client of the cluster in a kubeconfig file, or of the pod's own cluster.

        `flags` names the flags that set `qps` and `burst`, if any. Sends no request yet. Raises
        Unreachable, naming the file and the problem.
        """
        with kubeconfig_file.naming_source(kubeconfig):
            configuration = await kubeconfig_file.load(kubeconfig)
            # Like client-go, repeat requests for which an overloaded server sends Retry-After.
            configuration.client_go_retries = True
            configuration.proxy = configuration.proxy or proxies.proxy_for(configuration.host)
            same_origin = redirects.same_origin(
                yarl.URL(configuration.host), "correct the address of the server in the kubeconfig"
            )
            configuration.client_session_kwargs = {
                "trust_env": False,
                "middlewares": (same_origin,),
            }
            client = ApiClient(configuration)
        client.user_agent = f"gpu-metrics-adapter/{__version__}"
        return cls(client, qps=qps, burst=burst, flags=flags, timeout=timeout)

    def with_rate(self, *, qps: float, burst: int, flags: str = "") -> Self:
        """Return a client with these connections and a rate limit of its own, raised by `flags`.

        It is closed with this client.
        """
        return type(self)(self._client, qps=qps, burst=burst, flags=flags, timeout=self._timeout)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """Return the document at `path`, whose segments the caller has escaped."""
        await self._bucket.take(self._timeout)
        _, document = await self._exchange("GET", path, params=params)
        return document

    async def fetch(self, path: str, params: Mapping[str, str] | None = None) -> Reply:
        """Return the response to GET `path`, also if it is an error."""
        await self._bucket.take(self._timeout)
        response, body = await self._receive("GET", path, self._timeout, params)
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
        return (await self._collect_pages(path, params, extract, _METADATA_LIST))[1]

    async def snapshot(
        self,
        path: str,
        params: Mapping[str, str],
        extract: Callable[[Mapping[str, Any]], T],
        *,
        metadata_only: bool,
        max_items: int | None = None,
    ) -> tuple[str, list[T]]:
        """Return the resourceVersion of the list at `path`, and `extract(item)` of every item.

        Pages are small and reduced as they arrive, so memory does not grow with the cluster; large
        objects come in smaller pages. Only the first page is rate limited. With `metadata_only`,
        items are PartialObjectMetadata, or complete objects if the API server does not support
        that. Raises Refused with 410 if the list takes longer than etcd keeps old revisions, and
        TooLarge beyond `max_items`.
        """
        await self._bucket.take(self._timeout)
        accept = _METADATA_LIST if metadata_only else _JSON
        return await self._collect_pages(
            path, params, extract, accept, page_size=_PAGE, max_items=max_items
        )

    async def post(self, path: str, document: Any, *, timeout: float | None = None) -> Any:
        """Create an object and return the response; `path` may have a query string."""
        return await self._write("POST", path, document, timeout=timeout)

    async def put(self, path: str, document: Any) -> Any:
        """Replace the object at `path` and return it. Raises Refused with 409 on a conflict."""
        return await self._write("PUT", path, document)

    async def patch(self, path: str, document: Any) -> Any:
        """Apply a JSON merge patch to the object at `path` and return it."""
        return await self._write("PATCH", path, document, content_type=_MERGE_PATCH)

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
        request = f"GET {path}"
        with _backend_errors(request, ttl):
            async with asyncio.timeout(self._timeout) as until_headers:
                headers = {"Accept": _METADATA if metadata_only else _JSON}
                response = await self._send("GET", path, ttl, params, headers)
                until_headers.reschedule(None)
            async with abort_on_exit(response):
                if response.status >= 300:
                    body = await bodies.read_beginning(response, _CHUNK)
                    raise _error_of(request, response, body)
                on_open()
                pending = bytearray()
                async for chunk in response.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        yield status.decode(request, line)
                    if len(pending) > _LIMIT:
                        raise errors.TooLarge(f"{request}: a line is longer than {_LIMIT} bytes")

    async def groups(self) -> tuple[ApiGroup, ...]:
        """Return the API groups that the cluster serves, in discovery order, core first.

        Aggregated discovery takes two requests. Older API servers need one more per group and
        version. Like in client-go, versions whose request fails are left out.
        """
        groups: list[ApiGroup] = []
        for path in ("/api", "/apis"):
            await self._bucket.take(_DISCOVERY_TIMEOUT)
            media_type, document = await self._exchange(
                "GET", path, accept=kube_discovery.ACCEPT, timeout=_DISCOVERY_TIMEOUT
            )
            try:
                if kube_discovery.is_aggregated(media_type):
                    groups += kube_discovery.aggregated_groups(document)
                    continue
                for name, preferred, paths in kube_discovery.legacy_groups(document):
                    if documents := await self._get_all(paths):
                        groups.append(kube_discovery.legacy_group(name, preferred, documents))
            except (AttributeError, KeyError, TypeError) as error:
                raise errors.Broken(
                    f"GET {path}: the response is not a discovery document: {error!r}"
                ) from error
        return tuple(groups)

    async def _get_all(self, paths: Mapping[str, str]) -> dict[str, Any]:
        """Return the documents by the keys of `paths`, without those whose request fails."""
        documents = {}
        for key, path in paths.items():
            with contextlib.suppress(errors.BackendError):
                documents[key] = await self.get(path)
        return documents

    async def _collect_pages(
        self,
        path: str,
        params: Mapping[str, str],
        extract: Callable[[Mapping[str, Any]], T],
        accept: str,
        *,
        page_size: int = 0,
        max_items: int | None = None,
    ) -> tuple[str, list[T]]:
        """Return what `snapshot` returns; without `page_size`, there is one page."""
        extracted: list[T] = []
        token, size = "", page_size
        while True:
            page_params = {
                **params,
                **({"limit": str(size)} if size else {}),
                **({"continue": token} if token else {}),
            }
            try:
                _, page = await self._exchange(
                    "GET",
                    path,
                    params=page_params,
                    accept=accept,
                    limit=_MAX_PAGE if size > 1 else _LIMIT,
                )
            except errors.TooLarge:
                if size <= 1:
                    raise
                size //= 2
                continue
            size = min(size + 1, page_size)
            try:
                extracted += [extract(item) for item in page["items"] or ()]
                version = str(page["metadata"].get("resourceVersion", ""))
                token = page["metadata"].get("continue", "")
                del page  # before the next one arrives
            except (AttributeError, KeyError, TypeError) as error:
                raise errors.Broken(f"GET {path}: the response is not a list: {error!r}") from error
            if max_items is not None and len(extracted) > max_items:
                raise errors.TooLarge(f"GET {path}: the list has more than {max_items} items")
            if not token:
                return version, extracted

    async def _write(
        self,
        method: str,
        path: str,
        document: Any,
        *,
        content_type: str = _JSON,
        timeout: float | None = None,
    ) -> Any:
        await self._bucket.take(self._timeout if timeout is None else timeout)
        _, response = await self._exchange(
            method, path, document=document, content_type=content_type, timeout=timeout
        )
        return response

    async def _exchange(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = _JSON,
        document: Any = None,
        content_type: str = _JSON,
        timeout: float | None = None,
        limit: int | None = None,
    ) -> tuple[str, Any]:
        """Send a request and return the media type and the document of the response."""
        headers = {"Accept": accept, "Content-Type": content_type}
        seconds = self._timeout if timeout is None else timeout
        response, body = await self._receive(
            method, path, seconds, params, headers, document, limit=limit
        )
        request = f"{method} {path}"
        if response.status >= 300:
            raise _error_of(request, response, body)
        return response.headers.get("Content-Type", ""), status.decode(request, body)

    async def _receive(
        self,
        method: str,
        path: str,
        timeout: float,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] = _HEADERS,
        document: Any = None,
        *,
        limit: int | None = None,
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send a request and return the response and its body. Raises TooLarge."""
        request = f"{method} {path}"
        limit = limit or _LIMIT
        body = bytearray()
        with _backend_errors(request, timeout):
            async with asyncio.timeout(timeout):
                response = await self._send(method, path, timeout, params, headers, document)
                async with abort_on_exit(response):
                    async for chunk in response.content.iter_chunked(_CHUNK):
                        body += chunk
                        if len(body) > limit:
                            raise errors.TooLarge(
                                f"{request}: the response is longer than {limit} bytes"
                            )
        return response, bytes(body)

    async def _send(
        self,
        method: str,
        path: str,
        timeout: float,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        document: Any = None,
    ) -> aiohttp.ClientResponse:
        request = await self._client.param_serialize(
            method,
            path,
            query_params=list((params or {}).items()),
            header_params=dict(headers),
            body=document,
            auth_settings=["BearerToken"],
        )
        # The library's default would end every response, also of watches, after 300 s.
        client_timeout = aiohttp.ClientTimeout(total=timeout)
        started, outcome = time.perf_counter(), "failed"
        try:
            raw = await self._client.call_api(*request, _request_timeout=client_timeout)
            response: aiohttp.ClientResponse = raw.response
            outcome = str(response.status)
        finally:
            elapsed = (time.perf_counter() - started) * 1000
            log.debug("%s %s: %s in %.0f ms", method, request[1], outcome, elapsed)
        return response


@contextlib.contextmanager
def _backend_errors(request: str, timeout: float) -> Iterator[None]:
    """Convert errors of the libraries to BackendErrors."""
    try:
        yield
    except TimeoutError as error:
        raise errors.TimedOut(f"{request}: no response within {timeout:g} s") from error
    except ApiException as error:
        raise status.backend_error(
            request, error.status, error.reason, error.headers or {}
        ) from error
    except (aiohttp.ClientError, OSError, ValueError, kubernetes_config.ConfigException) as error:
        unreachable = errors.Unreachable(f"{request}: {str(error) or type(error).__name__}")
        if isinstance(error, ConnectionResetError | aiohttp.ServerDisconnectedError):
            unreachable.retry_after = 0.0
        raise unreachable from error


def _error_of(request: str, response: aiohttp.ClientResponse, body: bytes) -> errors.BackendError:
    return status.backend_error(request, response.status, status.message(body), response.headers)
