"""Verdicts asked of the API server, TokenReviews and SubjectAccessReviews, with due patience.

What may pass by itself is asked again, as Kubernetes' webhook clients do: five times in all, at
growing intervals of half a second and more, or later where the API server says so.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from adapter import errors

_PAUSES = (0.5, 0.75, 1.125, 1.6875)
_JITTER = 0.2
_SURROGATE = re.compile("[\ud800-\udfff]")


class Api(Protocol):
    """Knows how to have a document answered."""

    async def post(self, path: str, document: Any, *, timeout: float | None = None) -> Any: ...


async def ask(
    api: Api,
    path: str,
    document: Any,
    *,
    timeout: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Any:
    """The answer to `document`. Raises the BackendError of the last try.

    Bytes that are no UTF-8, which callers can send as names and tokens, are asked about as Go
    writes them in JSON: as U+FFFD each.

    https://github.com/kubernetes/apiserver/blob/master/pkg/util/webhook/webhook.go
    """
    document = _sound(document)
    for pause in _PAUSES:
        try:
            return await api.post(path, document, timeout=timeout)
        except errors.BackendError as error:
            if error.retry_after is None:
                raise
            wait = max(error.retry_after, pause * random.uniform(1, 1 + _JITTER))  # noqa: S311 - spreads load
        await sleep(wait)
    return await api.post(path, document, timeout=timeout)


def _sound(document: Any) -> Any:
    if isinstance(document, str):
        return _SURROGATE.sub("\ufffd", document)
    if isinstance(document, dict):
        return {_sound(key): _sound(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_sound(each) for each in document]
    return document
