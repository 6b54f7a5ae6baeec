"""OpenAPI v2 in protobuf. The bytes are compared with Kubernetes' own by tests/manifests."""

from __future__ import annotations

import pytest

from adapter.api import openapi_protobuf
from adapter.http import protobuf

DOCUMENT = {
    "swagger": "2.0",
    "info": {"title": "t", "version": "v"},
    "paths": {
        "/a/{name}": {
            "get": {
                "operationId": "read",
                "produces": ["application/json"],
                "x-kubernetes-action": "get",
                "x-kubernetes-group-version-kind": {"kind": "A", "group": "g"},
                "responses": {
                    "200": {"description": "OK", "schema": {"$ref": "#/definitions/A"}},
                    "401": {"description": "Unauthorized"},
                },
            },
            "parameters": [
                {"name": "name", "in": "path", "required": True, "type": "string"},
                {"name": "pretty", "in": "query", "type": "string", "uniqueItems": True},
            ],
        }
    },
    "definitions": {
        "A": {
            "type": "object",
            "required": ["b"],
            "properties": {
                "b": {"type": "array", "items": {"type": "string"}},
                "c": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        }
    },
}


def test_names_of_paths_definitions_and_extensions_become_fields():
    body = openapi_protobuf.encode(DOCUMENT)

    message = protobuf.classes(openapi_protobuf._MESSAGES)["Document"].FromString(body)
    (path,), (definition,) = message.paths.path, message.definitions.properties
    get, parameters = path.value.get, path.value.parameters
    assert (path.name, definition.name) == ("/a/{name}", "A")
    assert [each.value.yaml for each in get.extensions] == ["get\n", "kind: A\ngroup: g\n"]
    assert [each.name for each in get.responses.responses] == ["200", "401"]
    assert parameters[0].parameter.nonBody.path.name == "name"
    assert parameters[1].parameter.nonBody.query.uniqueItems
    items, values = (each.value for each in definition.value.properties.properties)
    assert items.items.schema[0].type.value == ["string"]
    assert values.additionalProperties.schema.type.value == ["integer"]


def test_a_key_that_has_no_field_is_an_error():
    with pytest.raises(ValueError, match="host"):
        openapi_protobuf.encode({**DOCUMENT, "host": "localhost"})
