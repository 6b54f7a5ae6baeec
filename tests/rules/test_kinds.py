from __future__ import annotations

import pytest

from rules.errors import UnknownResourceError
from rules.kinds import ApiGroup, ApiResource, GroupResource, Kinds


def resource(name: str, kind: str, *, singular: str = "", namespaced: bool = True) -> ApiResource:
    return ApiResource(name=name, singular=singular, kind=kind, namespaced=namespaced)


def group(name: str, preferred: str, **resources: tuple[ApiResource, ...]) -> ApiGroup:
    return ApiGroup(name=name, versions=tuple(resources), preferred=preferred, resources=resources)


PODS = resource("pods", "Pod", singular="pod")
DEPLOYMENTS = resource("deployments", "Deployment", singular="deployment")
INGRESSES = resource("ingresses", "Ingress")

# No server lists a group before core; here it shows that core has priority wherever it is listed.
CLUSTER = Kinds.of(
    [
        group("metrics.k8s.io", "v1beta1", v1beta1=(resource("pods", "PodMetrics"),)),
        group(
            "",
            "v1",
            v1=(
                PODS,
                resource("pods/log", "Pod"),
                resource("endpoints", "Endpoints"),
                resource("nodes", "Node", namespaced=False),
            ),
        ),
        group("extensions", "v1beta1", v1beta1=(DEPLOYMENTS, INGRESSES)),
        group("apps", "v1", v1=(DEPLOYMENTS,)),
        group("networking.k8s.io", "v1", v1=(INGRESSES,)),
        group(
            "zoo.example.com",
            "v1",
            v2=(resource("mice", "Mouse"),),
            v1=(resource("mice", "Mouse"),),
            v1beta1=(resource("mice", "Mouse", singular="mus"), resource("geese", "Goose")),
        ),
        group("batch.volcano.sh", "v1alpha1", v1alpha1=(resource("jobs", "Job"),)),
        group("batch", "v1", v1=(resource("jobs", "Job"),)),
        ApiGroup(name="broken.example.com", versions=("v1",), preferred="v1", resources={}),
    ]
)


@pytest.mark.parametrize(
    ("spelling", "in_group", "expected"),
    [
        pytest.param("pods", "", "v1 pods", id="core-before-an-earlier-group"),
        pytest.param("pod", "", "v1 pods", id="singular"),
        pytest.param("PoD", "", "v1 pods", id="any-case"),
        pytest.param("endpoints", "", "v1 endpoints", id="singular-from-the-kind"),
        pytest.param("ingress", "", "extensions/v1beta1 ingresses", id="earliest-group"),
        pytest.param("deployment", "apps", "apps/v1 deployments", id="exact-group"),
        pytest.param("Deployment", "app", "apps/v1 deployments", id="beginning-of-a-group"),
        pytest.param("ingress", "networking", "networking.k8s.io/v1 ingresses", id="up-to-a-dot"),
        pytest.param("job", "batch", "batch/v1 jobs", id="exact-group-before-a-longer-one"),
        pytest.param("job", "bat", "batch.volcano.sh/v1alpha1 jobs", id="earliest-of-two-longer"),
        pytest.param("pods", "metrics", "metrics.k8s.io/v1beta1 pods", id="not-core"),
        pytest.param("mouse", "", "zoo.example.com/v1 mice", id="preferred-version"),
        pytest.param("mus", "", "zoo.example.com/v1beta1 mice", id="spelling-of-one-version"),
        pytest.param("goose", "zoo", "zoo.example.com/v1beta1 geese", id="only-version"),
    ],
)
def test_resources_are_resolved_as_by_the_rest_mapper(spelling, in_group, expected):
    kind = CLUSTER.resolve(spelling, in_group)

    assert f"{kind.api_version} {kind.resource}" == expected
    assert kind.group_resource == GroupResource(kind.group, kind.resource)


@pytest.mark.parametrize(
    ("spelling", "in_group"),
    [
        ("po", ""),
        ("pods/log", ""),
        ("widget", ""),
        ("", ""),
        ("pods", "apps"),
        ("deployments", "Apps"),
        ("ingress", "networking_k8s_io"),
        ("ingress", "k8s.io"),
    ],
)
def test_an_unknown_resource_is_an_error_that_names_it(spelling, in_group):
    with pytest.raises(UnknownResourceError) as raised:
        CLUSTER.resolve(spelling, in_group)

    assert CLUSTER.find(spelling, in_group) is None
    assert f'"{spelling}"' in str(raised.value)
    assert (f'in the API group "{in_group}"' in str(raised.value)) == bool(in_group)


@pytest.mark.parametrize(
    ("spelling", "in_group", "api_version"),
    [
        ("pods", "", "metrics.k8s.io/v1beta1"),
        ("mouse", "", "zoo.example.com/v2"),
        ("Mouse", "zoo", "zoo.example.com/v2"),
        ("job", "batch", "batch/v1"),
    ],
)
def test_first_follows_discovery_order_alone(spelling, in_group, api_version):
    assert CLUSTER.first(spelling, in_group).api_version == api_version


def test_first_raises_for_an_unknown_resource():
    with pytest.raises(UnknownResourceError):
        CLUSTER.first("widget")


def test_without_a_preferred_version_the_first_one_counts():
    kinds = Kinds.of([group("a.io", "v9", v2=(PODS,), v1=(PODS,))])

    assert kinds.resolve("pods").version == "v2"


def test_iteration_yields_every_version_and_no_subresource():
    kinds = [f"{kind.api_version} {kind.kind}" for kind in CLUSTER]

    assert kinds[:3] == ["metrics.k8s.io/v1beta1 PodMetrics", "v1 Pod", "v1 Endpoints"]
    assert [kind for kind in kinds if kind.endswith(" Mouse")] == [
        "zoo.example.com/v2 Mouse",
        "zoo.example.com/v1 Mouse",
        "zoo.example.com/v1beta1 Mouse",
    ]


@pytest.mark.parametrize(
    ("spelling", "expected", "namespaced"),
    [
        ("pod", "pods", True),
        ("node", "nodes", False),
        ("event", "events", True),
        ("deployment", "deployments.apps", True),
        ("ingress", "ingresses.networking.k8s.io", True),
        ("job", "jobs.batch", True),
        ("hpa", None, None),
        ("horizontalpodautoscaler", "horizontalpodautoscalers.autoscaling", True),
        ("storageclass", "storageclasses.storage.k8s.io", False),
        ("endpoints", "endpoints", True),
    ],
)
def test_builtin_kinds_are_resolved(spelling, expected, namespaced):
    kinds = Kinds.builtin()

    if expected is None:
        with pytest.raises(UnknownResourceError):
            kinds.resolve(spelling)
    else:
        kind = kinds.resolve(spelling)
        assert (str(kind.group_resource), kind.namespaced) == (expected, namespaced)


def test_builtin_autoscalers_prefer_version_two():
    assert Kinds.builtin().resolve("horizontalpodautoscalers").api_version == "autoscaling/v2"


def test_plurals_of_builtin_kinds_belong_to_their_singulars():
    for kind in Kinds.builtin():
        assert kind.singular == kind.kind.lower()
        assert kind.resource in (
            kind.singular,
            f"{kind.singular}s",
            f"{kind.singular}es",
            f"{kind.singular.removesuffix('y')}ies",
        )
