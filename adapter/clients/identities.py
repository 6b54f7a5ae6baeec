"""Identities of a pod in a cloud, by the libraries of AWS, Google and Azure, which are extras.

The libraries block, so each identity has a thread. They are imported only if they are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yarl

from adapter import errors
from adapter.clients.credentials import MAX_AGE, OutgoingRequest
from adapter.clients.redaction import redacted
from adapter.files import SECRET, FileWatcher, read_file
from rules.connection import Identity, PrometheusConnection
from rules.quoting import shorten

_LIBRARIES = ("azure", "botocore", "google.auth", "msal", "urllib3")
_SERVICE = "aps"
"""Name of Amazon Managed Service for Prometheus in signatures."""
_SCOPE = "https://www.googleapis.com/auth/monitoring.read"
_AZURE = "prometheus.monitor.azure."
_TIMEOUT = 10.0
"""Seconds for a token."""
_PACE = 10.0
"""Minimum seconds between two renewals after refusals."""
_MAX_QUOTED = 300

_SECRET = re.compile("^(AWS|AZURE|GOOGLE)_.*(SECRET|TOKEN|PASSWORD)")
"""Names of variables with secrets, such as AWS_SECRET_ACCESS_KEY."""

Sign = Callable[[OutgoingRequest], Mapping[str, str]]
"""Returns the headers for a request; blocks while the library fetches credentials."""


class CloudIdentity:
    """Authorization by the identity `name`, loaded again when one of `files` changes.

    `load` blocks only shortly; `failure` is the base class of the library's exceptions.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Sign],
        *,
        failure: type[Exception],
        files: tuple[Path, ...] = (),
    ) -> None:
        """Load the identity. Raises Unreachable."""
        for each in _LIBRARIES:  # at lower levels, they log tokens
            logging.getLogger(each).setLevel(logging.WARNING)
        self.origin = " and ".join([f"the {name} identity", *map(str, files)])
        self._failures = (failure, OSError, ValueError)
        self._renewed = -math.inf
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

        def converted() -> Sign:
            with self._converted():
                return load()

        self._watcher = FileWatcher(
            *files,
            load=converted,
            failure=errors.NoCredentials,
            fallback="the previous identity stays in use",
            max_age=MAX_AGE,
        )

    async def headers(
        self, request: OutgoingRequest, /, *, renew: bool = False
    ) -> Mapping[str, str]:
        """Return the headers; see `Authorization`. Raises NoCredentials."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._headers, request, renew)

    def _headers(self, request: OutgoingRequest, renew: bool) -> Mapping[str, str]:
        if renew and time.monotonic() - self._renewed >= _PACE:
            self._renewed = time.monotonic()
            self._watcher.poll(changed=True)
        with self._converted():
            return self._watcher.current()(request)

    @contextlib.contextmanager
    def _converted(self) -> Iterator[None]:
        """Convert the library's exceptions to NoCredentials."""
        try:
            yield
        except self._failures as error:
            text = redacted(" ".join(str(error).split()), _secrets_of_environment())
            raise errors.NoCredentials(f"{self.origin}: {shorten(text, _MAX_QUOTED)}") from None


def _secrets_of_environment() -> Iterator[str]:
    """Yield the secrets that the libraries take from the environment, or from a file that it names.

    A key or a token in another file reaches no message: the libraries sign with it, and send it to
    no server that could repeat it.
    """
    for name, value in os.environ.items():
        if name.endswith("_TOKEN_FILE"):
            with contextlib.suppress(OSError):
                yield read_file(value, SECRET).decode(errors="replace").strip()
        elif _SECRET.search(name):
            yield value


@contextlib.contextmanager
def _extra(name: str) -> Iterator[None]:
    """Convert an ImportError to Unreachable with the extra to install."""
    try:
        yield
    except ImportError as error:
        raise errors.Unreachable(
            f"{error.name} is not installed: use an image that was built with "
            f"`--build-arg LOCK=identities.lock`, or install gpu-metrics-adapter[{name}]"
        ) from None


def aws(connection: PrometheusConnection) -> CloudIdentity:
    """Return Signature Version 4 with the AWS credentials of the environment. Raises Unreachable.

    Without a region and a profile, those of the environment.
    """
    region, profile = connection.aws_region, connection.aws_profile
    with _extra("aws"):
        from botocore import auth, awsrequest, exceptions, session  # noqa: PLC0415
    names = ("credentials_file", "config_file")
    paths = (Path(session.Session().get_config_variable(each)).expanduser() for each in names)
    files = tuple(path for path in paths if path.exists())

    def load() -> Sign:
        current = session.Session(profile=profile)
        current.get_scoped_config()  # raises if there is no such profile
        where = region or current.get_config_variable("region") or os.environ.get("AWS_REGION")
        if not where:
            raise errors.NoCredentials("the AWS region is not known: set it, or AWS_REGION")

        def sign(request: OutgoingRequest) -> Mapping[str, str]:
            credentials = current.get_credentials()
            if credentials is None:
                raise exceptions.NoCredentialsError
            signed = awsrequest.AWSRequest(request.method, str(request.url), data=request.body)
            signer = auth.SigV4Auth(credentials.get_frozen_credentials(), _SERVICE, where)
            signer.add_auth(signed)
            return dict(signed.headers.items())

        return sign

    return CloudIdentity("AWS", load, failure=exceptions.BotoCoreError, files=files)


def google(_: PrometheusConnection) -> CloudIdentity:
    """Return Google's application default credentials. Raises Unreachable."""
    with _extra("google"):
        import google.auth  # noqa: PLC0415
        from google.auth import exceptions  # noqa: PLC0415
        from google.auth.transport import requests  # noqa: PLC0415

    def load() -> Sign:
        http = functools.partial(requests.Request(), timeout=_TIMEOUT)
        default = functools.cache(lambda: google.auth.default([_SCOPE], request=http)[0])

        def sign(request: OutgoingRequest) -> Mapping[str, str]:
            headers: dict[str, str] = {}
            default().before_request(http, request.method, str(request.url), headers)
            return headers

        return sign

    file = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    files = (Path(file),) if file else ()
    return CloudIdentity("Google", load, failure=exceptions.GoogleAuthError, files=files)


def azure(connection: PrometheusConnection) -> CloudIdentity:
    """Return Azure's default credential for a Prometheus. Raises Unreachable."""
    with _extra("azure"):
        from azure import identity  # noqa: PLC0415
        from azure.core import exceptions  # noqa: PLC0415
    _, found, domain = (yarl.URL(connection.url).host or "").partition(_AZURE)
    scope = f"https://{_AZURE}{domain if found else 'com'}/.default"

    def load() -> Sign:
        token: Any = identity.get_bearer_token_provider(identity.DefaultAzureCredential(), scope)
        return lambda _: {"Authorization": f"Bearer {token()}"}

    return CloudIdentity("Azure", load, failure=exceptions.AzureError)


IDENTITIES: Mapping[Identity, Callable[[PrometheusConnection], CloudIdentity]] = {
    "aws": aws,
    "azure": azure,
    "google": google,
}
"""Value of `identity` -> how its identity is loaded."""
