"""Client CAs and request-header settings, from flags or extension-apiserver-authentication.

Files are polled and the ConfigMap is watched: once a CA is removed, no further request trusts it.
Verifying certificates against the CAs is in `authentication`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from adapter import errors
from adapter.clients import own_rights, watch
from adapter.clients.kubernetes import Kube
from adapter.files import FileWatcher, read_file
from certs.bundle import CertificateError
from certs.chain import ClientCAs

log = logging.getLogger(__name__)

FILES_INTERVAL = 1.0
"""Seconds between two reads of the CA files."""

_NAMESPACE = own_rights.AUTHENTICATION_CONFIG.namespace
_NAME = own_rights.AUTHENTICATION_CONFIG.name
_CONFIG_MAPS = f"/api/v1/namespaces/{_NAMESPACE}/configmaps"
_CLIENT_CA = "client-ca-file"
_PROXY_CA = "requestheader-client-ca-file"
_TITLES = {
    "client_cas": "client CA",
    "proxy_cas": "request-header CA",
    "headers": "request-header settings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeaderConfig:
    """Request-header settings: allowed front proxies, and the headers that carry the user."""

    allowed_names: tuple[str, ...] = ()
    """Common names of front proxies; empty allows every certificate of the request-header CA."""
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Snapshot of the client CAs, the request-header CAs and the request-header settings."""

    client_cas: bytes = b""
    """PEM bundle; empty disables client certificates."""
    proxy_cas: bytes = b""
    """PEM bundle of request-header CAs; empty disables front proxies."""
    headers: RequestHeaderConfig = RequestHeaderConfig()


class TrustSource:
    """Source of the current `Trust`: call `start` once, then run `run` in the background.

    Each CA file replaces its part of the ConfigMap. `headers` apply only together with
    `proxy_ca_file`. Without `api` the ConfigMap is not read. With `tolerant`, `start` succeeds even
    if the ConfigMap cannot be read.
    """

    def __init__(
        self,
        api: Kube | None,
        *,
        client_ca_file: Path | None = None,
        proxy_ca_file: Path | None = None,
        headers: RequestHeaderConfig = RequestHeaderConfig(),
        tolerant: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._files = {
            field: path
            for field, path in (("client_cas", client_ca_file), ("proxy_cas", proxy_ca_file))
            if path is not None
        }
        self._watchers: dict[str, FileWatcher[bytes]] = {}
        self._tolerant = tolerant
        self._sleep = sleep
        self._subscribers: list[Callable[[Trust], None]] = []
        self._current = Trust(
            headers=headers if proxy_ca_file is not None else RequestHeaderConfig()
        )

    @property
    def current(self) -> Trust:
        """Latest snapshot; read it once per request."""
        return self._current

    def subscribe(self, subscriber: Callable[[Trust], None]) -> None:
        """Call `subscriber` now and after every change; it may raise CertificateError."""
        self._subscribers.append(subscriber)
        self._notify(subscriber)

    async def start(self) -> None:
        """Read the files and the ConfigMap once; a missing ConfigMap is not an error.

        Raises CertificateError for a CA file that cannot be used. Raises BackendError if the
        ConfigMap cannot be read, unless `tolerant` or `proxy_ca_file` is given.
        """
        self._watchers = {
            field: FileWatcher(
                path,
                load=functools.partial(_read_cas, path),
                failure=CertificateError,
                fallback="the previous CAs stay trusted",
            )
            for field, path in self._files.items()
        }
        self._update({field: watcher.value for field, watcher in self._watchers.items()})
        if self._api is None:
            return
        try:
            config_map = await self._api.get(f"{_CONFIG_MAPS}/{_NAME}")
        except errors.BackendError as error:
            if isinstance(error, errors.Refused) and error.status == 404:
                log.warning(
                    "ConfigMap %s/%s does not exist: no front proxy is trusted until it appears",
                    _NAMESPACE,
                    _NAME,
                )
            elif self._tolerant or "proxy_cas" in self._files:
                log.warning(
                    "%s; started without it: requests may be anonymous until it can be read", error
                )
            else:
                raise
        else:
            self._apply(config_map)

    async def run(self) -> None:
        """Poll the files and watch the ConfigMap until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._files:
                tasks.create_task(self._follow_files())
            if self._api is not None:
                tasks.create_task(self._follow_config_map(self._api))

    async def _follow_files(self) -> None:
        while True:
            await self._sleep(FILES_INTERVAL)
            self._update(
                {field: each.value for field, each in self._watchers.items() if each.poll()}
            )

    async def _follow_config_map(self, api: Kube) -> None:
        params = {"fieldSelector": f"metadata.name={_NAME}"}
        async for event, item in watch.follow(api, _CONFIG_MAPS, params):
            if event == watch.LISTED:
                self._apply(next(iter(item), {}))
            else:
                self._apply({} if event == "DELETED" else item)

    def _apply(self, config_map: Mapping[str, Any]) -> None:
        """Update what no file replaces from the ConfigMap; a missing key clears its part."""
        data = config_map.get("data") or {}
        fields: dict[str, Any] = {}
        for field, key in (("client_cas", _CLIENT_CA), ("proxy_cas", _PROXY_CA)):
            if field not in self._files:
                with _log_invalid(key):
                    fields[field] = _valid_bundle(str(data.get(key, "")).encode())
        if "proxy_cas" not in self._files:
            with _log_invalid("requestheader-*"):
                fields["headers"] = _headers(data)
        self._update(fields)

    def _update(self, fields: Mapping[str, Any]) -> None:
        changed = [
            field for field, value in fields.items() if value != getattr(self._current, field)
        ]
        if not changed:
            return
        self._current = dataclasses.replace(self._current, **fields)
        log.info(
            "authentication settings changed: %s", ", ".join(_TITLES[field] for field in changed)
        )
        for subscriber in self._subscribers:
            self._notify(subscriber)

    def _notify(self, subscriber: Callable[[Trust], None]) -> None:
        try:
            subscriber(self._current)
        except CertificateError as error:
            log.error("%s; clients are not asked for certificates of these CAs", error)  # noqa: TRY400 - a bad file, not a bug


def _read_cas(path: Path) -> bytes:
    """Return a PEM bundle of CAs. Raises CertificateError, naming the file, if it is unusable."""
    try:
        pem = read_file(path)
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}") from error
    try:
        ClientCAs(pem)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from error
    return pem


@contextlib.contextmanager
def _log_invalid(key: str) -> Iterator[None]:
    """Log an invalid part of the ConfigMap instead of raising; the previous value stays."""
    try:
        yield
    except (CertificateError, ValueError) as error:
        log.warning(
            "ConfigMap %s/%s: %s: %s; the previous value stays", _NAMESPACE, _NAME, key, error
        )


def _valid_bundle(pem: bytes) -> bytes:
    """Return `pem`. Raises CertificateError if it is neither empty nor a bundle of CAs."""
    if pem:
        ClientCAs(pem)
    return pem


def _headers(data: Mapping[str, Any]) -> RequestHeaderConfig:
    """Return the request-header settings. Raises ValueError if a key is not an array of strings."""
    return RequestHeaderConfig(
        allowed_names=_strings(data, "requestheader-allowed-names"),
        username_headers=_strings(data, "requestheader-username-headers"),
        uid_headers=_strings(data, "requestheader-uid-headers"),
        group_headers=_strings(data, "requestheader-group-headers"),
        extra_prefixes=_strings(data, "requestheader-extra-headers-prefix"),
    )


def _strings(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    text = data.get(key, "")
    values: Any = orjson.loads(text) if text else []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key} is not a JSON array of strings")
    return tuple(values)
