"""A control plane, Prometheus and adapter in which the faults are seeded one after the other.

with testbed.running(control_plane, folder) as bed:
    for fault, outputs in bed.observe(seeds.FAULTS):
        print(outputs.doctor)
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import io
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter.cli import program
from rules.metrics_apis import USAGE
from tools import documents
from tools.certificates import Holder
from tools.cluster import server
from tools.cluster.kubelet import running_status
from tools.cluster.server import NAME, NAMESPACE, Server
from tools.control_plane.client import MERGE_PATCH
from tools.control_plane.plane import ControlPlane
from tools.documents import Document
from tools.faults import seeds
from tools.faults.gate import Gate
from tools.faults.seeds import AGO, FAULTS, Fault, Place
from tools.real import prometheus
from tools.real.prometheus import Prometheus, wait_for
from tools.waiting import repeated

_HEALTHY = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/util_healthy"
_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_CUSTOM = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
_CONFIGS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
_HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
_PATCH = {"content_type": MERGE_PATCH}
_RELIST = 5.0
_SYNCS = 7.0
"""Seconds of a few syncs of the HPA controller, and until what is shared is stale."""
_LATE = "no result within"
"""What `doctor` says of a check that takes too long."""
_PATIENCE = 45.0
"""Seconds until a fault that is not named counts as such."""


def replica_set(name: str) -> Document:
    """Return a ReplicaSet that adopts the pod of `pod`."""
    # There is no such account, so no pod is created.
    spec = documents.pod(name, serviceAccountName="missing")["spec"]
    return documents.workload("ReplicaSet", name, spec, replicas=1)


def pod(app: str) -> Document:
    """Return the pod `APP-0`."""
    requests = {"requests": {"cpu": "100m"}}
    return documents.pod(f"{app}-0", labels={"app": app}, resources=requests)


def hpa(name: str, fault: Fault) -> Document:
    """Return an HPA that has the fault, or only its target."""
    return documents.hpa(
        name,
        fault.spec,
        target=fault.target,
        kind="ReplicaSet",
        minReplicas=fault.minimum,
        maxReplicas=1,
        behavior={"scaleDown": {"stabilizationWindowSeconds": 0}},
    )


_OBJECTS = (
    replica_set("web"),
    replica_set("renamed"),
    replica_set("empty"),
    pod("web"),
    pod("empty"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What a user sees of one fault."""

    condition: str
    """Message of the HPA's condition that is False; that of ScalingActive if none is."""
    doctor: str = ""
    """Last line."""
    explain: str = ""
    """Last line of `explain hpa`."""
    log: str = ""
    """First warning or error in the log of the adapter; empty without."""

    def without(self, folder: str) -> Outputs:
        """Return the lines without the name of a folder."""
        return Outputs(**{key: line.replace(folder, "") for key, line in asdict(self).items()})


class Testbed:
    """Servers, and the state of their seeds."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        healthy: Prometheus,
        gate: Gate,
        record: Callable[[Fault, str], contextlib.AbstractContextManager[None]],
    ) -> None:
        self.plane = plane
        self._record = record
        self._folder = folder
        self._prometheus = healthy
        self._gate = gate
        self._live: tuple[str, ...] = seeds.HEALTHY
        self._writing = threading.Lock()
        config = folder / "rules.yaml"
        config.write_text(seeds.rules())
        self._flags = (
            *("--preset=gpu-dcgm", "--preset=resource-metrics", f"--config={config}"),
            *(f"--prometheus-url={gate.url}", "--shutdown-delay=0s"),
            *(f"--metrics-relist-interval={_RELIST:g}s", "--metrics-max-age=1h"),
        )
        self._adapter = self._server("adapter")
        # What `doctor` reads of the installation is what the process is started with.
        container = plane.admin.get(_DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]
        (url,) = (each for each in container["env"] if each["name"] == "PROMETHEUS_URL")
        config_map = f"{_CONFIGS}/{url['valueFrom']['configMapKeyRef']['name']}"
        self._patch(config_map, {"data": {"PROMETHEUS_URL": gate.url}})
        arguments = ["--prometheus-url=$(PROMETHEUS_URL)", *self._flags[:2], "--config=/x.yaml"]
        path = "/spec/template/spec/containers/0/args"
        plane.admin.call(
            "PATCH",
            _DEPLOYMENT,
            [{"op": "replace", "path": path, "value": arguments}],
            content_type="application/json-patch+json",
        )
        self._places: Mapping[Place, Callable[[], contextlib.AbstractContextManager[None]]] = {
            "": contextlib.nullcontext,
            "restarted": self._restarted,
            "adapter's rights": self._without_pods,
            "reviews": lambda: self._without(_BINDINGS, "gpu-metrics-adapter:auth-delegator"),
            "controller's rights": self._without_reading,
            "elsewhere": lambda: self._apiservices({"service": {"name": "other"}}),
            "deleted": self._unregistered,
            "caBundle": lambda: self._from_files(dt.timedelta(days=1), other_ca=True),
            "expired": lambda: self._from_files(-dt.timedelta(hours=1), other_ca=False),
            "stopped": self._stopped,
            "request-header CA": self._other_front_proxy,
            "second HPA": self._second_hpa,
            "metrics.k8s.io": self._resource_metrics,
        }

    def observe(self, faults: Iterable[Fault]) -> Iterator[tuple[Fault, Outputs]]:
        """Seed each fault, yield what a user sees, and remove it.

        Series that are those of a rule of the fault are there from the start.
        """
        faults = tuple(faults)
        for fault in faults:
            if fault.query:
                self._seed(fault)
        self._write()
        # Each live series is scraped once a second.
        with repeated(self._write, every=1):
            self._adapter.start()
            try:
                for fault in faults:
                    try:
                        outputs = self._observe(fault)
                    except TimeoutError as error:
                        outputs = Outputs(condition=f"not seeded: {error}")
                    yield fault, outputs
            finally:
                self._adapter.kill()

    def _write(self) -> None:
        with self._writing:
            self._prometheus.put(*self._live)

    def _seed(self, fault: Fault) -> None:
        now = time.time()
        for age in (930, 630, 330):
            self._prometheus.put(*fault.rare, at=now - age)
        for age in range(180, int(AGO), -10):
            self._prometheus.put(*fault.ended, at=now - age)
        self._prometheus.end(*fault.ended, at=now - AGO)
        if fault.age:
            self._prometheus.put(*fault.live, at=now - fault.age)
        else:
            self._live += fault.live
            self._prometheus.put(*fault.live)

    def _observe(self, fault: Fault) -> Outputs:
        usual = self._live
        if fault.live and not fault.query:
            self._seed(fault)
            time.sleep(_RELIST + 1)
        with contextlib.ExitStack() as seeded:
            if fault.gate:
                seeded.enter_context(self._gate.failing(fault.gate))
            seeded.enter_context(self._places[fault.place]())
            begins = len(self._adapter.log)
            self._apply(hpa("web", fault))
            seeded.callback(self.plane.admin.call, "DELETE", f"{_HPAS}/web")
            self._settle(fault)
            ends = time.monotonic() + _PATIENCE
            while True:
                with self._record(fault, str(self.plane.kubeconfig)):
                    outputs = self._outputs(begins)
                # On a busy machine, not all is answered in time at first.
                named = fault.why_not or fault.is_named(outputs.condition, outputs.doctor)
                if (named and _LATE not in outputs.doctor) or time.monotonic() > ends:
                    break
        with self._writing:
            self._live = usual
            if not fault.query:
                self._prometheus.end(*fault.live)
        wait_for(self._is_healthy, f"it is healthy after: {fault.title}")
        return outputs

    def _outputs(self, begins: int) -> Outputs:
        """Return what a user sees now, and in the log from `begins` on."""
        found = self._conditions()
        failed = [found[each][1] for each in _JUDGED if found.get(each, ("",))[0] == "False"]
        return Outputs(
            condition=failed[0] if failed else found.get("ScalingActive", ("", "no condition"))[1],
            doctor=self._program("doctor"),
            explain=self._program("explain", "hpa", "default/web"),
            log=self._warning(begins),
        )

    def _settle(self, fault: Fault) -> None:
        """Wait until the HPA has the condition that the fault makes, and for more syncs."""

        def settled() -> bool:
            found = self._conditions()
            failed = any(found.get(each, ("",))[0] == "False" for each in _JUDGED)
            return bool(found) and (fault.active or failed)

        with contextlib.suppress(TimeoutError):
            wait_for(settled, "the HPA has a condition", seconds=_PATIENCE)
        slow = fault.place or fault.gate or (fault.live and not fault.query)
        time.sleep(_SYNCS if slow else 1.0)

    def _conditions(self) -> Mapping[str, tuple[str, str]]:
        """Return status and message of each condition of the HPA."""
        status = self.plane.admin.get(f"{_HPAS}/web").get("status") or {}
        return {
            each["type"]: (each["status"], each.get("message", ""))
            for each in status.get("conditions") or ()
        }

    def _warning(self, begins: int) -> str:
        lines = self._adapter.log[begins:].splitlines()
        texts = [each.partition("] ")[2] for each in lines if each[:1] in {"W", "E"}]
        return next((each for each in texts if "--preset=auto" not in each), "")

    def _is_healthy(self) -> bool:
        reply = self.plane.admin.request("GET", _HEALTHY)
        return reply.status == 200 and bool(reply.document.get("items"))

    def _program(self, *arguments: str) -> str:
        """Run a command of the adapter and return its last line."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            program.main([*arguments, f"--kubeconfig={self.plane.kubeconfig}"])
        return output.getvalue().splitlines()[-1]

    def _server(self, name: str, *flags: str, ca: bytes | None = None) -> Server:
        log = self._folder / f"{name}.log"
        return Server(self.plane, log, (*self._flags, *flags), ca=ca)

    def _apply(self, document: Mapping[str, Any]) -> None:
        self.plane.kubectl("apply", "-f", "-", text=json.dumps(document))

    @contextlib.contextmanager
    def _restarted(self) -> Iterator[None]:
        self._adapter.kill()
        self._adapter.start()
        yield

    @contextlib.contextmanager
    def _stopped(self) -> Iterator[None]:
        self._adapter.kill()
        self._wait_unavailable()
        try:
            yield
        finally:
            self._adapter.start()

    @contextlib.contextmanager
    def _other_front_proxy(self) -> Iterator[None]:
        """Trust the front-proxy CA of before only, as a file that was copied once."""
        path = self._folder / "front-proxy-ca.crt"
        path.write_bytes(Holder("front-proxy-ca-of-before", ca=True, now=_now()).pem)
        with self._instead("front-proxy", f"--requestheader-client-ca-file={path}"):
            yield

    @contextlib.contextmanager
    def _from_files(self, until: dt.timedelta, *, other_ca: bool) -> Iterator[None]:
        """Serve a certificate from files, as cert-manager writes them."""
        ca = Holder("ca", ca=True, now=_now(), until=dt.timedelta(days=9))
        names = (f"{NAME}.{NAMESPACE}.svc", "localhost")
        usages = (ExtendedKeyUsageOID.SERVER_AUTH,)
        leaf = Holder(NAME, ca, usages=usages, now=_now(), until=until, dns=names)
        certificate, key = (self._folder / f"files.{each}" for each in ("crt", "key"))
        certificate.write_bytes(leaf.pem)
        key.write_bytes(leaf.bundle.key_pem)
        bundle = Holder("ca", ca=True, now=_now(), until=dt.timedelta(days=9)) if other_ca else ca
        flags = (f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}")
        before = self.plane.admin.get(f"{_APISERVICES}/{_CUSTOM[0]}")["spec"].get("caBundle")
        with self._instead("files", *flags, ca=bundle.pem):
            yield
        for name in self._adapter.api_services:
            self._patch(f"{_APISERVICES}/{name}", {"spec": {"caBundle": before}})

    @contextlib.contextmanager
    def _instead(self, name: str, *flags: str, ca: bytes | None = None) -> Iterator[None]:
        """Run another adapter instead, which the API server does not reach."""
        self._adapter.kill()
        usual, self._adapter = self._adapter, self._server(name, *flags, ca=ca)
        self._adapter.listen()
        self._wait_unavailable()
        try:
            yield
        finally:
            self._adapter.kill()
            self._adapter = usual
            threading.Thread(target=self._adapter.start).start()

    def _wait_unavailable(self) -> None:
        wait_for(lambda: not self.plane.available(_CUSTOM[1])[0], "it is not Available")

    @contextlib.contextmanager
    def _apiservices(self, spec: Mapping[str, Any]) -> Iterator[None]:
        before = {each: self.plane.admin.get(f"{_APISERVICES}/{each}")["spec"] for each in _CUSTOM}
        self.plane.local_service("other", NAMESPACE)
        for each in _CUSTOM:
            self._patch(f"{_APISERVICES}/{each}", {"spec": spec})
        try:
            yield
        finally:
            for each, old in before.items():
                self._patch(f"{_APISERVICES}/{each}", {"spec": {"service": old["service"]}})

    @contextlib.contextmanager
    def _unregistered(self) -> Iterator[None]:
        kept = [self.plane.admin.get(f"{_APISERVICES}/{each}") for each in _CUSTOM]
        for each in _CUSTOM:
            self.plane.admin.call("DELETE", f"{_APISERVICES}/{each}")
        try:
            yield
        finally:
            for each in kept:
                self._create(_APISERVICES, each)

    @contextlib.contextmanager
    def _without(self, path: str, name: str) -> Iterator[None]:
        kept = self.plane.admin.get(f"{path}/{name}")
        self.plane.admin.call("DELETE", f"{path}/{name}")
        time.sleep(11)  # decisions are remembered for ten seconds
        try:
            yield
        finally:
            self._create(path, kept)
            time.sleep(11)

    @contextlib.contextmanager
    def _without_reading(self) -> Iterator[None]:
        role = "system:controller:horizontal-pod-autoscaler"
        groups = {"custom.metrics.k8s.io", "external.metrics.k8s.io"}
        with (
            self._restricted(role, lambda rule: not groups & {*rule.get("apiGroups", ())}),
            self._without(_BINDINGS, "gpu-metrics-adapter:metrics-reader"),
        ):
            yield

    @contextlib.contextmanager
    def _without_pods(self) -> Iterator[None]:
        role = "gpu-metrics-adapter:resource-reader"
        with self._restricted(role, lambda rule: "pods" not in rule["resources"]):
            time.sleep(2)  # RBAC reads its own watch cache
            yield

    @contextlib.contextmanager
    def _restricted(self, name: str, kept: Callable[[Any], bool]) -> Iterator[None]:
        path = f"{_ROLES}/{name}"
        rules: Sequence[Any] = self.plane.admin.get(path)["rules"]
        self._patch(path, {"rules": [each for each in rules if kept(each)]})
        try:
            yield
        finally:
            self._patch(path, {"rules": rules})

    @contextlib.contextmanager
    def _second_hpa(self) -> Iterator[None]:
        self._apply(hpa("web-too", Fault(title="", cause="", cure="")))
        try:
            yield
        finally:
            self.plane.admin.call("DELETE", f"{_HPAS}/web-too")

    @contextlib.contextmanager
    def _resource_metrics(self) -> Iterator[None]:
        custom = self.plane.admin.get(f"{_APISERVICES}/{_CUSTOM[0]}")["spec"]
        try:
            for name in USAGE.apiservices:
                self.plane.api_service(
                    name,
                    service=NAME,
                    namespace=NAMESPACE,
                    port=self._adapter.port,
                    ca=base64.b64decode(custom["caBundle"]),
                )
            for name in USAGE.apiservices:
                self.plane.wait_available(name)
            yield
        finally:
            self.plane.kubectl("delete", "apiservice", *USAGE.apiservices)

    def _patch(self, path: str, document: Mapping[str, Any]) -> None:
        self.plane.admin.call("PATCH", path, document, **_PATCH)

    def _create(self, path: str, document: dict[str, Any]) -> None:
        metadata = {key: document["metadata"][key] for key in ("name", "labels", "annotations")
                    if key in document["metadata"]}  # fmt: skip
        document = {key: each for key, each in document.items() if key != "status"}
        self.plane.admin.call("POST", path, document | {"metadata": metadata})


_JUDGED = ("AbleToScale", "ScalingActive")


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def not_recorded(_fault: Fault, _kubeconfig: str) -> contextlib.AbstractContextManager[None]:
    """Record nothing."""
    return contextlib.nullcontext()


@contextlib.contextmanager
def running(
    plane: ControlPlane,
    folder: Path,
    record: Callable[[Fault, str], contextlib.AbstractContextManager[None]] = not_recorded,
) -> Iterator[Testbed]:
    """Install the adapter, and run Prometheus behind a gate.

    What the commands read of a fault is read within `record(fault, kubeconfig)`.
    """
    with contextlib.ExitStack() as stack:
        # Samples of 930 s ago are written while newer ones are.
        config = "storage: {tsdb: {out_of_order_time_window: 1h}}\n"
        healthy = stack.enter_context(prometheus.run(folder, config))
        (folder / "empty").mkdir()
        empty = stack.enter_context(prometheus.run(folder / "empty"))
        gate = Gate(healthy.url, empty.url)
        stack.callback(gate.close)
        stack.enter_context(server.installed(plane))
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": _OBJECTS})
        plane.kubectl("apply", "-f", "-", text=text)
        stack.callback(
            plane.kubectl, "delete", "--force", "--ignore-not-found", "-f", "-", text=text
        )
        for app in ("web", "empty"):
            path = f"/api/v1/namespaces/default/pods/{app}-0/status"
            plane.admin.call("PATCH", path, {"status": running_status(pod(app))}, **_PATCH)
        yield Testbed(plane, folder, healthy, gate, record)


assert len(FAULTS) == 45
