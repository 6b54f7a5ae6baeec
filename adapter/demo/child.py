"""A program that does not outlive the one that starts it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path


def command(*line: str | Path) -> Sequence[str]:
    """What to run for `line` to be killed when the thread that starts it ends, however that does.

    The line as it is, where there is no `setpriv` (of util-linux).
    """
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []), *map(str, line)]
