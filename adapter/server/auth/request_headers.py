"""Users named by request headers: those set by a front proxy, and Impersonate-* headers.

Pure: parses headers only. The caller verifies the front proxy or authorizes the impersonation.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from multidict import MultiMapping

from adapter.server.apimachinery.request_info import BAD_ESCAPE, unquote
from adapter.server.auth.trust import RequestHeaderConfig
from adapter.server.auth.user import NO_EXTRA, Extra, Impersonation, User, with_authenticated_group


def front_proxy_user(headers: MultiMapping[str], config: RequestHeaderConfig) -> User | None:
    """Return the user from the headers that `config` lists; None without a user name.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/request/headerrequest/requestheader.go
    """
    name = _first_value(headers, config.username_headers)
    if not name:
        return None
    return with_authenticated_group(
        User(
            name=name,
            groups=tuple(
                group
                for header in config.group_headers
                for group in headers.getall(header, ())
                if group
            ),
            uid=_first_value(headers, config.uid_headers),
            extra=_extra(headers, config.extra_prefixes),
        )
    )


def impersonation(headers: MultiMapping[str]) -> Impersonation | None:
    """Return the user that Impersonate-* headers name; None without such headers.

    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/filters/impersonation/impersonation.go
    """
    requested = Impersonation(
        user=_first_value(headers, ("Impersonate-User",)),
        uid=_first_value(headers, ("Impersonate-Uid",)),
        groups=tuple(headers.getall("Impersonate-Group", ())),
        extra=_extra(headers, ("Impersonate-Extra-",)),
    )
    if requested.user or requested.uid or requested.groups or requested.extra:
        return requested
    return None


def _first_value(headers: MultiMapping[str], names: Iterable[str]) -> str:
    """Return the first value that is not empty; of a repeated header only the first counts."""
    for name in names:
        if value := headers.get(name):
            return value
    return ""


def _extra(headers: MultiMapping[str], prefixes: Iterable[str]) -> Extra:
    """Return the values by key: the lower-cased rest of the header's name.

    A key is percent-decoded, unless one of its escapes is malformed.
    """
    extra: dict[str, list[str]] = {}
    for prefix in map(str.lower, prefixes):
        for header, value in headers.items():
            if header[: len(prefix)].lower() == prefix:
                key = header[len(prefix) :].lower()
                if not BAD_ESCAPE.search(key):
                    key = unquote(key)
                extra.setdefault(key, []).append(value)
    if not extra:
        return NO_EXTRA
    return MappingProxyType({key: tuple(values) for key, values in extra.items()})
