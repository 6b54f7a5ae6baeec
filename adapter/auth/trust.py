"""Whom to believe about who a caller is: the two client CAs, and what the front proxy may say how.

Read from the files that flags name, else from the cluster's own ConfigMap, and followed: what is
dropped there is not believed at the next request. A part that cannot be read leaves what was there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from adapter import errors
from adapter.clients import watch as watching
from adapter.file_watcher import FileWatcher
from certs.bundle import CertificateError
from certs.chain import Authorities

log = logging.getLogger(__name__)

NAMESPACE = "kube-system"
NAME = "extension-apiserver-authentication"
FILES_INTERVAL = 1.0
"""Seconds between two looks at the files of CAs."""

_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_CLIENT_CA = "client-ca-file"
_PROXY_CA = "requestheader-client-ca-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """Which front proxies to believe, and in which headers they say who the user is."""

    allowed_names: tuple[str, ...] = ()
    """Common names; none allows every certificate of the front proxies' CA."""
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Everything that is believed at one time."""

    generation: int = 0
    """Grows with every change."""
    client_cas: bytes = b""
    """PEM; empty while nobody is a user by a certificate of their own."""
    proxy_cas: bytes = b""
    """PEM; empty while no front proxy is believed."""
    headers: Headers = Headers()


class Api(Protocol):
    """Knows how to read the cluster's API, once and for ever."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any: ...

    def watch(
        self, path: str, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[watching.Event]: ...


class TrustSource:
    """Keeps `current` true. Call `start` once, then have `run` going.

    Each file stands for its part of the ConfigMap; `headers` hold only where `proxy_ca_file` is
    given. Without `api` the ConfigMap is not read at all. `tolerant`: a ConfigMap that cannot be
    read does not prevent the start.
    """

    def __init__(
        self,
        api: Api | None,
        *,
        client_ca_file: Path | None = None,
        proxy_ca_file: Path | None = None,
        headers: Headers = Headers(),
        tolerant: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._files = {
            part: path
            for part, path in (("client_cas", client_ca_file), ("proxy_cas", proxy_ca_file))
            if path is not None
        }
        self._watchers: dict[str, FileWatcher[bytes]] = {}
        self._tolerant = tolerant
        self._sleep = sleep
        self._followers: list[Callable[[Trust], None]] = []
        self._current = Trust(headers=headers if proxy_ca_file is not None else Headers())

    @property
    def current(self) -> Trust:
        """The snapshot of now: read it once per request."""
        return self._current

    def subscribe(self, follower: Callable[[Trust], None]) -> None:
        """Have `follower` told now and at every change; it may raise CertificateError."""
        self._followers.append(follower)
        self._tell(follower)

    async def start(self) -> None:
        """Read everything once.

        Raises CertificateError for a file of CAs, and BackendError where the ConfigMap is needed to
        know the front proxies and cannot be read. That there is none is no error.
        """
        self._watchers = {
            part: FileWatcher(
                path,
                load=functools.partial(_read, path),
                failure=CertificateError,
                fallback="the previous CAs stay trusted",
            )
            for part, path in self._files.items()
        }
        self._take({part: watcher.value for part, watcher in self._watchers.items()})
        if self._api is None:
            return
        try:
            document = await self._api.get(f"{_CONFIG_MAPS}/{NAME}")
        except errors.Refused as error:
            if error.status == 404:
                log.warning(
                    "there is no ConfigMap %s/%s: no front proxy is believed", NAMESPACE, NAME
                )
                return
            self._failed(error)
        except errors.BackendError as error:
            self._failed(error)
        else:
            self._configured(document)

    async def run(self) -> None:
        """Follow the files and the ConfigMap, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._files:
                tasks.create_task(self._follow_files())
            if self._api is not None:
                tasks.create_task(self._follow_config_map(self._api))

    def _failed(self, error: errors.BackendError) -> None:
        if not self._tolerant and "proxy_cas" not in self._files:
            raise error
        log.warning(
            "%s; going on without: until it can be read, requests may count as anonymous", error
        )

    async def _follow_files(self) -> None:
        while True:
            await self._sleep(FILES_INTERVAL)
            self._take({part: each.value for part, each in self._watchers.items() if each.poll()})

    async def _follow_config_map(self, api: Api) -> None:
        params = {"fieldSelector": f"metadata.name={NAME}"}
        async for kind, item in api.watch(_CONFIG_MAPS, params):
            if kind == watching.LISTED:
                self._configured(next(iter(item), {}))
            else:
                self._configured({} if kind == "DELETED" else item)

    def _configured(self, document: Mapping[str, Any]) -> None:
        """Takes a ConfigMap part by part; one that is no longer there takes its parts along."""
        data = document.get("data") or {}
        found: dict[str, Any] = {}
        for part, key in (("client_cas", _CLIENT_CA), ("proxy_cas", _PROXY_CA)):
            if part not in self._files:
                with _kept(key):
                    found[part] = _checked(str(data.get(key, "")).encode())
        if "proxy_cas" not in self._files:
            with _kept("requestheader-*"):
                found["headers"] = _headers(data)
        self._take(found)

    def _take(self, parts: Mapping[str, Any]) -> None:
        taken = dataclasses.replace(self._current, **parts)
        if taken == self._current:
            return
        self._current = dataclasses.replace(taken, generation=taken.generation + 1)
        log.info("whom to trust has changed: generation %d", self._current.generation)
        for follower in self._followers:
            self._tell(follower)

    def _tell(self, follower: Callable[[Trust], None]) -> None:
        try:
            follower(self._current)
        except CertificateError as error:
            log.error("%s; certificates of these CAs are not asked for", error)  # noqa: TRY400 - an operator's file is no fault of ours


def _read(path: Path) -> bytes:
    """Return the CAs in a file, in PEM. Raises CertificateError, naming the file."""
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}") from error
    try:
        Authorities(pem)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from error
    return pem


@contextlib.contextmanager
def _kept(key: str) -> Iterator[None]:
    """Logs that a part of the ConfigMap is unusable, which then stays as it was."""
    try:
        yield
    except (CertificateError, ValueError) as error:
        log.warning(
            "ConfigMap %s/%s: %s: %s; what was there before stays", NAMESPACE, NAME, key, error
        )


def _checked(pem: bytes) -> bytes:
    if pem:
        Authorities(pem)
    return pem


def _headers(data: Mapping[str, Any]) -> Headers:
    """Raises ValueError for what is no JSON array of strings."""
    return Headers(
        allowed_names=_strings(data, "requestheader-allowed-names"),
        username_headers=_strings(data, "requestheader-username-headers"),
        uid_headers=_strings(data, "requestheader-uid-headers"),
        group_headers=_strings(data, "requestheader-group-headers"),
        extra_prefixes=_strings(data, "requestheader-extra-headers-prefix"),
    )


def _strings(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    text = data.get(key, "")
    found: Iterable[Any] = orjson.loads(text) if text else ()
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{key} is no JSON array of strings")
    return tuple(found)
