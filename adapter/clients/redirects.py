"""Refuses redirects to another origin: credentials are only for the configured server.

aiohttp drops the Authorization header on such redirects, but no other header and no client
certificate.
"""

from __future__ import annotations

import aiohttp
import yarl

from adapter import errors


def same_origin(url: yarl.URL, advice: str) -> aiohttp.ClientMiddlewareType:
    """Return a middleware for requests to the scheme, host and port of `url`.

    It raises Broken, before it connects, for a redirect to another origin; `advice` ends the
    message. aiohttp follows at most ten redirects within the origin.
    """
    origin = url.origin()

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
