"""The cluster and the user that kubectl's flags and kubeconfig files select.

`kubeconfig` loads the credentials. The precedence is that of client-go:
https://github.com/kubernetes/client-go/blob/v0.33.0/tools/clientcmd/client_config.go
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter import errors
from adapter.clients import kubeconfig
from adapter.clients.credentials import Credentials
from adapter.settings.kubectl import KubectlSettings

_KINDS = {"contexts": "context", "clusters": "cluster", "users": "user"}
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_OF_TOKEN = ("tokenFile", "exec", "auth-provider", "username", "password")
"""Other ways to authenticate, which --token replaces."""

Entries = Mapping[str, Mapping[str, Any]]
"""Name -> entry of a kubeconfig."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedCluster:
    """One cluster with one user."""

    document: Mapping[str, Any] | None
    """Kubeconfig with this context only; None for the cluster and the account of the pod."""
    origin: str | None
    """Files of the kubeconfig; None without a document."""
    context: str = ""
    cluster: str = ""
    user: str = ""
    namespace: str = ""
    """Namespace of the context; may be empty."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of impersonation."""

    @property
    def title(self) -> str:
        """Return the names of context, cluster and user."""
        if self.document is None:
            return "cluster of this pod"
        named = {"context": self.context, "cluster": self.cluster, "user": self.user}
        return ", ".join(f"{kind} {name}" for kind, name in named.items() if name)

    async def load(self) -> tuple[str, Credentials]:
        """Return the URL of the API server, and the credentials for it. Raises Unreachable."""
        if self.document is None:
            return await kubeconfig.load(None)
        return await kubeconfig.load_document(self.document, origin=str(self.origin))


def select(flags: KubectlSettings) -> SelectedCluster:
    """Return what the flags and the files select.

    Raises Unreachable, naming the file and the problem.
    """
    files = _files(flags)
    if not files and not flags.selects:
        return SelectedCluster(document=None, origin=None, headers=_headers(flags, {}))
    origin = os.pathsep.join(files) or "no kubeconfig"
    with kubeconfig.naming(origin):
        return _select(flags, files, origin)


def _files(flags: KubectlSettings) -> Sequence[str]:
    if flags.kubeconfig:
        return (flags.kubeconfig,)
    named = [each for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    if found := [each for each in named if Path(each).is_file()]:
        return found
    default = Path.home() / ".kube" / "config"
    return (str(default),) if default.is_file() else ()


def _select(flags: KubectlSettings, files: Sequence[str], origin: str) -> SelectedCluster:
    documents = [(Path(file).absolute().parent, kubeconfig.parse(Path(file))) for file in files]
    contexts, clusters, users = (_merged(documents, kind, key) for kind, key in _KINDS.items())
    current = next((name for _, each in documents if (name := each.get("current-context"))), "")
    context_name = flags.context or current
    context = _entry(contexts, context_name, "context") if context_name else {}
    cluster_name = flags.cluster or context.get("cluster", "")
    user_name = flags.user or context.get("user", "")
    cluster = dict(_entry(clusters, cluster_name, "cluster") if cluster_name else {})
    user = dict(_entry(users, user_name, "user") if flags.user else users.get(user_name, {}))
    headers = _headers(flags, user)
    _replace_cluster(cluster, flags)
    _replace_user(user, flags)
    if not cluster.get("server"):
        raise errors.Unreachable("no cluster is selected: set --context or --server")
    document = {
        "current-context": "selected",
        "contexts": [{"name": "selected", "context": {"cluster": "selected", "user": "selected"}}],
        "clusters": [{"name": "selected", "cluster": cluster}],
        "users": [{"name": "selected", "user": user}],
    }
    return SelectedCluster(
        document=document,
        origin=origin,
        context=context_name,
        cluster=cluster_name,
        user=user_name,
        namespace=context.get("namespace") or "",
        headers=headers,
    )


def _merged(documents: Sequence[tuple[Path, Mapping[str, Any]]], kind: str, key: str) -> Entries:
    """Return the entries of all files; of equal names the first counts, as for kubectl."""
    merged: dict[str, Mapping[str, Any]] = {}
    for folder, document in documents:
        for each in document.get(kind) or ():
            entry = dict(each.get(key) or {})
            entry |= {path: str(folder / entry[path]) for path in _PATHS if entry.get(path)}
            merged.setdefault(each["name"], entry)
    return merged


def _entry(entries: Entries, name: str, kind: str) -> Mapping[str, Any]:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise errors.Unreachable(f"{kind} {name!r} does not exist; there is: {known}")
    return entries[name]


def _replace_cluster(cluster: dict[str, Any], flags: KubectlSettings) -> None:
    if flags.server:
        cluster["server"] = flags.server
        cluster.pop("tls-server-name", None)
    if flags.tls_server_name:
        cluster["tls-server-name"] = flags.tls_server_name
    if flags.ca_file or flags.insecure:
        for key in ("certificate-authority", "certificate-authority-data"):
            cluster.pop(key, None)
        cluster["insecure-skip-tls-verify"] = flags.insecure
    if flags.ca_file:
        cluster["certificate-authority"] = str(Path(flags.ca_file).absolute())


def _replace_user(user: dict[str, Any], flags: KubectlSettings) -> None:
    if flags.token:
        for key in _OF_TOKEN:
            user.pop(key, None)
        user["token"] = flags.token
    for key, file in (
        ("client-certificate", flags.client_certificate),
        ("client-key", flags.client_key),
    ):
        if file:
            user.pop(f"{key}-data", None)
            user[key] = str(Path(file).absolute())


def _headers(flags: KubectlSettings, user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    def headers() -> Iterator[tuple[str, str]]:
        if name := flags.impersonated or user.get("as"):
            yield "Impersonate-User", name
        for group in flags.impersonated_groups or user.get("as-groups") or ():
            yield "Impersonate-Group", group

    return tuple(headers())
