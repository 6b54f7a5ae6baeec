"""Reads a kubeconfig file, or the configuration of the pod's own cluster, by the library.

The library reads a token file and runs an `exec` plugin only once; here, both are repeated. It also
waits for a plugin without end, and reads files of any size.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import kube_config

from adapter import errors
from adapter.clients import credentials, exec_plugin
from adapter.clients.credentials import Authorization, Credentials, OutgoingRequest, token_file
from adapter.files import read_file

log = logging.getLogger(__name__)

ANY_SERVER = "https://any"
"""URL where only credentials matter: the library loads CAs and certificates only for https."""
_COMMANDS = frozenset({"exec", "auth-provider"})
"""Keys of a user in a kubeconfig that make the library run a command."""
_EXEC_PACE = 10.0
"""Minimum seconds between two runs of an `exec` plugin after refusals."""


async def load(
    kubeconfig: str | None, *, server: str | None = None, may_execute: bool = True
) -> tuple[str, Credentials]:
    """Return the URL of the server in a kubeconfig file, and the credentials for it.

    Without a file, they are those of the pod's own cluster. `server` replaces the server in the
    file, which may then be missing there. Without `may_execute`, a user whose credentials come from
    a command is refused. Raises Unreachable, naming the file and the problem.
    """
    with naming(kubeconfig):
        if kubeconfig is None:
            configuration: Any = Configuration()
            kubernetes_config.load_incluster_config(configuration, try_refresh_token=False)
            token = Path(kubernetes_config.incluster_config.SERVICE_TOKEN_FILENAME)
            return configuration.host, _credentials(configuration, token_file(token))
        document = parse(Path(kubeconfig))
        if not may_execute:
            _refuse_commands(document)
        if server:
            for each in document["clusters"]:
                each["cluster"]["server"] = server
    return await load_document(document, origin=kubeconfig)


async def load_document(document: Any, *, origin: str) -> tuple[str, Credentials]:
    """Return the URL and the credentials of a kubeconfig, as `load`.

    Relative paths start at the folder of the file `origin`, which errors name.
    """
    folder = Path(origin).parent
    with naming(origin):
        configuration: Any = Configuration()
        # The loader gets the document, not the file, because its errors would quote the file.
        loader: Any = _Loader(document, config_base_path=str(folder))  # type: ignore[no-untyped-call]
        name = loader.current_context["context"].get("user")
        user = next(
            (each["user"] or {} for each in document.get("users") or () if each["name"] == name), {}
        )
        # The library quotes the contents of this file if they are not UTF-8.
        token = user.pop("tokenFile", None)
        await loader.load_and_set(configuration)
        authorization: Authorization | None = None
        if token:
            authorization = token_file(folder / token)
        elif header := configuration.api_key.get("BearerToken"):
            credentials.check_header(header, "the token")
            authorization = _Loaded(loader, origin, runs="exec" in user)
        return configuration.host, _credentials(configuration, authorization)


def _credentials(configuration: Any, authorization: Authorization | None) -> Credentials:
    if configuration.ssl_ca_cert and not configuration.verify_ssl:
        raise errors.Unreachable(
            "insecure-skip-tls-verify and a certificate authority exclude each other: remove one"
        )
    return Credentials(
        authorization=authorization,
        ca_file=configuration.ssl_ca_cert,
        certificate_file=configuration.cert_file,
        key_file=configuration.key_file,
        verified=configuration.verify_ssl,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
    )


class _Loader(kube_config.KubeConfigLoader):
    """The library's loader with another way to run an `exec` plugin."""

    _expires: dt.datetime | None = None

    async def load_from_exec_plugin(self) -> bool:
        """Set the token or the certificate that the plugin prints, unless its token is valid.

        Raises Unreachable.
        """
        if self._expires and dt.datetime.now(dt.UTC) < self._expires:
            return True
        user: Any = self._user
        status = await exec_plugin.run(user["exec"].value)
        if "token" in status:
            self.token = f"Bearer {status['token']}"
            self._expires = exec_plugin.expiry(status)
            return True
        for name, key in (("cert_file", "clientCertificateData"), ("key_file", "clientKeyData")):
            data = kube_config.FileOrData(status, None, key, base64_file_content=False)
            setattr(self, name, data.as_file())
        return True


class _Loaded:
    """Authorization that the library has loaded from the kubeconfig `origin`.

    If it `runs` an `exec` plugin, the command is run again after its token has expired. A token
    without an expiry is renewed once a minute, and after a refusal of the server, but not within
    ten seconds of the last run.
    """

    def __init__(self, loader: Any, origin: str, *, runs: bool) -> None:
        self.origin = origin
        self._loader = loader
        self._runs = runs
        self._ran = time.monotonic()

    async def headers(self, _: OutgoingRequest, /, *, renew: bool = False) -> Mapping[str, str]:
        """Return the Authorization header; see `Authorization`."""
        max_age = min(credentials.MAX_AGE, _EXEC_PACE) if renew else credentials.MAX_AGE
        if self._runs and time.monotonic() - self._ran >= max_age:
            self._ran = time.monotonic()
            try:
                await self._loader.load_from_exec_plugin()
            except errors.Unreachable as error:
                log.warning("%s: %s; the previous token stays in use", self.origin, error)
        return {"Authorization": credentials.check_header(self._loader.token, "the token")}


def parse(path: Path) -> dict[str, Any]:
    """Parse a kubeconfig. Raises OSError, and Unreachable if it is not a YAML mapping."""
    try:
        document = yaml.safe_load(read_file(path, pipes=True))
    except yaml.YAMLError as error:
        # The error's own text quotes the line, which may contain a token.
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise errors.Unreachable(f"not YAML{line}") from None
    except RecursionError:
        raise errors.Unreachable("the YAML is nested too deeply") from None
    if not isinstance(document, dict):
        raise errors.Unreachable(f"a kubeconfig is a mapping, not {type(document).__name__}")
    return document


def _refuse_commands(document: Any) -> None:
    """Raise Unreachable if credentials in the kubeconfig `document` come from a command."""
    for each in document.get("users") or ():
        for key in _COMMANDS.intersection(each["user"] or ()):
            raise errors.Unreachable(
                f"the user {each['name']!r} has {key!r}, which runs a command: here, use a token, "
                "a client certificate, or a name and a password"
            )


@contextlib.contextmanager
def naming(kubeconfig: str | None) -> Iterator[None]:
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
