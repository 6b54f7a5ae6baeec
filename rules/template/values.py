"""The values that a template computes with, and what Go's reflection says of them.

| Go | here |
|---|---|
| string | `str` (see `literals` for bytes that are not UTF-8) |
| []string | `list` or `tuple` of `str`; `Slice` when it was cut from a longer one |
| map[string]string | `dict` |
| int, float64, complex128, bool | `int`, `float`, `complex`, `bool` |
| uint8 (a byte of a string) | `Byte` |
| the struct that holds a template's data | `Record` |
| nil, and the value of a missing key | `None` |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rules import errors

QUERY_FIELDS: dict[str, type] = {
    "Series": str,
    "LabelMatchers": str,
    "LabelValuesByName": dict,
    "GroupBy": str,
    "GroupBySlice": list,
}
"""The data of a query template, in the order in which Go prints it."""

LABEL_FIELDS: dict[str, type] = {"Group": str, "Resource": str}
"""The data of a label template."""

_PLACES = {name: place for place, name in enumerate((*QUERY_FIELDS, *LABEL_FIELDS))}

Kind = Literal[
    "invalid", "bool", "int", "uint", "float", "complex", "string", "slice", "map", "struct"
]


class Byte(int):
    """A byte of a string: Go's uint8."""

    __slots__ = ()


class Slice(tuple[str, ...]):  # noqa: SLOT001 - a tuple has no room for slots
    """A list that was cut from a longer one and, as in Go, can grow back to it."""

    beyond: tuple[str, ...] = ()
    """What follows, up to its capacity."""

    @classmethod
    def cut(cls, whole: tuple[str, ...], start: int, end: int, limit: int) -> Slice:
        part = cls(whole[start:end])
        part.beyond = whole[end:limit]
        return part


class Record:
    """A template's data: fields with fixed names, not a map."""

    __slots__ = ("fields",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.fields = fields

    @property
    def is_label(self) -> bool:
        """Whether it stands for Kubernetes' GroupResource, which knows how to print itself."""
        return self.fields.keys() == LABEL_FIELDS.keys()

    def __str__(self) -> str:
        """`resource.group`, of a label's data."""
        group, resource = self.fields["Group"], self.fields["Resource"]
        return f"{resource}.{group}" if group else str(resource)

    def items(self) -> list[tuple[str, object]]:
        """Names and values in the order of the original's struct."""
        return sorted(self.fields.items(), key=lambda item: _PLACES.get(item[0], len(_PLACES)))


_KINDS: dict[type, Kind] = {
    type(None): "invalid",
    bool: "bool",
    int: "int",
    Byte: "uint",
    float: "float",
    complex: "complex",
    str: "string",
    list: "slice",
    tuple: "slice",
    Slice: "slice",
    dict: "map",
    Record: "struct",
}

_TYPES: dict[Kind, str] = {
    "invalid": "<nil>",
    "bool": "bool",
    "int": "int",
    "uint": "uint8",
    "float": "float64",
    "complex": "complex128",
    "string": "string",
    "slice": "[]string",
    "map": "map[string]string",
}


def kind(value: object) -> Kind:
    """What sort of value it is; TemplateExecError for what no template's data may hold."""
    found = _KINDS.get(type(value))
    if found is None:
        raise errors.TemplateExecError(
            f"a template's data holds text, lists and maps, not {type(value).__name__}"
        )
    return found


def type_name(value: object) -> str:
    """The name of its type in Go, as %T prints it."""
    if isinstance(value, Record):
        return "schema.GroupResource" if value.is_label else "naming.queryTemplateArgs"
    return _TYPES[kind(value)]


def truth(value: object) -> bool:
    """Go's truth: not the zero value and not empty; a struct always."""
    return isinstance(value, Record) or bool(value)
