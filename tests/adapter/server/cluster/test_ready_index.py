from __future__ import annotations

import tracemalloc

import pytest

from adapter.clients.value_index import Item, ValueIndex
from adapter.server.cluster import ready_index
from rules.query.pod_age import too_young


def condition(name="Ready", status="True", **more):
    return {"type": name, "status": status, **more}


@pytest.mark.parametrize(
    ("status", "since"),
    [
        ({"conditions": [condition(lastTransitionTime="1970-01-01T00:01:00Z")]}, 60.0),
        ({"conditions": [condition(lastTransitionTime=None)]}, 0.0),
        (
            {"conditions": [condition(status="False", lastTransitionTime="1970-01-01T00:01:00Z")]},
            None,
        ),
        ({"conditions": [condition(status="Unknown")]}, None),
        ({"conditions": [condition("PodScheduled"), condition("ContainersReady")]}, None),
        ({"conditions": None}, None),
        ({}, None),
        (None, None),
    ],
)
def test_only_the_condition_ready_counts(status, since):
    metadata = {"namespace": "a", "name": "p", "labels": {"big": "x"}}

    assert ready_index.parse({"metadata": metadata, "status": status}) == Item("a", "p", since)


def test_an_invalid_time_is_a_type_error_as_other_invalid_documents():
    with pytest.raises(TypeError, match="'soon' is not a time"):
        ready_index.ready_since({"conditions": [condition(lastTransitionTime="soon")]})


def test_the_index_has_the_ready_pods_of_each_namespace():
    index = ValueIndex()
    for item in (
        Item("a", "p", 1.0),
        Item("a", "q", 2.0),
        Item("b", "p", 3.0),
        Item("a", "r", None),
    ):
        index.put(item)
    assert (index.of("a"), index.of("b"), index.of("c")) == ({"p": 1.0, "q": 2.0}, {"p": 3.0}, {})
    assert len(index) == 3

    index.put(Item("a", "p", 9.0))
    index.put(Item("a", "q", None))
    index.remove("b", "p")
    index.remove("b", "never")
    assert (index.of("a"), index.of("b")) == ({"p": 9.0}, {})
    assert len(index) == 1


def test_pods_are_too_young_until_they_have_been_ready_long_enough():
    ready = {"old": 100.0, "just": 140.0, "young": 141.0, "ahead": 201.0}

    young = too_young(ready, ("old", "just", "young", "ahead", "unready"), now=200.0, seconds=60.0)

    assert young == {"young": 59.0, "ahead": 0.0, "unready": 0.0}


def test_a_ready_pod_needs_less_than_300_bytes():
    item = {"status": {"conditions": [condition(lastTransitionTime="2026-01-01T00:01:00Z")]}}
    tracemalloc.start()
    index = ValueIndex()
    for number in range(10_000):
        name = f"inference-{number // 10}-5c9f7b6d4c-{number:05}"
        index.put(ready_index.parse({**item, "metadata": {"namespace": "a", "name": name}}))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert len(index) == 10_000
    assert size / len(index) < 300
