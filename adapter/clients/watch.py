"""List and watch of one path of the Kubernetes API, like the loop of client-go's reflector.

It lists, watches from the list's resourceVersion, resumes after the end of a watch, and lists again
once the API server no longer has that resourceVersion. Failures are retried with backoff.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from adapter import errors

if TYPE_CHECKING:  # `--help` imports this module and must not load the Kubernetes client
    from adapter.clients.kubernetes import Kube

log = logging.getLogger(__name__)

Event = tuple[str, Any]
"""Type of the event and its object; for LISTED, all objects."""

LISTED = "LISTED"
"""Type of the event with the complete list; objects that are not in it do not exist."""

_MIN_WATCH = 120
_MAX_WATCH = 240
_GRACE = 15.0
"""Seconds after the `timeoutSeconds` of a watch until the client ends it."""
_MIN_BACKOFF = 0.8
_MAX_BACKOFF = 30.0
_HEALTHY = 5.0
"""Seconds after which the end of a watch without events is not a failure."""


async def follow(
    api: Kube,
    path: str,
    params: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Event]:
    """Yield LISTED first, then ADDED, MODIFIED and DELETED; after a gap LISTED again.

    The iterator never ends and raises nothing. Only the first of consecutive failures is logged as
    a warning.
    """
    version = ""
    backoff = _MIN_BACKOFF
    while True:
        started = clock()
        try:
            if not version:
                version, items = _parse_list(path, await api.get(path, params))
                yield LISTED, items
            seconds = random.randint(_MIN_WATCH, _MAX_WATCH)  # noqa: S311 - jitter
            watch_params = {
                **params,
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(seconds),
            }
            async for line in api.stream(path, watch_params, ttl=seconds + _GRACE):
                kind, item, version = _parse_event(path, line)
                backoff = _MIN_BACKOFF
                if kind != "BOOKMARK":
                    yield kind, item
            if clock() - started >= _HEALTHY:
                backoff = _MIN_BACKOFF
                continue
        except errors.BackendError as error:
            if isinstance(error, errors.Refused | errors.Broken):
                version = ""
            level = logging.WARNING if backoff == _MIN_BACKOFF else logging.DEBUG
            log.log(level, "watch of %s failed and is retried: %s", path, error)
        await sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        backoff = min(2 * backoff, _MAX_BACKOFF)


def _parse_list(path: str, document: Any) -> tuple[str, list[Any]]:
    """Return the resourceVersion and the items of a list. Raises Broken."""
    try:
        return str(document["metadata"]["resourceVersion"]), list(document["items"] or ())
    except (KeyError, TypeError) as error:
        raise errors.Broken(f"GET {path}: the response is not a list: {error!r}") from error


def _parse_event(path: str, line: Any) -> tuple[str, Any, str]:
    """Return the type, the object and its resourceVersion. Raises Broken, also for an ERROR."""
    try:
        kind, item = line["type"], line["object"]
        if kind == "ERROR":
            raise errors.Broken(f"GET {path}: the watch ended: {item.get('message', item)}")
        return kind, item, str(item["metadata"]["resourceVersion"])
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.Broken(f"GET {path}: the response is not a watch event: {error!r}") from error
