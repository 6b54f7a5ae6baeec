"""Creates the Prometheus clients: of the flags, and of `sources` in rules files.

Files for a CA, a client certificate and a token take precedence over a kubeconfig and the service
account.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import aiohttp

from adapter import errors, settings, telemetry
from adapter.clients import kubeconfig, proxies
from adapter.clients.credentials import (
    Authorization,
    Credentials,
    ReloadingClientContext,
    TokenFile,
)
from adapter.clients.held import Held
from adapter.clients.one_address import OneAddress
from adapter.clients.one_process import OneProcess
from adapter.clients.prometheus import Prometheus
from rules.document.sources import DEFAULT, PrometheusSource


@contextlib.asynccontextmanager
async def connect_prometheus(
    flags: settings.Prometheus,
    requests: telemetry.PrometheusRequestMetrics | None = None,
    *,
    held: Held | None = None,
    source: PrometheusSource | None = None,
) -> AsyncIterator[Prometheus]:
    """Yield a client for the Prometheus of `flags`; nothing is sent yet.

    With `source`, `flags` are what it sets. Raises StartError if a file cannot be used.
    """
    name = source.name if source else DEFAULT
    try:
        # Who writes the rules can also write a kubeconfig beside them, but must not run commands.
        credentials = await _credentials(flags, may_execute=source is None)
        tls = _reloading_context(credentials)
    except errors.StartError as error:
        if source is None:
            raise
        raise errors.StartError(f"{source.where}: {_as_keys(str(error))}") from error
    proxy = credentials.proxy or proxies.proxy_for(flags.url)
    addresses = OneAddress(proxy=proxy)
    async with (
        aiohttp.ClientSession(connector=addresses.connector(), proxy=proxy) as session,
        OneProcess(addresses, proxy=proxy, source=name) as one_process,
    ):
        yield Prometheus(
            session,
            flags.url,
            headers=dict(flags.headers),
            authorization=credentials.authorization,
            tls_context=tls.context,
            server_name=credentials.server_name,
            verb=flags.verb,
            timeout=flags.timeout,
            source=name,
            held=held,
            addresses=addresses,
            one_process=one_process,
            requests=requests,
        )


@contextlib.asynccontextmanager
async def connect_sources(
    sources: Iterable[PrometheusSource],
    requests: telemetry.PrometheusRequestMetrics | None = None,
    *,
    held: Held | None = None,
) -> AsyncIterator[Mapping[str, Prometheus]]:
    """Yield a client for each of `sources`, by name. Raises StartError as `connect_prometheus`."""
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for source in sources:
            client = connect_prometheus(_flags(source), requests, held=held, source=source)
            clients[source.name] = await stack.enter_async_context(client)
        yield clients


def _flags(source: PrometheusSource) -> settings.Prometheus:
    """Return the flags that set for the default Prometheus what `source` sets for its own."""
    return settings.Prometheus(
        url=source.url,
        verb=source.verb,
        headers=source.headers,
        timeout=source.timeout,
        token_file=source.token_file,
        ca_file=source.ca_file,
        client_cert_file=source.client_cert_file,
        client_key_file=source.client_key_file,
        auth_incluster=source.auth_in_cluster,
        auth_config=source.auth_config,
    )


_KEYS = {
    "--prometheus-auth-config": "authConfig",
    "--prometheus-auth-incluster": "authInCluster",
    "--prometheus-token-file": "tokenFile",
    "--prometheus-ca-file": "caFile",
}
"""Flag -> key of a source."""


def _as_keys(message: str) -> str:
    """Return a message about flags in the words of a rules file."""
    for flag, key in _KEYS.items():
        message = message.replace(flag, key)
    return message


async def _credentials(flags: settings.Prometheus, *, may_execute: bool) -> Credentials:
    credentials = await _delegated(flags, may_execute=may_execute)
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


async def _delegated(flags: settings.Prometheus, *, may_execute: bool) -> Credentials:
    """Return the credentials of the kubeconfig or the service account, if one is to be used."""
    path = flags.auth_config
    if path is None and not flags.auth_incluster:
        return Credentials()
    try:
        return await kubeconfig.credentials_of(path, may_execute=may_execute)
    except errors.BackendError as error:
        if path is not None:
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
