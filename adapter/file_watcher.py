"""Values loaded from files, loaded again when the files change."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from adapter.files import read_file

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
