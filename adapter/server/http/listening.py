"""The socket on which the server listens; `server` accepts connections from it.

It imports nothing that takes time: the kernel holds clients that connect while the server starts.
"""

from __future__ import annotations

import socket

_BACKLOG = 128
"""Connections that the kernel holds until they are accepted. In a flood, clients beyond them repeat
their SYN after a second. With 512 or more, its stalled handshakes displace other clients."""
_RECEIVE_BUFFER = 16 << 10
"""Bytes of SO_RCVBUF, which the kernel doubles; so many a read takes at most. OpenSSL and uvloop
keep buffers for the largest read until the connection ends: with 32 KiB, 1 MB of a header left
250 KiB, with 16 KiB 190. The head of an HPA controller has 2 KiB."""


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a socket that listens. Raises OSError if the address is not available."""
    listener = socket.create_server(
        (host, port),
        family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        backlog=_BACKLOG,
        reuse_port=reuse_port,
    )
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    listener.setblocking(False)
    return listener
