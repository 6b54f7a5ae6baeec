"""Encoding of API documents, byte for byte as Kubernetes writes them.

Pure. A document is the JSON form of an API object with its keys in the order of Kubernetes; every
encoding is produced from that form. This module writes JSON; YAML and protobuf are beside it. Which
encoding a client gets is in `apimachinery.negotiation`.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Mapping
from typing import Any

import orjson

from adapter import yaml_encoding
from adapter.server.apimachinery import protobuf

Document = Mapping[str, Any]

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PRODUCED: tuple[str, ...] = (JSON, YAML, PROTOBUF)
"""Media types of all encodings, the default first."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(document: Document, media_type: str = JSON, *, pretty: bool = False) -> bytes:
    r"""Encode in one of `PRODUCED`, like Go. Only JSON can be `pretty`.

    JSON is compact with a newline at the end, or indented by two without one. `<`, `>`, `&`, U+2028
    and U+2029 are escaped; bytes that are not UTF-8 become `\ufffd`.
    """
    if media_type == PROTOBUF:
        return _encode_protobuf(document)
    if media_type == YAML:
        return yaml_encoding.encode(document)
    try:
        body = orjson.dumps(document, option=orjson.OPT_INDENT_2 if pretty else None)
    except TypeError:
        # orjson refuses lone surrogates, which stand for bytes that are not UTF-8.
        layout: dict[str, Any] = {"indent": 2} if pretty else {"separators": (",", ":")}
        text = json.dumps(document, ensure_ascii=False, **layout)
        body = _SURROGATE.sub(r"\\ufffd", text).encode()
    body = body.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    body = body.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return body if pretty else body + b"\n"


def _encode_protobuf(document: Document) -> bytes:
    try:
        return protobuf.encode(document)
    except UnicodeEncodeError:
        # Strings of messages are UTF-8. JSON replaces what is not.
        return protobuf.encode(orjson.loads(encode(document)))


@functools.lru_cache(maxsize=256)
def timestamp(seconds: float) -> str:
    """Format Unix seconds as RFC 3339 in UTC, rounded down to whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
