"""What the golden cases of naming.json lack: several labels of a resource, caching, messages."""

from __future__ import annotations

import pytest

from rules import mapping
from rules.document.config import Override, ResourceMapping
from rules.errors import MappingError, TemplateSyntaxError
from rules.kinds import NAMESPACES, PODS, GroupResource, Kinds
from tests import world

KINDS = Kinds.builtin()
INGRESSES = GroupResource("networking.k8s.io", "ingresses")


def bound(template: str = "", *overrides: tuple[str, str], kinds: Kinds = KINDS):
    resources = ResourceMapping(
        template=template,
        overrides=tuple(
            Override(
                label=label, resource=spelled.partition(".")[0], group=spelled.partition(".")[2]
            )
            for label, spelled in overrides
        ),
    )
    return mapping.compile(resources).bind(kinds)


@pytest.mark.parametrize(
    ("template", "overrides", "labels", "carried"),
    [
        pytest.param(
            "",
            [("exported_pod", "pod"), ("pod", "pods"), ("pod_name", "pod")],
            ["pod_name", "exported_pod"],
            {PODS: ("exported_pod", "pod_name")},
            id="present-labels-in-the-order-of-the-file",
        ),
        pytest.param(
            "<<.Resource>>",
            [("exported_pod", "pod"), ("pod_name", "pod")],
            ["pod"],
            {PODS: ("exported_pod",)},
            id="associated-by-the-template-and-queried-by-the-override",
        ),
    ],
)
def test_overrides_associate_labels_with_resources(template, overrides, labels, carried):
    assert bound(template, *overrides).associations(labels) == carried


def test_overrides_for_unknown_kinds_are_reported_and_the_others_work():
    mapped = bound("<<.Resource>>", ("pod", "widgets.example.com"), ("ns", "namespace"))

    assert mapped.unknown == (Override(label="pod", resource="widgets", group="example.com"),)
    assert mapped.associations(["pod", "ns", "node"]) == {
        NAMESPACES: ("ns",),
        GroupResource("", "nodes"): ("node",),
    }


def test_a_mapping_can_be_bound_to_other_kinds():
    compiled = mapping.compile(ResourceMapping(overrides=(Override(label="w", resource="widget"),)))
    later = Kinds.of([world.group("e.io", "widgets Widget")])

    assert compiled.bind(KINDS).associations(["w"]) == {}
    assert compiled.bind(later).unknown == ()
    assert compiled.bind(later).associations(["w"]) == {GroupResource("e.io", "widgets"): ("w",)}


@pytest.mark.parametrize(
    ("template", "overrides", "resource", "labels"),
    [
        ("kube_<<.Resource>>", [], PODS, ("kube_pod",)),
        ("<<.Group>>_<<.Resource>>", [], INGRESSES, ("networking_k8s_io_ingress",)),
        ("kube_<<.Resource>>", [("a", "pod"), ("b", "pods")], PODS, ("a", "b")),
        ("kube_<<.Resource>>", [("a", "pod")], NAMESPACES, ("kube_namespace",)),
        ("kube_<<.Resource>>", [], GroupResource("", "widgets"), ()),
        ("", [("a", "pod")], NAMESPACES, ()),
    ],
)
def test_the_labels_of_a_resource_do_not_depend_on_a_series(template, overrides, resource, labels):
    mapped = bound(template, *overrides)

    assert mapped.labels(resource) == labels
    assert mapped.labels(resource) == labels, "the cached answer differs"


def test_dots_and_dashes_of_a_group_become_underscores_in_a_label():
    kinds = Kinds.of([world.group("my-group.io", "widgets Widget")])

    mapped = bound("<<.Group>>_<<.Resource>>", kinds=kinds)

    assert mapped.labels(GroupResource("my-group.io", "widgets")) == ("my_group_io_widget",)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("pod", "'pod' does not contain <<.Resource>>"),
        ("<<.Group>>", "does not contain <<.Resource>>"),
        ("<<.Nope>>_<<.Resource>>", "unknown field .Nope in the label template"),
        ("<<if false>>x<<end>>", "renders an empty label"),
        ("<<slice .Resource 0 3>>", "does not render a regular expression"),
        ("(<<.Resource>>", "missing )"),
    ],
)
def test_a_template_by_which_no_label_names_a_resource_is_an_error(template, message):
    with pytest.raises(MappingError) as raised:
        mapping.compile(ResourceMapping(template=template))

    assert message in str(raised.value)


def test_a_template_that_does_not_parse_is_an_error():
    with pytest.raises(TemplateSyntaxError):
        mapping.compile(ResourceMapping(template="<<.Resource"))
