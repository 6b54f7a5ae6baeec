"""Token of a ServiceAccount by TokenRequest, so that another server gets rights of its own only.

https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from adapter import errors
from adapter.background import Backoff, Condition
from adapter.clients.credentials import OutgoingRequest, check_header
from adapter.clients.kubernetes import Kube
from adapter.clients.rights import Account

log = logging.getLogger(__name__)

_LIFETIME = 3600
"""Seconds. Not 3607, for which API servers issue a token of a year."""
_RENEWED = 0.8
"""Part of its lifetime after which a token is replaced, as in the kubelet."""
_MIN_BACKOFF, _MAX_BACKOFF = 1.0, 60.0
_PACE = 10.0
"""Minimum seconds between an attempt and a renewal because of a 401."""


class AccountToken:
    """Authorization with a token of `account`, which `run` requests and renews.

    The token has the audiences of the API server: the other server verifies it by a TokenReview,
    which accepts no other audience unless that server is configured for one.
    """

    def __init__(self, kube: Kube, account: Account) -> None:
        self.origin = f"the ServiceAccount {account.namespace}/{account.name}"
        self._kube = kube
        self._path = f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.name}/token"
        self._headers: Mapping[str, str] = {}
        self._attempted = self._ends = -math.inf
        self._first = asyncio.Event()
        """Set after the first attempt."""
        self._refused = asyncio.Event()
        self._condition = Condition()

    @property
    def problem(self) -> str:
        """Why there is no new token; empty if the last attempt succeeded."""
        return self._condition.problem

    async def run(self) -> NoReturn:
        """Renew the token in good time; retry failures with backoff, and log each kind once."""
        pauses = Backoff(_MIN_BACKOFF, _MAX_BACKOFF)
        now = asyncio.get_running_loop().time
        while True:
            self._attempted = now()
            self._refused.clear()
            try:
                token, lifetime = await self._issue()
            except errors.BackendError as error:
                pause = pauses.pause()
                if self._condition.becomes(f"no token of {self.origin}: {error}"):
                    log.warning("%s", self.problem)
            else:
                self._headers = {"Authorization": f"Bearer {token}"}
                self._ends = self._attempted + lifetime
                pause = _RENEWED * lifetime
                pauses.reset()
                if self._condition.becomes(""):
                    log.info("a token of %s again", self.origin)
            self._first.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._refused.wait()

    async def headers(self, _: OutgoingRequest, /, *, renew: bool = False) -> Mapping[str, str]:
        """Return the Authorization header; see `Authorization`. Raises NoCredentials.

        After a refusal, a later request has a new token.
        """
        await self._first.wait()
        now = asyncio.get_running_loop().time()
        if renew and now - self._attempted >= _PACE:
            self._refused.set()
        if now >= self._ends:
            raise errors.NoCredentials(self.problem or f"the token of {self.origin} has expired")
        return self._headers

    async def _issue(self) -> tuple[str, float]:
        """Return a token and its lifetime in seconds. Raises BackendError."""
        document: Any = await self._kube.post(
            self._path,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _LIFETIME},
            },
        )
        try:
            token = check_header(document["status"]["token"], "the token")
            # Not expirationTimestamp, which is a time of the API server's clock.
            lifetime = min(float(document["spec"]["expirationSeconds"]), _LIFETIME)
        except (AttributeError, KeyError, TypeError, ValueError):
            # No quote: the answer may have a token.
            token, lifetime = "", 0.0
        if not token or lifetime <= 0:
            raise errors.Broken(f"POST {self._path}: the response is not a TokenRequest")
        return token, lifetime
