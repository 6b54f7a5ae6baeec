"""Whom a request's headers name: the user that a front proxy speaks for, or one to be impersonated.

Pure. What stands there counts only for who is entitled to say so, which is decided elsewhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from types import MappingProxyType
from urllib.parse import unquote_to_bytes

from multidict import MultiMapping

from adapter.auth import user as users
from adapter.auth.trust import Headers
from adapter.auth.user import Extra, Impersonation, User

REMEMBERED = 2048
"""How many users are kept, each with the headers that name them, of `_LONGEST_KEPT` characters."""

_LONGEST_KEPT = 4096
_NAMES_KEPT = 1024
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")

_IMPERSONATE = "impersonate-"
_IMPERSONATE_EXTRA = "impersonate-extra-"

Pairs = tuple[tuple[str, str], ...]


class Reader:
    """Reads the user out of the headers that a cluster's front proxies set."""

    def __init__(self, headers: Headers) -> None:
        self._names = tuple(map(str.lower, headers.username_headers))
        self._uids = tuple(map(str.lower, headers.uid_headers))
        self._groups = tuple(map(str.lower, headers.group_headers))
        self._prefixes = tuple(map(str.lower, headers.extra_prefixes))
        self._relevant: dict[str, bool] = {}
        self._remembered = functools.lru_cache(maxsize=REMEMBERED)(self._read)

    def user(self, headers: MultiMapping[str]) -> User | None:
        """None where no header names a user.

        https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/request/headerrequest/requestheader.go
        """
        pairs = tuple(pair for pair in headers.items() if self._matters(pair[0]))
        if sum(len(value) for _, value in pairs) > _LONGEST_KEPT:
            return self._read(pairs)
        return self._remembered(pairs)

    def _matters(self, name: str) -> bool:
        known = self._relevant.get(name)
        if known is None:
            lower = name.lower()
            named = {*self._names, *self._uids, *self._groups}
            known = lower in named or lower.startswith(self._prefixes)
            if len(self._relevant) >= _NAMES_KEPT:
                self._relevant.clear()
            self._relevant[name] = known
        return known

    def _read(self, pairs: Pairs) -> User | None:
        lowered = tuple((name.lower(), value) for name, value in pairs)
        name = _first(lowered, self._names)
        if not name:
            return None
        groups = (value for group in self._groups for value in _all(lowered, group) if value)
        user = User(
            name=name,
            groups=tuple(groups),
            uid=_first(lowered, self._uids),
            extra=_extra(lowered, self._prefixes),
        )
        return users.authenticated(user)


def impersonation(headers: MultiMapping[str]) -> Impersonation | None:
    """What a request asks for by Impersonate-* headers, whoever sent it; None if it does not.

    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/filters/impersonation.go
    """
    pairs = tuple(
        (name.lower(), value)
        for name, value in headers.items()
        if name[: len(_IMPERSONATE)].lower() == _IMPERSONATE
    )
    if not pairs:
        return None
    asked = Impersonation(
        user=_first(pairs, ("impersonate-user",)),
        uid=_first(pairs, ("impersonate-uid",)),
        groups=_all(pairs, "impersonate-group"),
        extra=_extra(pairs, (_IMPERSONATE_EXTRA,)),
    )
    return asked if asked.user or asked.uid or asked.groups or asked.extra else None


def _all(pairs: Pairs, header: str) -> tuple[str, ...]:
    return tuple(value for name, value in pairs if name == header)


def _first(pairs: Pairs, headers: Iterable[str]) -> str:
    """The value of the first header that has one; of a repeated header only the first counts."""
    for header in headers:
        values = _all(pairs, header)
        if values and values[0]:
            return values[0]
    return ""


def _extra(pairs: Pairs, prefixes: Iterable[str]) -> Extra:
    found: dict[str, tuple[str, ...]] = {}
    for prefix in prefixes:
        for name, value in pairs:
            if name.startswith(prefix):
                key = _unescaped(name[len(prefix) :])
                found[key] = (*found.get(key, ()), value)
    return MappingProxyType(found) if found else users.NO_EXTRA


def _unescaped(key: str) -> str:
    if _BAD_ESCAPE.search(key):
        return key
    raw = key.encode("utf-8", "surrogateescape")
    return unquote_to_bytes(raw).decode("utf-8", "surrogateescape")
