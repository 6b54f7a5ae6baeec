"""Rights of the adapter's own accounts, by SelfSubjectAccessReview; of others, by review of a user.

A missing right is logged with the RBAC rule that grants it. `adapter.server.auth` reviews callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from adapter import errors
from rules.findings import Finding, degraded, passes

if TYPE_CHECKING:  # `--help` imports this module and must not load the Kubernetes client
    from adapter.clients.kubernetes import Kube

log = logging.getLogger(__name__)

_GROUP = "/apis/authorization.k8s.io/v1"
_INTERVAL = 600.0
_MISSING_INTERVAL = 60.0
"""Seconds between two reviews while a right is missing, or cannot be reviewed."""

_QPS, _BURST = 20.0, 40
"""Reviews per second; they delay no other requests of the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Verbs on one resource; on one object if `name` is set."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    consequence: str
    """What does not work without it."""
    name: str = ""
    namespace: str = ""
    """Empty for the whole cluster."""

    def __str__(self) -> str:
        name = f"/{self.name}" if self.name else ""
        return f"{' and '.join(self.verbs)} {self.resource}{name}"

    def rule(self) -> str:
        """Return the RBAC rule, as it stands in a Role or ClusterRole."""
        names = f", resourceNames: [{self.name}]" if self.name else ""
        group = self.group or '""'
        return (
            f"{{apiGroups: [{group}], resources: [{self.resource}]{names}, "
            f"verbs: [{', '.join(self.verbs)}]}}"
        )

    def grant(self, account: str = "") -> str:
        """Return what to do to grant it to the adapter; `account` is its ServiceAccount."""
        role = f"Role in {self.namespace}" if self.namespace else "ClusterRole"
        return (
            f"grant {self.rule()} by a {role} that is bound to its ServiceAccount"
            f"{account and f' {account}'}, as in manifests/base/rbac.yaml"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """ServiceAccount."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        """Name of its user."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of its user."""
        return (
            "system:serviceaccounts",
            f"system:serviceaccounts:{self.namespace}",
            "system:authenticated",
        )


class Rights:
    """Required rights, and which of them are missing; reviewed while `run` runs."""

    def __init__(self) -> None:
        self._required: list[tuple[Kube, Callable[[], Iterable[Right]]]] = []
        self._missing: tuple[Right, ...] | None = None
        self._failure = ""

    def require(self, api: Kube, rights: Callable[[], Iterable[Right]]) -> None:
        """Require that the account of `api` has `rights`, which are read again at each review."""
        self._required.append((api.with_rate(qps=_QPS, burst=_BURST), rights))

    async def run(self) -> NoReturn:
        """Review all rights periodically until cancelled."""
        while True:
            await self.review()
            granted = self._missing == () and not self._failure
            await asyncio.sleep(_INTERVAL if granted else _MISSING_INTERVAL)

    async def review(self) -> None:
        """Review all rights, and log each that is missing since this review."""
        missing: list[Right] = []
        try:
            for api, rights in self._required:
                for right in rights():
                    missing += await missing_of(api, right)
        except errors.BackendError as error:
            if not self._failure:
                log.info("the adapter's own rights cannot be reviewed: %s", error)
            self._failure = str(error)
            return
        known = self._missing or ()
        for right in missing:
            if right not in known:
                log.warning(
                    "the adapter has no permission to %s, so %s: %s",
                    right,
                    right.consequence,
                    right.grant(),
                )
        for right in known:
            if right not in missing:
                log.info("the adapter now has permission to %s", right)
        self._missing, self._failure = tuple(missing), ""

    def check(self) -> Finding:
        """Report the missing rights for /readyz. Never fails, and does not quote the API server."""
        if not self._required:
            return passes("none is required")
        if self._missing:
            return degraded(f"may not {'; '.join(map(str, self._missing))}")
        if self._missing is None:
            failed = "not known: the review failed, and the log has the error"
            return passes(failed if self._failure else "not reviewed yet")
        later = "; a later review failed, and the log has the error" if self._failure else ""
        return passes(f"all granted{later}")


async def missing_of(api: Kube, right: Right, account: Account | None = None) -> list[Right]:
    """Return the right with those verbs that `account` lacks; empty if all are granted.

    Without an account, the rights are those of the caller. Raises BackendError.
    """
    verbs = [verb for verb in right.verbs if not await _allowed(api, right, verb, account)]
    if not verbs:
        return []
    return [replace(right, verbs=tuple(verbs))]


async def _allowed(api: Kube, right: Right, verb: str, account: Account | None) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": verb,
        "name": right.name,
        "namespace": right.namespace,
    }
    kind = "SelfSubjectAccessReview" if account is None else "SubjectAccessReview"
    user = {} if account is None else {"user": account.user, "groups": account.groups}
    path = f"{_GROUP}/{kind.lower()}s"
    document = {
        "kind": kind,
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": attributes, **user},
    }
    answer = await api.post(path, document)
    try:
        return bool(answer["status"]["allowed"])
    except (KeyError, TypeError) as error:
        raise errors.Broken(f"POST {path}: malformed answer: {answer!r:.200}") from error
