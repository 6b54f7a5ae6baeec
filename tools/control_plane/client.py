"""HTTP client of the API server, authenticated by a client certificate or a bearer token."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from tools import certificates, kubeconfig

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
FIELD_MANAGER = "tests"


def is_true(document: Mapping[str, Any], condition: str) -> bool:
    """Return whether an object has a condition, such as Ready, that is True."""
    conditions = document.get("status", {}).get("conditions", ())
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """Response of the API server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """Body parsed as JSON."""
        return json.loads(self.body)


class RefusedError(Exception):
    """Response of the API server with a status of 300 or more."""

    def __init__(self, request: str, reply: Reply) -> None:
        super().__init__(f"{request}: {reply.status} {_message(reply)}")
        self.reply = reply


class Client:
    """Client with a certificate, with a token, or with neither (anonymous)."""

    def __init__(
        self,
        url: str,
        ca: bytes,
        folder: Path,
        *,
        holder: certificates.Holder | None = None,
        token: str | None = None,
    ) -> None:
        self.url = url
        self.token = token
        self.holder = holder
        self._ca = ca
        self._address = urllib.parse.urlsplit(url).netloc
        self._context = ssl.create_default_context(cadata=ca.decode())
        if holder:
            holder.client(self._context, folder)

    def request(self, method: str, path: str, body: object = None, **options: str) -> Reply:
        """Return the response, whatever its status. Raises OSError if there is none.

        Options are `content_type` and `accept`, both by default JSON.
        """
        with self._send(method, path, body, **options) as response:
            return _reply(response)

    @contextlib.contextmanager
    def _send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and yield the response before its body is read."""
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        content = json.dumps(body).encode() if body is not None else None
        connection = http.client.HTTPSConnection(self._address, context=self._context, timeout=90)
        with contextlib.closing(connection):
            connection.request(method, path, content, headers)
            yield connection.getresponse()

    def call(self, method: str, path: str, body: object = None, **options: str) -> Any:
        """Return the document of a response; options as in `request`.

        Raises RefusedError for a status of 300 or more.
        """
        reply = self.request(method, path, body, **options)
        if reply.status >= 300:
            raise RefusedError(f"{method} {path}", reply)
        return reply.document

    def get(self, path: str, *, accept: str = JSON) -> Any:
        """Return the document at `path`. Raises RefusedError and OSError."""
        return self.call("GET", path, accept=accept)

    def exists(self, path: str) -> bool:
        """Return whether GET of a path answers 200. Raises OSError."""
        return self.request("GET", path).status == 200

    def watch(self, path: str, *, accept: str = JSON) -> Generator[Any, None, None]:
        """Yield the events of a watch until the server ends it. Raises as `get`."""
        with self._send("GET", path, accept=accept) as response:
            if response.status >= 300:
                raise RefusedError(f"GET {path}", _reply(response))
            for line in response:
                yield json.loads(line)

    def apply(self, path: str, document: object) -> Any:
        """Apply the object at `path` (server-side apply, forced) and return it."""
        query = urllib.parse.urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
        return self.call("PATCH", f"{path}?{query}", document, content_type=APPLY)

    def ready(self) -> bool:
        """Return whether /readyz answers 200."""
        try:
            return self.request("GET", "/readyz").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig with the credentials of this client, and return its path."""
        user: dict[str, str] = {}
        if self.token:
            user["token"] = self.token
        if self.holder:
            user["client-certificate-data"] = _base64(self.holder.pem)
            user["client-key-data"] = _base64(self.holder.bundle.key_pem)
        cluster = {"server": self.url, "certificate-authority-data": _base64(self._ca)}
        return kubeconfig.write(path, cluster, user)


def _reply(response: http.client.HTTPResponse) -> Reply:
    return Reply(status=response.status, headers=dict(response.getheaders()), body=response.read())


def _message(reply: Reply) -> str:
    """Return the message of a Status object, else the body."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(reply.document["message"])
    return reply.body.decode(errors="replace")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
