"""Flag for the limits of what somebody can make grow who may write objects in one namespace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapter.settings.flag import FlagGroup, flag, repeated
from rules import limits
from rules.findings import Finding
from rules.limits import Limits


def _value(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (number.isascii() and number.isdigit()):
        raise ValueError("must be NAME=NUMBER, such as team-rules=200")
    limits.DEFAULT.with_values({name: int(number)})
    return name, int(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings(FlagGroup):
    """How much the objects of one namespace may make the adapter work and keep."""

    TITLE = "Limits"

    given: tuple[tuple[str, int], ...] = flag(
        "limit",
        repeated("name=number", _value),
        "Another value of a limit on what the objects of one namespace can make grow, such as "
        "team-rules=200. docs/security.md lists the limits. Repeatable.",
    )

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return limits.DEFAULT.with_values(dict(self.given))

    def problems(self) -> Iterator[Finding]:
        """Yield a problem for each limit that is given twice."""
        names = [name for name, _ in self.given]
        for name in sorted({each for each in names if names.count(each) > 1}):
            yield Finding(subject=f"--limit={name}", fact="is given twice")
