"""Wires the other server of external metrics: a client with a token of its own, and its list."""

from __future__ import annotations

from adapter import errors
from adapter.clients import external_metrics
from adapter.clients.account_token import AccountToken
from adapter.clients.credentials import Credentials
from adapter.clients.external_metrics import ExternalMetrics
from adapter.clients.kubernetes import Kube
from adapter.clients.rights import Account, Right
from adapter.server.app.cluster import Watches
from adapter.server.app.host import Host
from adapter.server.app.security import namespace_of

_QPS, _BURST = 1000.0, 2000
"""Requests per second, because each is one that was let in."""
_TOKEN_QPS, _TOKEN_BURST = 1.0, 5


async def connect(host: Host, watched: Watches | None) -> ExternalMetrics | None:
    """Start to list the metrics of --external-fallback, if it is given. Raises StartError."""
    settings = host.settings
    server, namespace = settings.fallback.server, namespace_of(settings)
    if server is None or watched is None:
        return None
    if settings.fallback.url == f"https://{settings.serving.service_name}.{namespace}.svc:443":
        raise errors.StartError(
            f"--external-fallback={server}: is the adapter itself; give another server"
        )
    assert settings.fallback.account is not None
    of, name = settings.fallback.account
    account = Account(namespace=of or namespace, name=name)
    token = AccountToken(watched.kube.with_rate(qps=_TOKEN_QPS, burst=_TOKEN_BURST), account)
    try:
        client = Kube.of_server(
            settings.fallback.url,
            Credentials(authorization=token, ca_file=settings.fallback.ca_file),
            qps=_QPS,
            burst=_BURST,
            timeout=external_metrics.TIMEOUT,
        )
    except errors.BackendError as error:
        raise errors.StartError(f"--external-fallback={server}: {error}") from error
    host.connections.push_async_callback(client.close)
    fallback = ExternalMetrics(client, server, limits=settings.limited.limits)
    host.start("external fallback token", token.run())
    host.start("external fallback", fallback.run())
    right = Right(
        group="",
        resource="serviceaccounts/token",
        name=account.name,
        namespace=account.namespace,
        verbs=("create",),
        consequence=f"{server} gets no requests for external metrics",
    )
    host.rights.require(watched.kube, lambda: (right,))
    host.check("external-fallback", fallback.check, public=False)
    return fallback
