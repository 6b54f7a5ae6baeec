"""What `conformance` checks before it runs: the API server, rights, the adapter and the nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.cli.commands import conformance_workload as workload
from adapter.cli.commands.conformance import RunOptions
from adapter.cli.commands.conformance_evidence import Evidence
from adapter.cli.commands.conformance_workload import NAMESPACE, Workload
from adapter.cli.doctor import deployment, installation, registration
from adapter.cli.doctor.client import ApiClient
from adapter.clients import rights
from adapter.clients.rights import Right
from rules.errors import UnreadableError
from rules.findings import Finding, failure, ok, skipped, warning
from rules.hpa import reading
from rules.metrics_apis import CUSTOM
from rules.quoting import counted

REHEARSE = "or rehearse with --rehearsal, which proves nothing about accelerators"
_NO_IMAGE = "set --image to the image of gpu-metrics-adapter, whose Python the stand-in uses"


class StepFailed(Exception):
    """A step failed, so that the next ones cannot succeed."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__()
        self.findings = findings


class Checks:
    """Checks of one run; findings are passed to `add` and facts kept in `evidence`."""

    def __init__(
        self, client: ApiClient, wanted: RunOptions, evidence: Evidence, add: Callable[..., None]
    ) -> None:
        self._client = client
        self._api = client.kube
        self._wanted = wanted
        self._evidence = evidence
        self._add = add

    async def perform(self) -> Workload:
        """Check everything, and return what will run. Raises StepFailed and BackendError."""
        user = await self._cluster()
        await self._rights()
        return await self._plan(await self._adapter(user))

    async def _cluster(self) -> str:
        """Check the API server, and return the name of the user."""
        findings, user = await installation.api_server(self._api)
        self._add(*findings)
        self._evidence.versions["kubernetes"] = (await self._api.get("/version"))["gitVersion"]
        return user

    async def _adapter(self, user: str) -> str:
        """Return the image of the adapter; empty if it is not known. Raises StepFailed."""
        try:
            served = await self._client.version()
        except UnreadableError as error:
            found = failure(CUSTOM.name, str(error), cure=error.cure or reading.DOCTOR)
            raise StepFailed(found) from error
        self._add(ok(CUSTOM.name, f"{served} is served"))
        image = ""
        with contextlib.suppress(errors.BackendError):
            installed = await registration.find(self._api, user)
            if (found_template := await deployment.template(installed)) is not None:
                image = found_template["spec"]["containers"][0]["image"]
        self._evidence.versions["adapter"] = image or "not known: its Deployment is not readable"
        return image

    async def _rights(self) -> None:
        """Check that the caller may do what the run needs."""
        found = await gather_or_cancel(rights.missing_of(self._api, each) for each in _rights())
        missing = [each for rights_of_one in found for each in rights_of_one]
        if missing:
            raise StepFailed(
                failure(
                    "rights",
                    f"you may not {'; '.join(map(str, missing))}",
                    cure="run it as a cluster administrator, or let one grant by a ClusterRole: "
                    + ", ".join(each.rule() for each in missing),
                )
            )
        self._add(ok("rights", "you may create what the run needs"))

    async def _plan(self, adapter_image: str) -> Workload:
        """Return what will run: on accelerators, if a node has some."""
        wanted = self._wanted
        nodes = (await self._api.get("/api/v1/nodes"))["items"] or ()
        resource, number = workload.offered(nodes, wanted.resource)
        self._evidence.resource = resource
        self._evidence.nodes = [
            {"name": name, "accelerators": number[name], **_versions(each)}
            for each in nodes
            if (name := each["metadata"]["name"]) in number
        ]
        if resource:
            image = wanted.image or workload.image_for(resource)
            self._check_accelerators(resource, number, image)
        else:
            image = wanted.image or adapter_image
            self._check_stand_in(image)
        return Workload(
            run=self._evidence.run,
            image=image,
            resource=resource,
            command=wanted.command,
            metric=wanted.metric,
            target=wanted.target,
            maximum=wanted.maximum,
        )

    def _check_accelerators(self, resource: str, number: Mapping[str, int], image: str) -> None:
        total, wanted = sum(number.values()), self._wanted
        name, fact = "nodes", f"{total} of {resource} on {counted(len(number), 'node')}"
        if not image or (not workload.image_for(resource) and not wanted.command):
            cure = (
                "set --image and --load-command to a program that keeps one accelerator busy; the "
                "built-in one is for NVIDIA's"
            )
            raise StepFailed(failure(name, f"{fact}, for which no load is built in", cure=cure))
        if total < wanted.maximum:
            cure = "add a node, unless your cluster autoscaler does"
            few = f"{fact}: fewer than --max-replicas={wanted.maximum}"
            self._add(warning(name, few, cure=cure))
        else:
            self._add(ok(name, fact))

    def _check_stand_in(self, image: str) -> None:
        wanted = self._wanted
        named = wanted.resource or "an accelerator that is known"
        fact = f"no node has {named}"
        if not wanted.rehearsal:
            cure = f"set --resource to the one that your device plugin offers; {REHEARSE}"
            raise StepFailed(failure("nodes", fact, cure=cure))
        if not image:
            fact = f"{fact}, and the image of a stand-in is not known"
            raise StepFailed(failure("nodes", fact, cure=_NO_IMAGE))
        self._add(skipped("nodes", f"{fact}: the pods are a stand-in that reports its load"))


def _rights() -> Iterable[Right]:
    """Yield what the caller needs; the namespace may not exist yet."""
    needed = (
        ("", "namespaces", ("create", "get", "list", "delete")),
        ("", "nodes", ("list",)),
        ("", "configmaps", ("create", "patch")),
        ("", "pods", ("list",)),
        ("", "pods/log", ("get",)),
        ("", "events", ("list",)),
        ("apps", "deployments", ("create",)),
        ("apps", "deployments/scale", ("get",)),
        ("autoscaling", "horizontalpodautoscalers", ("create", "get")),
        (CUSTOM.name, "pods/any", ("get",)),
    )
    for group, resource, verbs in needed:
        within = "" if resource in {"namespaces", "nodes"} else NAMESPACE
        yield Right(
            group=group, resource=resource, verbs=verbs, namespace=within, consequence="it fails"
        )


def _versions(node: Mapping[str, Any]) -> Mapping[str, str]:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return {
        "kubelet": info.get("kubeletVersion", ""),
        "runtime": info.get("containerRuntimeVersion", ""),
    }
