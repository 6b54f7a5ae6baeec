"""Credentials for Prometheus and the API server: tokens and TLS files, read again when renewed.

The Kubernetes client library reads a token file and runs an `exec` plugin only once; the hooks here
repeat that. Error messages never contain a secret.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import yaml

from adapter import errors
from adapter.clients import abort
from adapter.file_watcher import FileWatcher

_COMMANDS = frozenset({"exec", "auth-provider"})
"""Keys of a user in a kubeconfig that make the Kubernetes client run a command."""

_EXEC_PACE = 10.0
"""Minimum seconds between two runs of an `exec` plugin after refusals."""


class Authorization(Protocol):
    """Returns the value of the Authorization header; `renew` reads it again. Raises Unreachable."""

    async def __call__(self, *, renew: bool = False) -> str:
        """Return the value."""
        ...


def authorized(authorization: Authorization) -> aiohttp.ClientMiddlewareType:
    """Return a middleware that sends the Authorization header.

    After a 401, it reads the value again, and repeats the request once if the value has changed.
    """

    async def middleware(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        sent = request.headers["Authorization"] = await authorization()
        response = await handler(request)
        if response.status != _UNAUTHORIZED or (new := await authorization(renew=True)) == sent:
            return response
        async with abort.abort_on_exit(response):
            request.headers["Authorization"] = new
        return await handler(request)

    return middleware


_UNAUTHORIZED = 401
_MAX_AGE = 60.0
"""Seconds for which a token or a TLS file is used before it is read again, as in client-go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Credentials of a client, and how it verifies the server."""

    authorization: Authorization | None = None
    ca_file: str | None = None
    """None means the CAs of the system."""
    certificate_file: str | None = None
    key_file: str | None = None
    verified: bool = True
    """Whether the server's certificate is verified."""
    server_name: str | None = None
    """Name in the server's certificate; None means the host of the URL."""
    proxy: str | None = None


class TokenFile:
    """Bearer token in a file, read again once a minute.

    If the file becomes unreadable, the last token stays in use, as in client-go.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises Unreachable if it contains no token."""
        self._watcher = FileWatcher(
            path,
            load=lambda: f"Bearer {_read_token(path)}",
            failure=errors.Unreachable,
            fallback="the previous token stays in use",
            max_age=_MAX_AGE,
        )

    async def authorization(self, *, renew: bool = False) -> str:
        """Return the Authorization header; see `Authorization`."""
        if renew:
            self.expire()
        return self._watcher.current()

    def expire(self) -> None:
        """Read the file again."""
        self._watcher.poll()

    def __call__(self, configuration: Any) -> None:
        """Set the token in a configuration of the Kubernetes client."""
        configuration.api_key["BearerToken"] = self._watcher.current()


class ReloadingClientContext:
    """TLS context of a client, built again when its CA, certificate or key file changes.

    If the new files cannot be used, for example because only one of a pair was replaced, the
    previous context stays in use.
    """

    def __init__(self, credentials: Credentials) -> None:
        """Read the files. Raises Unreachable, naming them, if they cannot be used."""
        files = (credentials.ca_file, credentials.certificate_file, credentials.key_file)
        self._watcher = FileWatcher(
            *(Path(file) for file in files if file),
            load=lambda: _client_context(credentials),
            failure=errors.Unreachable,
            fallback="the previous TLS files stay in use",
            max_age=_MAX_AGE,
        )

    def context(self) -> ssl.SSLContext:
        """Return the context for new connections."""
        return self._watcher.current()


class ExecPlugin:
    """`exec` plugin of a kubeconfig, whose command is run again after its token has expired.

    A token without an expiry is renewed once a minute.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._ran = time.monotonic()
        self._max_age = _MAX_AGE

    def expire(self) -> None:
        """Run the command again at the next use, but not within ten seconds of its last run."""
        self._max_age = min(_MAX_AGE, _EXEC_PACE)

    async def __call__(self, configuration: Any) -> None:
        """Set the token in a configuration of the Kubernetes client."""
        if time.monotonic() - self._ran >= self._max_age:
            self._ran, self._max_age = time.monotonic(), _MAX_AGE
            await self._loader.load_from_exec_plugin()
            if "BearerToken" in configuration.api_key:
                configuration.api_key["BearerToken"] = self._loader.token


def read_kubeconfig(path: Path) -> dict[str, Any]:
    """Parse a kubeconfig. Raises OSError, and Unreachable if it is not a YAML mapping."""
    try:
        document = yaml.safe_load(path.read_bytes())
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


def refuse_commands(document: Any) -> None:
    """Raise Unreachable if credentials in the kubeconfig `document` come from a command."""
    for each in document.get("users") or ():
        for key in _COMMANDS.intersection(each["user"] or ()):
            raise errors.Unreachable(
                f"the user {each['name']!r} has {key!r}, which runs a command: here, use a token, "
                "a client certificate, or a name and a password"
            )


async def load_kubeconfig(configuration: Any, loader: Any, document: Any, folder: Path) -> None:
    """Have `loader` load the kubeconfig `document`, and renew its token from then on.

    Relative paths start at `folder`. Raises Unreachable if the token cannot be obtained, and what
    the library raises.
    """
    name = loader.current_context["context"].get("user")
    user = next(
        (each["user"] or {} for each in document.get("users") or () if each["name"] == name), {}
    )
    # The library reads this file only once, and quotes its contents if they are not UTF-8.
    token_file = user.pop("tokenFile", None)
    await loader.load_and_set(configuration)
    if token_file:
        token = TokenFile(folder / token_file)
        configuration.refresh_api_key_hook = token
        token(configuration)
    elif "exec" in user:
        if "BearerToken" not in configuration.api_key and not configuration.cert_file:
            # The arguments and the environment of the command may be secret.
            command = user["exec"].get("command")
            raise errors.Unreachable(f"the exec command {command!r} returned no credentials")
        configuration.refresh_api_key_hook = ExecPlugin(loader)


async def from_configuration(configuration: Any) -> Credentials:
    """Extract the credentials of a Kubernetes client configuration. Raises Unreachable."""
    if configuration.ssl_ca_cert and not configuration.verify_ssl:
        raise errors.Unreachable(
            "insecure-skip-tls-verify and a certificate authority exclude each other: remove one"
        )

    async def authorization(*, renew: bool = False) -> str:
        if renew and isinstance(hook := configuration.refresh_api_key_hook, TokenFile | ExecPlugin):
            hook.expire()
        value: str = await configuration.get_api_key_with_prefix("BearerToken")
        return _check_header(value, "the token")

    has_token = "BearerToken" in configuration.api_key
    if has_token:
        await authorization()
    return Credentials(
        authorization=authorization if has_token else None,
        ca_file=configuration.ssl_ca_cert,
        certificate_file=configuration.cert_file,
        key_file=configuration.key_file,
        verified=configuration.verify_ssl,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
    )


def _client_context(credentials: Credentials) -> ssl.SSLContext:
    """Build a TLS context. Raises Unreachable, naming the files."""
    try:
        context = ssl.create_default_context(cafile=credentials.ca_file)
        if credentials.certificate_file is not None:
            context.load_cert_chain(
                credentials.certificate_file, credentials.key_file, _refuse_passphrase
            )
    except (OSError, errors.Unreachable) as error:
        files = filter(None, (credentials.ca_file, credentials.certificate_file))
        raise errors.Unreachable(f"{' and '.join(files)}: {error}") from error
    # Go does not make these checks, and some clusters have CAs that fail them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not credentials.verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _refuse_passphrase() -> str:
    """Replace OpenSSL's prompt on the terminal."""
    raise errors.Unreachable("the key is encrypted: store it without a passphrase")


def _read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.Unreachable(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise errors.Unreachable(f"{path}: not UTF-8 text") from None
    if not token:
        raise errors.Unreachable(f"{path}: the file is empty")
    return _check_header(token, str(path))


def _check_header(value: str, source: str) -> str:
    if not value.isprintable():
        raise errors.Unreachable(f"{source}: contains a control character")
    return value
