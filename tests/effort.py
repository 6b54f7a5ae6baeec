"""CPU time as a ratio: what work costs, in units of other work of the same process.

Seconds depend on the machine and on what else runs there; a ratio depends on neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def ratio(work: Callable[[], object], reference: Callable[[], object], *, rounds: int = 3) -> float:
    """Return the CPU time of `work`, in units of that of `reference`; the best of several rounds.

    Both run in turn, so that a change of the processor's speed affects both.
    """
    times = [(seconds(work), seconds(reference)) for _ in range(rounds)]
    return min(each for each, _ in times) / max(min(each for _, each in times), 1e-9)


def growth(work: Callable[[int], object], size: int, factor: int = 8) -> float:
    """Return by how much the work grows with its size: 1 if in proportion, `factor` if squared."""
    return ratio(lambda: work(size * factor), lambda: work(size)) / factor


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of this process during `work`."""
    started = time.process_time()
    work()
    return time.process_time() - started
