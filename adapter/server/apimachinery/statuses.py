"""Answers to requests that raise an exception: the metav1.Status that Kubernetes would send.

The cause of a 5xx goes to the log only.
"""

from __future__ import annotations

import logging
from typing import Any

from adapter.errors import ApiError, BackendError, TextError, bad_request, internal
from adapter.server.apimachinery import encoding, negotiation
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.apimachinery.responses import PLAIN, Answer, with_warning
from adapter.server.http.request import Request
from rules.errors import PlanError, SelectorError
from rules.quoting import shorten

log = logging.getLogger(__name__)


def answer_of(error: Exception, request: Request, info: RequestInfo) -> Answer:
    """Return the answer to a request that raised `error`; a 5xx is logged."""
    api_error = _api_error(error)
    if api_error.code >= 500:
        _log_failure(error, api_error, request)
    if isinstance(api_error, TextError):
        body = f"{api_error.message}\n".encode("utf-8", "surrogateescape")
        return Answer(
            status=api_error.code, body=body, content_type=PLAIN, headers=api_error.headers
        )
    try:
        accepted = negotiation.of_request(info, request.headers)
    except ApiError:
        accepted = negotiation.Accepted(encoding=encoding.JSON, pretty=True)
    answer = Answer(
        status=api_error.code,
        body=encoding.encode(_status(api_error), accepted.encoding, pretty=accepted.pretty),
        content_type=accepted.encoding,
        headers=api_error.headers,
    )
    return with_warning(answer, api_error.causes) if api_error.causes_visible else answer


def _api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, SelectorError | PlanError):
        return bad_request(str(error))
    if isinstance(error, BackendError):
        return internal("unable to fetch metrics")
    return internal("the request failed; the log of gpu-metrics-adapter has the cause")


def _status(error: ApiError) -> encoding.Document:
    """Return the metav1.Status of `error`; an empty reason and absent details are left out."""
    details = error.details
    if error.causes and error.causes_visible:
        causes = [
            {"reason": str(cause.reason), "message": cause.sentence} for cause in error.causes
        ]
        known = (details or {}).get("causes", ())
        details = {**(details or {}), "causes": [*known, *causes]}
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        status["reason"] = error.reason
    if details is not None:
        status["details"] = details
    status["code"] = error.code
    return status


def _log_failure(error: Exception, api_error: ApiError, request: Request) -> None:
    """Log a 5xx with its cause; with a traceback only if the exception is unexpected.

    One with causes is logged by `causes.log`, once for many requests.
    """
    where = f"{request.method} {request.printable_target}"
    if not isinstance(error, ApiError | BackendError):
        log.error("%s: %s", where, api_error.message, exc_info=error)
        return
    cause = error.__cause__ if isinstance(error, ApiError) else error
    suffix = f": {type(cause).__name__}: {cause}" if cause else ""
    level = logging.DEBUG if api_error.causes else logging.ERROR
    log.log(level, "%s: %s%s", where, shorten(api_error.message), suffix)
