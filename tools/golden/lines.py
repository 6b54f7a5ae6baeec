"""The golden file: every line that a user reads of each case, from recorded inputs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import time_machine

from tools.golden import chart, cluster, exchanges, front, run
from tools.golden.cases import Case
from tools.golden.exchanges import PROMETHEUS, Recording
from tools.golden.run import Adapter

HERE = Path(__file__).parents[2] / "tests" / "golden"
FILE = HERE / "lines.txt"
_MARK = "=== "
_EVENTS = 45.0
"""Seconds after which a metric of an HPA without a value has its Event."""


def recording(case: Case) -> Path:
    """Return the file with what servers answered in a case."""
    name = "".join(each if each.isalnum() else "-" for each in case.title.lower())
    return HERE / "recordings" / f"{name}.json"


def document(cases: Mapping[str, Case]) -> str:
    """Return the text of the golden file."""
    parts = (
        *map(section, cases.values()),
        *map(cluster.section, cluster.TITLES),
        *map(chart.section, chart.TITLES),
    )
    return "".join(parts)


def section(case: Case) -> str:
    """Return the lines of a case, from its recording."""
    path = recording(case)
    recorded = Recording.load(path) if path.exists() else Recording(at=0, exchanges=())
    with (
        time_machine.travel(recorded.at, tick=False) if recorded.at else contextlib.nullcontext(),
        exchanges.replayed(recorded, {PROMETHEUS: PROMETHEUS}) as missing,
    ):
        text = "".join(f"{each}\n" for each in of(case))
    assert not missing, f"{case.title}: record it again; there is no answer to {missing[:3]}"
    return f"{_MARK}{case.title}\n{text}\n"


def sections(text: str) -> Mapping[str, str]:
    """Return the sections of a golden file by their titles."""
    parts = text.split(_MARK)[1:]
    return {each.partition("\n")[0]: f"{_MARK}{each}" for each in parts}


def of(case: Case) -> Iterator[str]:
    """Yield every line that a user reads."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder, contextlib.chdir(folder):
        for line in _lines(case, Path(folder)):
            yield run.normalized(line)


def _lines(case: Case, folder: Path) -> Iterator[str]:
    flags = list(case.flags)
    if case.rules:
        (folder / "rules.yaml").write_text(case.rules)
        flags.append("--config=rules.yaml")
    if case.serves:
        with Adapter(folder, case.objects, flags, case.hpas).running() as adapter:
            for path in case.requests:
                yield from adapter.request(path)
            yield from adapter.health()
            yield from adapter.logged()
            if case.hpas:
                yield from adapter.events(_EVENTS)
            with front.serving(
                folder, adapter.url, hpas=case.hpas, objects=case.objects, replicas=case.replicas
            ) as kubeconfig:
                for arguments in case.explained:
                    yield from run.command("explain", *arguments, f"--kubeconfig={kubeconfig}")
    for name, text in case.files.items():
        (folder / name).write_text(text)
    url = f"--prometheus-url=http://{PROMETHEUS}:9090"
    for name, *words in case.commands:
        if name == "SHOW":
            yield from run.shown(folder, *words)
        else:
            yield from run.command(name, *(url if each == "PROMETHEUS" else each for each in words))
