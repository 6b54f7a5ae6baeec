"""What grants the right that a request lacks, by the message of its 401 or 403.

https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go
"""

from __future__ import annotations

import re
import shlex

from rules.findings import Finding, State
from rules.metrics_apis import CUSTOM, EXTERNAL

REASON = "Forbidden"
"""Reason of findings about what may not be read."""
STATUSES = frozenset({401, 403})
"""HTTP statuses of requests without a right."""
_DENIAL = re.compile(
    r'(?:"(?P<name>[^"]+)" is forbidden: )?User "(?P<user>[^"]+)" cannot (?P<verb>[\w-]+) '
    r'resource "(?P<resource>[^"/]+)(?P<subresource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_ANONYMOUS = "system:anonymous"
LOGIN = "Log in again, or set another context or user: the API server does not know who you are"
_METRICS = (CUSTOM.name, EXTERNAL.name)
_TO_VIEW = "set rbac.aggregateToView of the chart, which adds metrics to the role view, or "
_NAMED = {"configmaps", "secrets"}
"""Resources of which a role should grant one object only."""


def forbidden(subject: str, status: int, message: str) -> Finding:
    """Return that something was not checked, because its request was answered with 401 or 403."""
    return Finding(
        state=State.SKIPPED,
        reason=REASON,
        subject=subject,
        fact=" ".join(message.split()) or f"status {status}, without a reason",
        cure=cure(status, message),
    )


def lacking(status: int, message: str) -> str:
    """Return that the caller lacks a right, and what grants it."""
    text = " ".join(message.split()).rstrip(".")
    return ". ".join(filter(None, (f"you lack a right: {text}", cure(status, message))))


def cure(status: int, message: str) -> str:
    """Return what grants the right that a reply says to lack; empty if it names none."""
    denial = _DENIAL.search(message)
    if status == 401 or f'User "{_ANONYMOUS}"' in message:
        return LOGIN
    if status != 403 or denial is None:
        return ""
    within, kind = "", "clusterrole"
    if namespace := denial["namespace"]:
        within, kind = f" -n {shlex.quote(namespace)}", "role"
    role, flags = _role(denial)
    either = _TO_VIEW if namespace and denial["group"] in _METRICS else ""
    return (
        f"Let an administrator {either}run: kubectl{within} create {kind} {role} {flags} && "
        f"kubectl{within} create {kind}binding {role} --{kind}={role} "
        f"--user={shlex.quote(denial['user'])}"
    )


def _role(denial: re.Match[str]) -> tuple[str, str]:
    """Return the name of a role with the right, and the flags that create it."""
    verb, resource, group = denial["verb"], denial["resource"], denial["group"]
    if group in _METRICS:
        # kubectl knows no single resource of these groups: their discovery has subresources only.
        every = ",".join(f"*.{each}" for each in _METRICS)
        return "read-metrics", f"--verb=get,list --resource={shlex.quote(every)}"
    name = f"{verb}-{resource}{denial['subresource']}".replace("/", "-")
    whole = f"{resource}{group and f'.{group}'}{denial['subresource']}"
    object_name = denial["name"] if resource in _NAMED else ""
    only = f" --resource-name={shlex.quote(object_name)}" if object_name else ""
    return shlex.quote(name), f"--verb={verb} --resource={shlex.quote(whole)}{only}"
