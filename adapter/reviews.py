"""Verdicts asked of the API server, TokenReviews and SubjectAccessReviews, with due patience.

What may pass by itself is asked again, as Kubernetes' webhook clients do: five times in all, at
growing intervals of half a second and more, or later where the API server says so.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from adapter import errors

_PAUSES = (0.5, 0.75, 1.125, 1.6875)
_JITTER = 0.2


class Api(Protocol):
    """Knows how to have a document answered."""

    async def post(self, path: str, document: Any, *, timeout: float | None = None) -> Any: ...  # noqa: ASYNC109


async def ask(
    api: Api,
    path: str,
    document: Any,
    *,
    timeout: float,  # noqa: ASYNC109 - of each try; who wants a limit to all sets one
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Any:
    """The answer to `document`. Raises the BackendError of the last try.

    https://github.com/kubernetes/apiserver/blob/master/pkg/util/webhook/webhook.go
    """
    for pause in _PAUSES:
        try:
            return await api.post(path, document, timeout=timeout)
        except errors.BackendError as error:
            if error.retry_after is None:
                raise
            wait = max(error.retry_after, pause * random.uniform(1, 1 + _JITTER))  # noqa: S311
        await sleep(wait)
    return await api.post(path, document, timeout=timeout)
