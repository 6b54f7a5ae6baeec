"""The parts of README.md that are made from the program.

`python -m tests.readme --write` writes them. Each stands between `<!-- NAME -->` and
`<!-- /NAME -->`; a test holds that they agree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path

from adapter import settings
from rules import presets
from tests.presets.table import LACKING, METRICS, NODES, PRESETS, TITLES, VARIANTS
from tests.presets.worlds import GOLDEN

_TWINS = (
    "Each but `memory_utilization_current` has a twin in `_over_time`: the mean of three minutes, "
    "rounded up."
)
README = Path(__file__).parents[1] / "README.md"


def flags() -> str:
    return settings.markdown()


def preset_list() -> str:
    rows = [f"| `{name}` | {presets.describe(name)} |" for name in presets.names()]
    return "\n".join(["| preset | reads |", "|---|---|", *rows])


def metrics() -> str:
    rows = [
        f"| `{name}` | {metric.unit} | {metric.meaning} |"
        for name, metric in METRICS.items()
        if name.endswith("_current")
    ]
    return "\n".join(
        [
            "| metric | unit | of an object with several GPUs |",
            "|---|---|---|",
            *rows,
            "",
            _TWINS,
        ]
    )


def generations() -> str:
    names = [name for name in METRICS if name.endswith("_current")]
    short = [name.removesuffix("_current").replace("_", " ") for name in names]
    lines = [
        f"| exporter | presets | {' | '.join(short)} | nodes |",
        f"|---|---|{'---|' * len(names)}---|",
    ]
    for variant, used in VARIANTS.items():
        given = {name for preset in used for name in PRESETS[preset]} - LACKING.get(variant, set())
        told = NODES.get(variant)
        node = "✓" if told is None else "relabelled" if told else ""
        lines.append(_row(variant, used, given, names, node))
    for case in GOLDEN["cases"]:
        if case["preset"] in _ONLY_HERE:
            objects = {**case["pods"], **case["nodes"]}
            given = {name for values in objects.values() for name in values}
            node = "✓" if case["pods"] else "relabelled, no pods" if "scheme" in case else "no pods"
            lines.append(_row(case["variant"], (case["preset"],), given, names, node))
    return "\n".join(lines)


_ONLY_HERE = ("gpu-dcgm-mig", "gpu-node")
"""Presets whose exporters are hard cases of golden.json, and no variant of the ordinary fleet."""


def _row(
    variant: str, used: Iterable[str], given: Container[str], names: Iterable[str], node: str
) -> str:
    cells = ["✓" if name in given else "" for name in names]
    listed = ", ".join(f"`{preset}`" for preset in used)
    return f"| {TITLES[variant]} | {listed} | {' | '.join(cells)} | {node} |"


PARTS: Mapping[str, Callable[[], str]] = {
    "presets": preset_list,
    "metrics": metrics,
    "generations": generations,
    "flags": flags,
}


def written(text: str) -> str:
    """`text` with every part made anew."""
    for name, make in PARTS.items():
        pattern = re.compile(f"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
        part = f"<!-- {name} -->\n{make().strip()}\n<!-- /{name} -->"
        text, count = pattern.subn(lambda _, part=part: part, text)
        if count != 1:
            raise ValueError(f"README.md has {count} parts called {name}")
    return text


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.readme --write")
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
