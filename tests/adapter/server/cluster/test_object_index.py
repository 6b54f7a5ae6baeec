from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import bounds
from adapter.server.cluster import object_index
from adapter.server.cluster.object_index import Object, ObjectIndex
from rules.selectors import selectors

ALL = selectors.parse("")
WEB = selectors.parse("app=web")


def item(namespace, name, **labels):
    return Object(namespace, name, tuple(text for pair in sorted(labels.items()) for text in pair))


def test_labels_are_parsed_in_the_order_of_their_keys():
    metadata = {"namespace": "a", "name": "x", "labels": {"b": "1", "a": "2"}}

    assert object_index.parse({"metadata": metadata}) == Object("a", "x", ("a", "2", "b", "1"))


@pytest.mark.parametrize("metadata", [{"name": "x"}, {"name": "x", "labels": None}])
def test_objects_need_neither_namespace_nor_labels(metadata):
    assert object_index.parse({"metadata": metadata}) == Object("", "x", ())


@pytest.mark.parametrize("document", [{}, {"metadata": {}}, {"metadata": []}, []])
def test_other_documents_are_refused(document):
    with pytest.raises((KeyError, TypeError)):
        object_index.parse(document)


def test_equal_labels_are_kept_once():
    index = ObjectIndex()

    def put(name, **labels):
        # Texts of their own, as of a document.
        texts = (json.loads(json.dumps(text)) for pair in labels.items() for text in pair)
        index.put(Object("a", name, tuple(texts)))
        return index.get("a", name).labels

    first = put("x", app="web front", zone="east 1")
    assert put("y", app="web front", zone="east 1") is first
    other = put("z", app="web front", zone="west 1")
    assert other[1] is first[1]
    stateful = object_index.parse(json.loads('{"metadata":{"name":"x-0","labels":{"p":"x-0"}}}'))
    assert stateful.labels[1] is stateful.name


def test_labels_that_are_not_used_any_more_are_forgotten():
    index = ObjectIndex()
    for round_ in range(3):
        for number in range(20):
            index.put(item("a", f"x-{number}", app="web", round=f"{round_}", pod=f"{number % 7}"))
    (sets,) = index._labels.values()
    fresh = ObjectIndex(index.objects(ALL, namespace=None))

    assert index._labels_size == sets.size == fresh._labels_size > 0
    for number in range(20):
        index.remove("a", f"x-{number}")
    assert (index._labels_size, sets.size, sets._shared, sets._more) == (0, 0, {}, {})
    assert index._labels == {}


def test_labels_that_are_too_large_are_not_kept():
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.X{number}": "true" for number in range(300)}
    node = object_index.parse({"metadata": {"name": "x", "labels": labels}})
    large = {"metadata": {"name": "x", "labels": {**labels, "x": "y" * 60_000}}}

    assert len(node.labels) == 600
    assert object_index.parse(large) == Object("", "x", None)
    assert object_index.parse(large).label_map == {}


def test_the_namespace_with_the_most_per_object_has_no_labels_if_all_are_too_large(monkeypatch):
    monkeypatch.setattr(bounds, "LABELS", 20_000)
    index = ObjectIndex(item("many", f"x-{number}", app="web") for number in range(1000))
    index.put(item("few", "y", app="web"))
    assert index.unlabelled(None) == ()

    index.names(WEB, namespace="many")  # creates an index by label
    for number in range(200):
        index.put(item("large", f"z-{number}", app="web", text="x" * 1000 + f"{number}"))

    assert index.unlabelled(None) == index.unlabelled("large") == ("large",)
    assert index.unlabelled("many") == ()
    assert index._labels_size <= 20_000
    assert len(index.names(WEB, namespace="many")) == 1000
    assert index.names(WEB, namespace="few") == ("y",)
    assert index.names(WEB, namespace="large") == ()
    assert len(index.names(ALL, namespace="large")) == 200
    for number in range(200):
        index.remove("large", f"z-{number}")
    index.put(item("large", "z", app="web"))
    assert index.unlabelled("large") == ()
    assert index.names(WEB, namespace="large") == ("z",)


def test_a_few_objects_with_large_labels_do_not_take_those_of_a_large_namespace(monkeypatch):
    monkeypatch.setattr(bounds, "LABELS", 500_000)
    index = ObjectIndex(item("honest", f"x-{n}", app="web", pod=f"y-{n}") for n in range(300))
    index.put(item("tiny", "x", **{f"key-{n}": f"value-{n}" for n in range(20)}))
    honest = index._labels["honest"].size
    for attacker in range(8):
        for number in range(12):
            # Each namespace stays smaller than the honest one.
            index.put(item(f"attacker-{attacker}", f"x-{number}", text=f"{number}" * 4_500))
            sets = index._labels.get(f"attacker-{attacker}")
            assert sets is None or sets.size < 2 * honest
            assert index._labels_size <= 500_000

    assert index.unlabelled("honest") == index.unlabelled("tiny") == ()
    assert index.unlabelled(None)
    assert len(index.names(WEB, namespace="honest")) == 300


def test_an_index_is_outdated_while_labels_that_it_lacks_would_find_room(monkeypatch):
    monkeypatch.setattr(bounds, "LABELS", 20_000)
    index = ObjectIndex([item("other", "x", text="z" * 12_000), item("large", "x", app="web")])
    assert not index.outdated

    index.put(item("large", "y", text="z" * 30_000))
    assert index.unlabelled(None) == ("large",)
    assert not index.outdated
    index.remove("other", "x")
    assert index.outdated
    index.remove("large", "x")
    index.remove("large", "y")
    assert not index.outdated


def test_labels_of_a_namespace_are_removed_as_a_whole(monkeypatch):
    index = ObjectIndex(
        item(namespace, f"x-{n}", app="web", pod=f"{n}") for n in range(100) for namespace in "ab"
    )
    index.put(Object("a", "large", None))
    pod = selectors.parse("pod=7")
    for namespace in "ab":
        index.names(pod, namespace=namespace)
    forgotten = []
    monkeypatch.setattr(ObjectIndex, "_forget", lambda *arguments: forgotten.append(arguments))

    monkeypatch.setattr(bounds, "LABELS", 2 * index._labels["b"].size)
    index.put(item("a", "y", app="z" * 5_000))

    assert forgotten == []
    monkeypatch.undo()
    assert index.unlabelled(None) == ("a",)
    assert index._unlabelled == {"a": 102}
    assert index._labels_size == index._labels["b"].size
    assert index._by_label.keys() == {"b"}
    assert index.names(pod, namespace="a") == ()
    assert index.names(pod, namespace="b") == ("x-7",)
    for each in index.names(ALL, namespace="a"):
        index.remove("a", each)
    assert index.unlabelled(None) == ()


def test_objects_have_their_labels_and_are_remembered_until_a_change():
    index = ObjectIndex([item("a", "y", app="web"), item("a", "x", app="db"), item("b", "x")])

    found = index.objects(WEB, namespace="a")
    assert found == (item("a", "y", app="web"),)
    assert found[0].label_map == {"app": "web"}
    assert index.objects(WEB, namespace="a") is found
    assert index.names(WEB, namespace="a") == ("y",)
    index.put(item("a", "x", app="web"))
    assert [each.name for each in index.objects(WEB, namespace="a")] == ["x", "y"]
    assert [each.namespace for each in index.objects(ALL, namespace=None)] == ["a", "a", "b"]


def test_an_object_is_found_by_its_name():
    index = ObjectIndex([item("a", "x", app="web"), item("", "node")])

    assert index.get("a", "x") == item("a", "x", app="web")
    assert index.get("", "node") == item("", "node")
    assert index.get("b", "x") is None


def test_names_are_in_the_order_of_the_keys_in_etcd():
    index = ObjectIndex(
        [item("a", "z"), item("a-b", "y"), item("a", "x-1"), item("a", "x"), item("b", "x")]
    )

    assert index.names(ALL, namespace="a") == ("x", "x-1", "z")
    assert index.names(ALL, namespace=None) == ("y", "x", "x-1", "z", "x")


def test_result_is_remembered_until_its_namespace_changes():
    index = ObjectIndex([item("a", "x", app="web"), item("b", "y", app="web")])
    first, everywhere = index.names(WEB, namespace="a"), index.names(WEB, namespace=None)

    index.put(item("a", "x", app="web"))
    assert index.names(WEB, namespace="a") is first
    assert index.names(WEB, namespace=None) is everywhere
    index.remove("b", "unknown")
    index.put(item("b", "z", app="web"))
    assert index.names(WEB, namespace="a") is first
    assert index.names(WEB, namespace=None) == ("x", "y", "z")
    index.put(item("a", "x", app="db"))
    assert index.names(WEB, namespace="a") == ()


def test_namespace_that_disappears_and_returns_is_not_remembered():
    index = ObjectIndex([item("a", "x")])
    assert index.names(ALL, namespace="a") == ("x",)
    index.remove("a", "x")
    assert index.names(ALL, namespace="a") == ()
    index.put(item("a", "y"))
    assert index.names(ALL, namespace="a") == ("y",)
    index.remove("a", "y")
    assert index.names(ALL, namespace="a") == ()
    assert index._namespaces == {}


def test_contains_and_size():
    index = ObjectIndex([item("a", "x"), item("a", "x", app="web")])

    assert index.contains("a", "x")
    assert not index.contains("a", "y")
    assert not index.contains("b", "x")
    assert len(index) == 1
    index.remove("a", "x")
    assert len(index) == 0


def test_caches_are_bounded(monkeypatch):
    monkeypatch.setattr(object_index, "_FEW", 0)
    monkeypatch.setattr(bounds, "SELECTED", 1000)
    index = ObjectIndex([item("a", f"x-{number}", app="web") for number in range(5)])

    for number in range(100):
        assert index.names(selectors.parse(f"app=web,k{number}"), namespace="a") == ()
        assert index.names(selectors.parse(f"app=web,k{number}=1"), namespace="a") == ()
        assert len(index.names(WEB, namespace="a")) == 5

    assert len(index._by_label["a"]) == object_index._MAX_KEYS
    assert "app" in index._by_label["a"]
    assert index._names.size <= 1000


def test_a_list_of_all_objects_does_not_evict_the_names_of_a_selector(monkeypatch):
    monkeypatch.setattr(bounds, "SELECTED", 1000)
    index = ObjectIndex([item("a", f"x-{number}", app="web") for number in range(90)])
    names = index.names(WEB, namespace="a")

    every = index.objects(ALL, namespace=None)

    assert index.names(WEB, namespace="a") is names
    assert index.objects(ALL, namespace=None) is every
    assert len(every) == 90


def test_only_a_large_namespace_that_is_selected_from_is_indexed_by_label():
    small = [item("a", f"x-{number}", app="web") for number in range(64)]
    large = [item(each, f"x-{number}", app="web") for each in "bc" for number in range(65)]
    index = ObjectIndex([*small, *large])

    assert len(index.names(WEB, namespace="a")) == 64
    assert not index._by_label
    assert len(index.names(WEB, namespace="b")) == 65
    assert index._by_label.keys() == {"b"}
    for _, name, *_ in large:
        index.remove("b", name)
    assert not index._by_label


KEYS, VALUES = ("a", "b"), ("", "1", "2", "a")
REQUIREMENTS = st.one_of(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(KEYS),
        st.sampled_from(("=", "==", "!=")),
        st.sampled_from(VALUES),
    ),
    st.builds(
        "{} {} ({})".format,
        st.sampled_from(KEYS),
        st.sampled_from(("in", "notin")),
        st.sets(st.sampled_from(VALUES), min_size=1).map(",".join),
    ),
    st.sampled_from(("a", "!a", "b", "!b", "a>1", "b<2")),
)
SELECTORS = st.lists(REQUIREMENTS, max_size=3).map(",".join).map(selectors.parse)
NAMES = st.tuples(st.sampled_from(("", "n", "n-1")), st.sampled_from(("x", "y", "z")))
CHANGES = st.lists(
    st.tuples(
        NAMES,
        st.none()
        | st.just("large")
        | st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
    )
)


@given(changes=CHANGES, asked=st.lists(SELECTORS, min_size=1, max_size=4), few=st.booleans())
def test_every_selector_gives_what_a_scan_gives(changes, asked, few):
    index, objects = ObjectIndex(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_index, "_FEW", 64 if few else 0)
        for (namespace, name), labels in changes:
            if labels is None:
                index.remove(namespace, name)
                objects.pop((namespace, name), None)
            elif labels == "large":
                index.put(Object(namespace, name, None))
                objects[namespace, name] = None
            else:
                index.put(item(namespace, name, **labels))
                objects[namespace, name] = labels
            for selector in asked:
                for wanted in (namespace, None):
                    matching = (
                        f"{each}/{other}"
                        for (each, other), labels in objects.items()
                        if wanted in (None, each)
                        and (selector.empty if labels is None else selector.matches(labels))
                    )
                    large = {each for (each, _), labels in objects.items() if labels is None}
                    if wanted is not None:
                        large &= {wanted}
                    assert set(index.unlabelled(wanted)) == large
                    assert index.names(selector, namespace=wanted) == tuple(
                        each.partition("/")[2] for each in sorted(matching)
                    )
        assert len(index) == len(objects)


def test_selector_over_10_000_objects_does_not_scan_them(monkeypatch):
    matched = []
    monkeypatch.setattr(
        selectors.Selector, "matches", lambda self, labels: matched.append(labels) or True
    )
    index = ObjectIndex(
        item("a", f"x-{number}", app=f"app-{number // 10}", pod=f"x-{number}")
        for number in range(10_000)
    )

    for selector in ("app=app-7", "pod,app in (app-7)", "app=app-7,pod!=x,zone=q"):
        matched.clear()
        assert len(index.names(selectors.parse(selector), namespace="a")) == 10
        assert len(matched) == 10
