"""The form in which an API is described here, from which documents of both versions are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
"""A JSON schema in which `$ref` holds the bare name of a definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a URL; those in a path are required."""

    name: str
    description: str
    kind: str = "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A GET that gives an object of the API's one kind."""

    path: str
    """Below the version, without a slash before it; `{NAME}` is a parameter of that name."""
    name: str
    """In lowerCamelCase, without the group and the version."""
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One version of one group."""

    label: str
    """In lowerCamelCase; what its operations are filed under."""
    kind: str
    """What every operation gives: a definition that is named after it."""
    package: str
    """The prefix of every definition's name, without its last dot."""
    definitions: Mapping[str, Schema]
    """By name within `package`, as `$ref` writes it too."""
    operations: Sequence[Operation]
    path: Sequence[Parameter]
    """Those that may stand in a path."""
    query: Sequence[Parameter]


def record(description: str, required: Sequence[str], /, **properties: Schema) -> Schema:
    """The schema of an object."""
    schema: dict[str, Any] = {"description": description, "type": "object"}
    if required:
        schema["required"] = list(required)
    return schema | {"properties": properties}


def text(description: str, **more: object) -> Schema:
    return {"description": description, "type": "string", **more}


def whole(description: str) -> Schema:
    return {"description": description, "type": "integer", "format": "int64"}


def reference(name: str, description: str) -> Schema:
    return {"description": description, "$ref": name}


def several(name: str, description: str) -> Schema:
    return {"description": description, "type": "array", "items": {"$ref": name}}


def strings(description: str) -> Schema:
    return {"description": description, "type": "array", "items": {"type": "string"}}


def texts_by_name(description: str) -> Schema:
    return {
        "description": description,
        "type": "object",
        "additionalProperties": {"type": "string"},
    }
