"""Compares replays with what really was: `python -m tools.replay values|decisions`.

* `values`: past values and the answers that the server gave then, on a real Prometheus.
* `decisions`: decisions from such values and those of the real controller, on a real control plane.
  A decision is at an edge if a window or period ended within some tenths of a second.

Prints a table; returns 1 if something differs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from adapter.cli.commands import without_log
from tools.control_plane import build, foreground, plane
from tools.replay import decisions, values, worlds
from tools.replay.decisions import Compared
from tools.replay.values import Row

SEED = 1
T = TypeVar("T")


def main(argv: Sequence[str]) -> int:
    """Compare, and print the table; return 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.replay", description=main.__doc__)
    parser.add_argument("what", choices=("values", "decisions"))
    parser.add_argument("--cases", type=int, default=200, help="rules and HPAs (default 200)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=40, help="syncs of the past (default 40)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each step in real time")
    arguments = parser.parse_args(argv)
    with without_log():
        rows = asyncio.run(values.run(arguments.cases, seed=arguments.seed, steps=arguments.steps))
    if arguments.what == "values":
        return _values(rows)
    with (
        tempfile.TemporaryDirectory(prefix="replay-") as folder,
        plane.running(Path(folder), build.ensure_programs()) as control_plane,
    ):
        fitting = decisions.fitting(rows)
        return _decisions(
            decisions.compare(control_plane, fitting, seconds=arguments.seconds, progress=_progress)
        )


def _progress(step: int) -> None:
    print(f"\rstep {step}", end="", file=sys.stderr, flush=True)


def _values(rows: Sequence[Row]) -> int:
    print(f"{'kind':<12}{'HPAs':>6}{'reads':>7}{'with a value':>14}{'different':>11}")
    for kind, those in _by_kind(rows, lambda each: each.case.kind):
        answers = [each for row in those for every in row.answers for each in every]
        known = sum(each.milli is not None for each in answers)
        wrong = sum(len(each.wrong) for each in those)
        print(f"{kind:<12}{len(those):>6}{len(answers):>7}{known:>14}{wrong:>11}")
    return int(any(each.wrong for each in rows))


def _decisions(found: Sequence[Compared]) -> int:
    print(
        f"\n{'kind':<12}{'HPAs':>6}{'from 0':>8}{'syncs':>7}{'changes':>9}{'different':>11}"
        f"{'not at an edge':>16}"
    )
    for kind, those in _by_kind(found, lambda each: each.row.case.kind):
        zero = sum(each.from_zero for each in those)
        syncs = sum(len(each.pairs) for each in those)
        changes = sum(each.changes for each in those)
        different = sum(len(each.different) for each in those)
        wrong = sum(len(each.wrong) for each in those)
        print(f"{kind:<12}{len(those):>6}{zero:>8}{syncs:>7}{changes:>9}{different:>11}{wrong:>16}")
    for each in found:
        for index in each.wrong:
            decided, real = each.pairs[index]
            print(f"{each.hpa}: {decided} and not {real} after {each.history[: index + 2]}")
    return int(any(each.wrong for each in found))


def _by_kind(found: Sequence[T], kind: Callable[[T], str]) -> Iterable[tuple[str, Sequence[T]]]:
    for name in worlds.KINDS:
        yield name, [each for each in found if kind(each) == name]
    yield "all", found


if __name__ == "__main__":
    with foreground.program(signal_status=130):
        sys.exit(main(sys.argv[1:]))
