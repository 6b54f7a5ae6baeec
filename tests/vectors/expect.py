"""What every check says when an answer is not the wanted one."""

from __future__ import annotations


def same(came: object, wanted: object, what: str) -> None:
    """Raises AssertionError unless what came equals what was wanted."""
    if came != wanted:
        raise AssertionError(f"{what}\nwanted {wanted!r}\ncame   {came!r}")
