"""Run of `conformance`: creates a workload, changes its load, and collects evidence.

`conformance_checks` checks the cluster before.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from adapter import errors
from adapter.cli.commands import conformance_workload as workload
from adapter.cli.commands.conformance import RunOptions
from adapter.cli.commands.conformance_checks import REHEARSE, Checks, StepFailed
from adapter.cli.commands.conformance_evidence import Evidence, changed
from adapter.cli.commands.conformance_workload import LABEL, NAME, NAMESPACE, PATHS, Workload
from adapter.cli.console.autoscalers import ReplicaSample
from adapter.cli.console.reader import event
from adapter.cli.doctor import autoscaler
from adapter.cli.doctor.client import ApiClient
from adapter.clients.kubernetes import status_message
from rules import rbac
from rules.errors import UnreadableError
from rules.findings import Finding, failure, ok, skipped, warning
from rules.hpa import reading
from rules.hpa.autoscaler import Pod
from rules.hpa.reading import Observation
from rules.quoting import counted

_INTERVAL = 2.0
"""Seconds between two observations."""
_PAUSE = 15.0
"""Seconds after which another value is reported, if nothing else has changed."""
_DELETION = 180.0
"""Seconds until a namespace is deleted."""
_LEFT = "left over"
_ACCELERATOR = "accelerator"
_SEE = f"see the Events in the page, and kubectl -n {NAMESPACE} describe pods while it runs"
_EXPORTER = (
    f"{reading.DOCTOR}; if the value is not below --target without load, set that, or --metric"
)
_SCRAPE = (
    "let Prometheus scrape pods with the annotation prometheus.io/scrape; for the one in the "
    f"adapter's pods, add {NAMESPACE} to prometheus.embedded.trustedNamespaces of the chart"
)


async def run(client: ApiClient, wanted: RunOptions, say: Callable[[str], None]) -> Evidence:
    """Return what was found; `say` is called with each line of progress.

    The namespace is deleted at the end, also after a failure and a cancellation.
    """
    evidence = Evidence(run=secrets.token_hex(4), started=time.time())
    steps = _Run(client, wanted, evidence, say)
    try:
        await steps.perform()
    except StepFailed as failed:
        steps.add(*failed.findings)
    except errors.BackendError as error:
        cure = rbac.cure(error.status, error.refusal) or reading.DOCTOR
        steps.add(failure("api-server", str(error), cure=cure))
    finally:
        evidence.ended = time.time()
        await steps.end()
    return evidence


class _Run:
    def __init__(
        self, client: ApiClient, wanted: RunOptions, evidence: Evidence, say: Callable[[str], None]
    ) -> None:
        self._client = client
        self._api = client.kube
        self._wanted = wanted
        self._evidence = evidence
        self._say = say
        self._created = False
        self._said = (0.0, "", "")
        """When the state of the HPA was reported last: its value, and its pods."""

    def add(self, *findings: Finding) -> None:
        """Keep and report findings."""
        for each in findings:
            self._evidence.findings.append(each)
            self._say(f"{each.state:<8}{each.sentence}")

    async def perform(self) -> None:
        """Run all steps. Raises StepFailed and BackendError."""
        checks = Checks(self._client, self._wanted, self._evidence, self.add)
        planned = await checks.perform()
        await self._delete_left()
        await self._create(planned)
        await self._until("workload", lambda seen: _ready(seen) == 1 and "a pod is ready", _SEE)
        await self._until("metric", _idle, _EXPORTER if planned.resource else _SCRAPE)
        await self._set_load(workload.BUSY)
        await self._until("scale-out", _scaled_out, _SEE)
        await self._accelerators()
        await self._set_load(workload.IDLE)
        await self._until("scale-in", _scaled_in, "see the HPA's conditions in the page")

    async def end(self) -> None:
        """Read the Events, and delete the namespace, if it was created."""
        if not self._created:
            return
        with contextlib.suppress(errors.BackendError):
            self._evidence.events = await self._events()
        try:
            await self._delete(NAMESPACE)
            self.add(ok("clean-up", f"namespace {NAMESPACE} is deleted"))
        except errors.BackendError as error:
            cure = "delete it; the next run does, too"
            self.add(warning("clean-up", f"{NAMESPACE} is not deleted yet: {error}", cure=cure))

    async def _delete_left(self) -> None:
        """Delete what a killed run left."""
        listed = await self._api.get(PATHS["Namespace"], {"labelSelector": LABEL})
        left = [each["metadata"] for each in listed["items"] or ()]
        for each in left:
            await self._delete(each["name"])
            self.add(
                ok(_LEFT, f"namespace {each['name']} of run {each['labels'][LABEL]} is deleted")
            )
        if not left:
            self.add(ok(_LEFT, "nothing of another run"))

    async def _delete(self, namespace: str) -> None:
        """Delete a namespace and wait until it is gone. Raises BackendError."""
        path = f"{PATHS['Namespace']}/{namespace}"
        deadline = time.monotonic() + _DELETION
        try:
            await self._api.delete(path)
            while time.monotonic() < deadline:
                await self._api.get(path)
                await asyncio.sleep(_INTERVAL / 2)
        except errors.Refused as error:
            if error.status != 404:
                raise
            return
        raise errors.TimedOut(f"namespace {namespace} is still there after {_DELETION:g} s")

    async def _create(self, planned: Workload) -> None:
        self._evidence.manifests = planned.documents()
        for each in self._evidence.manifests:
            try:
                await self._api.post(PATHS[each["kind"]], each)
            except errors.Refused as error:
                kind, name = each["kind"], each["metadata"]["name"]
                cure = "correct the flags"
                if error.status == 409:
                    cure = f"delete {kind} {name}, which is of no run, or is being deleted"
                fact = f"{kind} {name} cannot be created: {error.refusal}"
                raise StepFailed(failure("workload", fact, cure=cure)) from error
            self._created = True
        self._evidence.loads.append((time.time(), float(workload.IDLE)))
        self._say(f"created run {planned.run} in namespace {NAMESPACE}: {planned.image}")

    async def _set_load(self, text: str) -> None:
        path = f"{PATHS['ConfigMap']}/{NAME}"
        await self._api.patch(path, workload.level(text))
        self._evidence.loads += [
            (time.time(), self._evidence.loads[-1][1]),
            (time.time(), float(text)),
        ]
        self._say(f"load {text} %; a kubelet needs up to 90 s to bring it into the pods")

    async def _until(
        self, step: str, reached: Callable[[Observation], str | bool], cure: str
    ) -> None:
        """Observe until `reached` returns what was reached. Raises StepFailed."""
        begin, problem = time.monotonic(), ""
        while (seconds := time.monotonic() - begin) < self._wanted.timeout:
            try:
                observed = await self._client.run(reading.read(NAMESPACE, NAME, time.time))
                problem = ""
                self._sample(observed)
                if fact := reached(observed):
                    self.add(ok(step, f"{fact}, after {seconds:.0f} s"))
                    await self._explain(step)
                    return
            except UnreadableError as error:
                problem = str(error)
            await asyncio.sleep(_INTERVAL)
        problem = problem or await self._explain(step)
        fact = f"not within {self._wanted.timeout:g} s: {problem}"
        cause = await self._complaint(time.time() - seconds)
        raise StepFailed(failure(step, fact, cause=cause, cure=cure))

    def _sample(self, observed: Observation) -> None:
        """Keep what was observed, and report what has changed."""
        hpa, evidence, now = observed.hpa, self._evidence, time.time()
        evidence.hpa = hpa
        evidence.conditions += changed(evidence.conditions, hpa, now)
        values = tuple(
            None if each.replicas is None else each.current for each in observed.proposals
        )
        present = len([each for each in observed.pods if not each.deleted])
        evidence.samples.append(ReplicaSample(now, present, observed.scale.spec, values or (None,)))
        metric = hpa.metrics[0]
        value = f"{metric.name} {metric.readable_of_target(values[0] if values else None)}"
        pods = f"{counted(observed.scale.spec, 'replica')}, {_ready(observed)} ready"
        at, value_before, pods_before = self._said
        if pods != pods_before or (value != value_before and now - at >= _PAUSE):
            self._say(f"{now - evidence.started:4.0f} s  {value}, {pods}")
            self._said = now, value, pods

    async def _explain(self, step: str) -> str:
        """Keep what `explain hpa` says; return its verdict, or why there is none."""
        try:
            explained = await autoscaler.explain(self._client, NAMESPACE, NAME)
        except UnreadableError as error:
            return str(error)
        self._evidence.explanations[step] = tuple(explained.lines())
        return explained.verdict

    async def _complaint(self, since: float) -> str:
        """Return the newest Warning of the namespace `since` a time; empty without one."""
        try:
            events = await self._events()
        except errors.BackendError:
            return ""
        for each in reversed(events):
            if (
                each["type"] == "Warning"
                and each["time"]
                and datetime.fromisoformat(each["time"]).timestamp() >= since
            ):
                return f"{each['object']}: {each['message'].rstrip('.')}"
        return ""

    async def _events(self) -> Sequence[Mapping[str, Any]]:
        """Return the Events of the namespace, oldest first."""
        listed = await self._api.get(f"/api/v1/namespaces/{NAMESPACE}/events", {"limit": "500"})
        found = [{**event(each), "object": _subject(each)} for each in listed["items"] or ()]
        return sorted(found, key=lambda each: str(each["time"]))

    async def _accelerators(self) -> None:
        """Read which accelerators each pod sees. Raises StepFailed for none in a real run."""
        listed = await self._api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")
        pods = [each for each in listed["items"] if not each["metadata"].get("deletionTimestamp")]
        found, problem = [], ""
        for each in pods:
            name = each["metadata"]["name"]
            reply = await self._api.fetch(
                f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/log", {"limitBytes": "65536"}
            )
            text = reply.body.decode(errors="replace")
            seen = list(workload.seen(text)) if reply.status == 200 else []
            if reply.status != 200:
                problem = f"the log of {name} cannot be read: {status_message(reply.body) or text}"
            elif not seen:
                problem = f"the log of {name} shows none: {' '.join(text.split())[-200:]}"
            found.append(
                {
                    "name": name,
                    "node": each["spec"].get("nodeName", ""),
                    "phase": each["status"]["phase"],
                    "accelerators": seen,
                }
            )
        self._evidence.pods = found
        if not self._evidence.resource:
            self.add(skipped(_ACCELERATOR, "a stand-in has none"))
        elif not problem:
            self.add(ok(_ACCELERATOR, "; ".join(map(_described, found))))
        elif self._wanted.rehearsal:
            self.add(skipped(_ACCELERATOR, problem))
        else:
            cure = f"use an image with the tools or devices of the vendor; {REHEARSE}"
            raise StepFailed(failure(_ACCELERATOR, problem, cure=cure))


def _subject(document: Mapping[str, Any]) -> str:
    involved = document.get("involvedObject") or {}
    return f"{involved.get('kind', '')}/{involved.get('name', '')}"


def _described(pod: Mapping[str, Any]) -> str:
    return f"{pod['name']} on {pod['node']} sees {', '.join(pod['accelerators'])}"


def _works(pod: Pod) -> bool:
    return pod.phase == "Running" and pod.ready == "True" and not pod.deleted


def _ready(observed: Observation) -> int:
    return sum(map(_works, observed.pods))


def _value(observed: Observation) -> str:
    """Return the value of the metric, and the target."""
    proposed = observed.proposals[0]
    return f"{proposed.metric.name} is {proposed.metric.readable_of_target(proposed.current)}"


def _idle(observed: Observation) -> str:
    """Return the value once the controller has it, and does not scale out."""
    status, *_ = observed.hpa.conditions.get("ScalingActive", ("",))
    if status != "True" or not observed.proposals or observed.hpa.desired != 1:
        return ""
    replicas = observed.proposals[0].replicas
    return "" if replicas is None or replicas > 1 else _value(observed)


def _scaled_out(observed: Observation) -> str:
    wanted = observed.scale.spec
    if wanted < 2 or observed.hpa.desired != wanted or _ready(observed) != wanted:
        return ""
    return f"from 1 to {wanted} replicas, all ready"


def _scaled_in(observed: Observation) -> str:
    there = [each for each in observed.pods if not each.deleted]
    if observed.scale.spec != 1 or observed.hpa.desired != 1 or len(there) != 1:
        return ""
    return "to 1 replica"
