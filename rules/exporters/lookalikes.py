"""Finds names of series that look like the utilization of accelerators, of unknown exporters.

It judges by the words of a name. Exporters that are known are in `generations`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_DEVICES = ("gpu", "npu", "tpu", "xpu", "hpu", "ppu", "mlu", "dcu", "gcu", "rbln", "accelerator")
_BUSY = ("util", "busy", "duty", "activity", "usage", "load")
_OTHER = re.compile(
    r"mem|vram|cache|bytes|power|energy|temp|fan|clock|pcie|codec|total|limit|count"
)
_WORDS = re.compile(r"[^_:]+")
PATTERN = f"(?i:.*({'|'.join(_DEVICES)}).*({'|'.join(_BUSY)}).*)"
"""Regular expression of Prometheus that all names of `among` match, and some others."""


def among(names: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the names that look like utilization, sorted.

    Names that begin as one of `known` do, and those of recording rules (`level:metric:operation`),
    are left out.
    """
    first = {each for name in known for each in _WORDS.findall(name)[:1]}
    return tuple(
        sorted(
            name
            for name in names
            if name.count(":") < 2
            and _looks(words := _WORDS.findall(name))
            and words[0] not in first
        )
    )


def _looks(words: Collection[str]) -> bool:
    lower = [word.lower() for word in words]
    return (
        any(word.rstrip("s").endswith(_DEVICES) for word in lower)
        and any(word.startswith(_BUSY) for word in lower)
        and not any(_OTHER.match(word) for word in lower)
    )
