"""Creates the Prometheus clients: of the flags, and of `sources` in rules files.

Files for a CA, a client certificate and a token take precedence over a kubeconfig and the service
account.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from adapter import errors, telemetry
from adapter.clients import identities, kubeconfig, transport
from adapter.clients.credentials import (
    Authorization,
    Credentials,
    ReloadingClientContext,
    basic_files,
    header_files,
    token_file,
)
from adapter.clients.limits import Held
from adapter.clients.oauth2 import ClientCredentials
from adapter.clients.prometheus import Prometheus
from adapter.clients.replicas import Replicas
from adapter.settings.prometheus import flag_of
from rules.connection import PrometheusConnection
from rules.document.sources import DEFAULT, PrometheusSource, key_of


@contextlib.asynccontextmanager
async def connect_prometheus(
    connection: PrometheusConnection,
    requests: telemetry.PrometheusRequestMetrics | None = None,
    *,
    name: str = DEFAULT,
    held: Held | None = None,
) -> AsyncIterator[Prometheus]:
    """Yield a client for a Prometheus; nothing is sent yet.

    `name` is the client's if `connection` are the flags. Raises StartError if a file cannot be
    used.
    """
    source = connection if isinstance(connection, PrometheusSource) else None
    name = source.name if source else name
    try:
        # Who writes the rules can also write a kubeconfig beside them, but must not run commands.
        credentials = await _credentials(connection, may_execute=source is None)
        with _named("TLS for Prometheus: "):
            tls = ReloadingClientContext(credentials)
    except errors.StartError as error:
        if source is None:
            raise
        raise errors.StartError(f"{source.where}: {error}") from error
    proxy = credentials.proxy or transport.proxy_for(connection.url)
    async with Replicas.connected(proxy=proxy, source=name) as replicas:
        client = Prometheus(
            replicas.session,
            connection.url,
            headers=dict(connection.headers),
            authorization=credentials.authorization,
            more_headers=credentials.more_headers,
            tls_context=tls.context,
            server_name=credentials.server_name,
            verb=connection.verb,
            timeout=connection.timeout,
            source=name,
            held=held,
            replicas=replicas,
            requests=requests,
        )
        try:
            yield client
        finally:
            client.close()


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
            client = connect_prometheus(source, requests, held=held)
            clients[source.name] = await stack.enter_async_context(client)
        yield clients


def _setting(connection: PrometheusConnection, field: str) -> str:
    """Return what people set for `field`: a flag, or a key of a rules file."""
    if isinstance(connection, PrometheusSource):
        return key_of(field)
    return flag_of(field)


async def _credentials(connection: PrometheusConnection, *, may_execute: bool) -> Credentials:
    credentials = await _delegated(connection, may_execute=may_execute)
    if connection.ca_file is not None:
        credentials = replace(credentials, ca_file=connection.ca_file, verified=True)
    if connection.client_cert_file is not None:
        credentials = replace(
            credentials,
            certificate_file=connection.client_cert_file,
            key_file=connection.client_key_file,
        )
    if authorization := _authorization(connection):
        credentials = replace(credentials, authorization=authorization)
    if connection.header_files:
        with _named(f"{_setting(connection, 'header_files')}: "):
            headers = header_files((name, Path(file)) for name, file in connection.header_files)
        credentials = replace(credentials, more_headers=headers)
    return credentials


def _authorization(connection: PrometheusConnection) -> Authorization | None:
    """Return the one way to authenticate that is set, except kubeconfig and service account."""
    if connection.token_file:
        with _named(f"{_setting(connection, 'token_file')}="):
            return token_file(Path(connection.token_file))
    if connection.username_file and connection.password_file:
        fields = (_setting(connection, each) for each in ("username_file", "password_file"))
        with _named(f"{' and '.join(fields)}: "):
            return basic_files(Path(connection.username_file), Path(connection.password_file))
    if connection.oauth2_client_id and connection.oauth2_client_secret_file:
        fields = (
            _setting(connection, each) for each in ("oauth2_client_secret_file", "oauth2_ca_file")
        )
        with _named(f"{' or '.join(fields)}: "):
            return ClientCredentials(
                connection.oauth2_token_url,
                connection.oauth2_client_id,
                Path(connection.oauth2_client_secret_file),
                parameters=dict(connection.oauth2_parameters),
                ca_file=connection.oauth2_ca_file,
            )
    if connection.identity:
        with _named(f"{_setting(connection, 'identity')}={connection.identity}: "):
            return identities.IDENTITIES[connection.identity](connection)
    return None


async def _delegated(connection: PrometheusConnection, *, may_execute: bool) -> Credentials:
    """Return the credentials of the kubeconfig or the service account, if one is to be used."""
    path = connection.auth_config
    if path is None and not connection.auth_in_cluster:
        return Credentials()
    try:
        server = kubeconfig.ANY_SERVER
        return (await kubeconfig.load(path, server=server, may_execute=may_execute))[1]
    except errors.BackendError as error:
        if path is not None:
            setting = _setting(connection, "auth_config")
            raise errors.StartError(f"{setting}={error}") from error
        raise errors.StartError(
            f"{_setting(connection, 'auth_in_cluster')}: {error}\noutside a pod, use "
            f"{_setting(connection, 'token_file')} and {_setting(connection, 'ca_file')}"
        ) from error


@contextlib.contextmanager
def _named(prefix: str) -> Iterator[None]:
    """Convert a BackendError to a StartError whose message begins with the setting at fault."""
    try:
        yield
    except errors.BackendError as error:
        raise errors.StartError(f"{prefix}{error}") from error
