"""Credentials for Prometheus and the API server: secrets and TLS files, read again when renewed.

Error messages never contain a secret. `kubeconfig` has those that a kubeconfig names.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yarl

from adapter import errors
from adapter.files import SECRET, FileWatcher, read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """Request that credentials are added to; a signature covers all of it."""

    method: str
    url: yarl.URL
    headers: Mapping[str, str]
    body: bytes


class Authorization(Protocol):
    """Way to authenticate each request to a server, by headers."""

    @property
    def origin(self) -> str:
        """Where the credentials come from, for messages: files, or an identity."""

    async def headers(
        self, request: OutgoingRequest, /, *, renew: bool = False
    ) -> Mapping[str, str]:
        """Return the headers to add to `request`. Raises Unreachable.

        `renew` means that the server has refused those of the previous call.
        """


MAX_AGE = 60.0
"""Seconds for which a token or a TLS file is used before it is read again, as in client-go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Credentials of a client, and how it verifies the server."""

    authorization: Authorization | None = None
    more_headers: Authorization | None = None
    """Headers besides those of `authorization`."""
    ca_file: str | None = None
    """None means the CAs of the system."""
    certificate_file: str | None = None
    key_file: str | None = None
    verified: bool = True
    """Whether the server's certificate is verified."""
    server_name: str | None = None
    """Name in the server's certificate; None means the host of the URL."""
    proxy: str | None = None


class SecretFiles:
    """Headers from `files` with secrets, read again once a minute and after a refusal.

    If a file becomes unreadable, the last headers stay in use, as in client-go; `what` says for the
    log what the files have.
    """

    def __init__(
        self, *files: Path, load: Callable[[], Mapping[str, str]], what: str = "token"
    ) -> None:
        """Read the files. Raises Unreachable if `load` does."""
        self.origin = " and ".join(map(str, files))
        self._watcher = FileWatcher(
            *files,
            load=load,
            failure=errors.Unreachable,
            fallback=f"the previous {what} stays in use",
            max_age=MAX_AGE,
        )

    async def headers(self, _: OutgoingRequest, /, *, renew: bool = False) -> Mapping[str, str]:
        """Return the headers; see `Authorization`."""
        if renew:
            self._watcher.poll()
        return self._watcher.current()


def token_file(path: Path) -> SecretFiles:
    """Return the bearer token in a file. Raises Unreachable if it contains none."""
    return SecretFiles(path, load=lambda: {"Authorization": f"Bearer {read_secret(path)}"})


def basic_files(username: Path, password: Path) -> SecretFiles:
    """Return basic authentication with a user and a password in files. Raises Unreachable."""

    def load() -> Mapping[str, str]:
        user = read_secret(username)
        if ":" in user:
            raise errors.Unreachable(f"{username}: contains a colon, which no user name may have")
        pair = f"{user}:{read_secret(password)}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}

    return SecretFiles(username, password, load=load, what="password")


def header_files(files: Iterable[tuple[str, Path]]) -> SecretFiles:
    """Return headers whose values are in files, by name. Raises Unreachable."""
    named = dict(files)
    return SecretFiles(
        *named.values(),
        load=lambda: {name: read_secret(path) for name, path in named.items()},
        what="value",
    )


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
            max_age=MAX_AGE,
        )

    def context(self) -> ssl.SSLContext:
        """Return the context for new connections."""
        return self._watcher.current()


def _client_context(credentials: Credentials) -> ssl.SSLContext:
    """Build a TLS context. Raises Unreachable, naming the files."""
    for file in (credentials.ca_file, credentials.certificate_file, credentials.key_file):
        try:
            if file is not None:
                read_file(file)  # OpenSSL reads a device without end
        except OSError as error:
            raise errors.Unreachable(f"{file}: {error.strerror}") from error
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


def read_secret(path: Path) -> str:
    """Return the text of a file without white space around it. Raises Unreachable."""
    try:
        token = read_file(path, SECRET).decode().strip()
    except OSError as error:
        raise errors.Unreachable(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise errors.Unreachable(f"{path}: not UTF-8 text") from None
    if not token:
        raise errors.Unreachable(f"{path}: the file is empty")
    return check_header(token, str(path))


def check_header(value: str, source: str) -> str:
    """Return the value of a header. Raises Unreachable, naming `source`, if it cannot be sent."""
    if not value.isprintable():
        raise errors.Unreachable(f"{source}: contains a control character")
    return value
