"""`doctor` finds the installation by its APIServices, whatever its names are."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from adapter.cli.doctor import checks, deployment, installation, permissions, registration
from adapter.server.api import groups
from adapter.settings.kubectl import KubectlSettings
from rules.findings import State
from rules.metrics_apis import APIS, OPENAPI_TITLE
from rules.metrics_apis import CUSTOM as API
from tools import helm
from tools.fakes import kubernetes

pytestmark = pytest.mark.usefixtures("patience")

MANIFESTS = Path(__file__).parents[4] / "manifests"
NAMES = [name for api in APIS for name in api.apiservices]
CUSTOM, CUSTOM_V1BETA2, EXTERNAL, USAGE, USAGE_V1 = NAMES
OURS, ORIGINAL = OPENAPI_TITLE, "prometheus-metrics-adapter"
PATHS = {
    "APIService": "/apis/apiregistration.k8s.io/v1/apiservices",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
}
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class World:
    """API server that has objects, and what answers behind its APIServices."""

    def __init__(self, objects: Iterable[Mapping[str, Any]] = ()) -> None:
        self.answers: dict[str, Any] = {}
        self.reviewed: list[tuple[str, ...]] = []
        self.granted = True
        deployments: dict[str, list[Any]] = {}
        for each in objects:
            metadata = each["metadata"]
            if each["kind"] == "Deployment":
                path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/deployments"
                deployments.setdefault(path, []).append(each)
            elif path := PATHS.get(each["kind"]):
                within = path.format(metadata.get("namespace"))
                self.answers[f"{within}/{metadata['name']}"] = each
        self.answers |= {path: {"items": items} for path, items in deployments.items()}
        for name in NAMES:
            if f"{PATHS['APIService']}/{name}" in self.answers:
                self.serve(name, OURS)

    def register(self, name: str, service: str, title: str | None) -> None:
        """Add an APIService; a program with the title serves it, or one without (""), or none."""
        namespace, _, within = service.partition("/")
        self.answers[f"{PATHS['APIService']}/{name}"] = {
            "metadata": {"name": name},
            "spec": {"service": {"namespace": namespace, "name": within}},
        }
        self.serve(name, title)

    def serve(self, name: str, title: str | None) -> None:
        status = "False" if title is None else "True"
        condition = {"type": "Available", "status": status, "reason": "MissingEndpoints"}
        document = self.answers[f"{PATHS['APIService']}/{name}"]
        self.answers[f"{PATHS['APIService']}/{name}"] = {
            **document,
            "status": {"conditions": [condition]},
        }
        version, _, group = name.partition(".")
        if title:
            self.answers[f"/openapi/v3/apis/{group}/{version}"] = {"info": {"title": title}}

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.respond)
        return app

    async def respond(self, request: web.Request) -> web.Response:
        if request.path == REVIEWS:
            spec = (await request.json())["spec"]
            asked = spec["resourceAttributes"]
            keys = ("verb", "resource", "name")
            self.reviewed.append((spec["user"], *(asked[each] for each in keys)))
            return web.json_response({"status": {"allowed": self.granted}}, status=201)
        if request.path not in self.answers:
            return web.Response(status=404, text="not found")
        return web.json_response(self.answers[request.path])


@pytest.fixture
def find(aiohttp_server, kube_of):
    """Return the installation in a world."""

    async def find(world):
        api = await kube_of(await aiohttp_server(world.app()))
        return await registration.find(api, user="admin")

    return find


def of_chart(**values: Any) -> list[dict[str, Any]]:
    """Return the objects of a release; Helm adds the annotations when it installs them."""
    values = {"presets": ["auto"], "rules": {"default": False}, **values}
    objects = helm.template(values, release="gpu", namespace="scaling")
    for each in objects:
        annotations = each["metadata"].setdefault("annotations", {})
        annotations["meta.helm.sh/release-name"] = "gpu"
        annotations["meta.helm.sh/release-namespace"] = "scaling"
    return objects


@pytest.mark.usefixtures("real_servers")
async def test_a_release_of_any_name_is_found(find):
    world = World(of_chart(prometheus={"url": "http://prometheus.example", "port": 0}))

    installed = await find(world)
    flags = await deployment.flags(installed)
    account = await installation.account(installed)

    assert installed.name == "scaling/gpu-prometheus-adapter"
    assert flags.prometheus.url == "http://prometheus.example"
    assert account.name == "gpu-prometheus-adapter"
    assert installed.apply.endswith(": helm -n scaling get manifest gpu | kubectl apply -f -")
    states = {each.subject: each.state for each in await registration.registered(installed)}
    assert set(states.values()) == {State.OK}


@pytest.mark.usefixtures("real_servers")
async def test_an_installation_of_external_metrics_lacks_no_custom_metrics(find):
    rules = {"default": False, "external": [{"seriesQuery": "x", "metricsQuery": "x"}]}
    world = World(of_chart(presets=[], rules=rules))
    world.granted = False

    installed = await find(world)
    found = await registration.registered(installed)
    (listed,) = await installation.metrics(installed)
    world.reviewed.clear()
    await permissions.of_adapter(installed)

    assert list(installed.own) == [EXTERNAL]
    assert {each.state for each in found} == {State.OK}
    assert listed.state is State.SKIPPED
    assert not any(verb == "patch" for _, verb, _, _ in world.reviewed)


@pytest.mark.usefixtures("real_servers")
async def test_a_certificate_of_files_needs_no_right_to_a_secret(find):
    for values, needed in (({}, True), ({"certManager": {"enabled": True}}, False)):
        world = World(of_chart(**values))

        await permissions.of_adapter(await find(world))

        resources = {resource for _, _, resource, _ in world.reviewed}
        assert ("secrets" in resources) is needed


@pytest.mark.usefixtures("real_servers")
async def test_of_scale_targets_only_the_scale_must_be_readable(find):
    world = World(of_chart(scaleTargets=["widgets.example.com"]))
    names = ("rollouts.argoproj.io/load", "widgets.example.com/load")
    world.answers[API.path()] = {"resources": [{"name": each} for each in names]}

    await permissions.of_adapter(await find(world))

    asked = {(verb, resource) for _, verb, resource, _ in world.reviewed}
    assert {(verb, "rollouts") for verb in ("list", "watch")} <= asked
    assert {verb for verb, resource in asked if resource == "widgets"} == {"get"}


@pytest.fixture
def kustomize(programs, tmp_path):
    """Return the objects of a folder of the manifests in another namespace."""

    def kustomize(folder, namespace):
        overlay = tmp_path / "overlay"
        overlay.mkdir()
        # kustomize accepts no absolute path.
        base = os.path.relpath(MANIFESTS / folder, overlay)
        kustomization = {"resources": [base], "namespace": namespace}
        (overlay / "kustomization.yaml").write_text(json.dumps(kustomization))
        command = [programs.kubectl, "kustomize", overlay]
        built = subprocess.run(command, capture_output=True, text=True, check=True)
        return list(yaml.safe_load_all(built.stdout))

    return kustomize


@pytest.mark.parametrize("namespace", ["gpu-metrics-adapter", "monitoring"])
@pytest.mark.parametrize("folder", ["base", "overlays/external-metrics"])
async def test_the_bases_are_found_in_any_namespace(find, kustomize, folder, namespace):
    installed = await find(World(kustomize(folder, namespace)))

    assert installed.name == f"{namespace}/gpu-metrics-adapter"
    assert len(installed.own) == (2 if folder == "base" else 3)
    assert "auto" in [each.name for each in (await deployment.flags(installed)).rules.sources]
    assert "kubectl apply -k" in installed.apply


async def test_other_programs_are_told_by_their_title(find):
    world = World()
    world.register(CUSTOM, "monitoring/prometheus-adapter", ORIGINAL)
    world.register(EXTERNAL, "gpu/any-name", OURS)
    world.register(USAGE, "kube-system/metrics-server", "Kubernetes metrics-server")

    installed = await find(world)
    found = {each.subject.split()[-1]: each for each in await registration.registered(installed)}

    assert installed.name == "gpu/any-name"
    assert found[CUSTOM].state is State.FAILURE
    assert "belongs to monitoring/prometheus-adapter, not to gpu/any-name" in found[CUSTOM].fact
    assert {found[each].state for each in (EXTERNAL, USAGE, USAGE_V1)} == {State.OK}


async def test_a_program_that_does_not_answer_is_taken_for_this_one(find):
    world = World()
    world.register(CUSTOM, "a/stopped", None)
    world.register(EXTERNAL, "keda/keda", "keda-adapter")
    world.register(USAGE, "kube-system/metrics-server", "")
    assert (await find(world)).name == "a/stopped"
    world.register(CUSTOM_V1BETA2, "b/runs", OURS)
    assert (await find(world)).name == "b/runs"


async def test_without_an_installation_only_the_rest_is_checked(aiohttp_server, tmp_path):
    world = World()
    world.register(CUSTOM, "monitoring/prometheus-adapter", ORIGINAL)
    world.register(USAGE, "kube-system/metrics-server", None)
    world.answers["/version"] = {"gitVersion": "v1.36.0"}

    kubeconfig = kubernetes.kubeconfig(tmp_path, await aiohttp_server(world.app()))
    found = await checks.examine(KubectlSettings(kubeconfig=kubeconfig), prometheus=None)

    by_subject = {each.subject: each for each in found}
    custom = by_subject[f"apiservice {CUSTOM}"]
    assert custom.fact == "belongs to monitoring/prometheus-adapter, not to this adapter"
    assert "docs/migration.md" in custom.cure
    assert by_subject["service"].state is State.SKIPPED
    assert "rights of the HPA controller" in by_subject
    assert not by_subject.keys() & {"serving-certificate", "rights", "adapter"}


def test_the_documents_of_each_group_have_the_title():
    documents = list(Path(groups.__file__).parent.glob("*.openapi_v3.json"))

    assert len(documents) == len(NAMES)
    assert {json.loads(each.read_text())["info"]["title"] for each in documents} == {OPENAPI_TITLE}
