"""Reading of response bodies whose size is not known."""

from __future__ import annotations

import aiohttp


async def read_beginning(response: aiohttp.ClientResponse, size: int) -> bytes:
    """Return the body of a response, but not more than its first `size` bytes.

    `response.content.read(size)` returns what has arrived, which may be less.
    """
    body = bytearray()
    async for chunk in response.content.iter_chunked(size):
        body += chunk
        if len(body) >= size:
            break
    return bytes(body[:size])
