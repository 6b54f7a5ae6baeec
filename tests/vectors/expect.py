"""Assertion of the checks."""

from __future__ import annotations


def same(actual: object, expected: object, what: str) -> None:
    """Raise AssertionError with both values unless they are equal."""
    if actual != expected:
        raise AssertionError(f"{what}\nexpected {expected!r}\nactual   {actual!r}")
