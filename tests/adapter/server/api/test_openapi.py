"""`/openapi/v2` and `/openapi/v3`, as aggregators and kubectl read them."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path

import pytest

from adapter.server.api import groups
from adapter.server.apimachinery import encoding
from rules.kinds import PODS, Kinds
from rules.metrics_apis import APIS
from rules.query.aggregate import Value
from rules.query.catalog import Catalog, Entry
from tests.adapter import wired

V1BETA1 = "apis/custom.metrics.k8s.io/v1beta1"
KIND = "x-kubernetes-group-version-kind"
VERSIONS = [
    pytest.param(group, version, id=f"{group.API.name}/{version}")
    for group in groups.GROUPS
    for version in group.API.versions
]
FILES = sorted(Path(groups.__file__).parent.glob("*.json"))


@pytest.fixture
async def port():
    metric = Entry(metric="m", resource=PODS, namespaced=True, sources=())
    objects = wired.Objects(Kinds.builtin(), {})
    value = Value(milli=1500, time=0.0, samples=1)
    handler = wired.build_router(
        Catalog.of([metric], ()), objects, wired.Evaluation({(PODS, "p"): value})
    )
    async with wired.listening(handler) as port:
        yield port


async def get(port: int, target: str, **headers: str):
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return await wired.fetch(port, target, headers=fields)


def objects_in(document: object) -> Iterator[dict]:
    """Yield every JSON object within a document."""
    if isinstance(document, dict):
        yield document
        document = list(document.values())
    if isinstance(document, list):
        for each in document:
            yield from objects_in(each)


def schemas_of(document: dict) -> dict:
    return document.get("definitions") or document["components"]["schemas"]


@pytest.fixture(params=FILES, ids=lambda path: path.name)
def document(request):
    return json.loads(request.param.read_text())


def test_references_and_definitions_match(document):
    definitions = schemas_of(document)
    prefix = "#/definitions/" if "definitions" in document else "#/components/schemas/"

    references = {each["$ref"] for each in objects_in(document) if "$ref" in each}

    assert references == {f"{prefix}{name}" for name in definitions}


def test_references_have_no_siblings_except_descriptions_in_swagger(document):
    allowed = {"$ref", "description"} if "swagger" in document else {"$ref"}

    assert all(each.keys() <= allowed for each in objects_in(document) if "$ref" in each)


def test_all_path_parameters_and_properties_are_described(document):
    for path, item in document["paths"].items():
        names = {each["name"] for each in item["parameters"] if each["in"] == "path"}
        assert names == {part.strip("{}") for part in path.split("/") if part.startswith("{")}
    for schema in schemas_of(document).values():
        assert all(each["description"] for each in (schema, *schema["properties"].values()))
        assert set(schema.get("required", ())) <= schema["properties"].keys()
    ids = [item["get"]["operationId"] for item in document["paths"].values()]
    assert len(set(ids)) == len(ids)


def test_all_encodings_are_named(document):
    for item in document["paths"].values():
        answer = item["get"]["responses"]["200"]
        named = answer["content"] if "content" in answer else item["get"]["produces"]
        assert tuple(named) == encoding.PRODUCED


def test_definition_names_cannot_collide_with_those_of_the_api_server(document):
    assert all(name.startswith("io.k8s.metrics.pkg.apis.") for name in schemas_of(document))


@pytest.mark.parametrize(("group", "version"), VERSIONS)
async def test_both_documents_have_the_same_paths_and_all_are_routes(port, group, version):
    base = f"/apis/{group.API.name}/{version}/"
    swagger = json.loads((await get(port, "/openapi/v2")).body)
    third = json.loads((await get(port, f"/openapi/v3/apis/{group.API.name}/{version}")).body)

    assert list(third["paths"]) == [path for path in swagger["paths"] if path.startswith(base)]
    assert all(group.routes(tuple(path.removeprefix(base).split("/"))) for path in third["paths"])


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_answers_have_the_documented_properties(port, version):
    target = f"/apis/custom.metrics.k8s.io/{version}/namespaces/default/pods/p/m"
    answer = json.loads((await get(port, target)).body)
    third = await get(port, f"/openapi/v3/apis/custom.metrics.k8s.io/{version}")
    schemas = json.loads(third.body)["components"]["schemas"]
    package = f"io.k8s.metrics.pkg.apis.custom_metrics.{version}"
    list_schema = schemas[f"{package}.MetricValueList"]
    item_schema = schemas[f"{package}.MetricValue"]

    assert list_schema[KIND] == [
        {"group": "custom.metrics.k8s.io", "version": version, "kind": answer["kind"]}
    ]
    for schema, value in ((list_schema, answer), (item_schema, answer["items"][0])):
        assert set(schema["required"]) <= value.keys() <= schema["properties"].keys()


async def test_swagger_has_every_version_and_its_hash_as_etag(port):
    reply = await get(port, "/openapi/v2")

    document = json.loads(reply.body)
    assert reply.status == 200
    assert document["swagger"] == "2.0"
    assert {path.split("/")[3] for path in document["paths"]} == {"v1", "v1beta1", "v1beta2"}
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.headers["Cache-Control"] == "no-cache, private"
    assert reply.headers["Vary"] == "Accept-Encoding, Accept"
    assert reply.headers["Etag"] == f'"{hashlib.sha512(reply.body).hexdigest().upper()}"'
    assert parsedate_to_datetime(reply.headers["Last-Modified"]) <= datetime.now(UTC)


async def test_the_v3_index_lists_each_version_with_its_hash_and_nothing_else(port):
    reply = await get(port, "/openapi/v3", Accept="text/html")

    paths = json.loads(reply.body)["paths"]
    assert list(paths) == sorted(api.path(version)[1:] for api in APIS for version in api.versions)
    for key, entry in paths.items():
        document = await get(port, entry["serverRelativeURL"])
        tag = hashlib.sha512(document.body).hexdigest().upper()
        assert entry["serverRelativeURL"] == f"/openapi/v3/{key}?hash={tag}"
        assert json.loads(document.body)["openapi"] == "3.0.0"


async def test_a_url_with_the_hash_is_immutable_for_a_year(port):
    index = json.loads((await get(port, "/openapi/v3")).body)

    reply = await get(port, index["paths"][V1BETA1]["serverRelativeURL"])

    expires = reply.headers["Expires"]
    assert reply.headers["Cache-Control"] == "public, immutable"
    assert expires.endswith(" UTC")
    assert parsedate_to_datetime(expires.replace("UTC", "GMT")) - datetime.now(UTC) > timedelta(364)


async def test_another_hash_is_redirected_to_the_current_one(port):
    index = json.loads((await get(port, "/openapi/v3")).body)

    reply = await get(port, f"/openapi/v3/{V1BETA1}?hash=OLD")

    assert (reply.status, reply.body) == (301, b"")
    assert reply.headers["Location"] == index["paths"][V1BETA1]["serverRelativeURL"]


async def test_a_url_without_a_hash_is_not_cacheable(port):
    reply = await get(port, f"/openapi/v3/{V1BETA1}")

    assert reply.status == 200
    assert reply.headers["Cache-Control"] == "no-cache, private"
    assert reply.headers["Vary"] == "Accept"


@pytest.mark.parametrize("key", ["", "apis", "version", f"{V1BETA1}/", "apis/apps/v1"])
async def test_an_unknown_v3_document_is_an_empty_200(port, key):
    reply = await get(port, f"/openapi/v3/{key}")

    assert (reply.status, reply.body) == (200, b"")
    assert "Content-Type" not in reply.headers


TARGETS = ["/openapi/v2", "/openapi/v3", f"/openapi/v3/{V1BETA1}"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tag", ["{}", "W/{}", '"x", {}', "*"])
async def test_a_matching_etag_gets_304(port, target, tag):
    current = (await get(port, target)).headers["Etag"]

    reply = await get(port, target, If_None_Match=tag.format(current))

    assert (reply.status, reply.body) == (304, b"")
    assert reply.headers["Etag"] == current
    assert "Content-Type" not in reply.headers


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("seconds", "status"), [(0, 304), (3600, 304), (-3600, 200)])
async def test_if_modified_since_is_honoured_unless_there_is_an_etag(port, target, seconds, status):
    modified = parsedate_to_datetime((await get(port, target)).headers["Last-Modified"])
    since = format_datetime(modified + timedelta(seconds=seconds), usegmt=True)

    assert (await get(port, target, If_Modified_Since=since)).status == status
    # If-None-Match takes precedence.
    assert (await get(port, target, If_Modified_Since=since, If_None_Match='"x"')).status == 200


async def test_swagger_is_compressed_at_any_size(port):
    plain = await get(port, "/openapi/v2")

    reply = await get(port, "/openapi/v2", Accept_Encoding="gzip")

    assert reply.headers["Content-Encoding"] == "gzip"
    assert reply.headers["Vary"] == "Accept-Encoding, Accept"
    assert gzip.decompress(reply.body) == plain.body


PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
JSON = "application/json"


@pytest.mark.parametrize(
    ("accept", "received"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        ("application/json;q=0.1", JSON),
        (PROTOBUF, None),
        (f"{PROTOBUF}, application/json", JSON),
        (f"{PROTOBUF};q=0.5, application/json", JSON),
        ("text/html", None),
        ("application/yaml", None),
    ],
)
async def test_swagger_is_served_in_json_only(port, accept, received):
    reply = await get(port, "/openapi/v2", Accept=accept)

    assert (reply.status, reply.headers.get("Content-Type")) == (200 if received else 406, received)
    assert (reply.body == b"") is (received is None)


@pytest.mark.parametrize(
    ("accept", "status"), [("", 200), ("application/*", 200), (PROTOBUF, 406), ("text/html", 406)]
)
async def test_openapi_v3_is_served_in_json_only(port, accept, status):
    reply = await get(port, f"/openapi/v3/{V1BETA1}", Accept=accept)

    assert reply.status == status
    assert (reply.body == b"") is (status == 406)


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/openapi/v2", "POST", 200),
        ("/openapi/v2", "HEAD", 200),
        ("/openapi", "GET", 404),
        ("/openapi/", "GET", 404),
        ("/openapi/v2/", "GET", 404),
        ("/openapi/v4", "GET", 404),
    ],
)
async def test_paths_are_exact_and_allow_any_method(port, target, method, status):
    reply = await wired.fetch(port, target, method=method)

    assert reply.status == status
    if status == 404:
        assert {"/openapi/v2", "/openapi/v3", "/openapi/v3/"} <= set(
            json.loads(reply.body)["paths"]
        )
