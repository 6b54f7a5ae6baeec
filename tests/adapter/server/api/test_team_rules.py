"""Requests in namespaces whose rules are not loaded, or refused, and the document about them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from adapter.server.api import team_rules
from adapter.server.apimachinery import request_info
from adapter.server.auth.attributes import authorizer_attributes
from adapter.server.auth.user import User
from adapter.server.series.generation import Generation
from rules.causes import missing
from rules.findings import Finding
from rules.kinds import PODS, Kinds
from tests.adapter import wired

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"


class TeamRules:
    """Namespaces whose rules are not loaded, and those with a refused ConfigMap."""

    def __init__(self) -> None:
        self.loading = {"slow"}
        self.refused = {"bad"}

    def pending(self, namespace: str) -> Finding | None:
        return missing.rules_not_loaded(namespace) if namespace in self.loading else None

    def causes(self, namespace: str) -> tuple[Finding, ...]:
        if namespace not in self.refused:
            return ()
        return (missing.rules_refused(namespace, {"mine": "rules.yaml:1: wrong"}),)

    async def document(self, namespace: str, view: Generation) -> Mapping[str, Any]:
        return {"metadata": {"namespace": namespace}}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    kinds = Kinds.builtin()
    objects = wired.Objects(kinds, {(PODS, "slow"): {"p": {}}, (PODS, "bad"): {"p": {}}})
    handler = wired.build_router(objects=objects, team_rules=TeamRules())
    async with wired.listening(handler) as port:
        yield port


@pytest.mark.parametrize(
    "path",
    [
        f"{CUSTOM}/namespaces/slow/pods/p/m",
        f"{CUSTOM}/namespaces/slow/pods/*/m",
        f"{CUSTOM}/namespaces/slow/metrics/m",
        f"{CUSTOM}/namespaces/slow/pods/p/m?explain=true",
        f"{EXTERNAL}/namespaces/slow/m",
    ],
)
async def test_a_metric_that_rules_not_loaded_may_produce_is_503_and_never_404(
    port: int, path: str
) -> None:
    reply = await wired.fetch(port, path)

    assert reply.status == 503
    assert reply.headers["Retry-After"] == "1"
    document = json.loads(reply.body)
    assert document["reason"] == "ServiceUnavailable"
    assert document["details"]["retryAfterSeconds"] == 1
    (cause,) = document["details"]["causes"]
    assert cause["reason"] == "RulesNotLoaded"
    assert "the rules of namespace slow are not loaded yet" in cause["message"]


async def test_other_namespaces_and_objects_of_the_cluster_are_404_meanwhile(port: int) -> None:
    for path in ("namespaces/other/pods/p/m", "nodes/n/m", "namespaces/slow/nodes/n/m"):
        assert (await wired.fetch(port, f"{CUSTOM}/{path}")).status == 404
    assert (await wired.fetch(port, f"{EXTERNAL}/namespaces/other/m")).status == 404


@pytest.mark.parametrize(
    "path", [f"{CUSTOM}/namespaces/bad/pods/p/m", f"{EXTERNAL}/namespaces/bad/m"]
)
async def test_a_refused_config_map_is_a_cause_in_its_namespace_only(port: int, path: str) -> None:
    reply = await wired.fetch(port, path)
    causes = json.loads(reply.body)["details"]["causes"]
    assert reply.status == 404
    assert "mine: rules.yaml:1: wrong" in causes[0]["message"]

    other = await wired.fetch(port, path.replace("bad", "other"))
    assert b"mine" not in other.body


async def test_the_document_is_below_the_namespace_in_each_version(port: int) -> None:
    for version in ("v1beta1", "v1beta2"):
        path = f"/apis/custom.metrics.k8s.io/{version}/namespaces/a/teamrules"
        reply = await wired.fetch(port, path)
        assert (reply.status, json.loads(reply.body)) == (200, {"metadata": {"namespace": "a"}})
    assert (await wired.fetch(port, path, method="POST")).status == 405
    assert (await wired.fetch(port, f"{path}?watch=true")).status == 400
    assert (await wired.fetch(port, f"{EXTERNAL}/namespaces/a/teamrules")).status == 404


def test_the_document_is_a_list_of_its_own_resource_to_authorization() -> None:
    info = request_info.parse(f"{CUSTOM}/namespaces/a/teamrules")
    found = authorizer_attributes(User(name="u"), info)

    assert team_rules.requested(info)
    assert (found.verb, found.group, found.resource, found.namespace, found.name) == (
        "list",
        "custom.metrics.k8s.io",
        "teamrules",
        "a",
        "",
    )
    for path in ("namespaces/a/teamrules/x/y", "namespaces/a/teamrules/", "teamrules", "a/b/c"):
        assert not team_rules.requested(request_info.parse(f"{CUSTOM}/{path}"))
