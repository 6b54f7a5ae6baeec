"""`version`: prints the version of the program."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adapter import __version__

_USAGE = "Usage: gpu-metrics-adapter version"


def main(argv: Sequence[str]) -> int:
    """Return 0, or 2 for an invalid command line."""
    if argv and not {"-h", "--help"} & set(argv):
        print(f"{' '.join(argv)}: unexpected argument\n{_USAGE}", file=sys.stderr)
        return 2
    print(_USAGE if argv else f"gpu-metrics-adapter {__version__}")
    return 0
