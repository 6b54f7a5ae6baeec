"""Credentials that end while the process runs, and how the next ones are come by.

Hooks for the Kubernetes client's configuration, which by itself reads either kind only once.
"""

from __future__ import annotations

import pathlib
import time
from typing import Any

_AGE = 60.0
"""Seconds for which credentials are used unasked."""


class TokenFile:
    """Reads a kubeconfig's `tokenFile` again and again: whoever wrote it renews it."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._due = 0.0

    def refresh(self, configuration: Any) -> None:
        if time.monotonic() >= self._due:
            token = self._path.read_text(encoding="utf-8").strip()
            configuration.api_key["BearerToken"] = f"Bearer {token}"
            self._due = time.monotonic() + _AGE


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
