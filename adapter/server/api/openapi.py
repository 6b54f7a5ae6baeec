"""`/openapi/v2` and `/openapi/v3`: the OpenAPI documents of the API groups.

They are sent in JSON only, which is what the API server requests (`Downloader` of
k8s.io/kube-aggregator); the original also has v2 in protobuf. The documents are JSON files beside
the modules in `api.groups`. They contain neither metric names nor the program's version, so all
replicas serve the same hashes. The API server merges them with its own; definition names must not
collide with those of Kubernetes.

https://github.com/kubernetes/kube-openapi/tree/master/pkg/handler
https://github.com/kubernetes/kube-openapi/tree/master/pkg/handler3
"""

from __future__ import annotations

import dataclasses
import email.utils
import functools
import hashlib
import importlib.resources
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from aiohttp import hdrs

from adapter.server.api.groups.group import AnyGroup
from adapter.server.apimachinery import encoding, negotiation
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.apimachinery.responses import Answer
from adapter.server.http.request import Request

_V2 = "/openapi/v2"
_V3 = "/openapi/v3"
_BELOW_V3 = "/openapi/v3/"
_YEAR = timedelta(days=365)


class OpenApi:
    """Handler of all paths below `/openapi`; every method is answered like GET."""

    paths: Sequence[str] = (_V2, _V3, _BELOW_V3)
    """Entries of the paths index."""

    def __init__(self) -> None:
        self._documents = functools.lru_cache(maxsize=1)(_Documents)

    def answer(
        self, request: Request, info: RequestInfo, served: Sequence[AnyGroup]
    ) -> Answer | None:
        """Return the answer, or None if the path is not one of `paths`."""
        if info.path not in {_V2, _V3} and not info.path.startswith(_BELOW_V3):
            return None
        return self._documents(tuple(served)).answer(request, info)


class _Documents:
    """Documents of `groups`."""

    def __init__(self, groups: Sequence[AnyGroup]) -> None:
        first, *others = (_load(group, "openapi_v2") for group in groups)
        for other in others:
            first["paths"] |= other["paths"]
            first["definitions"] |= other["definitions"]
        self._v2 = _Document(_json(first))
        # Like the original, without the keys "apis" and "version": the API server has its own.
        self._v3 = {
            f"apis/{group.API.group_version(version)}": _Document(
                _json(_load(group, f"{version}.openapi_v3"))
            )
            for group in groups
            for version in group.API.versions
        }
        urls = {
            key: {"serverRelativeURL": f"{_BELOW_V3}{key}?hash={document.hash}"}
            for key, document in sorted(self._v3.items())
        }
        self._v3_index = _Document(_json({"paths": urls}))

    def answer(self, request: Request, info: RequestInfo) -> Answer:
        """Return the answer for one of `OpenApi.paths`."""
        if info.path == _V2:
            return self._answer_v2(request)
        if info.path == _V3:
            return self._v3_index.answer(request, {})
        return self._answer_v3(request, info)

    def _answer_v2(self, request: Request) -> Answer:
        headers: dict[str, str] = {hdrs.VARY: f"{hdrs.ACCEPT_ENCODING}, {hdrs.ACCEPT}"}
        if not _accepts_json(request):
            return _empty(406, headers)
        return dataclasses.replace(self._v2.answer(request, headers), gzip_threshold=0)

    def _answer_v3(self, request: Request, info: RequestInfo) -> Answer:
        """Return one group version's document; immutable if the URL has its hash."""
        headers: dict[str, str] = {hdrs.VARY: hdrs.ACCEPT}
        if not _accepts_json(request):
            return _empty(406, headers)
        key = info.path.removeprefix(_BELOW_V3)
        document = self._v3.get(key)
        if document is None:
            return _empty(200, headers)
        requested_hash = info.query.get("hash", ("",))[0]
        if requested_hash not in {"", document.hash}:
            location = f"{_BELOW_V3}{key}?hash={document.hash}"
            return Answer(
                status=301,
                body=b"",
                headers={**headers, **document.headers, hdrs.LOCATION: location},
            )
        if requested_hash:
            expires = email.utils.format_datetime(datetime.now(UTC) + _YEAR, usegmt=True)
            headers[hdrs.CACHE_CONTROL] = "public, immutable"
            headers[hdrs.EXPIRES] = expires.replace("GMT", "UTC")
        return document.answer(request, headers)


class _Document:
    """Encoded document with its ETag and its Last-Modified time."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.hash = hashlib.sha512(self.body).hexdigest().upper()
        self.headers: dict[str, str] = {hdrs.ETAG: f'"{self.hash}"'}
        self._modified = int(time.time())

    def answer(self, request: Request, headers: Mapping[str, str]) -> Answer:
        """Return the document with `headers`, or 304 if the client has it."""
        if self._is_current(request):
            return _empty(304, {**headers, **self.headers})
        modified = email.utils.formatdate(self._modified, usegmt=True)
        return Answer(
            body=self.body, headers={**headers, **self.headers, hdrs.LAST_MODIFIED: modified}
        )

    def _is_current(self, request: Request) -> bool:
        """Return whether the client has the document (RFC 9110, 13.1)."""
        tags = request.headers.get(hdrs.IF_NONE_MATCH)
        if tags is not None:
            tagged = (tag.strip(" \t").removeprefix("W/") for tag in tags.split(","))
            return any(tag in ("*", f'"{self.hash}"') for tag in tagged)
        try:
            text = request.headers.get(hdrs.IF_MODIFIED_SINCE, "")
            since = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return False
        return self._modified <= since.timestamp()


def _load(group: AnyGroup, document: str) -> dict[str, Any]:
    """Return a JSON file of `group`, such as `custom.v1beta1.openapi_v3.json`."""
    name = f"{group.API.name.partition('.')[0]}.{document}.json"
    content: dict[str, Any] = orjson.loads(
        importlib.resources.files("adapter.server.api.groups").joinpath(name).read_bytes()
    )
    return content


def _json(document: encoding.Document) -> bytes:
    return encoding.encode(document).rstrip()


def _accepts_json(request: Request) -> bool:
    return negotiation.accepts(request.headers.get(hdrs.ACCEPT, ""), encoding.JSON)


def _empty(status: int, headers: Mapping[str, str]) -> Answer:
    return Answer(status=status, body=b"", content_type="", headers=headers)
