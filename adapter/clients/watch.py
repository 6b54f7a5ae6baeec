"""List and watch of one path of the Kubernetes API, like the loop of client-go's reflector.

It lists, watches from the list's resourceVersion, resumes after the end of a watch, and lists again
once the API server no longer has that resourceVersion. Failures are retried with backoff, except
that a watch whose connection fails is resumed at a short interval for a minute: this costs little.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from adapter import errors
from adapter.background import Backoff
from adapter.clients import collection
from adapter.clients.collection import Unreadable

if TYPE_CHECKING:  # `--help` imports this module and must not load the Kubernetes client
    from adapter.clients.kubernetes import Kube

log = logging.getLogger(__name__)

T = TypeVar("T")

Event = tuple[str, Any]
"""Type of the event and its object; for LISTED, all objects."""

LISTED = "LISTED"
"""Type of the event with the complete list; objects that are not in it do not exist."""
DELETED = "DELETED"
"""Type of the event of an object that no longer exists, or that is unreadable."""
_BOOKMARK = "BOOKMARK"

_WATCH = 120.0
"""Minimum seconds of a watch; the maximum is twice as long, so that watches end at random."""
_GRACE = 15.0
"""Seconds after the `timeoutSeconds` of a watch until the client ends it."""
_MIN_BACKOFF = 0.8
"""Seconds; objects are out of date for less than a second after a lost connection returns."""
_MAX_BACKOFF = 30.0
_LOST = 60.0
"""Seconds since the watch last worked in which a lost connection is resumed without backoff."""
_HEALTHY = 5.0
"""Seconds after which the end of a watch without events is not a failure."""
_KEEP_VERSION = frozenset({401, 403, 405, 429})
"""Statuses that say nothing about the resourceVersion of the request."""


async def follow(
    api: Kube,
    path: str,
    params: Mapping[str, str],
    *,
    extract: Callable[[Any], Any] = lambda item: item,
    begin: Callable[[], Callable[[Any], Any]] | None = None,
    metadata_only: bool = False,
    max_items: int | None = None,
    unreadable: Callable[[Unreadable], None] | None = None,
    report: Callable[[errors.BackendError | None], None] = lambda _: None,
    duration: float = _WATCH,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[Event]:
    """Yield LISTED first, then ADDED, MODIFIED and DELETED; after a gap LISTED again.

    Objects are what `extract` returns for them. `begin` is called before each list, and returns the
    function that replaces `extract` for that list; it can store the objects, so that a large list
    does not exist twice. `metadata_only`, `max_items` and `unreadable` are as for `Kube.snapshot`;
    the object of the event DELETED is an `Unreadable` if `extract` fails.

    `report` is called with None when a watch is accepted, at each line, and when the API server
    ends it; and with each failure. The API server ends a watch after at least `duration` seconds
    and less than twice as many, the client a little later.

    The iterator never ends and raises only what `report` raises. Only the first of consecutive
    failures is logged as a warning.
    """
    worked = clock()

    def works() -> None:
        nonlocal worked
        worked = clock()
        report(None)

    noted = unreadable or functools.partial(collection.log_unreadable, path)
    version = ""
    pauses, failing = Backoff(_MIN_BACKOFF, _MAX_BACKOFF), False
    while True:
        started = clock()
        lost = False
        try:
            if not version:
                version, items = await api.snapshot(
                    path,
                    params,
                    begin() if begin else extract,
                    metadata_only=metadata_only,
                    max_items=max_items,
                    unreadable=unreadable,
                )
                if not version:
                    raise errors.Broken(f"GET {path}: the list has no resourceVersion")
                yield LISTED, items
                del items
            seconds = round(duration * random.uniform(1, 2))  # noqa: S311 - jitter
            watch_params = {
                **params,
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(seconds),
            }
            lines = api.stream(
                path, watch_params, ttl=seconds + _GRACE, metadata_only=metadata_only, on_open=works
            )
            async with contextlib.aclosing(lines):
                async for line in lines:
                    kind, item, version = _parse_event(path, line, extract)
                    if isinstance(item, Unreadable):
                        if kind != DELETED:
                            noted(item)
                        kind = DELETED
                    works()
                    pauses.reset()
                    failing = False
                    if kind != _BOOKMARK:
                        yield kind, item
            works()
            if clock() - started >= _HEALTHY:
                pauses.reset()
                failing = False
                continue
        except errors.BackendError as error:
            refused = isinstance(error, errors.Refused) and error.status not in _KEEP_VERSION
            if refused or isinstance(error, errors.Broken):
                version = ""
            # Lists cost the API server much, and an answer may say that it is overloaded.
            recent = clock() - worked < _LOST
            lost = recent and bool(version) and isinstance(error, errors.Unreachable)
            report(error)
            level = logging.DEBUG if failing else logging.WARNING
            log.log(level, "watch of %s failed and is retried: %s", path, error)
            failing = True
        await sleep((Backoff(_MIN_BACKOFF, _MAX_BACKOFF) if lost else pauses).pause())


def _parse_event(
    path: str, line: Any, extract: Callable[[Any], T]
) -> tuple[str, T | Unreadable | None, str]:
    """Return the type, the object and its resourceVersion. Raises Broken, also for an ERROR."""
    try:
        kind, item = line["type"], line["object"]
        if kind == "ERROR":
            raise errors.Broken(f"GET {path}: the watch ended: {item.get('message', item)}")
        version = str(item["metadata"]["resourceVersion"])
        return kind, None if kind == _BOOKMARK else collection.read(item, extract), version
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.Broken(f"GET {path}: the response is not a watch event: {error!r}") from error
