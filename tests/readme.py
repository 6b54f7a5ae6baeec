"""The parts of README.md that are made from the program.

`python -m tests.readme --write` writes them. Each stands between `<!-- NAME -->` and
`<!-- /NAME -->`; a test holds that they agree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from adapter import settings
from rules import presets
from tests.presets.table import LACKING, METRICS, NODES, PRESETS, VARIANTS

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
        cells = ["✓" if name in given else "" for name in names]
        told = NODES.get(variant)
        node = "✓" if told is None else "relabelled" if told else ""
        listed = ", ".join(f"`{preset}`" for preset in used)
        lines.append(f"| {variant} | {listed} | {' | '.join(cells)} | {node} |")
    return "\n".join(lines)


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
