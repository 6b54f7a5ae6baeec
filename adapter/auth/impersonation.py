"""Acting as somebody else, in each of the ways that Kubernetes knows, where that is allowed.

Each way has a verb of its own. The newer ones also ask whether the caller may do, as somebody else,
just what is asked for; the oldest asks for nothing but the verb `impersonate`.

https://github.com/kubernetes/apiserver/tree/master/pkg/endpoints/filters/impersonation
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from adapter import errors
from adapter.auth import attributes, authorization
from adapter.auth.attributes import Attributes
from adapter.auth.authorization import Verdict
from adapter.auth.user import Impersonation, User
from rules.quoting import quote

log = logging.getLogger(__name__)

Review = Callable[[Attributes], Awaitable[Verdict]]

_GROUP = "authentication.k8s.io"
_AUTHENTICATED = "system:authenticated"
_UNAUTHENTICATED = "system:unauthenticated"
_ANONYMOUS = "system:anonymous"
_NODES = "system:nodes"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_NODE_KEYS = "authentication.kubernetes.io/associated-node-keys"
_MANY = 4
"""So many groups, or extra values, are first asked for all at once."""
_REMEMBERED = 10_000

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    name: str
    """Empty for the oldest."""
    fits: Callable[[Impersonation, User], bool]

    @property
    def verb(self) -> str:
        return f"impersonate:{self.name}" if self.name else "impersonate"


def _associated_node(wanted: Impersonation, caller: User) -> bool:
    node = _node(wanted.user)
    own = caller.extra.get(_NODE_NAME, ())
    return (
        _named_alone(wanted)
        and node is not None
        and own == (node,)
        and _service_account(caller.name) is not None
    )


def _arbitrary_node(wanted: Impersonation, _: User) -> bool:
    return _named_alone(wanted) and _node(wanted.user) is not None


def _of_service_account(wanted: Impersonation, _: User) -> bool:
    return _named_alone(wanted) and _service_account(wanted.user) is not None


def _of_user(wanted: Impersonation, _: User) -> bool:
    return _node(wanted.user) is None and _service_account(wanted.user) is None


_ASSOCIATED = _Way(name="associated-node", fits=_associated_node)
_WAYS = (
    _ASSOCIATED,
    _Way(name="arbitrary-node", fits=_arbitrary_node),
    _Way(name="serviceaccount", fits=_of_service_account),
    _Way(name="user-info", fits=_of_user),
    _Way(name="", fits=lambda _wanted, _caller: True),
)


class Impersonations:
    """Knows who may act as whom, by reviews."""

    def __init__(self, review: Review) -> None:
        self._review = review
        self._last: OrderedDict[str, _Way] = OrderedDict()

    async def user(self, wanted: Impersonation, asked: Attributes) -> User:
        """Whom the user of `asked` acts as from now on.

        Raises ApiError: 400 where no user is named, 403 where this is not allowed.
        """
        if not wanted.user:
            raise errors.ApiError(
                400,
                f"requested {_shown(wanted)} without impersonating a user name",
                reason="BadRequest",
                headers=errors.NOSNIFF,
            )
        refusals: list[errors.ApiError] = []
        for way in self._ways(asked.user.name):
            if not way.fits(wanted, asked.user):
                continue
            try:
                user = await self._allowed(way, wanted, asked)
            except errors.ApiError as refusal:
                refusals.append(refusal)
                continue
            self._last[asked.user.name] = way
            self._last.move_to_end(asked.user.name)
            if len(self._last) > _REMEMBERED:
                self._last.popitem(last=False)
            return user
        raise refusals[0]

    def _ways(self, caller: str) -> Iterator[_Way]:
        """The one that succeeded last comes first."""
        last = self._last.get(caller)
        if last is not None:
            yield last
        yield from (way for way in _WAYS if way is not last)

    async def _allowed(self, way: _Way, wanted: Impersonation, asked: Attributes) -> User:
        """Raises ApiError (403)."""
        if way.name:
            verb = f"impersonate-on:{way.name}:{asked.verb}"
            await self._check(way, dataclasses.replace(asked, verb=verb))
        for each in _checks(way, wanted, asked.user):
            if isinstance(each, Attributes):
                await self._check(way, each)
            elif not await self._all(way, each.wildcard):
                for single in each.singles:
                    await self._check(way, single)
        return _acting(way, wanted)

    async def _all(self, way: _Way, wildcard: Attributes | None) -> bool:
        if wildcard is None:
            return False
        try:
            await self._check(way, wildcard)
        except errors.ApiError:
            return False
        return True

    async def _check(self, way: _Way, asked: Attributes) -> None:
        """Raises ApiError (403)."""
        if way is _ASSOCIATED:
            asked = _of_any_node(asked)
        try:
            verdict = await self._review(asked)
        except errors.BackendError as error:
            log.warning("nobody can act as another: %s: %s", type(error).__name__, error)
            raise attributes.forbidden(asked, authorization.UNDECIDED) from error
        if not verdict.allowed:
            why = ": ".join(text for text in (verdict.problem, verdict.reason) if text)
            raise attributes.forbidden(asked, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Several:
    """Reviews that all have to allow, or that one for all of them spares."""

    wildcard: Attributes | None
    singles: tuple[Attributes, ...]


def _checks(way: _Way, wanted: Impersonation, caller: User) -> Iterator[Attributes | _Several]:
    """The reviews that have to allow, in order. Raises ApiError (403) for what nobody may be."""

    def asked(
        resource: str, name: str, *, old: bool = False, namespace: str = "", subresource: str = ""
    ) -> Attributes:
        return Attributes(
            user=caller,
            verb=way.verb,
            group="" if old and not way.name else _GROUP,
            version="v1",
            namespace=namespace,
            resource=resource,
            subresource=subresource,
            name=name,
        )

    node, account = _node(wanted.user), _service_account(wanted.user)
    if node is not None and way.name:
        yield asked("nodes", node, old=True)
    elif account is not None:
        yield asked("serviceaccounts", account[1], old=True, namespace=account[0])
    else:
        yield asked("users", wanted.user, old=True)
    if wanted.uid:
        yield asked("uids", wanted.uid)
    if wanted.groups:
        if way.name and "" in wanted.groups:
            why = "impersonating the empty string group is not allowed"
            raise attributes.forbidden(asked("groups", "", old=True), why)
        if way.name and authorization.MASTERS in wanted.groups:
            why = f"impersonating the {authorization.MASTERS} group is not allowed"
            raise attributes.forbidden(asked("groups", authorization.MASTERS, old=True), why)
        many = way.name and len(wanted.groups) >= _MANY
        yield _Several(
            wildcard=asked("groups", "*", old=True) if many else None,
            singles=tuple(asked("groups", each, old=True) for each in wanted.groups),
        )
    if wanted.extra:
        if way.name and (why := _unsound(wanted.extra)):
            raise attributes.forbidden(asked("userextras", ""), why)
        many = way.name and sum(map(len, wanted.extra.values())) >= _MANY
        yield _Several(
            wildcard=asked("userextras", "*", subresource="*") if many else None,
            singles=tuple(
                asked("userextras", value, subresource=key)
                for key, values in wanted.extra.items()
                for value in values
            ),
        )


def _of_any_node(asked: Attributes) -> Attributes:
    """What makes one verdict good for a service account on all nodes."""
    keys = tuple(sorted(asked.user.extra))
    user = dataclasses.replace(asked.user, extra={_NODE_KEYS: keys})
    name = "*" if asked.verb == _ASSOCIATED.verb else asked.name
    return dataclasses.replace(asked, user=user, name=name)


def _acting(way: _Way, wanted: Impersonation) -> User:
    groups = wanted.groups
    account = _service_account(wanted.user)
    if way.name and _node(wanted.user) is not None:
        groups = (_NODES,)
    elif account is not None and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    if wanted.user == _ANONYMOUS:
        added = _UNAUTHENTICATED
    else:
        added = "" if _UNAUTHENTICATED in groups else _AUTHENTICATED
    if added and added not in groups:
        groups = (*groups, added)
    return User(name=wanted.user, groups=groups, uid=wanted.uid, extra=wanted.extra)


def _named_alone(wanted: Impersonation) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _node(user: str) -> str | None:
    name = user.removeprefix("system:node:")
    return name if name != user and _SUBDOMAIN.fullmatch(name) else None


def _service_account(user: str) -> tuple[str, str] | None:
    """Its namespace and name."""
    whole = user.removeprefix("system:serviceaccount:")
    namespace, colon, name = whole.partition(":")
    if whole == user or not colon:
        return None
    return (namespace, name) if _LABEL.fullmatch(namespace) and _SUBDOMAIN.fullmatch(name) else None


def _unsound(extra: Mapping[str, tuple[str, ...]]) -> str:
    """Why nobody may have such an extra in the newer ways; empty for a sound one."""
    for key, values in extra.items():
        if not key:
            return "impersonating the empty string key in extra is not allowed"
        host, _, path = key.partition("/")
        if not _SUBDOMAIN.fullmatch(host) or not _PATH.fullmatch(path):
            return (
                "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: "
                f'{quote(key)}: must be a domain-prefixed path (such as "acme.io/foo")'
            )
        if key != key.lower():
            return f"impersonating a non-lowercase key in extra is not allowed: {quote(key)}"
        if "" in values:
            return "impersonating the empty string value in extra is not allowed"
    return ""


def _shown(wanted: Impersonation) -> str:
    """As Go's `%#v` shows its user.DefaultInfo."""
    extra = ", ".join(f"{quote(key)}:{_strings(wanted.extra[key])}" for key in sorted(wanted.extra))
    return (
        f'&user.DefaultInfo{{Name:"", UID:{quote(wanted.uid)}, Groups:{_strings(wanted.groups)}, '
        f"Extra:map[string][]string{f'{{{extra}}}' if extra else '(nil)'}}}"
    )


def _strings(values: tuple[str, ...]) -> str:
    return f"[]string{{{', '.join(map(quote, values))}}}" if values else "[]string(nil)"
