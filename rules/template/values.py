"""Values of templates and how they are represented in Python.

| Go | Python |
|---|---|
| string | `str` |
| bool, int, float64 | `bool`, `int`, `float` |
| []string | `list` or `tuple` |
| map[string]string | `dict` |
| the struct that a template is rendered with | `Record` |
| nil, and the value of a missing key | `None` |

Go's truth is Python's: zero and empty values are false. A Record is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_TYPE_NAMES: dict[type, str] = {
    type(None): "nil",
    bool: "bool",
    int: "int",
    float: "float64",
    str: "string",
    list: "list",
    tuple: "list",
    dict: "map",
}


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Data of a template: fields with fixed names, not a map."""

    fields: Mapping[str, object]


def type_name(value: object) -> str:
    """Return the type of a value as messages show it."""
    return _TYPE_NAMES.get(type(value), "template data")
