from __future__ import annotations

import pytest

from adapter import errors
from adapter.server.cluster.manifests import FileObjects
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource
from rules.selectors import selectors

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
        return FileObjects(paths)

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
async def test_names_are_listed_by_selector(load, resource, namespace, selector, expected):
    objects = load(FLEET)

    names = await objects.names(resource, namespace=namespace, selector=selectors.parse(selector))

    assert names == expected


async def test_objects_have_their_labels_and_finished_pods_are_left_out(load):
    objects = load(FLEET)

    found = await objects.objects(PODS, namespace="team-a", selector=selectors.parse("app"))
    assert [(each.name, each.label_map["app"]) for each in found] == [
        ("web-1", "web"),
        ("web-2", "web"),
    ]
    assert await objects.object(PODS, namespace="team-a", name="web-1") == found[0]
    assert await objects.object(PODS, namespace="team-a", name="job-1") is None
    assert await objects.object(PODS, namespace="team-b", name="web-1") is None


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "expected"),
    [
        (PODS, "team-a", "web-1", True),
        (PODS, "team-a", "job-1", False),
        (PODS, "team-b", "job-1", True),
        (PODS, "team-a", "gone", True),
        (PODS, "default", "db-1", True),
        (DEPLOYMENTS, "team-a", "gone", True),
    ],
)
async def test_only_a_pod_known_to_be_finished_is_not_live(
    load, resource, namespace, name, expected
):
    assert await load(FLEET).live(resource, namespace=namespace, name=name) is expected


async def test_pods_without_conditions_have_been_ready_forever(load):
    objects = load(
        FLEET,
        """
apiVersion: v1
kind: PodList
items:
- metadata: {name: new, namespace: team-a}
  status: {conditions: [{type: Ready, status: "True", lastTransitionTime: 2999-01-01T00:00:00Z}]}
- metadata: {name: loading, namespace: team-a}
  status: {conditions: [{type: Ready, status: "False"}]}
""",
    )

    names = ("web-1", "web-2", "new", "loading")
    young = await objects.younger(names, namespace="team-a", seconds=60.0)

    assert young == {"new": 0.0, "loading": 0.0}


async def test_later_manifest_replaces_an_earlier_one(load):
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {app: %s}}, status: {phase: %s}}"
    objects = load(pod % ("x", "Running"), pod % ("y", "Running"))

    assert await objects.names(PODS, namespace="default", selector=selectors.parse("app=y")) == (
        "a",
    )
    assert await objects.names(PODS, namespace="default", selector=selectors.parse("app=x")) == ()
    objects = load(pod % ("x", "Running"), pod % ("x", "Succeeded"))
    assert await objects.names(PODS, namespace="default", selector=ALL) == ()


async def test_items_of_a_typed_list_need_no_kind(load):
    objects = load(
        """
        {"kind": "PodList", "apiVersion": "v1", "metadata": {},
         "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b", "namespace": "x"}}]}
        """,
        "{apiVersion: v1, kind: List, items: null}",
    )

    assert await objects.names(PODS, namespace="", selector=ALL) == ("a", "b")


# Kinds


async def test_builtin_kinds_need_no_manifests():
    objects = FileObjects([])

    assert objects.kinds.resolve("deployment").api_version == "apps/v1"
    assert await objects.names(NAMESPACES, namespace="", selector=ALL) == ()


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Widget", "widgets"), ("Policy", "policies"), ("Bus", "buses"), ("LWS", "lwses")],
)
async def test_plural_of_another_kind_is_guessed_like_kubernetes(load, kind, plural):
    objects = load(
        f"{{apiVersion: example.com/v1, kind: {kind}, metadata: {{name: a, namespace: x}}}}"
    )

    resolved = objects.kinds.resolve(plural, "example.com")
    assert (resolved.kind, resolved.namespaced) == (kind, True)
    assert await objects.names(resolved.group_resource, namespace="x", selector=ALL) == ("a",)


def test_builtin_group_keeps_its_kinds_when_a_guess_is_added(load):
    kinds = load(
        "{apiVersion: apps/v1, kind: Gadget, metadata: {name: a}}",
        "{apiVersion: apps/v9, kind: Gizmo, metadata: {name: a}}",
    ).kinds

    assert kinds.resolve("gadgets").api_version == "apps/v1"
    assert kinds.resolve("gizmos").api_version == "apps/v9"
    assert kinds.resolve("deployments").api_version == "apps/v1"


async def test_unknown_resource_is_refused(load):
    objects = load(FLEET)
    await objects.refresh()

    with pytest.raises(errors.Refused, match="widgets") as caught:
        await objects.names(GroupResource("", "widgets"), namespace="", selector=ALL)

    assert caught.value.status == 404


# Problems


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
        ("{apiVersion: Deployment, kind: apps/v1}", "document 1: kind must not contain a slash"),
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
            "{apiVersion: v1, kind: List, items: [5]}",
            "document 1: items[0]: must be a mapping",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {conditions: 5}}",
            "document 1: status.conditions must be those of a pod",
        ),
        ("{apiVersion: v1, kind: List, items: 5}", "document 1: items must be a list"),
        ("{apiVersion: v1, kind: PodList, items: {a: b}}", "document 1: items must be a list"),
    ],
)
def test_problem_names_file_and_document(load, tmp_path, text, expected):
    with pytest.raises(errors.Broken) as caught:
        load(text)

    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path}/0.yaml: {expected}")


def test_problems_of_all_files_are_reported_together(load, tmp_path):
    load(FLEET)

    with pytest.raises(errors.Broken) as caught:
        FileObjects([tmp_path / "none.yaml", _written(tmp_path, "5\n---\n6"), tmp_path])

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
