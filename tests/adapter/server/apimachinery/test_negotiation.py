"""Content negotiation as Kubernetes does it."""

from __future__ import annotations

import pytest

from adapter.server.apimachinery import negotiation
from adapter.server.apimachinery.encoding import JSON, PROTOBUF, YAML
from adapter.server.apimachinery.negotiation import Accepted


@pytest.mark.parametrize(
    ("accept", "routable"),
    [
        ("", True),
        ("*/*", True),
        ("*/*;q=0.1", True),
        ("application/json", True),
        ("application/json;as=Table", True),
        ("text/html, application/json;q=0", True),
        ("application/vnd.kubernetes.protobuf, */*", True),
        ("application/*", False),
        ("Application/JSON", False),
        ("application/cbor", False),
        ("text/html", False),
    ],
)
def test_the_router_ignores_parameters(accept, routable):
    assert negotiation.routable(accept) is routable


@pytest.mark.parametrize(
    ("accept", "pretty"),
    [
        ("", False),
        ("*/*", False),
        ("*", False),
        ("application/*", False),
        ("application/json;foo=bar", False),
        ("application/json;stream=watch", False),
        ("application/json;sv=", False),
        ("application/json;as=;g=;v= ", False),
        ("application/json;pretty=1;pretty=", True),
        ("application/json;\tas=Table", False),
        ("application/json;pretty=1", True),
        ("application/json; pretty=1 ; q=0.9", True),
        ("application/json;pretty=0", False),
        ("application/json;q=0", False),
        ("application/json;pretty=1;q=0.1, */*", False),
        ("*/*;q=x, application/json;pretty=1;q=0.5", True),
        ("*/*, application/json;pretty=1", True),
        ("application/json;q=nan;pretty=1", True),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", False),
    ],
)
def test_the_preferred_acceptable_clause_decides(accept, pretty):
    assert negotiation.negotiate(accept) == Accepted(encoding=JSON, pretty=pretty)


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/json;as=Table",
        "application/json;g=meta.k8s.io",
        "application/json;stream=foo",
        "application/json;sv=v1",
        "application/json;sv=v1;sv=",
        "Application/JSON",
        "*/json",
        "json",
        "application/json/x",
        "text/html," * 200,
        ",;,",
    ],
)
def test_a_header_without_an_acceptable_clause_is_refused(accept):
    assert negotiation.negotiate(accept) is None


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        ("application/yaml", YAML),
        ("application/vnd.kubernetes.protobuf", PROTOBUF),
        ("application/vnd.kubernetes.protobuf, */*", PROTOBUF),
        ("application/vnd.kubernetes.protobuf;stream=watch", PROTOBUF),
        ("application/vnd.kubernetes.protobuf,application/json", PROTOBUF),
        ("application/cbor, application/json;q=0.5", JSON),
        ("application/yaml;pretty=1", YAML),
        ("application/yaml;stream=watch, */*;q=0.1", JSON),
        ("application/yaml, application/json", YAML),
        ("application/json;q=0.5, application/yaml", YAML),
        ("*/*, application/yaml;q=0.9", YAML),
        ("*/*, text/html, application/yaml;q=0.9", YAML),
        ("application/json, */*, application/yaml;q=0.9", JSON),
        ("*/*, application/yaml;q=0.9" + ", text/html;q=0.1" * 11, JSON),
    ],
)
def test_other_encodings_are_sent_to_clients_that_prefer_them(accept, encoding):
    assert negotiation.negotiate(accept) == Accepted(encoding=encoding)


def clause(media_type: str, kind: str, version: str = "v1") -> str:
    return f"{media_type};as={kind};v={version};g=meta.k8s.io"


WITHOUT_TABLE = negotiation.ONLY_UNCHANGED | negotiation.PARTIAL
ALL = WITHOUT_TABLE | negotiation.TABLE


@pytest.mark.parametrize(
    ("accept", "transforms", "kind", "version"),
    [
        (clause(JSON, "Table"), ALL, "Table", "v1"),
        (clause(JSON, "Table", "v1beta1"), ALL, "Table", "v1beta1"),
        (clause(YAML, "Table"), ALL, "Table", "v1"),
        (clause("*/*", "Table"), ALL, "Table", "v1"),
        (f"{clause(JSON, 'Table', 'v2')},{clause(JSON, 'Table')}", ALL, "Table", "v1"),
        (f"{clause(JSON, 'Table')},{JSON}", negotiation.ONLY_UNCHANGED, "", ""),
        (f"{clause(JSON, 'Table')},{JSON}", WITHOUT_TABLE, "", ""),
        (clause(JSON, "PartialObjectMetadata"), ALL, "PartialObjectMetadata", "v1"),
        (clause(JSON, "PartialObjectMetadataList"), ALL, "PartialObjectMetadataList", "v1"),
        (JSON, ALL, "", ""),
    ],
)
def test_the_form_is_negotiated_with_the_encoding(accept, transforms, kind, version):
    accepted = negotiation.negotiate(accept, transforms)

    assert accepted is not None
    assert (accepted.transform.kind, accepted.transform.version) == (kind, version)


@pytest.mark.parametrize(
    ("accept", "transforms"),
    [
        (clause(JSON, "Table"), negotiation.ONLY_UNCHANGED),
        (clause("*/*", "Table"), WITHOUT_TABLE),
        (clause(PROTOBUF, "Table"), ALL),
        (clause(JSON, "Table", "v2"), ALL),
        (f"{JSON};as=Table", ALL),
        (JSON, negotiation.TABLE),
    ],
)
def test_a_form_that_is_not_served_is_refused(accept, transforms):
    assert negotiation.negotiate(accept, transforms) is None


@pytest.mark.parametrize(
    ("accept", "accepted"),
    [
        ("", True),
        ("*/*", True),
        ("application/*", True),
        ("application/json;as=Table", True),
        ("text/html, */*;q=0.1", True),
        ("text/*", False),
        ("application/yaml", False),
        (",", False),
    ],
)
def test_parameters_do_not_count_where_there_is_only_one_form(accept, accepted):
    assert negotiation.accepts(accept, JSON) is accepted


def test_a_long_header_accepts_nothing():
    longest = "application/json" + "," * (4096 - 16)

    assert negotiation.negotiate(longest) is not None
    assert negotiation.negotiate(longest + ",") is None


@pytest.mark.parametrize(("before", "media_type"), [(63, YAML), (64, None)])
def test_only_the_first_64_clauses_of_a_header_count(before, media_type):
    header = ",".join(["text/html"] * before + [YAML])

    accepted = negotiation.negotiate(header)

    assert accepted == (media_type and Accepted(encoding=media_type))
    assert negotiation.accepts(header, YAML) is bool(media_type)
