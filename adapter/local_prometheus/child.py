"""Child processes that do not outlive their parent."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path


def command(*line: str | Path) -> Sequence[str]:
    """Return a command line that runs `line` and kills it when the parent thread ends.

    Returns `line` itself if `setpriv` (of util-linux) is not installed.
    """
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []), *map(str, line)]
