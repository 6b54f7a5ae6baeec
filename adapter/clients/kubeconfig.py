"""Reads a kubeconfig file, or the configuration of the pod's own cluster, by the library.

`credentials` renews what it contains; `kubernetes` sends the requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import Configuration

from adapter import errors
from adapter.clients import credentials

_PLACEHOLDER = "https://any"
"""Server URL; the library loads CAs and certificates only if the scheme is https."""


async def credentials_of(
    kubeconfig: str | None, *, may_execute: bool = True
) -> credentials.Credentials:
    """Return the credentials in a kubeconfig file, or of the pod's service account.

    The server in the file does not matter and may be missing. Without `may_execute`, a user whose
    credentials come from a command is refused. Raises Unreachable, naming the file
    and the problem.
    """
    with naming_source(kubeconfig):
        configuration = await load(kubeconfig, server=_PLACEHOLDER, may_execute=may_execute)
        return await credentials.from_configuration(configuration)


async def load(
    kubeconfig: str | None, *, server: str | None = None, may_execute: bool = True
) -> Any:
    """Return the library's configuration for a kubeconfig file, or for the pod's own cluster.

    `server` replaces the server in the file. Without `may_execute`, a user whose credentials come
    from a command is refused. Raises what `naming_source` converts.
    """
    configuration: Any = Configuration()
    # Go does not make these checks, and some clusters have CAs that fail them.
    configuration.disable_strict_ssl_verification = True
    if kubeconfig is None:
        kubernetes_config.load_incluster_config(configuration, try_refresh_token=False)
        token = credentials.TokenFile(
            Path(kubernetes_config.incluster_config.SERVICE_TOKEN_FILENAME)
        )
        configuration.refresh_api_key_hook = token
        token(configuration)
        return configuration
    path = Path(kubeconfig)
    document = credentials.read_kubeconfig(path)
    if not may_execute:
        credentials.refuse_commands(document)
    if server:
        for each in document["clusters"]:
            each["cluster"]["server"] = server
    # The loader gets the document, not the file, because its errors would quote the file.
    loader = kubernetes_config.kube_config.KubeConfigLoader(
        document, config_base_path=str(path.parent)
    )
    await credentials.load_kubeconfig(configuration, loader, document, path.parent)
    return configuration


@contextlib.contextmanager
def naming_source(kubeconfig: str | None) -> Iterator[None]:
    """Convert errors of loading a configuration to Unreachable, naming the file."""
    source = "in-cluster configuration" if kubeconfig is None else kubeconfig
    try:
        yield
    except (kubernetes_config.ConfigException, errors.Unreachable, OSError) as error:
        raise errors.Unreachable(f"{source}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # The library does not check the structure of the file.
        raise errors.Unreachable(
            f"{source}: not a kubeconfig with a context, a cluster and a user: {error!r}"
        ) from error
