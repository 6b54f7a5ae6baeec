"""Prometheus servers of triggers: the default one of the values, and named `sources`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from rules import connection
from rules.document.sources import DEFAULT, SECRET_HEADERS
from rules.errors import ConfigError
from rules.findings import State, in_file
from rules.migration import overlay
from rules.migration.keda import QueryServer

_HEADER = "--prometheus-header="


def problem_of(server: QueryServer) -> tuple[str, str] | None:
    """Return the key for which no query of KEDA succeeds, and why; None if queries may succeed."""
    if "?" in server.url or "#" in server.url:
        return "serverAddress", "must not have a query string: use queryParameters"
    try:
        connection.check_url(server.url)
    except ValueError as error:
        return "serverAddress", str(error)
    for name, value in server.headers:
        try:
            connection.check_header_value(value)
        except ValueError as error:
            return "customHeaders", f"{name}: {error}"
        if not name or not connection.HEADER_NAME.fullmatch(name):
            return "customHeaders", f"{name or 'an empty text'} is not the name of a header"
    return None


def without_secrets(server: QueryServer) -> QueryServer:
    """Return the server without a user in its URL, and without headers that are secret."""
    url = urlsplit(server.url)
    headers = (each for each in server.headers if each[0].lower() not in SECRET_HEADERS)
    return QueryServer(
        url=url._replace(netloc=url.netloc.rpartition("@")[2]).geturl(),
        parameters=server.parameters,
        headers=tuple(headers),
    )


class Servers:
    """Names of the servers in values; `add` writes those that are new into the values."""

    def __init__(self, values: dict[str, Any], *, is_installed: bool) -> None:
        """Read the servers in `values`. Raises ConfigError if the default one has no valid URL."""
        self._values = values
        self._names: dict[QueryServer, str] = {}
        if is_installed:
            arguments = map(str, values.get("extraArguments") or ())
            headers = (each.removeprefix(_HEADER) for each in arguments if each.startswith(_HEADER))
            pairs = ((name, value) for name, _, value in (each.partition("=") for each in headers))
            address = overlay.url(values)
            try:
                self._names[_server(address, pairs)] = DEFAULT
            except ValueError as error:
                fact = f"{address} is not a URL: {error}"
                problem = in_file(State.FAILURE, fact, path="prometheus.url")
                raise ConfigError([problem]) from error
        for name, source in ((values.get("rules") or {}).get("sources") or {}).items():
            known = source if isinstance(source, dict) else {}
            headers_of = (known.get("headers") or {}).items()
            self._names.setdefault(_server(str(known.get("url") or ""), headers_of), name)

    def add(self, servers: Iterable[QueryServer]) -> None:
        """Give each server a name; the most frequent one is the default, unless there is one."""
        counts = Counter(map(without_secrets, servers))
        for server, _ in counts.most_common():
            if server in self._names:
                continue
            if DEFAULT not in self._names.values():
                self._names[server] = DEFAULT
                self._values["prometheus"] = {"url": server.address, "port": "", "path": ""}
                if server.headers:
                    flags = [f"{_HEADER}{name}={value}" for name, value in server.headers]
                    self._values["extraArguments"] = flags
                continue
            self._names[server] = self._new_name(server)
            source: dict[str, Any] = {"url": server.address}
            if server.headers:
                source["headers"] = dict(server.headers)
            rules = self._values.setdefault("rules", {})
            rules["sources"] = {**(rules.get("sources") or {}), self._names[server]: source}

    def name_of(self, server: QueryServer) -> str:
        """Return the name of a server that was added."""
        return self._names[without_secrets(server)]

    def _new_name(self, server: QueryServer) -> str:
        """Return a name of the host, the parameters and the headers, which no source has yet."""
        host = urlsplit(server.url).hostname or ""
        parts = [host, *re.findall(r"=([^&]*)", server.parameters), *dict(server.headers).values()]
        words = re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")
        name = base = words[:58].rstrip("-") or "prometheus"
        number = 2
        while name in self._names.values():
            name, number = f"{base}-{number}", number + 1
        return name


def _server(address: str, headers: Iterable[tuple[str, Any]]) -> QueryServer:
    url, _, parameters = address.partition("?")
    pairs = sorted((name, str(value)) for name, value in headers)
    return without_secrets(
        QueryServer(url=url.rstrip("/"), parameters=parameters, headers=tuple(pairs))
    )
