"""Who may use the console: the browser that opened the address with the token.

Each page of each browser on the computer can reach 127.0.0.1. So the Host header is checked against
DNS rebinding, and requests that another page causes are refused, also if that page is of another
port of this computer: its requests have the cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping

import yarl
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
_OWN = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for requests of our own pages, and for addresses that people type."""
_PARAMETER = "token"
_BEARER = "Bearer "

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of each response."""

_FOREIGN = (
    "<!doctype html><html lang=en><title>Open this view</title><p>Another page led here. "
    '<a href="">Open this view of the console</a>'
)


class TokenGuard:
    """Middleware that lets requests with the token pass. `path` is the root of the console."""

    def __init__(self, path: str) -> None:
        self.token = secrets.token_urlsafe(32)
        self._path = path
        # Cookies are shared by all ports of a host, so that of another console has another name.
        self._cookie = f"console-{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"

    @property
    def query(self) -> str:
        """The query of the first address, which has the token."""
        return f"{_PARAMETER}={self.token}"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request pass, or answer it; the middleware."""
        try:
            response = self._answer(request) or await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        response.headers.update(HEADERS)
        return response

    def _answer(self, request: web.Request) -> web.Response | None:
        """Return the response to a request that may not see a page; None if it may."""
        if _host(request.host) not in _HOSTS:
            return _text(421, "the console answers requests for 127.0.0.1 and localhost only")
        if self._is_token(request.query.get(_PARAMETER, "")):
            return self._signed_in(request)
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            return _text(403, "a page of another origin sent this request")
        if request.headers.get("Sec-Fetch-Site", "none") not in _OWN:
            return web.Response(status=403, text=_FOREIGN, content_type="text/html")
        bearer = request.headers.get("Authorization", "")
        if self._is_token(request.cookies.get(self._cookie, "")) or (
            bearer.startswith(_BEARER) and self._is_token(bearer.removeprefix(_BEARER))
        ):
            return None
        return _text(
            401,
            "this browser has not opened the console: open the address with the token, which "
            "`gpu-metrics-adapter console` printed; curl needs it in the header "
            "`Authorization: Bearer TOKEN`",
        )

    def _is_token(self, text: str) -> bool:
        # Bytes of a header that are not UTF-8 are surrogates.
        return hmac.compare_digest(text.encode(errors="surrogateescape"), self.token.encode())

    def _signed_in(self, request: web.Request) -> web.Response:
        """Return the cookie, and lead to the same address without the token."""
        target = str(request.rel_url.without_query_params(_PARAMETER))
        response = web.Response(status=303, headers={"Location": target})
        response.set_cookie(
            self._cookie, self.token, path=self._path, httponly=True, samesite="Strict"
        )
        return response


def _host(header: str) -> str:
    try:
        return yarl.URL(f"http://{header}").host or ""
    except ValueError:
        return ""


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
