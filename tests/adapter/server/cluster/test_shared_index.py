"""An index whose size the namespaces share: its edges, and what it keeps of what is beyond."""

from __future__ import annotations

import functools
import random
import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.clients.kubernetes import Kube
from adapter.clients.value_index import Item
from adapter.clients.watch_cache import WatchCaches, WatchContent
from adapter.server.cluster import shared_index
from adapter.server.cluster.shared_index import SharedIndex
from rules import limits
from rules.kinds import Kinds
from rules.limits import Claim
from tools.fakes import kubernetes
from tools.waiting import running, until

TOTAL = 20


def item(name: str, *, namespace: str = "a", size: int = 1, age: int = 0) -> Item[str]:
    return Item(namespace, name, f"{namespace}/{name}", f"2026-01-01T00:{59 - age:02}:00Z", size)


def filled(*items: Item[str], total: int = TOTAL) -> SharedIndex[str]:
    index: SharedIndex[str] = SharedIndex(total)
    for each in items:
        index.put(each)
    return index


def test_everything_is_admitted_up_to_the_limit_and_the_youngest_is_left_out_beyond() -> None:
    index = filled(*(item(f"h{number:02}", age=number) for number in range(TOTAL)))
    assert len(list(index.values())) == TOTAL
    assert index.left_out() == {}

    index.put(item("new", age=-1))

    assert "a/new" not in index.values()
    assert len(list(index.values())) == TOTAL
    assert index.left_out() == {("a", "new"): 1}

    index.remove("a", "h00")
    assert "a/new" in index.values()
    assert index.left_out() == {}


def test_a_namespace_beyond_its_share_leaves_that_of_another_alone() -> None:
    greedy = [item(f"g{number}", namespace="greedy", age=30) for number in range(35)]
    index = filled(*greedy, *(item(f"h{number}") for number in range(5)))

    assert {each for each in index.values() if each.startswith("a/")} == {
        f"a/h{number}" for number in range(5)
    }
    assert {namespace for namespace, _ in index.left_out()} == {"greedy"}


def test_an_object_that_changes_its_size_or_loses_its_value_counts_as_it_is_now() -> None:
    index = filled(item("x", size=TOTAL), item("y", age=-1))
    assert list(index.values()) == ["a/x"]

    index.put(item("x", size=TOTAL - 1))
    assert list(index.values()) == ["a/y", "a/x"]
    index.put(Item("a", "x", None))
    assert list(index.values()) == ["a/y"]
    index.put(item("y", size=TOTAL + 1))
    assert list(index.values()) == []


def test_beyond_twice_the_limit_only_names_are_kept_until_there_is_room_for_a_new_list() -> None:
    index = filled(*(item(f"h{number:03}", age=number % 60) for number in range(2 * TOTAL + 1)))

    assert len(index) == TOTAL
    assert len(index.left_out()) == TOTAL + 1
    assert not index.outdated
    for name in [each.partition("/")[2] for each in index.values()][: TOTAL // 2]:
        index.remove("a", name)
    assert index.outdated
    for _, name in list(index.left_out()):
        index.remove("a", name)
    assert not index.outdated
    assert index.left_out() == {}


def test_names_beyond_are_counted_up_to_a_number(monkeypatch) -> None:
    monkeypatch.setattr(shared_index, "_MAX_DROPPED", 7)

    index = filled(*(item(f"h{number}") for number in range(10 * TOTAL)))

    assert len(index.left_out()) <= 7 + TOTAL


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.integers(0, 59)), max_size=2 * TOTAL
    ),
    st.randoms(use_true_random=False),
)
def test_the_same_objects_are_admitted_in_whatever_order_they_came(
    objects: list[tuple[str, int, int]], order: random.Random
) -> None:
    items = [
        item(f"h{number}", namespace=namespace, size=size, age=age)
        for number, (namespace, size, age) in enumerate(objects)
    ]
    if sum(each.size for each in items) > 2 * TOTAL:
        items = items[: TOTAL // 6]
    claims = [
        Claim(namespace=each.namespace, name=each.name, created=each.created, size=each.size)
        for each in items
    ]
    expected = limits.admit(claims, own=TOTAL, total=TOTAL).keys

    order.shuffle(items)

    assert set(filled(*items).values()) == {"/".join(key) for key in expected}


@pytest.mark.slow
def test_what_is_beyond_takes_little_memory() -> None:
    def memory(number: int) -> int:
        tracemalloc.start()
        index: SharedIndex[str] = SharedIndex(1000)
        for each in range(number):
            index.put(Item("a", f"h{each}", "x" * 1000 + str(each), "2026-01-01T00:00:00Z", 1))
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(list(index.values())) == 1000
        return used

    assert memory(20_000) < 2 * memory(1000) + 20_000 * 200  # and the names


async def test_a_watch_goes_on_whatever_number_of_objects_a_namespace_has(
    api: Kube, cluster: kubernetes.Cluster
) -> None:
    def parse(document: Mapping[str, Any]) -> Item[str]:
        metadata = document["metadata"]
        return Item(metadata["namespace"], metadata["name"], metadata["name"], "2026")

    content = WatchContent(
        index=functools.partial(SharedIndex[str], 4), parse=parse, metadata_only=True
    )
    metrics = telemetry.WatchCacheMetrics(CollectorRegistry())
    caches = WatchCaches(api, content, metrics=metrics, max_objects=None)
    for number in range(30):
        cluster.add("pods", "greedy", f"p{number}", phase="Running")
    async with running(caches.run()):
        await until(lambda: caches.index(Kinds.builtin().first("pods")))
        index = caches.index(Kinds.builtin().first("pods"))
        assert index is not None
        cluster.put("pods", "team-b", "late", labels={})
        await until(lambda: "late" in index.values())
        assert "pods watched" in caches.status().fact

    assert sum(namespace == "greedy" for namespace, _ in index.left_out()) >= 28
