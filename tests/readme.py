"""Parts of README.md that are generated from the code.

Each is between `<!-- NAME -->` and `<!-- /NAME -->`. `python -m tests.readme --write` writes
them; a test fails if README.md is out of date.
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

_OVER_TIME = (
    "For each except `memory_utilization_current` there is also a metric `*_over_time`: "
    "the mean of three minutes, rounded up."
)
README = Path(__file__).parents[1] / "README.md"


def flags() -> str:
    """Return the tables of flags."""
    return settings.markdown()


def preset_list() -> str:
    """Return the table of presets."""
    rows = [f"| `{name}` | {presets.describe(name)} |" for name in presets.names()]
    return "\n".join(["| preset | reads |", "|---|---|", *rows])


def metrics() -> str:
    """Return the table of metrics."""
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
            _OVER_TIME,
        ]
    )


def generations() -> str:
    """Return the table of exporters: their presets, metrics and node metrics."""
    names = [name for name in METRICS if name.endswith("_current")]
    short = [name.removesuffix("_current").replace("_", " ") for name in names]
    lines = [
        f"| exporter | presets | {' | '.join(short)} | nodes |",
        f"|---|---|{'---|' * len(names)}---|",
    ]
    for variant, used in VARIANTS.items():
        available = {name for preset in used for name in PRESETS[preset]}
        available -= LACKING.get(variant, set())
        schemes = NODES.get(variant)
        node = "✓" if schemes is None else "relabelled" if schemes else ""
        lines.append(_row(variant, used, available, names, node))
    for case in GOLDEN["cases"]:
        if case["preset"] in _GOLDEN_ONLY:
            objects = {**case["pods"], **case["nodes"]}
            available = {name for values in objects.values() for name in values}
            node = "✓" if case["pods"] else "relabelled, no pods" if "scheme" in case else "no pods"
            lines.append(_row(case["variant"], (case["preset"],), available, names, node))
    return "\n".join(lines)


_GOLDEN_ONLY = ("gpu-dcgm-mig", "gpu-node")
"""Presets whose exporters occur only as cases of golden.json, not as variants."""


def _row(
    variant: str, used: Iterable[str], available: Container[str], names: Iterable[str], node: str
) -> str:
    cells = ["✓" if name in available else "" for name in names]
    preset_names = ", ".join(f"`{preset}`" for preset in used)
    return f"| {TITLES[variant]} | {preset_names} | {' | '.join(cells)} | {node} |"


PARTS: Mapping[str, Callable[[], str]] = {
    "presets": preset_list,
    "metrics": metrics,
    "generations": generations,
    "flags": flags,
}


def regenerated(text: str) -> str:
    """Return README.md's text with all parts generated again. Raises ValueError."""
    for name, generate in PARTS.items():
        pattern = re.compile(f"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
        part = f"<!-- {name} -->\n{generate().strip()}\n<!-- /{name} -->"
        text, count = pattern.subn(lambda _, part=part: part, text)
        if count != 1:
            raise ValueError(f"README.md: found {count} parts `{name}`, expected one")
    return text


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.readme --write")
    README.write_text(regenerated(README.read_text(encoding="utf-8")), encoding="utf-8")
