"""What `adapter.server.http` relies on and asyncio does not document.

If the test fails after an update of Python, read the changes of `SSLProtocol`. What it relies on of
aiohttp, the other tests of connections hold; each night, they run with aiohttp's main branch, too.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from typing import Any


async def test_the_buffer_of_asyncio_has_the_size_that_the_listener_sets():
    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    protocol: Any = sslproto.SSLProtocol(
        loop, asyncio.Protocol(), context, loop.create_future(), server_side=True
    )

    protocol._get_app_transport().close()

    assert len(protocol.get_buffer(-1)) == 32 << 10
