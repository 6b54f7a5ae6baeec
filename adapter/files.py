"""Reads files completely, up to a limit, so that no file exhausts the memory or never ends.

`file_watcher` reads them again when they change.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

SECRET = 64 << 10
"""Bytes of a token or a password; a header has no more."""
CONFIG = 4 << 20
"""Bytes of rules, a kubeconfig or certificates. A ConfigMap or a Secret has at most 1 MiB."""
MANIFESTS = 64 << 20
"""Bytes of the manifests of a cluster, or of what Helm renders."""


def read_file(path: str | Path, limit: int = CONFIG, *, pipes: bool = False) -> bytes:
    """Return the contents of a file of at most `limit` bytes. Blocks.

    Raises OSError, also for a larger file, of which no more is read, and for a pipe or a socket.
    With `pipes`, a pipe is read to its end, which may come late; this is for commands of people.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if pipes else os.O_NONBLOCK))
    with os.fdopen(file, "rb", buffering=0) as opened:
        state = os.fstat(file)
        if stat.S_ISDIR(state.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if stat.S_ISFIFO(state.st_mode) and not pipes:
            raise OSError(errno.EINVAL, "is a pipe: use a regular file", str(path))
        content = bytearray()
        # The size of a device, or of a file that grows, says nothing: what is read counts, too.
        size = state.st_size if stat.S_ISREG(state.st_mode) else 0
        while size <= limit and len(content) <= limit:
            chunk = opened.read(min(limit + 1 - len(content), 1 << 20))
            if not chunk:
                return bytes(content)
            content += chunk
    raise OSError(errno.EFBIG, f"is larger than {_size(limit)}, the limit for it", str(path))


def _size(limit: int) -> str:
    return f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
