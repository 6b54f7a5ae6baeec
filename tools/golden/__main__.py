"""Record the inputs of the golden lines, or write the lines: `python -m tools.golden`.

    python -m tools.golden record [PART ...]   run a real Prometheus, and record its answers
    python -m tools.golden                     write lines.txt from the recordings

PART is a part of titles.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.faults.gate import Gate
from tools.golden import exchanges, histograms, lines
from tools.golden.cases import CASES, Case
from tools.golden.exchanges import PROMETHEUS, Recording
from tools.real import prometheus


def main(arguments: Sequence[str]) -> int:
    """Record, or write the lines."""
    if arguments[:1] != ["record"]:
        lines.FILE.write_text(lines.document(CASES))
        return 0
    parts = arguments[1:]
    chosen = [
        each for each in CASES.values() if not parts or any(part in each.title for part in parts)
    ]
    for number, case in enumerate(chosen, start=1):
        print(f"{number} of {len(chosen)}: {case.title}", file=sys.stderr, flush=True)
        _record(case)
    return 0


def _record(case: Case) -> None:
    with tempfile.TemporaryDirectory(prefix="golden-") as created:
        folder = Path(created)
        with _prometheus(case, folder) as url, exchanges.recorded({PROMETHEUS: url}) as recorded:
            at = time.time()
            list(lines.of(case))
    path = lines.recording(case)
    path.parent.mkdir(exist_ok=True)
    Recording.of(at, recorded).save(path)


@contextlib.contextmanager
def _prometheus(case: Case, folder: Path) -> Iterator[str]:
    """Run the Prometheus of a case, behind what fails, and yield its URL."""
    config = "storage: {tsdb: {out_of_order_time_window: 2h}}\n"
    with contextlib.ExitStack() as stack:
        flags = ("--enable-feature=native-histograms",) if case.histograms else ()
        server = stack.enter_context(prometheus.run(folder, config, flags=flags))
        server.put_series(case.samples(time.time()))
        histograms.write(server, case.histograms)
        if not case.gate:
            yield server.url
            return
        (folder / "empty").mkdir()
        empty = stack.enter_context(prometheus.run(folder / "empty"))
        gate = Gate(server.url, empty.url)
        stack.callback(gate.close)
        stack.enter_context(gate.failing(case.gate))
        yield gate.url


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
