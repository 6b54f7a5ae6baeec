"""Requests to one server: its TLS, credentials, proxy and redirects, and failures as BackendErrors.

`kubernetes` and `prometheus` know what a server says when it refuses a request. The proxy is looked
up once per server, as Go does. aiohttp's `trust_env` would do that for each request in another
thread, and would also read .netrc.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import ipaddress
import re
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import aiohttp
import yarl

from adapter import errors
from adapter.clients.credentials import Authorization, OutgoingRequest
from adapter.clients.redaction import redacted
from rules.quoting import shorten

_MAX_QUOTED = 1000
_MIN_SECRET = 8
"""Length of a value in the query string from which on it may be a secret."""
_CHUNK = 64 << 10
_RETRIES = 10
"""Number of times that a request is repeated after Retry-After, as in client-go."""
_TLS_CONTEXT = re.compile(r" ssl:<[^>]*>")
"""Part of aiohttp's messages that says nothing."""
_UNAUTHORIZED, _TOO_MANY_REQUESTS = 401, 429


class Transport:
    """Sends requests to the server of `url` only, over `session` or another one.

    Each of `authorizations` adds headers to each request. `tls_context` returns the TLS context of
    each new connection, by default that of the session; `server_name` is the name in the server's
    certificate, by default the host of the URL. A redirect to another scheme, host or port raises
    Broken, and `advice` ends the message: aiohttp would drop the Authorization header there, but no
    other header and no client certificate. It follows at most ten redirects within the origin.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: yarl.URL,
        *,
        advice: str,
        authorizations: Sequence[Authorization] = (),
        tls_context: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
    ) -> None:
        self.session = session
        self._tls_context = tls_context
        self._server_name = server_name
        self.credentials = " and ".join(each.origin for each in authorizations)
        """Where they come from, for messages."""
        self._secret = {"Authorization"}
        """Names of headers with credentials."""
        self._middlewares = [
            _same_origin(url.origin(), advice),
            *(self._authorized(each) for each in authorizations),
        ]

    @contextlib.asynccontextmanager
    async def send(
        self,
        method: str,
        url: yarl.URL,
        *,
        session: aiohttp.ClientSession | None = None,
        middlewares: Sequence[aiohttp.ClientMiddlewareType] = (),
        seconds: float | None = None,
        connect: float | None = None,
        **options: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the response, which must end within `seconds`; `options` are those of aiohttp.

        A connection must be established within `connect` seconds, its name resolved included.

        Raises what aiohttp raises; `backend_error` converts it.
        """
        response = await (session or self.session).request(
            method,
            url,
            timeout=aiohttp.ClientTimeout(total=seconds, connect=connect),
            ssl=self._tls_context() if self._tls_context else True,
            server_hostname=self._server_name,
            middlewares=(*self._middlewares, *middlewares),
            **options,
        )
        async with abort_on_exit(response):
            yield response

    def secrets(self, response: aiohttp.ClientResponse) -> Sequence[str]:
        """Return the credentials of the request, which a message about its response must not have.

        Without the scheme, because a server may repeat only the token, or only the password.
        """
        sent = response.request_info.headers
        values = [sent[name].rpartition(" ")[2] for name in self._secret if sent.get(name)]
        return [*values, *(part for value in values for part in _parts(value))]

    def _authorized(self, authorization: Authorization) -> aiohttp.ClientMiddlewareType:
        """Return a middleware that adds the headers of `authorization`.

        After a 401, it has them renewed, and repeats the request once if they have changed.
        """

        async def middleware(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            seen = OutgoingRequest(
                method=request.method,
                url=request.url,
                headers=request.headers.copy(),
                body=await request.body.as_bytes() if request.body else b"",
            )
            sent = await authorization.headers(seen)
            self._secret.update(sent)
            request.headers.update(sent)
            response = await handler(request)
            if response.status != _UNAUTHORIZED:
                return response
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(abort_on_exit(response))
                renewed = await authorization.headers(seen, renew=True)
                if renewed == sent:
                    stack.pop_all()
                    return response
            request.headers.update(renewed)
            return await handler(request)

        return middleware


@contextlib.asynccontextmanager
async def abort_on_exit(response: aiohttp.ClientResponse) -> AsyncIterator[aiohttp.ClientResponse]:
    """Yield the response; on exit, abort its connection unless the body was read completely.

    aiohttp would close the connection instead. Over TLS that waits up to 30 s for the server's
    close_notify, and neither the session nor the event loop waits for it.
    """
    async with response:
        try:
            yield response
        finally:
            connection = response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()


async def read_beginning(response: aiohttp.ClientResponse, size: int) -> bytes:
    """Return the body of a response, but not more than its first `size` bytes.

    `response.content.read(size)` returns what has arrived, which may be less.
    """
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) >= size:
            break
    return bytes(body[:size])


def _parts(value: str) -> Iterator[str]:
    """Yield the secrets inside the credentials of a header: a signature, or a password."""
    if "=" in value:
        yield value.partition("=")[2]
    with contextlib.suppress(binascii.Error, ValueError):
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        if colon and user.isprintable():
            yield password


def secrets_of(url: yarl.URL) -> tuple[str, ...]:
    """Return what a message must not repeat: values of the query string, as given and decoded."""
    pairs = (pair.partition("=")[2] for pair in url.raw_query_string.split("&"))
    values = {*url.query.values(), *pairs}
    return tuple(value for value in values if len(value) >= _MIN_SECRET)


def backend_error(
    error: Exception, request: str, seconds: float, *, secrets: Sequence[str] = ()
) -> errors.BackendError:
    """Convert an error of a request to a BackendError whose text starts with the request.

    The text has no `secrets`, which aiohttp and proxies repeat in messages about a URL.
    """
    text = redacted(_TLS_CONTEXT.sub("", str(error) or type(error).__name__), secrets)
    message = f"{request}: {shorten(text, _MAX_QUOTED)}"
    if isinstance(error, errors.BackendError):
        return type(error)(
            message,
            status=error.status,
            refusal=redacted(error.refusal, secrets),
            retry_after=error.retry_after,
        )
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return errors.Unreachable(f"{request}: no connection in time")
    if isinstance(error, TimeoutError):
        return errors.TimedOut(f"{request}: no complete response within {seconds:g} s")
    undecodable = isinstance(error.__cause__, aiohttp.http_exceptions.ContentEncodingError)
    if isinstance(error, aiohttp.ClientConnectionError | OSError) or (
        isinstance(error, aiohttp.ClientPayloadError) and not undecodable
    ):
        closed = isinstance(error, ConnectionResetError | aiohttp.ServerDisconnectedError)
        return errors.Unreachable(message, retry_after=0.0 if closed else None)
    return errors.Broken(message)


def _same_origin(origin: yarl.URL, advice: str) -> aiohttp.ClientMiddlewareType:
    """Return a middleware that refuses a request to another origin before it connects."""

    async def middleware(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if request.url.origin() != origin:
            raise errors.Broken(
                f"{origin} redirects to {request.url.origin()}: redirects to another scheme, host "
                f"or port are not followed, because they could reveal credentials; {advice}"
            )
        return await handler(request)

    return middleware


async def repeat_when_told(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Repeat a GET for which an overloaded server sends Retry-After; a middleware, as client-go."""
    for _ in range(_RETRIES):
        response = await handler(request)
        wait = response.headers.get("Retry-After", "")
        overloaded = response.status == _TOO_MANY_REQUESTS or response.status >= 500
        if request.method != "GET" or not overloaded or not wait.isdecimal():
            return response
        async with abort_on_exit(response):
            await asyncio.sleep(float(wait))
    return await handler(request)


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy for requests to `url`; None for loopback addresses.

    https://pkg.go.dev/golang.org/x/net/http/httpproxy#Config
    """
    target = yarl.URL(url)
    host = target.host or ""
    environment = urllib.request.getproxies()
    proxy = environment.get(target.scheme)
    if proxy is None or _bypasses_proxy(host, environment.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _bypasses_proxy(host: str, no_proxy: str) -> bool:
    """Return whether the host is loopback, or NO_PROXY has its name, address or network."""
    if host == "localhost" or urllib.request.proxy_bypass(host):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # urllib does not know networks.
    return address.is_loopback or any(
        address in network for network in map(_network, no_proxy.split(",")) if network
    )


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None
