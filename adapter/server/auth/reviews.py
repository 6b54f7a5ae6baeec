"""TokenReviews and SubjectAccessReviews: POST to the API server with retries.

`tokens` and `authorization` build the documents and interpret the answers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from adapter import errors
from adapter.clients.kubernetes import Kube
from adapter.server.apimachinery import encoding

_BACKOFF = (0.5, 0.75, 1.125, 1.6875)
"""Seconds before each retry, without jitter."""
_JITTER = 0.2
"""Maximum jitter, as a fraction of the backoff."""


async def post_review(
    api: Kube,
    path: str,
    document: Any,
    *,
    timeout: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Any:
    """Return the API server's answer to `document`; `timeout` is in seconds for each attempt.

    Retries errors that have `retry_after`, five attempts in all, as Kubernetes' webhook clients do.
    Raises the BackendError of the last attempt. A byte that is not UTF-8 in a name or a token is
    sent as U+FFFD, as Go encodes it in JSON.

    https://github.com/kubernetes/apiserver/blob/master/pkg/util/webhook/webhook.go
    """
    # `encode` replaces what is not UTF-8.
    document = orjson.loads(encoding.encode(document))
    for backoff in _BACKOFF:
        try:
            return await api.post(path, document, timeout=timeout)
        except errors.BackendError as error:
            if error.retry_after is None:
                raise
            jittered = backoff * random.uniform(1, 1 + _JITTER)  # noqa: S311 - spreads load
            delay = max(error.retry_after, jittered)
        await sleep(delay)
    return await api.post(path, document, timeout=timeout)
