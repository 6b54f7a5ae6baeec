"""The Prometheus that the flags name: how to reach it, whom to believe there, what to show it.

A part of the composition root. What a flag of its own says goes before what a kubeconfig or the
service account has: a CA, a client's certificate, a token.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp

from adapter import errors, telemetry
from adapter.clients import kubernetes, proxies
from adapter.clients.credentials import Authorization, Credentials, Handshakes, TokenFile
from adapter.clients.prometheus import Prometheus
from adapter.settings import Settings


@contextlib.asynccontextmanager
async def connect_prometheus(
    settings: Settings, requests: telemetry.Requests | None = None
) -> AsyncIterator[Prometheus]:
    """The Prometheus that `settings` name; raises StartError for a file that they name."""
    shown = await _credentials(settings)
    handshakes = _handshakes(shown)
    connector = aiohttp.TCPConnector(limit=0)
    proxy = shown.proxy or proxies.on_the_way_to(settings.prometheus_url)
    async with aiohttp.ClientSession(connector=connector, proxy=proxy) as session:
        yield Prometheus(
            session,
            settings.prometheus_url,
            headers=dict(settings.prometheus_headers),
            authorization=shown.authorization,
            trust=handshakes.context,
            server_name=shown.server_name,
            verb=settings.prometheus_verb,
            timeout=settings.prometheus_timeout,
            requests=requests,
        )


async def _credentials(settings: Settings) -> Credentials:
    shown = await _delegated(settings)
    if settings.prometheus_ca_file is not None:
        shown = replace(shown, ca_file=settings.prometheus_ca_file, verified=True)
    if settings.prometheus_client_tls_cert_file is not None:
        shown = replace(
            shown,
            certificate_file=settings.prometheus_client_tls_cert_file,
            key_file=settings.prometheus_client_tls_key_file,
        )
    if settings.prometheus_token_file is not None:
        shown = replace(shown, authorization=_token(settings.prometheus_token_file))
    return shown


async def _delegated(settings: Settings) -> Credentials:
    kubeconfig = settings.prometheus_auth_config
    if kubeconfig is None and not settings.prometheus_auth_incluster:
        return Credentials()
    try:
        return await kubernetes.credentials_of(kubeconfig)
    except errors.BackendError as error:
        if kubeconfig is not None:
            raise errors.StartError(f"--prometheus-auth-config={error}") from error
        raise errors.StartError(
            f"--prometheus-auth-incluster: {error}\nwhere there is no service account, "
            "--prometheus-token-file and --prometheus-ca-file name a token and a CA"
        ) from error


def _token(file: str) -> Authorization:
    try:
        token = TokenFile(Path(file))
    except errors.BackendError as error:
        raise errors.StartError(f"--prometheus-token-file={error}") from error
    return token.authorization


def _handshakes(shown: Credentials) -> Handshakes:
    try:
        return Handshakes(shown)
    except errors.BackendError as error:
        raise errors.StartError(f"TLS towards Prometheus: {error}") from error
