"""A list of the Kubernetes API, followed: what is there, and what happens to it from then on.

The loop of client-go's reflector: list, watch from there, resume where a watch ended, list anew
when the API server no longer knows what happened in between; slower and slower while it fails.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from adapter import errors

log = logging.getLogger(__name__)

Event = tuple[str, Any]

LISTED = "LISTED"
"""The type of the event that has every object there is, as a list: nothing else is left."""

_SHORTEST_WATCH = 120
_LONGEST_WATCH = 240
_GRACE = 15.0
_FIRST_PAUSE = 0.8
_LAST_PAUSE = 30.0
_SOUND = 5.0
"""Seconds; a watch that lasted as long was a good one, even if nothing happened."""


class Source(Protocol):
    """Knows how to get a document, and the lines of a long one."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any: ...

    def stream(self, path: str, params: Mapping[str, str], *, ttl: float) -> AsyncIterator[Any]: ...


async def follow(
    source: Source,
    path: str,
    params: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Event]:
    """Yields LISTED first, then ADDED, MODIFIED and DELETED; and LISTED again after a gap.

    It never ends and raises nothing: failures are logged, each row of them once.
    """
    version = ""
    pause = _FIRST_PAUSE
    while True:
        began = clock()
        try:
            if not version:
                version, items = _listed(path, await source.get(path, params))
                yield LISTED, items
            ttl = random.randint(_SHORTEST_WATCH, _LONGEST_WATCH)  # noqa: S311 - spreads load
            asked = {
                **params,
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(ttl),
            }
            async for line in source.stream(path, asked, ttl=ttl + _GRACE):
                kind, item, version = _event(path, line)
                pause = _FIRST_PAUSE
                if kind != "BOOKMARK":
                    yield kind, item
            if clock() - began >= _SOUND:
                pause = _FIRST_PAUSE
                continue
        except errors.BackendError as error:
            if isinstance(error, errors.Refused | errors.Broken):
                version = ""
            level = logging.WARNING if pause == _FIRST_PAUSE else logging.DEBUG
            log.log(level, "following %s, which is tried again: %s", path, error)
        # Not all replicas at once.
        await sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load
        pause = min(2 * pause, _LAST_PAUSE)


def _listed(path: str, document: Any) -> tuple[str, list[Any]]:
    try:
        return str(document["metadata"]["resourceVersion"]), list(document["items"] or ())
    except (KeyError, TypeError) as error:
        raise errors.Broken(f"GET {path}: the answer is no list: {error!r}") from error


def _event(path: str, line: Any) -> tuple[str, Any, str]:
    """Raises Broken for an ERROR, whatever it is about: only a new list helps."""
    try:
        kind, item = line["type"], line["object"]
        if kind == "ERROR":
            raise errors.Broken(f"GET {path}: the watch ended: {item.get('message', item)}")
        return kind, item, str(item["metadata"]["resourceVersion"])
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.Broken(f"GET {path}: the answer is no event: {error!r}") from error
