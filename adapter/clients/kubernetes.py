"""The Kubernetes API: raw paths in, documents out. The only module that imports `kubernetes`.

Of the client library it uses the configuration and the transport, never an API class: the generated
models cost nine times the CPU. Requests are paced by a token bucket as client-go's are, credentials
in files are read again as they are renewed, and every failure is a BackendError with the API
server's own words, for the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Self, TypeVar

import aiohttp
from kubernetes.aio import config as configs
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException

from adapter import __version__, errors
from adapter.clients import abort, credentials, kube_discovery, proxies, rate_limit, status
from adapter.clients import watch as watching
from rules.kinds import ApiGroup

T = TypeVar("T")

METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""What to accept of a list of which only the items' metadata matter."""

MERGE = "application/merge-patch+json"

_JSON = "application/json"
_PAGE = 50
_GONE = 410
_LIMIT = 64 << 20
_CHUNK = 64 << 10
_TIMEOUT = 30.0
_DISCOVERY_TIMEOUT = 32.0
_ANY = "https://any"
"""The library reads CAs and certificates only for a server that has this scheme."""


class Kube:
    """Knows how to read one cluster's API.

    Make it with `connect`, end it with `close`. An answer may take `timeout` seconds. Methods
    raise BackendError subclasses only.
    """

    def __init__(
        self, client: ApiClient, *, qps: float, burst: int, timeout: float = _TIMEOUT
    ) -> None:
        self._client = client
        self._bucket = rate_limit.TokenBucket(qps, burst)
        self._timeout = timeout

    @classmethod
    async def connect(
        cls, kubeconfig: str | None, *, qps: float, burst: int, timeout: float = _TIMEOUT
    ) -> Self:
        """The cluster of the file `kubeconfig`, or the one that the process runs in.

        Nothing is asked of it yet. Raises Unreachable, naming the file and what it lacks.
        """
        with _placed(kubeconfig):
            configuration = await _configured(kubeconfig)
            # As client-go does: an API server under load is asked again when it says so.
            configuration.client_go_retries = True
            configuration.proxy = configuration.proxy or proxies.on_the_way_to(configuration.host)
            configuration.client_session_kwargs = {"trust_env": False}
            client = ApiClient(configuration)
        client.user_agent = f"gpu-metrics-adapter/{__version__}"
        return cls(client, qps=qps, burst=burst, timeout=timeout)

    async def close(self) -> None:
        await self._client.close()

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, accept: str = _JSON
    ) -> Any:
        """The document at `path`, whose segments the caller has escaped."""
        await self._bucket.take(self._timeout)
        _, document = await self._ask(path, params or {}, accept, self._timeout)
        return document

    async def collect(
        self, path: str, params: Mapping[str, str], take: Callable[[Mapping[str, Any]], T]
    ) -> list[T]:
        """Every item of the list at `path`, in the API's order, as what `take` makes of it.

        Pages are small and each is reduced as it arrives, so that memory does not grow with the
        store. Only the first page is paced: the list is one question. `take` is given what
        PartialObjectMetadata holds, and may be given more.
        """
        await self._bucket.take(self._timeout)
        try:
            return await self._pages(path, {**params, "limit": str(_PAGE)}, take)
        except errors.Refused as error:
            if error.status != _GONE:
                raise
        # The list went on for longer than the store keeps its past: client-go, too, asks for the
        # whole then.
        return await self._pages(path, params, take)

    async def post(self, path: str, document: Any, *, timeout: float | None = None) -> Any:
        """What the API server answers to the new `document`; `path` may have a query."""
        return await self._write("POST", path, document, timeout=timeout)

    async def put(self, path: str, document: Any) -> Any:
        """The object at `path` as it is after it was replaced; Refused with 409 on a conflict."""
        return await self._write("PUT", path, document)

    async def patch(self, path: str, document: Any, *, content_type: str = MERGE) -> Any:
        """The object at `path` as it is after it was patched."""
        return await self._write("PATCH", path, document, content_type=content_type)

    async def watch(
        self, path: str, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[watching.Event]:
        """The list at `path` and what changes in it, for ever: see `watching.follow`."""
        async for event in watching.follow(self, path, params or {}):
            yield event

    async def stream(
        self, path: str, params: Mapping[str, str], *, ttl: float
    ) -> AsyncIterator[Any]:
        """Each line of an answer, decoded; it has to begin in time, and end in `ttl` seconds."""
        await self._bucket.take(self._timeout)
        asked = f"GET {path}"
        with _told(asked, ttl):
            async with asyncio.timeout(self._timeout) as beginning:
                response = await self._sent("GET", path, ttl, params, {"Accept": _JSON})
                beginning.reschedule(None)
            async with abort.abort_on_exit(response):
                if response.status >= 300:
                    message = status.message(await response.content.read(_CHUNK))
                    raise status.refusal(asked, response.status, message, response.headers)
                line = bytearray()
                async for chunk in response.content.iter_any():
                    *whole, rest = (line + chunk).split(b"\n")
                    for each in whole:
                        yield status.decoded(asked, each)
                    line = rest
                    if len(line) > _LIMIT:
                        raise errors.TooLarge(f"{asked}: a line of more than {_LIMIT} bytes")

    async def _write(
        self,
        method: str,
        path: str,
        document: Any,
        *,
        content_type: str = _JSON,
        timeout: float | None = None,
    ) -> Any:
        timeout = self._timeout if timeout is None else timeout
        await self._bucket.take(timeout)
        _, answer = await self._exchange(
            method, path, timeout, document=document, content_type=content_type
        )
        return answer

    async def _pages(
        self, path: str, params: Mapping[str, str], take: Callable[[Mapping[str, Any]], T]
    ) -> list[T]:
        taken: list[T] = []
        more = ""
        while True:
            page_params = {**params, "continue": more} if more else params
            _, page = await self._ask(path, page_params, METADATA, self._timeout)
            try:
                taken += [take(item) for item in page["items"] or ()]
                more = page["metadata"].get("continue", "")
            except (AttributeError, KeyError, TypeError) as error:
                raise errors.Broken(f"GET {path}: the answer is no list: {error!r}") from error
            if not more:
                return taken

    async def groups(self) -> tuple[ApiGroup, ...]:
        """The API groups that the cluster serves now, in discovery order, core first.

        Two requests where the API server has aggregated discovery, else one more for each group and
        version, of which those that fail are left out, as client-go leaves them out.
        """
        found: list[ApiGroup] = []
        for path in ("/api", "/apis"):
            await self._bucket.take(_DISCOVERY_TIMEOUT)
            accepted = await self._ask(path, {}, kube_discovery.ACCEPT, _DISCOVERY_TIMEOUT)
            try:
                if kube_discovery.is_aggregated(accepted[0]):
                    found += kube_discovery.aggregated(accepted[1])
                    continue
                for group in kube_discovery.listed(accepted[1]):
                    if documents := await self._resources(group):
                        found.append(kube_discovery.group(group, documents))
            except (AttributeError, KeyError, TypeError) as error:
                raise errors.Broken(f"GET {path}: no discovery document: {error!r}") from error
        return tuple(found)

    async def _resources(self, group: kube_discovery.Listed) -> dict[str, Any]:
        documents = {}
        for version, path in group.paths.items():
            try:
                documents[version] = await self.get(path)
            except errors.BackendError:
                continue
        return documents

    async def _ask(
        self, path: str, params: Mapping[str, str], accept: str, timeout: float
    ) -> tuple[str, Any]:
        """The answer's media type and its document."""
        return await self._exchange("GET", path, timeout, params=params, accept=accept)

    async def _exchange(
        self,
        method: str,
        path: str,
        timeout: float,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = _JSON,
        document: Any = None,
        content_type: str = _JSON,
    ) -> tuple[str, Any]:
        asked = f"{method} {path}"
        headers = {"Accept": accept, "Content-Type": content_type}
        body = bytearray()
        with _told(asked, timeout):
            async with asyncio.timeout(timeout):
                response = await self._sent(method, path, timeout, params, headers, document)
                async with abort.abort_on_exit(response):
                    async for chunk in response.content.iter_chunked(_CHUNK):
                        body += chunk
                        if len(body) > _LIMIT:
                            raise errors.TooLarge(f"{asked}: more than {_LIMIT} bytes")
        if response.status >= 300:
            message = status.message(bytes(body))
            raise status.refusal(asked, response.status, message, response.headers)
        return response.headers.get("Content-Type", ""), status.decoded(asked, body)

    async def _sent(
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
        # Without this the library would cut everything off after 300 s, and watches with it.
        limits = aiohttp.ClientTimeout(total=timeout)
        raw = await self._client.call_api(*request, _request_timeout=limits)
        response: aiohttp.ClientResponse = raw.response
        return response


async def credentials_of(kubeconfig: str | None) -> credentials.Credentials:
    """What the file `kubeconfig`, or the cluster that the process runs in, gives to show a server.

    Which server that is does not matter: not even whether the file names one, nor by which scheme.
    Raises Unreachable, naming the file and what it lacks.
    """
    with _placed(kubeconfig):
        return await credentials.from_configuration(await _configured(kubeconfig, server=_ANY))


async def _configured(kubeconfig: str | None, *, server: str | None = None) -> Any:
    configuration: Any = Configuration()
    # Go does not check what this checks, and clusters have CAs that would not pass.
    configuration.disable_strict_ssl_verification = True
    if kubeconfig is None:
        configs.load_incluster_config(configuration, try_refresh_token=False)
        token = credentials.TokenFile(pathlib.Path(configs.incluster_config.SERVICE_TOKEN_FILENAME))
        configuration.refresh_api_key_hook = token.refresh
        token.refresh(configuration)
    else:
        await _load(pathlib.Path(kubeconfig), configuration, server)
    return configuration


async def _load(path: pathlib.Path, configuration: Any, server: str | None) -> None:
    document = credentials.read_kubeconfig(path)
    if server:
        for each in document["clusters"]:
            each["cluster"]["server"] = server
    # From a document, not from a file: the library's messages would quote it.
    loader = configs.kube_config.KubeConfigLoader(document, config_base_path=str(path.parent))
    await credentials.load_kubeconfig(configuration, loader, document, path.parent)


@contextlib.contextmanager
def _placed(kubeconfig: str | None) -> Iterator[None]:
    """Raises what the library raises as Unreachable, naming where it read."""
    place = "in-cluster configuration" if kubeconfig is None else kubeconfig
    try:
        yield
    except (configs.ConfigException, errors.Unreachable, OSError) as error:
        raise errors.Unreachable(f"{place}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # The library walks through a malformed file unchecked.
        raise errors.Unreachable(
            f"{place}: not a kubeconfig with a context, a cluster and a user: {error!r}"
        ) from error


@contextlib.contextmanager
def _told(asked: str, timeout: float) -> Iterator[None]:
    """Raises what the library raises as a BackendError."""
    try:
        yield
    except TimeoutError as error:
        raise errors.TimedOut(f"{asked}: no answer within {timeout:g} s") from error
    except ApiException as error:
        raise status.refusal(asked, error.status, error.reason, error.headers or {}) from error
    except (aiohttp.ClientError, OSError, ValueError, configs.ConfigException) as error:
        told = errors.Unreachable(f"{asked}: {str(error) or type(error).__name__}")
        if isinstance(error, ConnectionResetError | aiohttp.ServerDisconnectedError):
            told.retry_after = 0.0
        raise told from error
