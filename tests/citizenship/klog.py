"""Warnings and errors about the adapter in the logs of Kubernetes' programs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

_SEVERE = re.compile(r"[WEF]\d{4} ")
"""Start of a klog line of severity warning, error or fatal."""
_RELATED = re.compile(
    r"custom\.metrics|external\.metrics|gpu-metrics-adapter|horizontal|aggregat|openapi|discovery",
    re.IGNORECASE,
)
"""Includes the parts of Kubernetes that use the adapter: their errors need not name it."""


@dataclasses.dataclass(slots=True, kw_only=True)
class LogFile:
    """Log of a program, read from an offset on."""

    name: str
    path: Path
    offset: int = 0

    def skip_to_end(self) -> None:
        """Ignore everything logged so far."""
        self.offset = self.path.stat().st_size

    def warnings(self) -> list[str]:
        """Return the warnings and errors about the adapter, or about parts that use it."""
        with self.path.open("rb") as log:
            log.seek(self.offset)
            lines = log.read().decode(errors="replace").splitlines()
        return [
            f"{self.name}: {line}"
            for line in lines
            if _SEVERE.match(line) and _RELATED.search(line)
        ]


def all_warnings(logs: Sequence[LogFile]) -> list[str]:
    """Return the warnings of several logs."""
    return [warning for log in logs for warning in log.warnings()]
