"""Runs the `exec` plugin of a kubeconfig: a command that prints credentials.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from adapter import errors
from adapter.clients.redaction import redacted
from rules.quoting import shorten

_TIMEOUT = 30.0
"""Seconds for a command, so that a request of 60 s gets an answer. client-go waits for ever."""
_MAX_OUTPUT = 1 << 20
_MAX_QUOTED = 300


async def run(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `status` of the ExecCredential that the command in `config` prints.

    A command that does not end, or whose children keep its output open, is killed with them.
    Raises Unreachable, and KeyError or TypeError if `config` is not that of a plugin.
    """
    version, command = config["apiVersion"], config["command"]
    arguments = list(config.get("args") or ())
    given = {each["name"]: each["value"] for each in config.get("env") or ()}
    what = f"the exec command {command!r}"
    info = {
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {"interactive": sys.stdout.isatty()},
    }
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *arguments,
            env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise errors.Unreachable(f"{what} cannot be run: {error.strerror}") from error
    output, problem = await _output(process, what)
    if process.returncode:
        # Its arguments and its environment may be secret, and it may repeat them.
        text = redacted(problem.decode(errors="replace").strip(), (*arguments, *given.values()))
        raise errors.Unreachable(
            f"{what} ended with {process.returncode}: {shorten(text, _MAX_QUOTED)!r}"
        )
    status = _status(output, version)
    if "token" in status or {"clientCertificateData", "clientKeyData"} <= status.keys():
        return status
    # No quote: the output may contain a token.
    raise errors.Unreachable(
        f"{what} printed no ExecCredential of {version} with a token, or with a certificate and "
        "its key"
    )


def _status(output: bytes, version: str) -> Mapping[str, Any]:
    """Return the `status` of an ExecCredential of `version`; empty if it is not one."""
    try:
        document = json.loads(output)
        matches = document["kind"] == "ExecCredential" and document["apiVersion"] == version
        return dict(document["status"]) if matches else {}
    except (KeyError, RecursionError, TypeError, ValueError):
        return {}


def expiry(status: Mapping[str, Any]) -> dt.datetime | None:
    """Return when a token ends, or None if that is not known: then it is renewed periodically."""
    try:
        ends = dt.datetime.fromisoformat(status["expirationTimestamp"])
    except (KeyError, TypeError, ValueError):
        return None
    return ends if ends.tzinfo else None


async def _output(process: asyncio.subprocess.Process, what: str) -> tuple[bytes, bytes]:
    """Return what a process prints until its end; kill its process group on any failure."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_TIMEOUT):
            output, problem = await asyncio.gather(
                _read(process.stdout, what), _read(process.stderr, what)
            )
            await process.wait()
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Closes the pipes, which a process outside the group may keep open.
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        await process.wait()
        if isinstance(error, TimeoutError):
            raise errors.Unreachable(
                f"{what} did not end within {_TIMEOUT:g} s: it was killed, with its children"
            ) from error
        raise
    return output, problem


async def _read(stream: asyncio.StreamReader, what: str) -> bytes:
    content = bytearray()
    while chunk := await stream.read(64 << 10):
        content += chunk
        if len(content) > _MAX_OUTPUT:
            raise errors.Unreachable(f"{what} printed more than {_MAX_OUTPUT >> 20} MiB")
    return bytes(content)
