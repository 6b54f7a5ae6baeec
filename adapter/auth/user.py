"""Who a caller is, and who a caller asks to be taken for: plain values, as authn hands them on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

Extra = Mapping[str, tuple[str, ...]]

NO_EXTRA: Extra = MappingProxyType({})

_ANONYMOUS = "system:anonymous"
_AUTHENTICATED = "system:authenticated"
_UNAUTHENTICATED = "system:unauthenticated"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Kubernetes' user.Info. Text that is not UTF-8 carries its bytes as lone surrogates.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/user/user.go
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Extra = field(default_factory=lambda: NO_EXTRA, hash=False)


ANONYMOUS = User(name=_ANONYMOUS, groups=(_UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """The user with the group of all who are authenticated, where Kubernetes adds it.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/group/authenticated_group_adder.go
    """
    if user.name == _ANONYMOUS or not {_AUTHENTICATED, _UNAUTHENTICATED}.isdisjoint(user.groups):
        return user
    return replace(user, groups=(*user.groups, _AUTHENTICATED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """What the Impersonate-* headers of a request ask for, which nobody has allowed yet."""

    user: str
    """Empty where the other headers came without one, which Kubernetes refuses."""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Extra = field(default_factory=lambda: NO_EXTRA, hash=False)
