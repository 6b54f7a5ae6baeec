"""Parses quantities as the adapter and the API server write them, such as `20500m` and `14Gi`."""

from __future__ import annotations

from fractions import Fraction

_FACTORS = {
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("", *"kMGTPE"))},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def parse(text: str) -> Fraction:
    """Return the value of a quantity."""
    number = text.rstrip("mkKMGTPEi")
    return Fraction(number) * _FACTORS[text.removeprefix(number)]
