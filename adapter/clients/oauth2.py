"""OAuth 2.0 client credentials for Prometheus: bearer tokens that a token server issues.

https://www.rfc-editor.org/rfc/rfc6749#section-4.4
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp
import orjson
import yarl

from adapter import errors
from adapter.clients import transport
from adapter.clients.credentials import (
    Credentials,
    OutgoingRequest,
    ReloadingClientContext,
    check_header,
    read_secret,
)
from adapter.clients.redaction import redacted
from adapter.clients.transport import abort_on_exit, read_beginning, secrets_of
from rules.quoting import shorten

log = logging.getLogger(__name__)

_TIMEOUT = 10.0
"""Seconds for a token, so that a request of 30 s still gets an answer of Prometheus."""
_EARLY = 60.0
"""Seconds before its end in which a token is replaced, but not before half of its lifetime."""
_PACE = 10.0
"""Minimum seconds between two tokens after refusals, and between attempts while one is valid."""
_MAX_RESPONSE = 64 << 10
_MAX_QUOTED = 300


class ClientCredentials:
    """Tokens from the token server at `url`, for a client whose secret is in a file.

    The file is read for each token. `parameters`, such as the scope, are sent with the request;
    `ca_file` has the CAs of the token server, by default those of the system.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        secret_file: Path,
        *,
        parameters: Mapping[str, str],
        ca_file: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files. Raises Unreachable, naming them, if they cannot be used."""
        read_secret(secret_file)
        self._address = str(yarl.URL(url).with_user(None).with_query(None))
        self.origin = f"{secret_file}, by tokens of {self._address}"
        self._url = url
        self._secrets = secrets_of(yarl.URL(url))
        self._client_id = client_id
        self._secret_file = secret_file
        self._parameters = {"grant_type": "client_credentials", **parameters}
        self._tls = ReloadingClientContext(Credentials(ca_file=ca_file))
        self._proxy = transport.proxy_for(url)
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._token = ""
        self._ends = self._renew = self._renewed = -math.inf

    async def headers(self, _: OutgoingRequest, /, *, renew: bool = False) -> Mapping[str, str]:
        """Return the Authorization header; see `Authorization`. Raises NoCredentials."""
        async with self._lock:
            now = self._monotonic()
            refused = renew and now - self._renewed >= _PACE
            if refused or now >= self._renew:
                self._renewed = now if refused else self._renewed
                try:
                    await self._issue(now)
                except errors.NoCredentials as error:
                    if refused or now >= self._ends:
                        raise
                    self._renew = min(now + _PACE, self._ends)
                    log.warning("%s; the previous token is valid for now", error)
        return {"Authorization": f"Bearer {self._token}"}

    async def _issue(self, now: float) -> None:
        secret = ""
        try:
            secret = read_secret(self._secret_file)
            response = await self._fetch(secret)
            token = check_header(response["access_token"], "the token")
            lifetime = float(response.get("expires_in") or math.inf)
        except (aiohttp.ClientError, OSError, errors.BackendError) as error:
            text = str(error) or type(error).__name__
        except (AttributeError, KeyError, TypeError, ValueError):
            text = "the response has no access_token, or an expires_in that is not a number"
        else:
            self._token, self._ends = token, now + lifetime
            self._renew = self._ends - min(_EARLY, lifetime / 2)
            return
        text = shorten(redacted(text, (secret, *self._secrets)), _MAX_QUOTED)
        raise errors.NoCredentials(
            f"no token from {self._address} for the client secret in {self._secret_file}: {text!r}"
        )

    async def _fetch(self, secret: str) -> Mapping[str, str]:
        """Return the response of the token server. Raises Broken, and what aiohttp raises.

        The secret is sent as a password or, if that is refused, as a parameter: servers have to
        support only one of the two (RFC 6749, 2.3.1).
        """
        quoted = map(urllib.parse.quote_plus, (self._client_id, secret))
        password = {"Authorization": aiohttp.encode_basic_auth(*quoted)}
        client = {"client_id": self._client_id, "client_secret": secret}
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        status, body = 0, b""
        async with aiohttp.ClientSession(proxy=self._proxy, timeout=timeout) as session:
            for headers, more in ((password, {}), ({}, client)):
                response = await session.post(
                    self._url,
                    data={**self._parameters, **more},
                    headers={"Accept": "application/json", **headers},
                    ssl=self._tls.context(),
                    allow_redirects=False,
                )
                async with abort_on_exit(response):
                    status, body = response.status, await read_beginning(response, _MAX_RESPONSE)
                if status == 200:
                    document: Mapping[str, str] = orjson.loads(body)
                    return document
                if status not in {400, 401}:
                    break
        raise errors.Broken(f"{status} {body.decode(errors='replace')}")
