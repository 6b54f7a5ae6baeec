"""A user of the API server: what it answers to whoever shows this certificate or this token."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests import certificates

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
FIELD_MANAGER = "tests"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class RefusedError(Exception):
    """The API server did not do what it was asked to do."""

    def __init__(self, what: str, reply: Reply) -> None:
        super().__init__(f"{what}: {reply.status} {_message(reply)}")
        self.reply = reply


class Client:
    """Someone with a certificate, with a token, or with neither (who is anonymous)."""

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

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Reply:
        """Whatever the answer is. Raises OSError where there is none."""
        asked = self._asked(method, path, body, content_type=content_type, accept=accept)
        with asked as answer:
            return _reply(answer)

    @contextlib.contextmanager
    def _asked(
        self, method: str, path: str, body: object = None, *, content_type: str = JSON, accept: str
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer that is still to be read."""
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        content = json.dumps(body).encode() if body is not None else None
        connection = http.client.HTTPSConnection(self._address, context=self._context, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, content, headers)
            yield connection.getresponse()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Any:
        """The document of a good answer. Raises RefusedError for another one."""
        reply = self.request(method, path, body, content_type=content_type, accept=accept)
        if reply.status >= 300:
            raise RefusedError(f"{method} {path}", reply)
        return reply.document

    def get(self, path: str, *, accept: str = JSON) -> Any:
        return self.call("GET", path, accept=accept)

    def watch(self, path: str, *, accept: str = JSON) -> Iterator[Any]:
        """The events of a watch, until the server ends it. Raises as `get` does."""
        with self._asked("GET", path, accept=accept) as answer:
            if answer.status >= 300:
                raise RefusedError(f"GET {path}", _reply(answer))
            for line in answer:
                yield json.loads(line)

    def apply(self, path: str, document: object) -> Any:
        """Server-side apply of the object at `path`, whoever owned the fields before."""
        query = urllib.parse.urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
        return self.call("PATCH", f"{path}?{query}", document, content_type=APPLY)

    def ready(self, path: str = "/readyz") -> bool:
        try:
            return self.request("GET", path).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def write_kubeconfig(self, path: Path) -> Path:
        """What kubectl, a controller or the adapter needs to be this user."""
        user: dict[str, str] = {}
        if self.token:
            user["token"] = self.token
        if self.holder:
            user["client-certificate-data"] = _base64(self.holder.pem)
            user["client-key-data"] = _base64(self.holder.bundle.key_pem)
        cluster = {"server": self.url, "certificate-authority-data": _base64(self._ca)}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "control-plane", "cluster": cluster}],
                    "users": [{"name": "user", "user": user}],
                    "contexts": [
                        {"name": "tests", "context": {"cluster": "control-plane", "user": "user"}}
                    ],
                    "current-context": "tests",
                },
                indent=2,
            )
        )
        path.chmod(0o600)
        return path


def _reply(answer: http.client.HTTPResponse) -> Reply:
    return Reply(status=answer.status, headers=dict(answer.getheaders()), body=answer.read())


def _message(reply: Reply) -> str:
    """That of a Status, or whatever the body is."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(reply.document["message"])
    return reply.body.decode(errors="replace")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
