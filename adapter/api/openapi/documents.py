"""The documents: swagger 2.0 for all groups together, OpenAPI 3.0 for each version of a group.

https://spec.openapis.org/oas/v2.0, https://spec.openapis.org/oas/v3.0.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from adapter.api.openapi.described import Api, Operation, Parameter, Schema
from adapter.http import encoding

_INFO = {"title": "gpu-metrics-adapter", "version": "unversioned"}
_KIND = "x-kubernetes-group-version-kind"
_SECOND = "#/definitions/"
_THIRD = "#/components/schemas/"

GroupVersion = tuple[str, str]


def openapi_v2(apis: Mapping[GroupVersion, Api]) -> encoding.Document:
    """The swagger 2.0 document of all of `apis`."""
    paths: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for of, api in apis.items():
        for operation in api.operations:
            get = _get(of, api, operation) | {
                "produces": list(encoding.PRODUCED),
                "schemes": ["https"],
                "responses": {
                    "200": {"description": "OK", "schema": {"$ref": _SECOND + _named(api)}},
                    "401": {"description": "Unauthorized"},
                },
            }
            paths[_path(of, operation)] = {
                "get": get,
                "parameters": [
                    {**_parameter(each, where), "type": each.kind, "uniqueItems": True}
                    for each, where in _parameters(api, operation)
                ],
            }
        definitions |= _definitions(of, api, _SECOND)
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


def openapi_v3(of: GroupVersion, api: Api) -> encoding.Document:
    """The OpenAPI 3.0 document of one version of a group."""
    content = {each: {"schema": {"$ref": _THIRD + _named(api)}} for each in encoding.PRODUCED}
    paths: dict[str, Any] = {}
    for operation in api.operations:
        get = _get(of, api, operation) | {
            "responses": {
                "200": {"description": "OK", "content": content},
                "401": {"description": "Unauthorized"},
            },
        }
        paths[_path(of, operation)] = {
            "get": get,
            "parameters": [
                {**_parameter(each, where), "schema": {"type": each.kind, "uniqueItems": True}}
                for each, where in _parameters(api, operation)
            ],
        }
    schemas = _definitions(of, api, _THIRD)
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _path(of: GroupVersion, operation: Operation) -> str:
    return f"/apis/{'/'.join(of)}/{operation.path}"


def _get(of: GroupVersion, api: Api, operation: Operation) -> dict[str, Any]:
    return {
        "description": operation.description,
        "operationId": f"read{api.label[0].upper()}{api.label[1:]}{operation.name}",
        "tags": [api.label],
        "x-kubernetes-action": "get",
        _KIND: _group_version_kind(of, api),
    }


def _parameters(api: Api, operation: Operation) -> Iterable[tuple[Parameter, str]]:
    for parameter in api.path:
        if f"{{{parameter.name}}}" in operation.path:
            yield parameter, "path"
    for parameter in api.query:
        yield parameter, "query"


def _parameter(parameter: Parameter, where: str) -> dict[str, Any]:
    found = {"name": parameter.name, "in": where, "description": parameter.description}
    return found | ({"required": True} if where == "path" else {})


def _definitions(of: GroupVersion, api: Api, prefix: str) -> dict[str, Any]:
    found = {
        f"{api.package}.{name}": _written(schema, f"{prefix}{api.package}.")
        for name, schema in api.definitions.items()
    }
    found[_named(api)][_KIND] = [_group_version_kind(of, api)]
    return found


def _written(schema: Schema, prefix: str) -> dict[str, Any]:
    """`schema` with references that a client can follow.

    In OpenAPI 3.0 nothing may stand beside a reference, which hence stands within `allOf`.
    """
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref":
            whole = {"$ref": f"{prefix}{value}"}
            alone = prefix.startswith(_SECOND) or len(schema) == 1
            found |= whole if alone else {"allOf": [whole]}
        elif key == "properties":
            found[key] = {name: _written(each, prefix) for name, each in value.items()}
        elif isinstance(value, Mapping):
            found[key] = _written(value, prefix)
        else:
            found[key] = value
    return found


def _named(api: Api) -> str:
    """The definition of what every operation gives."""
    return f"{api.package}.{api.kind}"


def _group_version_kind(of: GroupVersion, api: Api) -> dict[str, str]:
    group, version = of
    return {"group": group, "version": version, "kind": api.kind}
