"""What the API server's answers say: a document, or a metav1.Status that is a BackendError here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from adapter import errors

_PASSING = frozenset({429, 500, 504})
"""Statuses after which Kubernetes' webhook clients ask again."""


def refusal(
    asked: str, status: int, message: str | None, headers: Mapping[str, str]
) -> errors.BackendError:
    text = f"{asked}: {status}: {message or 'no reason given'}"
    told: errors.BackendError
    told = errors.Refused(text, status=status) if 400 <= status < 500 else errors.Broken(text)
    pause = headers.get("Retry-After", "")
    if pause.isdecimal():
        told.retry_after = float(pause)
    elif status in _PASSING:
        told.retry_after = 0.0
    return told


def decoded(asked: str, body: bytes | bytearray) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.Broken(f"{asked}: the answer is not JSON: {error}") from error


def message(body: bytes) -> str:
    """A Status' message, else the beginning of what came instead."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, dict) and isinstance(document.get("message"), str):
        return str(document["message"])
    return body[:200].decode("utf-8", "replace").strip()
