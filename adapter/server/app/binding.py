"""Binds the server's port, before `server` and what it imports are loaded.

That takes a second or more, in which the first startup probe would be refused.
"""

from __future__ import annotations

import socket

from adapter import errors
from adapter.server.http import listening
from adapter.settings.serving import ServingSettings


def bind(serving: ServingSettings) -> socket.socket:
    """Return a socket that listens on the address of the flags. Raises StartError."""
    host, port = serving.bind_address, serving.port
    try:
        return listening.listen(host, port, reuse_port=serving.permit_port_sharing)
    except OSError as error:
        raise errors.StartError(
            f"cannot listen on {host}:{port}: {error.strerror}; use --secure-port for another port"
        ) from error
