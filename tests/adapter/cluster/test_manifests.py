from __future__ import annotations

import pytest

from adapter import errors
from adapter.cluster.manifests import FileObjects
from rules.kinds import GroupResource
from rules.selectors import selectors

PODS = GroupResource("", "pods")
NAMESPACES = GroupResource("", "namespaces")
NODES = GroupResource("", "nodes")
DEPLOYMENTS = GroupResource("apps", "deployments")
ALL = selectors.parse("")

FLEET = """
apiVersion: v1
kind: Pod
metadata: {name: web-2, namespace: team-a, labels: {app: web}}
status: {phase: Running}
---
# nothing but a comment
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: team-a, labels: {app: web}}}
- apiVersion: v1
  kind: Pod
  metadata: {name: job-1, namespace: team-a, labels: {app: web}}
  status: {phase: Failed}
- {apiVersion: v1, kind: Pod, metadata: {name: db-1}, status: null}
- {apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {gpu: "true"}}}
- {apiVersion: v1, kind: Namespace, metadata: {name: team-a, labels: {tier: gold}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-b}
spec: {replicas: 2}
"""


@pytest.fixture
def load(tmp_path):
    def _load(*texts):
        paths = []
        for number, text in enumerate(texts):
            path = tmp_path / f"{number}.yaml"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            paths.append(path)
        return FileObjects.load(paths)

    return _load


@pytest.mark.parametrize(
    ("resource", "namespace", "selector", "expected"),
    [
        (PODS, "team-a", "", ("web-1", "web-2")),
        (PODS, "team-a", "app=web", ("web-1", "web-2")),
        (PODS, "team-a", "app!=web", ()),
        (PODS, "default", "", ("db-1",)),
        (PODS, "team-b", "", ()),
        (PODS, "", "", ("db-1", "web-1", "web-2")),
        (NODES, "", "gpu=true", ("node-1",)),
        (NODES, "team-a", "", ("node-1",)),
        (DEPLOYMENTS, "team-b", "", ("web",)),
        (NAMESPACES, "", "", ("default", "team-a", "team-b")),
        (NAMESPACES, "", "tier=gold", ("team-a",)),
        (NAMESPACES, "", "kubernetes.io/metadata.name in (team-a,team-b)", ("team-a", "team-b")),
        (GroupResource("", "services"), "team-a", "", ()),
    ],
)
async def test_names_are_found_by_selector(load, resource, namespace, selector, expected):
    known = load(FLEET)

    names = await known.names(resource, namespace=namespace, selector=selectors.parse(selector))

    assert names == expected


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "expected"),
    [
        (PODS, "team-a", "web-1", True),
        (PODS, "team-a", "job-1", False),
        (PODS, "team-a", "db-1", False),
        (PODS, "default", "db-1", True),
        (DEPLOYMENTS, "team-a", "gone", True),
    ],
)
async def test_only_a_pod_can_be_known_not_to_live(load, resource, namespace, name, expected):
    assert await load(FLEET).live(resource, namespace=namespace, name=name) is expected


async def test_a_later_manifest_replaces_an_earlier_one(load):
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {app: %s}}, status: {phase: %s}}"
    known = load(pod % ("x", "Running"), pod % ("y", "Running"))

    assert await known.names(PODS, namespace="default", selector=selectors.parse("app=y")) == ("a",)
    assert await known.names(PODS, namespace="default", selector=selectors.parse("app=x")) == ()
    known = load(pod % ("x", "Running"), pod % ("x", "Succeeded"))
    assert await known.names(PODS, namespace="default", selector=ALL) == ()


async def test_the_items_of_a_typed_list_need_no_kind(load):
    known = load(
        """
        {"kind": "PodList", "apiVersion": "v1", "metadata": {},
         "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b", "namespace": "x"}}]}
        """,
        "{apiVersion: v1, kind: List, items: null}",
    )

    assert await known.names(PODS, namespace="", selector=ALL) == ("a", "b")


# Kinds


def definition(plural="widgets", kind="Widget", scope="Namespaced", versions="[{name: v1}]"):
    return f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {kind.lower()}.example.com}}
spec:
  group: example.com
  scope: {scope}
  names: {{plural: {plural}, kind: {kind}}}
  versions: {versions}
"""


async def test_the_kinds_of_every_cluster_are_known_without_manifests():
    known = FileObjects.load([])

    assert known.kinds.resolve("deployment").api_version == "apps/v1"
    assert await known.names(NAMESPACES, namespace="", selector=ALL) == ()


async def test_a_definition_teaches_its_kind_whatever_the_order_of_the_files(load):
    known = load(
        "{apiVersion: example.com/v1, kind: Ox, metadata: {name: bo}}",
        definition(plural="oxen", kind="Ox", scope="Cluster"),
    )

    kind = known.kinds.resolve("OXEN")
    assert (kind.kind, kind.singular, kind.namespaced) == ("Ox", "ox", False)
    assert await known.names(kind.group_resource, namespace="", selector=ALL) == ("bo",)
    assert await known.names(NAMESPACES, namespace="", selector=ALL) == ()
    crds = known.kinds.resolve("customresourcedefinitions").group_resource
    assert await known.names(crds, namespace="", selector=ALL) == ("ox.example.com",)


def test_the_versions_of_a_definition_are_in_kubernetes_order(load):
    names = ["foo", "v1alpha1", "v2beta1", "v1", "v10", "v2"]
    versions = [{"name": name} for name in names] + [{"name": "v99", "served": False}]

    kinds = load(definition(versions=versions), definition()).kinds

    group = next(group for group in kinds.groups if group.name == "example.com")
    assert group.versions == ("v10", "v2", "v1", "v2beta1", "v1alpha1", "foo")
    assert kinds.resolve("widgets").version == "v10"
    assert len(group.resources["v1"]) == 1


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Widget", "widgets"), ("Policy", "policies"), ("Bus", "buses"), ("LWS", "lwses")],
)
async def test_an_untaught_kind_gets_the_plural_that_kubernetes_guesses(load, kind, plural):
    known = load(
        f"{{apiVersion: example.com/v1, kind: {kind}, metadata: {{name: a, namespace: x}}}}"
    )

    found = known.kinds.resolve(plural, "example.com")
    assert (found.kind, found.namespaced) == (kind, True)
    assert await known.names(found.group_resource, namespace="x", selector=ALL) == ("a",)


def test_a_group_that_every_cluster_has_keeps_its_kinds_when_it_learns_one(load):
    kinds = load("{apiVersion: apps/v1, kind: Gadget, metadata: {name: a}}").kinds

    assert kinds.resolve("gadgets").group == "apps"
    assert kinds.resolve("deployments").group == "apps"


async def test_a_kind_that_nothing_teaches_is_refused(load):
    known = load(FLEET)
    await known.refresh()

    with pytest.raises(errors.Refused, match="widgets") as caught:
        await known.names(GroupResource("", "widgets"), namespace="", selector=ALL)

    assert caught.value.status == 404


# Mistakes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "document 1: not YAML: "),
        ("null\n---\na: [", "document 2: not YAML: "),
        ("a: 2020-13-41", "document 1: not YAML: month must be in 1..12"),
        (b"\xff\xfe\xff", "document 1: not YAML: "),
        ("just words", "document 1: must be a mapping with apiVersion, kind and metadata"),
        ("{kind: Pod}", "document 1: apiVersion must be a string that is not empty"),
        ("{apiVersion: 1}", "document 1: apiVersion must be a string that is not empty"),
        ("{apiVersion: v1, kind: Pod}", "document 1: metadata must be a mapping"),
        ("{apiVersion: v1, metadata: {name: a}}", "document 1: kind must be a string that"),
        ("{apiVersion: v1, kind: Pod, metadata: {}}", "document 1: metadata.name must be a string"),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: 5}}",
            "document 1: metadata.namespace must be a string",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {gpu: true}}}",
            "document 1: metadata.labels: gpu: True must be a string: put it in quotes",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: [x]}}",
            "document 1: metadata.labels must be a mapping",
        ),
        (
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [5]}]}",
            "document 1: items[0]: items[0]: must be a mapping",
        ),
        (
            "{kind: CustomResourceDefinition, apiVersion: x/v1, metadata: {name: a}}",
            "document 1: spec must be a mapping",
        ),
        (definition(plural="''"), "document 1: spec.names.plural must be a string"),
        (definition(versions="v1"), "document 1: spec.versions must be a list of mappings"),
        (definition(versions="[{}]"), "document 1: spec.versions[].name must be a string"),
    ],
)
def test_a_mistake_is_told_with_file_and_document(load, tmp_path, text, expected):
    with pytest.raises(errors.Broken) as caught:
        load(text)

    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path}/0.yaml: {expected}")


def test_all_mistakes_of_all_files_are_told_at_once(load, tmp_path):
    load(FLEET)

    with pytest.raises(errors.Broken) as caught:
        FileObjects.load([tmp_path / "none.yaml", _written(tmp_path, "5\n---\n6"), tmp_path])

    assert str(caught.value).splitlines() == [
        f"{tmp_path}/none.yaml: No such file or directory",
        f"{tmp_path}/bad.yaml: document 1: must be a mapping with apiVersion, kind and metadata",
        f"{tmp_path}/bad.yaml: document 2: must be a mapping with apiVersion, kind and metadata",
        f"{tmp_path}: Is a directory",
    ]


def _written(folder, text):
    path = folder / "bad.yaml"
    path.write_text(text)
    return path
