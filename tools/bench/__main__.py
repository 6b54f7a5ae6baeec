"""`make bench`: measure what the performance claims say, as ratios within one run.

    PEER='/path/to/adapter {flags}' make bench

runs the same load also on another server that takes the flags of prometheus-adapter, and

    make bench ARGS=--other=CHECKOUT

on the adapter of another checkout, with the same flags, in turn. A repeated --size repeats the open
loop. Progress is printed on standard error. Fails if a claim does not hold, and if this version
takes a tenth more CPU or memory than the other one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench import load, processes, proposals, relist, report, sidecar, testbed, watch
from tools.bench.load import ClosedResult, Pace
from tools.bench.workload import Size

SIZES = ("10x100x2", "100x1000x10", "1000x10000x40")
_JSON = Path(__file__).parents[2] / "build" / "bench.json"


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the benchmarks and print their tables; return 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=main.__doc__)
    parser.add_argument(
        "--size",
        dest="sizes",
        metavar="AUTOSCALERSxPODSxNAMESPACES",
        action="append",
        help=f"repeatable; the closed loop runs at the last one (default {' '.join(SIZES)})",
    )
    parser.add_argument("--json", type=Path, default=_JSON, help="also write the results here")
    for field in dataclasses.fields(Pace):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    parser.add_argument("--other", type=Path, help="checkout whose adapter is compared with this")
    parser.add_argument("--load-only", action="store_true", help="only the load")
    arguments = parser.parse_args(argv)
    pace = Pace(**{each.name: getattr(arguments, each.name) for each in dataclasses.fields(Pace)})
    servers = [testbed.ADAPTER]
    if command := environ.get("PEER"):
        servers.append(testbed.peer(command))
    if arguments.other:
        servers.append(testbed.other(arguments.other))
    sizes = [Size.parse(text) for text in arguments.sizes or SIZES]
    columns, closed = _run_load(sizes, servers, pace)
    print("\nopen loop: each autoscaler requests its metric every", f"{pace.period:g} s")
    print("\n".join((*report.open_table(columns), *report.details(columns))))
    print(f"\nclosed loop: {pace.connections} connections repeat one request")
    print("\n".join(report.closed_table(closed)), flush=True)
    for other in servers[1:]:
        print(f"\n{testbed.ADAPTER.name}, x {other.name}")
        compared = report.comparison(columns, closed, testbed.ADAPTER.name, other.name)
        print("\n".join(compared), flush=True)
    problems = [*report.problems(testbed.ADAPTER.name, columns, closed)]
    if arguments.other:
        problems += report.regressions(columns, testbed.ADAPTER.name, servers[-1].name)
    results: dict[str, Any] = {
        "open": [
            {"server": name, **dataclasses.asdict(size), **dataclasses.asdict(result)}
            for name, size, result in columns
        ],
        "closed": [dataclasses.asdict(each) for each in closed],
    }
    if not arguments.load_only:
        for module in (relist, watch, proposals, sidecar):
            processes.progress(f"python -m {module.__name__}")
            print()
            rows, broken = module.run()
            results[module.__name__.rpartition(".")[2]] = rows
            problems += broken
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results | {"problems": problems}, indent=1))
    processes.progress(f"wrote {arguments.json}")
    print("\n".join(("", *problems)) if problems else "\nall claims hold")
    return 1 if problems else 0


def _run_load(
    sizes: Sequence[Size], servers: Sequence[testbed.Server], pace: Pace
) -> tuple[list[report.Column], list[ClosedResult]]:
    columns: list[report.Column] = []
    closed: list[ClosedResult] = []
    for size in sizes:
        with testbed.running(size) as bed:
            for server in servers:
                seconds = pace.period + pace.measured
                processes.progress(f"{server.name}, {size}: open loop, {seconds:.0f} s")
                columns.append((server.name, size, load.run_open(bed, server, pace)))
            if size == sizes[-1]:
                closed = load.run_closed(bed, servers, pace)
    columns.sort(key=lambda column: column[0])
    return columns, closed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
