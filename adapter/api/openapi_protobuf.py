"""OpenAPI v2 in protobuf: a `Document` of gnostic, as kube-openapi encodes it.

Pure. Covers what the documents in `api.groups` contain; other keys are an error.

https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto
https://github.com/kubernetes/kube-openapi/blob/master/pkg/handler/handler.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from adapter.http import protobuf

_PARAMETER = "1 required bool?, 2 in, 3 description, 4 name"
_MESSAGES = {
    "Document": "1 swagger, 2 info Info, 8 paths Paths, 9 definitions Properties",
    "Info": "1 title, 2 version",
    "Paths": "2 path NamedPathItem*",
    "NamedPathItem": "1 name, 2 value PathItem",
    "PathItem": "2 get Operation, 9 parameters ParametersItem*",
    "Operation": "1 tags *, 3 description, 5 operationId, 6 produces *, 9 responses Responses, "
    "10 schemes *, 13 extensions NamedAny*",
    "ParametersItem": "1 parameter Parameter",
    "Parameter": "2 nonBody NonBodyParameter",
    "NonBodyParameter": "3 query QueryParameter, 4 path PathParameter",
    "QueryParameter": f"{_PARAMETER}, 6 type, 20 uniqueItems bool",
    "PathParameter": f"{_PARAMETER}, 5 type, 19 uniqueItems bool",
    "Responses": "1 responses NamedResponse*",
    "NamedResponse": "1 name, 2 value ResponseValue",
    "ResponseValue": "1 response Response",
    "Response": "1 description, 2 schema SchemaItem",
    "SchemaItem": "1 schema Schema",
    "Schema": "1 ref, 2 format, 4 description, 19 required *, "
    "21 additionalProperties SchemaItem, 22 type Type, 23 items Items, 25 properties Properties, "
    "31 extensions NamedAny*",
    "Type": "1 value *",
    "Items": "1 schema Schema*",
    "Properties": "1 properties NamedSchema*",
    "NamedSchema": "1 name, 2 value Schema",
    "NamedAny": "1 name, 2 value Any",
    "Any": "2 yaml",
}
"""Written as in `http.protobuf_messages`. Names of messages and fields are not encoded."""

_Converter = Callable[[Any], Any]


def encode(document: Mapping[str, Any]) -> bytes:
    """Encode an OpenAPI v2 document in the JSON form."""
    message = protobuf.classes(_MESSAGES)["Document"](
        **{
            **document,
            "paths": {"path": _named(document["paths"], _path_item)},
            "definitions": {"properties": _named(document["definitions"], _schema)},
        }
    )
    return message.SerializeToString()


def _named(items: Mapping[str, Any], convert: _Converter) -> list[Mapping[str, Any]]:
    return [{"name": name, "value": convert(value)} for name, value in items.items()]


def _with_extensions(
    document: Mapping[str, Any], converters: Mapping[str, _Converter]
) -> dict[str, Any]:
    """Convert some fields and collect the extensions, whose values are YAML texts."""
    fields: dict[str, Any] = {
        key: converters[key](value) if key in converters else value
        for key, value in document.items()
        if not key.startswith("x-")
    }
    extensions = {key: value for key, value in document.items() if key.startswith("x-")}
    return {**fields, "extensions": _named(extensions, lambda value: {"yaml": _yaml(value)})}


def _yaml(value: object) -> str:
    return f"{value}\n" if isinstance(value, str) else yaml.safe_dump(value, sort_keys=False)


def _path_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "get": _with_extensions(item["get"], {"responses": _responses}),
        "parameters": [
            {"parameter": {"nonBody": {each["in"]: each}}} for each in item["parameters"]
        ],
    }


def _responses(responses: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"responses": _named(responses, lambda response: {"response": _response(response)})}


def _response(response: Mapping[str, Any]) -> Mapping[str, Any]:
    if "schema" not in response:
        return response
    return {**response, "schema": {"schema": _schema(response["schema"])}}


def _schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" in schema:
        reference = {key: value for key, value in schema.items() if key != "$ref"}
        return {"ref": schema["$ref"], **_schema(reference)}
    return _with_extensions(
        schema,
        {
            "type": lambda value: {"value": [value]},
            "items": lambda value: {"schema": [_schema(value)]},
            "properties": lambda value: {"properties": _named(value, _schema)},
            "additionalProperties": lambda value: {"schema": _schema(value)},
        },
    )
