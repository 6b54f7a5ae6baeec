from __future__ import annotations

import pytest

from rules import mapping
from rules.document.config import Override, ResourceMapping
from rules.errors import MappingError, TemplateSyntaxError
from rules.kinds import ApiGroup, ApiResource, GroupResource, Kinds

KINDS = Kinds.builtin()
PODS = GroupResource("", "pods")
NAMESPACES = GroupResource("", "namespaces")
DEPLOYMENTS = GroupResource("apps", "deployments")
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
    ("template", "labels", "carried"),
    [
        pytest.param("kube_<<.Resource>>", ["kube_pod"], {PODS: "kube_pod"}, id="singular"),
        pytest.param("kube_<<.Resource>>", ["kube_pods"], {PODS: "kube_pod"}, id="plural"),
        pytest.param("kube_<<.Resource>>", ["kube_Pod"], {PODS: "kube_pod"}, id="any-case"),
        pytest.param("kube_<<.Resource>>", ["kube_po", "pod", "xkube_pod"], {}, id="no-fit"),
        pytest.param(
            "<<.Resource>>",
            ["pod", "namespace", "job", "instance", "endpoint"],
            {NAMESPACES: "namespace", PODS: "pod", GroupResource("batch", "jobs"): "job"},
            id="the-label-job-is-jobs",
        ),
        pytest.param(
            "kube_<<.Group>>_<<.Resource>>",
            ["kube_apps_deployment", "kube_app_replicaset", "kube_pod", "kube__pod"],
            {
                DEPLOYMENTS: "kube_apps_deployment",
                GroupResource("apps", "replicasets"): "kube_apps_replicaset",
            },
            id="group-by-its-beginning-and-core-never",
        ),
        pytest.param(
            "kube_<<.Group>>_<<.Resource>>",
            ["kube_networking_ingress", "kube_networking_k8s_io_ingress"],
            {INGRESSES: "kube_networking_k8s_io_ingress"},
            id="queried-by-the-whole-group",
        ),
        pytest.param(
            "kube_<<.Group>>_<<.Resource>>",
            ["kube_networking_k8s_io_ingress"],
            {},
            id="not-read-back",
        ),
        pytest.param("^<<.Resource>>", ["pod"], {PODS: "^pod"}, id="template-is-part-of-a-pattern"),
        pytest.param("x_<<.Resource>>|<<.Resource>>", ["pod"], {PODS: "x_pod|pod"}, id="or"),
        pytest.param("k_(?P<resource>.+)", ["k_pod"], {PODS: "k_(?P<resource>.+)"}, id="literal"),
        pytest.param("(x)?<<.Resource>>", ["pod"], {PODS: "(x)?pod"}, id="group-without-part"),
        pytest.param(
            '<<if eq .Resource "pod">>pod_name<<else>><<.Resource>><<end>>',
            ["pod", "namespace", "pod_name"],
            {NAMESPACES: "namespace", PODS: "pod_name"},
            id="template-that-decides",
        ),
        pytest.param(
            '<<if ne .Resource "pod">><<.Resource>><<end>>', ["pod"], {}, id="rendered-to-nothing"
        ),
        pytest.param(
            "<<.Resource>><<slice .Resource 5 5>>",
            ["pod", "namespace"],
            {NAMESPACES: "namespace"},
            id="fails-for-one-resource",
        ),
        pytest.param("", ["pod", "kube_pod"], {}, id="nothing-said"),
    ],
)
def test_labels_that_fit_the_template_associate_resources(template, labels, carried):
    found = bound(template).carried(labels)

    assert found == {resource: (label,) for resource, label in carried.items()}
    assert list(found) == sorted(found)


@pytest.mark.parametrize(
    ("template", "overrides", "labels", "carried"),
    [
        pytest.param(
            "",
            [("pod_name", "pods"), ("dep", "deployment.app"), ("ns", "Namespace")],
            ["pod_name", "dep", "pod"],
            {PODS: ("pod_name",), DEPLOYMENTS: ("dep",)},
            id="any-spelling",
        ),
        pytest.param(
            "",
            [("exported_pod", "pod"), ("pod", "pods"), ("pod_name", "pod")],
            ["pod_name", "exported_pod"],
            {PODS: ("exported_pod", "pod_name")},
            id="those-carried-in-the-order-of-the-file",
        ),
        pytest.param(
            "<<.Resource>>",
            [("exported_pod", "pod")],
            ["exported_pod", "pod", "namespace"],
            {NAMESPACES: ("namespace",), PODS: ("exported_pod",)},
            id="override-before-template",
        ),
        pytest.param(
            "<<.Resource>>",
            [("exported_pod", "pod"), ("pod_name", "pod")],
            ["pod"],
            {PODS: ("exported_pod",)},
            id="associated-by-the-template-and-asked-by-the-override",
        ),
        pytest.param(
            "<<.Resource>>",
            [("pod", "namespace")],
            ["pod"],
            {NAMESPACES: ("pod",)},
            id="an-overridden-label-is-not-read-by-the-template",
        ),
    ],
)
def test_overrides_say_what_a_label_stands_for(template, overrides, labels, carried):
    assert bound(template, *overrides).carried(labels) == carried


def test_kinds_that_the_cluster_does_not_know_are_named_and_the_rest_works():
    found = bound("<<.Resource>>", ("pod", "widgets.example.com"), ("ns", "namespace"))

    assert found.unknown == (Override(label="pod", resource="widgets", group="example.com"),)
    assert found.carried(["pod", "ns", "node"]) == {
        NAMESPACES: ("ns",),
        GroupResource("", "nodes"): ("node",),
    }


def test_a_mapping_can_be_bound_again_when_the_cluster_learns_a_kind():
    compiled = mapping.compile(ResourceMapping(overrides=(Override(label="w", resource="widget"),)))
    widgets = ApiResource(name="widgets", kind="Widget", namespaced=True)
    later = Kinds.of(
        [ApiGroup(name="e.io", versions=("v1",), preferred="v1", resources={"v1": (widgets,)})]
    )

    assert compiled.bind(KINDS).carried(["w"]) == {}
    assert compiled.bind(later).unknown == ()
    assert compiled.bind(later).carried(["w"]) == {GroupResource("e.io", "widgets"): ("w",)}


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
def test_every_label_of_a_resource_is_known_whether_carried_or_not(
    template, overrides, resource, labels
):
    found = bound(template, *overrides)

    assert found.labels(resource) == labels
    assert found.labels(resource) == labels


def test_dashes_of_a_group_become_underscores():
    widgets = ApiResource(name="widgets", kind="Widget", namespaced=True)
    kinds = Kinds.of(
        [
            ApiGroup(
                name="my-group.io", versions=("v1",), preferred="v1", resources={"v1": (widgets,)}
            )
        ]
    )

    found = bound("<<.Group>>_<<.Resource>>", kinds=kinds)

    assert found.labels(GroupResource("my-group.io", "widgets")) == ("my_group_io_widget",)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("pod", "'pod' does not contain <<.Resource>>"),
        ("<<.Group>>", "does not contain <<.Resource>>"),
        ("<<.Nope>>_<<.Resource>>", "uses .Nope at character 3"),
        ("<<if false>>x<<end>>", "renders to nothing"),
        ("<<slice .Resource 0 3>>", "cannot be matched against labels"),
        ("(<<.Resource>>", "missing )"),
    ],
)
def test_a_template_that_cannot_stand_for_resources_is_refused(template, message):
    with pytest.raises(MappingError) as raised:
        mapping.compile(ResourceMapping(template=template))

    assert message in str(raised.value)


def test_a_template_that_does_not_parse_is_refused():
    with pytest.raises(TemplateSyntaxError):
        mapping.compile(ResourceMapping(template="<<.Resource"))
