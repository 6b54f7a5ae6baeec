"""Protobuf encoding as Kubernetes writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adapter.server.apimachinery import encoding, protobuf
from adapter.server.apimachinery.protobuf_messages import KINDS, MESSAGES
from rules.metrics_apis import APIS

GOLDEN = json.loads(Path(__file__).with_name("protobuf.json").read_text())
"""Answers of the original: the object in JSON, and the bytes in hexadecimal form."""


@pytest.mark.parametrize("name", GOLDEN)
def test_objects_are_encoded_as_by_the_original(name):
    golden = GOLDEN[name]

    assert encoding.encode(golden["document"], encoding.PROTOBUF).hex() == golden["hex"]


def decoded(document: dict) -> Any:
    """Return the message that is sent for `document`."""
    body = protobuf.encode(document)
    classes = protobuf.classes(MESSAGES)
    unknown: Any = classes["Unknown"].FromString(body.removeprefix(b"k8s\x00"))
    name = KINDS[document.get("apiVersion", ""), document["kind"]]
    return classes[name].FromString(unknown.raw)


@pytest.mark.parametrize(("api_version", "kind"), KINDS)
def test_every_kind_has_a_message(api_version, kind):
    assert decoded({"apiVersion": api_version, "kind": kind}) is not None


@pytest.mark.parametrize(
    "api_version", [api.group_version(v) for api in APIS for v in api.versions]
)
def test_every_version_has_messages(api_version):
    assert api_version in {known for known, _ in KINDS}


def metric_values(*items: dict) -> dict:
    return {
        "kind": "MetricValueList",
        "apiVersion": "custom.metrics.k8s.io/v1beta2",
        "metadata": {},
        "items": items,
    }


REFERENCE = {"kind": "Node", "name": "n", "apiVersion": "/v1"}
IDENTIFIER = {"name": "m", "selector": None}


def test_what_go_keeps_in_pointers_is_sent_only_if_it_is_set():
    item = {"describedObject": REFERENCE, "metric": IDENTIFIER, "value": "1"}

    first, second = decoded(metric_values(item, {**item, "windowSeconds": 0})).items

    assert not first.HasField("windowSeconds")
    assert second.HasField("windowSeconds")
    assert first.HasField("timestamp")
    assert first.timestamp == b""
    assert (first.metric.name, first.metric.HasField("selector")) == ("m", False)


@pytest.mark.parametrize("value", ["", "20500m", "1" * 127, "1" * 128, "9" * 312])
def test_quantities_of_any_length_can_be_decoded(value):
    item = {"metricName": "m", "metricLabels": {}, "timestamp": None, "value": value}
    document = {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [item],
    }

    message = decoded(document).items[0].value
    quantity: Any = protobuf.classes(MESSAGES)["Quantity"].FromString(message)

    assert quantity.string == value


def test_the_labels_of_a_scalar_are_left_out():
    item = {"metricName": "m", "metricLabels": None, "timestamp": None, "value": "3"}
    document = {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [item],
    }

    assert not decoded(document).items[0].metricLabels


def test_maps_are_sorted_by_their_keys():
    labels = {"yes2": "2", "y": "n", "yes10": "10", "é": "", "z": ""}
    document = {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [{"metricName": "m", "metricLabels": labels, "timestamp": None, "value": "3"}],
    }

    entries = decoded(document).items[0].metricLabels

    assert [each.key for each in entries] == ["y", "yes10", "yes2", "z", "é"]
    assert all(each.HasField("value") for each in entries)


def test_metadata_of_objects_is_sent_without_their_types():
    item = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a", "labels": {"b": "c"}},
    }
    for version, number in (("v1", b"\x12"), ("v1beta1", b"\x0a")):
        document = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": f"meta.k8s.io/{version}",
            "metadata": {},
            "items": [item],
        }
        message = decoded(document)

        (label,) = message.items[0].metadata.labels
        assert (label.key, label.value) == ("b", "c")
        assert number + bytes([message.items[0].ByteSize()]) in message.SerializeToString()


def test_bytes_that_are_not_utf8_are_replaced():
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "message": "a\udcffb"}

    assert "a\ufffdb".encode() in encoding.encode(status, encoding.PROTOBUF)


def test_an_unknown_field_is_an_error_not_lost():
    with pytest.raises(ValueError, match="nope"):
        protobuf.encode({"kind": "Status", "apiVersion": "v1", "nope": 1})
