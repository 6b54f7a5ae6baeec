"""Compares the predictions for random HPAs with the real controller.

The HPAs scale objects of a CRD, which nobody else changes. A server behind the API server answers
for all three metrics APIs. It counts what the controller reads, so that a sync that changes
nothing is noticed, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import yaml

from adapter.server.tls import context as tls
from certs.issue import issue_temporary
from rules import quantity
from rules.hpa import decision, reading
from rules.hpa.decision import Decision
from rules.hpa.reading import ApiReply, ApiRequest, Observation
from tools import http_server
from tools.control_plane.client import MERGE_PATCH, Client
from tools.control_plane.plane import ControlPlane
from tools.hpa import random_objects as objects
from tools.hpa.random_objects import GROUP, KIND, NAMESPACE, PLURAL, Case
from tools.http_server import Answer
from tools.real.prometheus import wait_for

SEED = 25
_BATCH = 30
_WORKERS = 4
_SECONDS = 90.0
"""Longest time between two syncs of an HPA; it only ends a comparison without any."""
_API_SERVICES = (
    "v1beta2.custom.metrics.k8s.io",
    "v1beta1.external.metrics.k8s.io",
    "v1beta1.metrics.k8s.io",
)
_CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
TARGETS = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/{PLURAL}"
HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
_MARKER = "marker"
"""A pod, its application, and the budget for it."""
_CRD = yaml.safe_load(f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {PLURAL}.{GROUP}}}
spec:
  group: {GROUP}
  scope: Namespaced
  names: {{kind: {KIND}, plural: {PLURAL}, singular: {KIND.lower()}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
    subresources:
      scale:
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
        labelSelectorPath: .status.selector
""")


@dataclasses.dataclass(kw_only=True)
class Result:
    """What became of the predictions."""

    numbers: int = 0
    """Predictions of one number that came true; likewise the next."""
    ranges: int = 0
    failures: int = 0
    """Predictions that a metric without a value keeps the replicas."""
    late: int = 0
    """The replicas had changed twice before anybody looked."""
    wrong: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        right = self.numbers + self.ranges + self.failures
        return (
            f"{right} of {right + len(self.wrong)} predictions were right: {self.numbers} as one "
            f"number, {self.ranges} as a range, {self.failures} as a metric without a value; "
            f"{len(self.wrong)} were wrong, {self.late} were seen too late"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Prediction:
    case: Case
    generation: int
    reads: int
    observation: Observation
    decision: Decision


class Metrics:
    """Server of the metrics APIs."""

    def __init__(self) -> None:
        self.replies: dict[str, Any] = {}
        self.reads = Counter[str]()
        """Name of an HPA -> requests of the controller."""
        self._lock = threading.Lock()

    def respond(self, request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        """Count a request of the controller, and answer it."""
        url = urlsplit(request.path)
        path, query = unquote(url.path), parse_qs(url.query)
        if request.headers.get("X-Remote-User") == _CONTROLLER and "/namespaces/" in path:
            with self._lock:
                self.reads[self.subject(path, query)] += 1
        status, document = self.answer(path, query)
        return status, "application/json", json.dumps(document).encode()

    @staticmethod
    def subject(path: str, query: dict[str, list[str]]) -> str:
        """Return the name of the HPA whose metric is requested."""
        if path == objects.RESOURCE:
            return query["labelSelector"][0].removeprefix("app=")
        found = re.search(r"/m(\d+)x\d+$", path)
        return f"h{found[1]}" if found else ""

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """Return status and document."""
        if "/namespaces/" not in path:
            group, _, version = path.removeprefix("/apis/").partition("/")
            version = f"{group}/{version}"
            resources = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
            return 200, resources | {"resources": []}
        key = self.subject(path, query) if path == objects.RESOURCE else path
        items = self.replies.get(key)
        if items is None:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
            return 404, status | {"reason": "NotFound", "message": "the metric does not exist"}
        _, _, group, version, *_ = path.split("/")
        kinds = {"custom": "MetricValueList", "external": "ExternalMetricValueList"}
        kind = kinds.get(group.partition(".")[0], "PodMetricsList")
        return 200, {"kind": kind, "apiVersion": f"{group}/{version}", "items": items}


class Testbed:
    """The API server with the CRD and the metrics server."""

    def __init__(self, control_plane: ControlPlane, metrics: Metrics) -> None:
        self._admin = control_plane.admin
        self._controller = control_plane.controller_manager
        self._metrics = metrics
        self._documents: dict[str, Any] = {}
        create_pod(self._admin, _MARKER, _MARKER, {"containers": [{"name": "a", "image": "none"}]})
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": _MARKER}}}
        self._admin.call("POST", _BUDGETS, {"metadata": {"name": _MARKER}, "spec": spec})
        self._ready = itertools.cycle((True, False))

    def wait_until_pods_are_known(self) -> None:
        """Block until the controller has seen all changes of pods so far.

        It shares one watch of pods with the controller that writes the status of budgets, so this
        has a change of the last pod only after all others.
        """
        ready = next(self._ready)
        condition = {"type": "Ready", "status": str(ready)}
        set_status(self._admin, _MARKER, {"phase": "Running", "conditions": [condition]})

        def seen() -> bool:
            status = self._admin.get(f"{_BUDGETS}/{_MARKER}").get("status", {})
            return (status.get("currentHealthy"), status.get("expectedPods")) == (int(ready), 1)

        wait_for(seen, "the controller knows all pods")

    def compare(self, cases: Sequence[Case]) -> Result:
        """Create the HPAs in batches, and compare each with its next sync."""
        result = Result()
        for start in range(0, len(cases), _BATCH):
            batch = cases[start : start + _BATCH]
            self._each(self._create, batch)
            self.wait_until_pods_are_known()
            with self._controller.paused():
                self._each(lambda each: self._admin.call("POST", HPAS, each.hpa), batch)
                predictions = self._each(self._predict, batch)
            self._round(predictions, result)
            self._each(lambda each: self._admin.call("DELETE", f"{HPAS}/{each.name}"), batch)
        return result

    def _targets(self) -> dict[str, Any]:
        return _by_name(self._admin.get(TARGETS))

    def _hpas(self) -> dict[str, Any]:
        return _by_name(self._admin.get(HPAS))

    def _create(self, case: Case) -> None:
        self._metrics.replies |= case.replies
        self._admin.call("POST", TARGETS, case.target)
        for pod in case.pods:
            name = pod["metadata"]["name"]
            create_pod(self._admin, name, case.name, pod["spec"])
            set_status(self._admin, name, pod["status"])
            if pod["metadata"]["deleted"]:
                self._admin.call("DELETE", f"{PODS}/{name}")

    def _round(self, predictions: Sequence[_Prediction], result: Result) -> None:
        waiting = {each.case.name: each for each in predictions}
        deadline = time.monotonic() + _SECONDS
        while waiting and time.monotonic() < deadline:
            time.sleep(0.2)
            reads, targets, hpas = dict(self._metrics.reads), self._targets(), self._hpas()
            for name, predicted in [*waiting.items()]:
                ended = self._ended(predicted, reads.get(name, 0), targets[name], hpas[name])
                if ended is not None:
                    del waiting[name]
                    _judge(predicted, ended, hpas[name], result)
        for predicted in waiting.values():
            result.wrong.append(f"{_described(predicted)}: no sync in {_SECONDS:g} s")

    def _predict(self, case: Case) -> _Prediction:
        target = self._admin.get(f"{TARGETS}/{case.name}")
        reads = self._metrics.reads[case.name]
        steps = reading.read(NAMESPACE, case.name, time.time)
        found = self._observed(steps)
        return _Prediction(
            case=case,
            generation=target["metadata"]["generation"],
            reads=max(reads, self._metrics.reads[case.name]),
            observation=found,
            decision=decision.decide(found.hpa, found.scale.spec, found.proposals, now=time.time()),
        )

    def _observed(self, steps: reading.Steps[Observation]) -> Observation:
        request = next(steps)
        while True:
            try:
                request = steps.send(self._reply(request))
            except StopIteration as stop:
                found: Observation = stop.value
                return found

    def _ended(self, predicted: _Prediction, reads: int, target: Any, hpa: Any) -> int | None:
        """Return the replicas after the next sync; None before it, and -1 if it was missed."""
        passed = target["metadata"]["generation"] - predicted.generation
        if passed:
            return int(target["spec"]["replicas"]) if passed == 1 else -1
        metrics = len(predicted.observation.proposals)
        conditions = {each["type"] for each in hpa.get("status", {}).get("conditions", ())}
        if metrics and reads > predicted.reads + 2 * metrics:
            return int(target["spec"]["replicas"])
        if not metrics and "ScalingActive" in conditions:
            return int(target["spec"]["replicas"])
        return None

    def _reply(self, request: ApiRequest) -> ApiReply:
        path = f"{request.path}?{urlencode(request.params)}"
        if "/namespaces/" not in path and path in self._documents:
            return ApiReply(document=self._documents[path])
        response = self._admin.request("GET", path)
        if response.status != 200:
            return ApiReply(status=response.status, message=response.body.decode())
        if "/namespaces/" not in path:
            self._documents[path] = response.document
        return ApiReply(document=response.document)

    def _each(self, act: Callable[[Case], Any], cases: Sequence[Case]) -> list[Any]:
        with futures.ThreadPoolExecutor(_WORKERS) as executor:
            return [*executor.map(act, cases)]


def _judge(predicted: _Prediction, replicas: int, hpa: Any, result: Result) -> None:
    """Add one prediction to the result."""
    decided, current = predicted.decision, predicted.observation.scale.spec
    if replicas < 0:
        result.late += 1
        return
    failed = bool(decided.inactive and predicted.observation.proposals)
    conditions = {each["type"]: each for each in hpa.get("status", {}).get("conditions", ())}
    active = conditions.get("ScalingActive", {})
    shown = None if failed else _difference(predicted, hpa)
    if not decided.low <= replicas <= decided.high:
        result.wrong.append(f"{_described(predicted)}: {replicas}")
    elif shown:
        result.wrong.append(f"{_described(predicted)}: {shown}")
    elif (
        replicas == current
        and predicted.observation.proposals
        and active
        and (failed != (active["status"] == "False"))
    ):
        result.wrong.append(f"{_described(predicted)}: {active}")
    elif failed:
        result.failures += 1
    elif decided.replicas is None:
        result.ranges += 1
    else:
        result.numbers += 1


def _difference(predicted: _Prediction, hpa: Any) -> str:
    """Return a value that the status of the HPA shows otherwise than predicted; else empty."""
    statuses = hpa.get("status", {}).get("currentMetrics") or ()
    proposals = predicted.observation.proposals
    if len(statuses) != len(proposals) or any(each.replicas is None for each in proposals):
        return ""
    if not predicted.observation.scale.status:
        return ""  # the controller divides by 0
    for status, proposed in zip(statuses, proposals, strict=True):
        kind = proposed.metric.type
        current = status[kind[0].lower() + kind[1:]]["current"]
        if proposed.metric.target == "Utilization":
            value = current.get("averageUtilization", 0)
        else:
            key = proposed.metric.target
            text = str(current.get(key[0].lower() + key[1:], 0))
            value = quantity.milli_value(text)
        if value != proposed.current:
            return f"the status shows {current} of {proposed.metric}"
    return ""


def _described(predicted: _Prediction) -> str:
    decided, observation = predicted.decision, predicted.observation
    proposals = [
        (
            str(each.metric),
            each.metric.target,
            each.metric.value,
            each.replicas,
            each.current,
            each.error,
        )
        for each in observation.proposals
    ]
    return (
        f"{predicted.case.name} from {observation.scale} predicted {decided.low} to "
        f"{decided.high} ({decided.recommended} recommended, {decided.inactive}) of {proposals}, "
        f"{observation.hpa}"
    )


def _by_name(listed: Any) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in listed["items"]}


@contextlib.contextmanager
def running(control_plane: ControlPlane, metrics: Metrics | None = None) -> Iterator[Testbed]:
    """Install the CRD and the metrics server, and remove all objects at the end."""
    metrics = metrics or Metrics()
    bundle = issue_temporary((f"metrics.{NAMESPACE}.svc",), now=dt.datetime.now(dt.UTC))
    with http_server.serving(metrics.respond, context=tls.context(bundle), keep_alive=True) as port:
        try:
            _install(control_plane, port, bundle.ca_pem)
            yield Testbed(control_plane, metrics)
        finally:
            _remove(control_plane)


def _install(control_plane: ControlPlane, port: int, ca: bytes) -> None:
    admin = control_plane.admin
    control_plane.local_service("metrics", NAMESPACE)
    for each in _API_SERVICES:
        control_plane.api_service(each, service="metrics", namespace=NAMESPACE, port=port, ca=ca)
    admin.call("POST", _CRDS, _CRD)
    runtime = {"metadata": {"name": objects.RUNTIME_CLASS}, "handler": "none"}
    runtime["overhead"] = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
    admin.call("POST", _CLASSES, runtime)
    for each in _API_SERVICES:
        control_plane.wait_available(each)
    wait_for(lambda: admin.exists(TARGETS), "the CRD is served")
    account = PODS.replace("pods", "serviceaccounts/default")
    wait_for(lambda: admin.exists(account), "an account")
    # A running controller manager discovers a new kind within 30 s only.
    control_plane.controller_manager.kill()
    control_plane.controller_manager.start()


def _remove(control_plane: ControlPlane) -> None:
    admin = control_plane.admin
    crd = f"{_CRDS}/{PLURAL}.{GROUP}"
    admin.request("DELETE", HPAS)
    for pod in admin.get(PODS)["items"]:
        remove_pod(admin, pod["metadata"]["name"])
    admin.request("DELETE", crd)
    admin.request("DELETE", f"{_CLASSES}/{objects.RUNTIME_CLASS}")
    for each in _API_SERVICES:
        admin.request("DELETE", f"/apis/apiregistration.k8s.io/v1/apiservices/{each}")
    admin.request("DELETE", _NAMESPACE)
    # The next user of this control plane cannot create objects in a namespace that is ending.
    for gone in (_NAMESPACE, crd):
        wait_for(partial(_is_gone, admin, gone), f"the end of {gone}")


def create_pod(admin: Client, name: str, app: str, spec: dict[str, Any]) -> None:
    """Create a pod of an application, which stays until `remove_pod` if it is deleted."""
    metadata = {"name": name, "labels": {"app": app}, "finalizers": [f"{GROUP}/kept"]}
    admin.call("POST", PODS, {"metadata": metadata, "spec": spec})


def set_status(admin: Client, name: str, status: dict[str, Any]) -> None:
    """Set the status of a pod, as its kubelet does."""
    path = f"{PODS}/{name}/status"
    admin.call("PATCH", path, {"status": status}, content_type=MERGE_PATCH)


def remove_pod(admin: Client, name: str) -> None:
    """Let a pod end at once."""
    empty = {"metadata": {"finalizers": None}}
    admin.request("PATCH", f"{PODS}/{name}", empty, content_type=MERGE_PATCH)
    admin.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def _is_gone(admin: Client, path: str) -> bool:
    return admin.request("GET", path).status == 404
