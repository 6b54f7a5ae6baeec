"""Users: authenticated ones, those that Impersonate-* headers name, and the caller of a request."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

Extra = Mapping[str, tuple[str, ...]]

NO_EXTRA: Extra = MappingProxyType({})

SYSTEM_ANONYMOUS = "system:anonymous"
SYSTEM_AUTHENTICATED = "system:authenticated"
SYSTEM_UNAUTHENTICATED = "system:unauthenticated"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Kubernetes' user.Info. Bytes that are not UTF-8 are kept as lone surrogates.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/user/user.go
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Extra = field(default_factory=lambda: NO_EXTRA)

    def __hash__(self) -> int:
        """Hash all fields: a mapping has no hash of its own, and tokens may differ in it only."""
        return hash((self.name, self.groups, self.uid, frozenset(self.extra.items())))

    @property
    def size(self) -> int:
        """Number of characters in all fields."""
        extra = sum(len(key) + sum(map(len, values)) for key, values in self.extra.items())
        return len(self.name) + len(self.uid) + sum(map(len, self.groups)) + extra


ANONYMOUS = User(name=SYSTEM_ANONYMOUS, groups=(SYSTEM_UNAUTHENTICATED,))


def with_authenticated_group(user: User) -> User:
    """Return `user` with the group system:authenticated, where Kubernetes adds it.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/group/authenticated_group_adder.go
    """
    known = {SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED}
    if user.name == SYSTEM_ANONYMOUS or not known.isdisjoint(user.groups):
        return user
    return replace(user, groups=(*user.groups, SYSTEM_AUTHENTICATED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """User that the Impersonate-* headers of a request name, before authorization."""

    user: str
    """Empty if other Impersonate-* headers came without Impersonate-User: a 400."""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Extra = field(default_factory=lambda: NO_EXTRA, hash=False)


class Caller(Protocol):
    """User whose request is authorized."""

    @property
    def slot(self) -> contextlib.AbstractContextManager[None]:
        """Context that holds a slot of the in-flight limit; raises TextError (429) on entry."""

    async def may_read(self, path: str) -> bool:
        """Return whether the caller may GET a non-resource path; False if that cannot be told."""

    def is_known_to_read(self, path: str) -> bool:
        """Return the same without waiting: False until it is known."""


class _Everybody:
    slot = contextlib.nullcontext()

    async def may_read(self, path: str) -> bool:  # noqa: ARG002 - see Caller
        return True

    def is_known_to_read(self, path: str) -> bool:  # noqa: ARG002 - see Caller
        return True


EVERYBODY: Caller = _Everybody()
"""Caller of a server without authentication, which listens on a loopback address only."""
