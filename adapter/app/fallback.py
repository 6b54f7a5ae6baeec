"""Wires the other server of external metrics: a client with the adapter's credentials, its list."""

from __future__ import annotations

import contextlib

from adapter import errors
from adapter.api.groups import external
from adapter.app.security import namespace_of
from adapter.background import Background
from adapter.clients.external_metrics import ExternalMetrics
from adapter.clients.kubernetes import Kube
from adapter.clients.rights import Right, Rights
from adapter.settings import Settings

_QPS, _BURST, _TIMEOUT = 1000.0, 2000, 10.0
"""Requests per second, because each is one that was let in; seconds for a response."""


async def connect(
    settings: Settings,
    kube: Kube,
    rights: Rights,
    stack: contextlib.AsyncExitStack,
    background: Background,
) -> ExternalMetrics | None:
    """Start to list the metrics of --external-fallback, if it is given. Raises StartError."""
    server, namespace = settings.fallback.server, namespace_of(settings)
    if server is None:
        return None
    if settings.fallback.url == f"https://{settings.serving.service_name}.{namespace}.svc:443":
        raise errors.StartError(
            f"--external-fallback={server}: is the adapter itself; give another server"
        )
    try:
        client = await Kube.connect(
            settings.cluster.kubeconfig,
            url=settings.fallback.url,
            ca_file=settings.fallback.ca_file,
            qps=_QPS,
            burst=_BURST,
            timeout=_TIMEOUT,
        )
    except errors.BackendError as error:
        raise errors.StartError(f"--external-fallback={server}: {error}") from error
    stack.push_async_callback(client.close)
    fallback = ExternalMetrics(client, server)
    background.start("external fallback", fallback.run())
    right = Right(
        group=external.NAME,
        resource="*",
        verbs=("get", "list"),
        consequence=f"{server} refuses requests for external metrics",
    )
    rights.require(kube, lambda: (right,))
    return fallback
