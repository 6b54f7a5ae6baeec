"""`/openapi/v2` and `/openapi/v3`, as kube-openapi's handlers serve them, in JSON alone.

https://github.com/kubernetes/kube-openapi/tree/master/pkg/handler
https://github.com/kubernetes/kube-openapi/tree/master/pkg/handler3
"""

from __future__ import annotations

import dataclasses
import email.utils
import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from aiohttp import hdrs, web

from adapter.api.groups.group import Group
from adapter.api.openapi import documents
from adapter.api.openapi.apis import APIS
from adapter.http import encoding
from adapter.http.request_info import RequestInfo
from adapter.http.responses import Answer

_SECOND = "/openapi/v2"
_THIRD = "/openapi/v3"
_BELOW = "/openapi/v3/"
_EVERY_SIZE = 0
_YEAR = timedelta(days=365)


class OpenApi:
    """Answers every path below `/openapi`."""

    paths: Sequence[str] = (_SECOND, _THIRD, _BELOW)
    """What the index of paths lists."""

    def __init__(self, groups: Sequence[Group]) -> None:
        apis = {
            (group.NAME, version): APIS[group.NAME, version]
            for group in groups
            for version in group.VERSIONS
        }
        self._openapi_v2 = _Document(documents.openapi_v2(apis))
        # No "apis" and no "version", as in the original: the API server adds our keys to its own.
        self._third = {
            f"apis/{'/'.join(each)}": _Document(documents.openapi_v3(each, api))
            for each, api in apis.items()
        }
        self._index = _Document(
            {
                "paths": {
                    key: {"serverRelativeURL": f"{_BELOW}{key}?hash={document.hash}"}
                    for key, document in sorted(self._third.items())
                }
            }
        )

    def answer(self, request: web.BaseRequest, info: RequestInfo) -> Answer | None:
        """Whatever the method; None for a path of somebody else."""
        if info.path == _SECOND:
            return self._versioned(request)
        if info.path == _THIRD:
            return self._index.answer(request)
        if info.path.startswith(_BELOW):
            return self._below(request, info)
        return None

    def _versioned(self, request: web.BaseRequest) -> Answer:
        vary: dict[str, str] = {hdrs.VARY: f"{hdrs.ACCEPT_ENCODING}, {hdrs.ACCEPT}"}
        if not _acceptable(request):
            return _nothing(406, vary)
        answer = self._openapi_v2.answer(request, **vary)
        return dataclasses.replace(answer, compressed_above=_EVERY_SIZE)

    def _below(self, request: web.BaseRequest, info: RequestInfo) -> Answer:
        """The document of one version of a group, for good where its hash is in the URL."""
        vary: dict[str, str] = {hdrs.VARY: hdrs.ACCEPT}
        if not _acceptable(request):
            return _nothing(406, vary)
        key = info.path.removeprefix(_BELOW)
        document = self._third.get(key)
        if document is None:
            return _nothing(200, vary)
        wanted = info.query.get("hash", ("",))[0]
        if wanted not in {"", document.hash}:
            location = f"{_BELOW}{key}?hash={document.hash}"
            headers = {**vary, **document.headers, hdrs.LOCATION: location}
            return Answer(status=301, body=b"", headers=headers)
        if wanted:
            expires = email.utils.format_datetime(datetime.now(UTC) + _YEAR, usegmt=True)
            vary[hdrs.CACHE_CONTROL] = "public, immutable"
            vary[hdrs.EXPIRES] = expires.replace("GMT", "UTC")
        return document.answer(request, **vary)


class _Document:
    """A document as it is sent, and what is said of it."""

    def __init__(self, content: encoding.Document) -> None:
        self.body = encoding.encode(content).rstrip()
        self.hash = hashlib.sha512(self.body).hexdigest().upper()
        self.headers: dict[str, str] = {hdrs.ETAG: f'"{self.hash}"'}
        self._since = int(time.time())

    def answer(self, request: web.BaseRequest, **headers: str) -> Answer:
        """The document, or 304 for who has it already."""
        if self._known(request):
            return _nothing(304, headers | self.headers)
        modified = email.utils.formatdate(self._since, usegmt=True)
        told = {**headers, **self.headers, hdrs.LAST_MODIFIED: modified}
        return Answer(body=self.body, headers=told)

    def _known(self, request: web.BaseRequest) -> bool:
        tags = request.if_none_match
        if tags is not None:
            return any(tag.value in ("*", self.hash) for tag in tags)
        since = request.if_modified_since
        return since is not None and self._since <= since.timestamp()


def _acceptable(request: web.BaseRequest) -> bool:
    return encoding.accepts(request.headers.get(hdrs.ACCEPT, ""), encoding.JSON)


def _nothing(status: int, headers: dict[str, str]) -> Answer:
    return Answer(status=status, body=b"", content_type="", headers=headers)
