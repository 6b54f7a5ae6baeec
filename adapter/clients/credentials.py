"""Credentials for Prometheus and the API server: tokens and TLS files, read again when renewed.

Error messages never contain a secret. `kubeconfig` has those that a kubeconfig names.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adapter import errors
from adapter.file_watcher import FileWatcher


class Authorization(Protocol):
    """Returns the value of the Authorization header; `renew` reads it again. Raises Unreachable."""

    async def __call__(self, *, renew: bool = False) -> str:
        """Return the value."""
        ...


MAX_AGE = 60.0
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
            max_age=MAX_AGE,
        )

    async def authorization(self, *, renew: bool = False) -> str:
        """Return the Authorization header; see `Authorization`."""
        if renew:
            self._watcher.poll()
        return self._watcher.current()


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
    return check_header(token, str(path))


def check_header(value: str, source: str) -> str:
    """Return the value of a header. Raises Unreachable, naming `source`, if it cannot be sent."""
    if not value.isprintable():
        raise errors.Unreachable(f"{source}: contains a control character")
    return value
