"""Entry point of the console script and `python -m`.

The wheel installs adapter, rules and certs below gpu_metrics_adapter, so that it overwrites none of
the distributions with these names. In this program they are found before those of others.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Put the folder of our packages first on sys.path, run the command line; return the exit code.

    `adapter` may be gpu_metrics_adapter.adapter here: this module must import none of ours before.
    """
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from adapter.cli import program  # noqa: PLC0415

    return program.main()


if __name__ == "__main__":
    sys.exit(main())
