"""Creates the Prometheus client.

Flags for a CA, a client certificate and a token take precedence over a kubeconfig and the service
account.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp

from adapter import errors, settings, telemetry
from adapter.clients import kubernetes, proxies
from adapter.clients.credentials import (
    Authorization,
    Credentials,
    ReloadingClientContext,
    TokenFile,
)
from adapter.clients.prometheus import Prometheus


@contextlib.asynccontextmanager
async def connect_prometheus(
    flags: settings.Prometheus, requests: telemetry.PrometheusRequestMetrics | None = None
) -> AsyncIterator[Prometheus]:
    """Yield a client for the Prometheus of `flags`; nothing is sent yet.

    Raises StartError if a file of `flags` cannot be used.
    """
    credentials = await _credentials(flags)
    tls = _reloading_context(credentials)
    connector = aiohttp.TCPConnector(limit=0)
    proxy = credentials.proxy or proxies.proxy_for(flags.url)
    async with aiohttp.ClientSession(connector=connector, proxy=proxy) as session:
        yield Prometheus(
            session,
            flags.url,
            headers=dict(flags.headers),
            authorization=credentials.authorization,
            tls_context=tls.context,
            server_name=credentials.server_name,
            verb=flags.verb,
            timeout=flags.timeout,
            requests=requests,
        )


async def _credentials(flags: settings.Prometheus) -> Credentials:
    credentials = await _delegated(flags)
    if flags.ca_file is not None:
        credentials = replace(credentials, ca_file=flags.ca_file, verified=True)
    if flags.client_cert_file is not None:
        credentials = replace(
            credentials,
            certificate_file=flags.client_cert_file,
            key_file=flags.client_key_file,
        )
    if flags.token_file is not None:
        credentials = replace(credentials, authorization=_token(flags.token_file))
    return credentials


async def _delegated(flags: settings.Prometheus) -> Credentials:
    """Return the credentials of the kubeconfig or the service account, if one is to be used."""
    kubeconfig = flags.auth_config
    if kubeconfig is None and not flags.auth_incluster:
        return Credentials()
    try:
        return await kubernetes.credentials_of(kubeconfig)
    except errors.BackendError as error:
        if kubeconfig is not None:
            raise errors.StartError(f"--prometheus-auth-config={error}") from error
        raise errors.StartError(
            f"--prometheus-auth-incluster: {error}\n"
            "outside a pod, use --prometheus-token-file and --prometheus-ca-file"
        ) from error


def _token(file: str) -> Authorization:
    try:
        token = TokenFile(Path(file))
    except errors.BackendError as error:
        raise errors.StartError(f"--prometheus-token-file={error}") from error
    return token.authorization


def _reloading_context(credentials: Credentials) -> ReloadingClientContext:
    try:
        return ReloadingClientContext(credentials)
    except errors.BackendError as error:
        raise errors.StartError(f"TLS for Prometheus: {error}") from error
