"""`make bench`: run every benchmark, and fail if one of them fails."""

from __future__ import annotations

import sys

from tests.bench import load, relist, watch

if __name__ == "__main__":
    sys.exit(max(load.main(), relist.main([]), watch.main([])))
