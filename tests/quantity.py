"""Parses quantities as the adapter and the API server write them: DecimalSI, such as `20500m`."""

from __future__ import annotations

from fractions import Fraction

_EXPONENTS = {"m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def parse(text: str) -> Fraction:
    """Return the value of a quantity."""
    number = text.rstrip("mkMGTPE")
    return Fraction(number) * Fraction(10) ** _EXPONENTS[text.removeprefix(number)]
