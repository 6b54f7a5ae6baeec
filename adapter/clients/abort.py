"""Leaving another server's answer before its end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import aiohttp


@contextlib.asynccontextmanager
async def abort_on_exit(response: aiohttp.ClientResponse) -> AsyncIterator[aiohttp.ClientResponse]:
    """Cuts the connection off at the end of the block, unless the answer was read to its end.

    aiohttp would close it: over TLS that waits for the other side to say goodbye, for up to 30 s,
    and neither the session nor the event loop waits for that.
    """
    async with response:
        try:
            yield response
        finally:
            connection = response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
