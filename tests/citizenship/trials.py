"""What a good citizen has to go through: ten quiet minutes, then one fault after another."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from tests.citizenship import complaints
from tests.citizenship.town import TARGETS, Town

HEALED_WITHIN = 20.0
"""Seconds from when the cause is gone until every autoscaler has a fresh value."""
_LOOK = 5.0
_TELL = 30.0
_NAMESPACE_GONE_WITHIN = 30.0


def run(town: Town, *, quiet: float, outage: float) -> bool:
    """Whether every trial passed; each says what it does and what came of it."""
    outcomes = [
        _quiet(town, quiet),
        *(
            _told(f"kubectl {name}", check, town)
            for name, check in {
                "api-resources": _resources,
                "explain": _explained,
                "delete namespace": _namespace_deleted,
            }.items()
        ),
        *(_fault(town, fault, outage) for fault in FAULTS),
    ]
    rescales = town.rescales()
    _say(not rescales, "no replica was moved by anything", rescales)
    return all(outcomes) and not rescales


def _quiet(town: Town, seconds: float) -> bool:
    """Autoscalers poll; nobody has a reason to say anything about us."""
    logs = [
        complaints.Log(name=daemon.name, path=daemon.log)
        for daemon in (town.plane.apiserver, town.plane.controllers)
    ]
    for log in logs:
        log.pass_over()
    wrong: list[str] = []
    began = told = time.monotonic()
    print(
        f"  … {seconds:.0f} quiet seconds, two autoscalers polling three metrics each", flush=True
    )
    while time.monotonic() - began < seconds and not wrong:
        time.sleep(_LOOK)
        wrong = [*town.wrong(), *complaints.found(logs)]
        if time.monotonic() - told >= _TELL:
            told = time.monotonic()
            values = ", ".join(f"{name} {town.told(name)}" for name in TARGETS)
            print(f"    {told - began:4.0f} s: {values}; no complaint", flush=True)
    return _say(not wrong, f"{time.monotonic() - began:.0f} quiet seconds", wrong)


def _resources(town: Town) -> list[str]:
    """`kubectl api-resources` gets through every group, and lists what it listed."""
    shown = town.plane.kubectl("api-resources")
    missing = [
        name for name in ("pods", "deployments", "horizontalpodautoscalers") if name not in shown
    ]
    return [f"{name} is not listed" for name in missing]


def _explained(town: Town) -> list[str]:
    """`kubectl explain` knows what it knew."""
    wrong = []
    for path, word in {"pods.spec": "containers", "hpa.spec.metrics": "external"}.items():
        if word not in town.plane.kubectl("explain", path):
            wrong.append(f"{path} does not say {word}")
    return wrong


def _namespace_deleted(town: Town) -> list[str]:
    """A namespace goes: every API that discovery names has to be asked for what is in it."""
    town.plane.kubectl("create", "namespace", "short-lived")
    town.plane.kubectl("create", "configmap", "something", "--namespace=short-lived")
    timeout = f"--timeout={_NAMESPACE_GONE_WITHIN:.0f}s"
    town.plane.kubectl("delete", "namespace", "short-lived", timeout)
    return []


def _kill_api_server(town: Town) -> None:
    town.plane.apiserver.kill()
    _lose_lease(town)


def _start_api_server(town: Town) -> None:
    town.plane.apiserver.start()
    town.plane.controllers.launch()


def _kill_etcd(town: Town) -> None:
    town.plane.etcd.kill()
    _lose_lease(town)


def _start_etcd(town: Town) -> None:
    town.plane.etcd.start()
    town.plane.apiserver.wait()
    town.plane.controllers.launch()


def _lose_lease(town: Town) -> None:
    """Controllers that cannot renew the lease of their leader end, and are started again."""
    town.plane.controllers.kill()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is lost, and comes back."""

    name: str
    kill: Callable[[Town], None]
    start: Callable[[Town], None]
    """Returns when it is ready again."""
    ours: bool = False
    """Whether it is for us to be ready soon, so that the start counts."""


FAULTS = (
    Fault(
        name="Prometheus",
        kill=lambda town: town.cluster.prometheus.kill(),
        start=lambda town: town.cluster.prometheus.start(),
    ),
    Fault(
        name="the adapter",
        kill=lambda town: town.adapter.kill(),
        start=lambda town: town.adapter.start(),
        ours=True,
    ),
    Fault(name="the API server", kill=_kill_api_server, start=_start_api_server),
    Fault(name="etcd", kill=_kill_etcd, start=_start_etcd),
)


def _fault(town: Town, fault: Fault, outage: float) -> bool:
    """Kill it, bring it back after `outage` seconds, and wait for values of after that."""
    print(f"  … {fault.name} is killed, and missing for {outage:.0f} s", flush=True)
    fault.kill(town)
    time.sleep(outage)
    town.stepped()
    gone = time.monotonic()
    fault.start(town)
    if not fault.ours:
        gone = time.monotonic()
    try:
        town.settle(HEALED_WITHIN)
    except TimeoutError as error:
        return _say(False, f"without {fault.name}", [str(error)])
    took = time.monotonic() - gone
    wrong = [] if took <= HEALED_WITHIN else ["that is too long"]
    return _say(not wrong, f"without {fault.name}: healed {took:.1f} s after it was back", wrong)


def _told(name: str, check: Callable[[Town], list[str]], town: Town) -> bool:
    began = time.monotonic()
    try:
        wrong = check(town)
    except RuntimeError as error:
        wrong = [str(error)]
    return _say(not wrong, f"{name} ({time.monotonic() - began:.1f} s)", wrong)


def _say(passed: bool, what: str, wrong: list[str]) -> bool:
    print(f"  {'ok' if passed else 'NO'}  {what}", flush=True)
    for line in wrong:
        print(f"      {line}", flush=True)
    return passed
