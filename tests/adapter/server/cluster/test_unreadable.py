"""Objects whose documents cannot be read harm no other object of the same list or watch."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.clients import collection
from adapter.clients.collection import Unreadable
from adapter.server.cluster import contents
from adapter.server.cluster.object_index import ObjectIndex
from rules import limits
from rules.kinds import PODS
from rules.selectors import selectors

NOT_LABELS = [{"app": 5}, {"app": None}, {"app": ["web"]}, {"app": {"a": "b"}}]


@pytest.mark.parametrize("labels", NOT_LABELS, ids=str)
async def test_an_unreadable_object_of_a_list_is_left_out_alone(bed, cluster, caplog, labels):
    cluster.put("pods", "team-a", "a-first", labels=labels)
    cluster.put("pods", "team-b", "also", labels=labels)

    await bed.watched()

    assert await bed.names(selector=selectors.parse("")) == ("db-1", "web-1", "web-2")
    assert bed.metric("unreadable_objects_total", resource="pods") == 2
    logged = [each for each in caplog.records if "cannot be read" in each.message]
    assert [each.levelno for each in logged] == [logging.WARNING]
    assert "pods: team-a/a-first cannot be read and is left out" in logged[0].message


async def test_an_event_with_an_unreadable_object_removes_it_until_it_is_readable(bed, cluster):
    await bed.watched()

    cluster.put("pods", "team-a", "web-1", labels={"app": 5})
    await bed.until_names(("web-2",))
    assert bed.state("watched")

    cluster.put("pods", "team-a", "web-1", labels={"app": "web"})
    await bed.until_names(("web-1", "web-2"))
    cluster.put("pods", "team-a", "web-1", labels={"app": 5})
    cluster.remove("pods", "team-a", "web-1")
    cluster.put("pods", "team-a", "web-3", labels={"app": "web"})
    await bed.until_names(("web-2", "web-3"))
    assert len(cluster.requests_to("/api/v1/pods")) == 2  # the watch never ended


async def test_a_list_for_a_request_leaves_out_what_is_unreadable(bed, cluster):
    cluster.fail("/api/v1/pods", delay=5.0, watch=True)
    cluster.put("pods", "team-a", "web-0", labels={"app": 5})

    found = await bed.objects.objects(PODS, namespace="team-a", selector=selectors.parse(""))

    assert [each.name for each in found] == ["db-1", "web-1", "web-2"]


async def test_a_list_of_what_are_no_objects_is_broken(api, cluster):
    cluster.fail("/api/v1/pods", body=b'{"items":[{"metadata":{}}],"metadata":{}}')

    with pytest.raises(errors.Broken, match="not a list"):
        await api.snapshot("/api/v1/pods", {}, contents.OBJECTS.parse, metadata_only=True)


def json_values() -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    )


POD = {
    "metadata": {"namespace": "a", "name": "p", "labels": {"app": "web"}},
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
    },
}
WORKLOAD = {
    "metadata": {"namespace": "a", "name": "w"},
    "spec": {
        "selector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        }
    },
}


def _places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of each value in a document."""
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    return [path, *(each for key, value in items for each in _places(value, (*path, key)))]


@st.composite
def hostile(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with another value in one place; its identity stays."""
    changed: dict[str, Any] = json.loads(json.dumps(document))
    keep = {(), ("metadata",), ("metadata", "namespace"), ("metadata", "name")}
    path = draw(st.sampled_from([each for each in _places(document) if each not in keep]))
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = draw(
        json_values()
        | st.sampled_from(["0001-01-01T00:00:00+23:59", "9" * 5000, "1e999999999", {}, [], ""])
    )
    return changed


CONTENTS = [
    (contents.OBJECTS, POD),
    (contents.READY_PODS, POD),
    (contents.pod_selectors(), WORKLOAD),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "document"), CONTENTS, ids=["labels", "readiness", "selectors"]
)
@given(data=st.data())
def test_whatever_stands_in_an_object_is_read_or_refused_alone(content, document, data):
    index = content.index()
    good = {**document, "metadata": {**document["metadata"], "name": "good"}}

    for each in (data.draw(hostile(document)), good):
        found = collection.read(each, content.parse)
        if isinstance(found, Unreadable):
            assert (found.namespace, found.name) == ("a", document["metadata"]["name"])
            index.remove(found.namespace, found.name)
        else:
            index.put(found)

    if isinstance(index, ObjectIndex):
        assert "good" in index.names(selectors.parse("app=web"), namespace="a")
    else:
        assert "good" in index.of("a")
        for each in index.of("a").values():
            hash(each)
            str(each)


async def test_exceptions_of_every_class_are_those_of_one_object(api, cluster):
    async def listed(error: Exception) -> list[str]:
        def extract(item: Any) -> str:
            if item["metadata"]["name"] == "web-1":
                raise error
            return str(item["metadata"]["name"])

        path = "/api/v1/namespaces/team-a/pods"
        return (await api.snapshot(path, {}, extract, metadata_only=True))[1]

    for error in (RecursionError(), MemoryError(), OverflowError(), AssertionError(), OSError()):
        assert await listed(error) == ["db-1", "web-0", "web-2"]


@pytest.mark.parametrize(
    "selector",
    [
        lambda size: {"matchLabels": {f"k{number}": "v" for number in range(size // 2)}},
        lambda size: {
            "matchExpressions": [
                {"key": "k", "operator": "In", "values": [f"v{each}" for each in range(size - 1)]}
            ]
        },
    ],
    ids=["labels", "expressions"],
)
def test_a_workload_with_too_large_a_selector_is_refused(selector):
    edge = limits.DEFAULT.workload_selector
    metadata = {"namespace": "a", "name": "w"}

    parse = contents.pod_selectors().parse

    kept = parse({"metadata": metadata, "spec": {"selector": selector(edge)}})
    assert kept.value.size == edge

    document = {"metadata": metadata, "spec": {"selector": selector(edge + 2)}}
    cure = f"use at most {edge}, or --limit=workload-selector={edge + 2}"
    with pytest.raises(ValueError, match=f"has {edge + 2} requirements and values: {cure}"):
        parse(document)
    raised = limits.DEFAULT.with_values({"workload-selector": edge + 2})
    assert contents.pod_selectors(raised).parse(document).value.size == edge + 2
