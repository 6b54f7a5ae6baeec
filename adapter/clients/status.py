"""Parser of responses of the API server: JSON documents, and errors as metav1.Status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from adapter import errors

_RETRIABLE = frozenset({429, 500, 504})
"""Statuses after which Kubernetes' webhook clients repeat a request."""


def backend_error(
    request: str, status: int, message: str | None, headers: Mapping[str, str]
) -> errors.BackendError:
    """Build the error of a response with a status of 300 or more; `request` is `METHOD PATH`."""
    text = f"{request}: {status}: {message or 'no reason given'}"
    error: errors.BackendError
    error = errors.Refused(text, status=status) if 400 <= status < 500 else errors.Broken(text)
    error.status, error.refusal = status, message or ""
    retry_after = headers.get("Retry-After", "")
    if retry_after.isdecimal():
        error.retry_after = float(retry_after)
    elif status in _RETRIABLE:
        error.retry_after = 0.0
    return error


def decode(request: str, body: bytes | bytearray) -> Any:
    """Parse a JSON body. Raises Broken."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.Broken(f"{request}: the response is not JSON: {error}") from error


def message(body: bytes) -> str:
    """Return the message of a metav1.Status, or else the beginning of the body."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, dict) and isinstance(document.get("message"), str):
        return str(document["message"])
    return body[:200].decode("utf-8", "replace").strip()
