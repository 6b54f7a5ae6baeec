"""Removes secrets from texts of others that a message quotes, in every form that they repeat."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator

_MIN_ENCODED = 6
"""Characters of a base64 form from which on it is hidden: a shorter one could be any word."""
_ESCAPE = re.compile("%[0-9A-F]{2}")


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with `...` in place of each secret, also where it is escaped or encoded.

    Redact before a text is cut: the beginning of a secret is no longer recognized.
    """
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "...")
    return text


def _forms(secret: str) -> frozenset[str]:
    """Return the forms of a secret: plain, escaped for URLs, in base64, as a JSON string."""
    in_urls = {
        secret,
        urllib.parse.quote(secret, errors="replace"),
        urllib.parse.quote(secret, safe="", errors="replace"),
        urllib.parse.quote_plus(secret, errors="replace"),
    }
    in_urls |= {_ESCAPE.sub(lambda match: match[0].lower(), each) for each in in_urls}
    plain = {*in_urls, *(encoded for each in in_urls for encoded in _base64(each))}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return frozenset({*plain, *escaped, *(urllib.parse.quote(each, safe="") for each in plain)})


def _base64(secret: str) -> Iterator[str]:
    """Yield what base64 makes of a secret, alone or at any place of a longer text.

    Three bytes become four characters, so those of the secret depend on what precedes it; of those
    at its ends, some depend on other bytes as well, and stay out.
    """
    content = secret.encode(errors="replace")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            encoded = encode(b"\0" * before + content).decode()
            begin = (0, 2, 3)[before]
            end = (before + len(content)) * 8 // 6
            if end - begin >= _MIN_ENCODED:
                yield encoded[begin:end]
        whole = encode(content).decode()
        yield whole
        yield whole.rstrip("=")
