"""Context manager that aborts the connection of an HTTP response that is not read to its end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import aiohttp


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
