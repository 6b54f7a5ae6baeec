"""The kinds of resource that a cluster knows, as one immutable value.

`Kinds` resolves the spellings that rules files and URLs use (singular, plural, any case, with or
without a group) to the normal form, as the original's RESTMapper does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class GroupResource:
    """A resource in its normal form: the plural, with its API group ("" for core)."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource
