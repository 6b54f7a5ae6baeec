"""Every benchmark, one after the other; fails if one of them does."""

from __future__ import annotations

import sys

from tests.bench import load, relist

BENCHES = (load.main, relist.main)

if __name__ == "__main__":
    sys.exit(max(bench([]) for bench in BENCHES))
