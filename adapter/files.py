"""Reads files completely, up to a limit, and again when they change.

So no file exhausts the memory or never ends.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

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


T = TypeVar("T")

log = logging.getLogger(__name__)


class FileWatcher(Generic[T]):
    """Value that `load` reads from `paths`; it is loaded again when their contents change.

    A path may be a folder; then that means the files in it. If a later load raises `failure`, the
    watcher logs the failure once, followed by `fallback`, and keeps the previous value. So a pair
    of files may be replaced one after the other.
    """

    def __init__(
        self,
        *paths: Path,
        load: Callable[[], T],
        failure: type[Exception],
        fallback: str,
        max_age: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load the value. Raises `failure` if that is not possible."""
        self._paths = paths
        self._load = load
        self._failure = failure
        self._fallback = fallback
        self._max_age = max_age
        self._monotonic = monotonic
        self._polled = monotonic()
        # The digest comes first: a file that changes in between is loaded again by the next poll.
        self._digest = self._read_digest()
        self.value = load()

    def poll(self, *, changed: bool = False) -> bool:
        """Load the value again if a file has changed. Return whether there is a new value.

        With `changed`, something else that `load` reads has changed.
        """
        self._polled = self._monotonic()
        digest = self._read_digest()
        if digest == self._digest and not changed:
            return False
        self._digest = digest
        try:
            self.value = self._load()
        except self._failure as error:
            log.warning("%s; %s", error, self._fallback)
            return False
        return True

    def current(self) -> T:
        """Return the value, after a poll if the last one was more than `max_age` seconds ago."""
        if self._monotonic() - self._polled >= self._max_age:
            self.poll()
        return self.value

    def _read_digest(self) -> bytes:
        return b"".join(map(_digest, self._paths))


def _digest(path: Path) -> bytes:
    try:
        if path.is_dir():
            names = sorted(each for each in path.iterdir() if each.is_file())
            return b"".join(each.name.encode() + _digest(each) for each in names)
        return hashlib.sha256(read_file(path)).digest()
    except OSError as error:
        return repr(error).encode()
