"""What to show another server: what ends while the process runs, and how the next is come by.

Hooks for the Kubernetes client's configuration, which by itself reads a token only once, and what
else of such a configuration serves towards a server that is no Kubernetes. No message holds a
secret.
"""

from __future__ import annotations

import logging
import pathlib
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import yaml

from adapter import errors

log = logging.getLogger(__name__)

Authorization = Callable[[], Awaitable[str]]
"""Gives what the header of that name is to be now. Raises Unreachable."""

_AGE = 60.0
"""Seconds for which credentials are used unasked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What to show a server, and how to know that it is the right one."""

    authorization: Authorization | None = None
    ca_file: str | None = None
    """None stands for the CAs of the system."""
    certificate_file: str | None = None
    key_file: str | None = None
    verified: bool = True
    server_name: str | None = None
    """What the server's certificate is for, where that is not the host of its URL."""
    proxy: str | None = None


class TokenFile:
    """Reads a file with a bearer token again and again: whoever wrote it renews it.

    Where it cannot be read any more, the last token is used on, as in client-go.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._due = 0.0
        self._last = ""
        self._problem = ""

    async def authorization(self) -> str:
        """See `Authorization`."""
        return self._current()

    def refresh(self, configuration: Any) -> None:
        """Raises Unreachable where no token could ever be read."""
        configuration.api_key["BearerToken"] = self._current()

    def _current(self) -> str:
        if time.monotonic() < self._due:
            return self._last
        try:
            self._last = f"Bearer {_token(self._path)}"
        except errors.Unreachable as error:
            if not self._last:
                raise
            if str(error) != self._problem:
                log.warning("%s; the token from before is used on", error)
            self._problem = str(error)
        else:
            self._due = time.monotonic() + _AGE
            self._problem = ""
        return self._last


class Handshakes:
    """TLS towards a server, with what the files of `shown` hold: whoever wrote them renews them.

    Where they cannot be used any more, perhaps as only one of a pair was written, what they held
    before is used on.
    """

    def __init__(self, shown: Credentials) -> None:
        """Raises Unreachable, naming the files."""
        files = (shown.ca_file, shown.certificate_file, shown.key_file)
        self._files = tuple(pathlib.Path(each) for each in files if each)
        self._shown = shown
        self._due = time.monotonic() + _AGE
        self._seen = self._state()
        self._context = _context(shown)

    def context(self) -> ssl.SSLContext:
        """For connections that begin now."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _AGE
            self._look()
        return self._context

    def _look(self) -> None:
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        try:
            self._context = _context(self._shown)
        except errors.Unreachable as error:
            log.warning("TLS %s; what was there before is used on", error)

    def _state(self) -> tuple[object, ...]:
        return tuple(_stamp(each) for each in self._files)


class Plugin:
    """Has a kubeconfig's `exec` command run again when its token has ended."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._due = time.monotonic() + _AGE

    async def refresh(self, configuration: Any) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _AGE
            await self._loader.load_from_exec_plugin()
            if "BearerToken" in configuration.api_key:
                configuration.api_key["BearerToken"] = self._loader.token


def kubeconfig(path: pathlib.Path) -> dict[str, Any]:
    """The document. Raises OSError, and Unreachable for what is none."""
    try:
        document = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError as error:
        # Its text quotes the line, and that may be the one with the token.
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        raise errors.Unreachable(f"no YAML{place}") from None
    if not isinstance(document, dict):
        raise errors.Unreachable(f"not a kubeconfig, but {type(document).__name__}")
    return document


async def load(configuration: Any, loader: Any, document: Any, folder: pathlib.Path) -> None:
    """Have `loader` take over the kubeconfig `document`, of `folder`, with tokens that are renewed.

    Raises Unreachable for a token that there should be, besides what the library raises.
    """
    named = loader.current_context["context"].get("user")
    user = next(
        (each["user"] or {} for each in document.get("users") or () if each["name"] == named), {}
    )
    # The library would read the file but once, and quote what it cannot decode.
    file = user.pop("tokenFile", None)
    await loader.load_and_set(configuration)
    if file:
        token = TokenFile(folder / file)
        configuration.refresh_api_key_hook = token.refresh
        token.refresh(configuration)
    elif "exec" in user:
        if "BearerToken" not in configuration.api_key and not configuration.cert_file:
            # Its arguments and environment may be secret.
            command = user["exec"].get("command")
            raise errors.Unreachable(f"its command gives no credentials: {command!r}")
        configuration.refresh_api_key_hook = Plugin(loader).refresh


async def of(configuration: Any) -> Credentials:
    """What a configuration of the Kubernetes client has. Raises Unreachable."""
    if configuration.ssl_ca_cert and not configuration.verify_ssl:
        raise errors.Unreachable(
            "insecure-skip-tls-verify and a certificate authority exclude each other: remove one"
        )

    async def authorization() -> str:
        value: str = await configuration.get_api_key_with_prefix("BearerToken")
        return _sendable(value, "the token")

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


def _context(shown: Credentials) -> ssl.SSLContext:
    named = " and ".join(each for each in (shown.ca_file, shown.certificate_file) if each)
    try:
        context = ssl.create_default_context(cafile=shown.ca_file)
        if shown.certificate_file is not None:
            context.load_cert_chain(shown.certificate_file, shown.key_file, _no_passphrase)
    except (OSError, errors.Unreachable) as error:
        raise errors.Unreachable(f"from {named}: {error}") from error
    # Go does not check what this checks, and clusters have CAs that would not pass.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not shown.verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _no_passphrase() -> str:
    """In place of OpenSSL's question on the terminal."""
    raise errors.Unreachable("its key is encrypted: store it without a passphrase")


def _stamp(file: pathlib.Path) -> tuple[int, ...]:
    try:
        stat = file.stat()
    except OSError:
        return ()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _token(path: pathlib.Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.Unreachable(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise errors.Unreachable(f"{path}: it holds no text") from None
    if not token:
        raise errors.Unreachable(f"{path}: it is empty")
    return _sendable(token, str(path))


def _sendable(value: str, place: str) -> str:
    if not value.isprintable():
        raise errors.Unreachable(f"{place}: a control character, which no header may hold")
    return value
