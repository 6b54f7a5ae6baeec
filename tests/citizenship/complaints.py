"""What Kubernetes' own programs say about us, in their logs, as warnings or errors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_SEVERE = re.compile(r"[WEF]\d{4} ")
"""How klog begins a warning, an error, and a fatal one."""
_OURS = re.compile(
    r"custom\.metrics|external\.metrics|gpu-metrics-adapter|horizontal|aggregat|openapi|discovery",
    re.IGNORECASE,
)
"""More than our names: a document of ours that cannot be merged need not be named."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Log:
    """A log, from where it is now on."""

    name: str
    path: Path
    offset: int = 0

    def pass_over(self) -> None:
        """Whatever was said until now is not complained about."""
        self.offset = self.path.stat().st_size

    def complaints(self) -> Iterator[str]:
        """Every warning and error about us, or about what we take part in."""
        with self.path.open("rb") as log:
            log.seek(self.offset)
            for line in log.read().decode(errors="replace").splitlines():
                if _SEVERE.match(line) and _OURS.search(line):
                    yield f"{self.name}: {line}"


def found(logs: Sequence[Log]) -> list[str]:
    return [complaint for log in logs for complaint in log.complaints()]
