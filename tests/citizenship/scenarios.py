"""Scenarios that the adapter must pass: a period without faults, kubectl commands, then faults."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from tests.citizenship import klog
from tests.citizenship.testbed import TARGETS, Testbed

RECOVERY_TIMEOUT = 20.0
"""Seconds from the end of a fault until every HPA has a fresh value."""
_CHECK_INTERVAL = 5.0
_PROGRESS_INTERVAL = 30.0
_NAMESPACE_DELETION_TIMEOUT = 30.0


def run(testbed: Testbed, *, quiet: float, outage: float) -> bool:
    """Run all scenarios, print their results, and return whether all passed.

    `quiet` and `outage` are the seconds without a fault, and of each fault.
    """
    results = [
        _without_faults(testbed, quiet),
        *(
            _kubectl(name, check, testbed)
            for name, check in {
                "api-resources": _check_api_resources,
                "explain": _check_explain,
                "delete namespace": _check_namespace_deletion,
            }.items()
        ),
        *(_with_fault(testbed, fault, outage) for fault in FAULTS),
    ]
    rescales = testbed.rescales()
    results.append(_report("no HPA changed its replicas", rescales))
    return all(results)


def _without_faults(testbed: Testbed, seconds: float) -> bool:
    """Check for `seconds` that all values are right and that nothing is logged."""
    logs = [
        klog.LogFile(name=daemon.name, path=daemon.log)
        for daemon in (testbed.control_plane.apiserver, testbed.control_plane.controller_manager)
    ]
    for log in logs:
        log.skip_to_end()
    problems: list[str] = []
    started = last_progress = time.monotonic()
    print(f"  ... {seconds:.0f} s without faults; two HPAs read three metrics each", flush=True)
    while time.monotonic() - started < seconds and not problems:
        time.sleep(_CHECK_INTERVAL)
        problems = [*testbed.problems(), *klog.all_warnings(logs)]
        if time.monotonic() - last_progress >= _PROGRESS_INTERVAL:
            last_progress = time.monotonic()
            values = ", ".join(f"{name} {testbed.values(name)}" for name in TARGETS)
            print(f"    {last_progress - started:4.0f} s: {values}; no warnings", flush=True)
    return _report(f"{time.monotonic() - started:.0f} s without faults", problems)


def _check_api_resources(testbed: Testbed) -> list[str]:
    """Check that discovery of the other API groups still works."""
    output = testbed.control_plane.kubectl("api-resources")
    expected = ("pods", "deployments", "horizontalpodautoscalers")
    return [f"{name} is missing in the output" for name in expected if name not in output]


def _check_explain(testbed: Testbed) -> list[str]:
    """Check that the OpenAPI documents of the other API groups still work."""
    expected = {"pods.spec": "containers", "hpa.spec.metrics": "external"}
    return [
        f"`{word}` is missing in the output for {path}"
        for path, word in expected.items()
        if word not in testbed.control_plane.kubectl("explain", path)
    ]


def _check_namespace_deletion(testbed: Testbed) -> list[str]:
    """Delete a namespace: that needs a list of every API in discovery."""
    kubectl = testbed.control_plane.kubectl
    kubectl("create", "namespace", "short-lived")
    kubectl("create", "configmap", "something", "--namespace=short-lived")
    timeout = f"--timeout={_NAMESPACE_DELETION_TIMEOUT:.0f}s"
    kubectl("delete", "namespace", "short-lived", timeout)
    return []


def _kill_api_server(testbed: Testbed) -> None:
    testbed.control_plane.apiserver.kill()
    _kill_controller_manager(testbed)


def _start_api_server(testbed: Testbed) -> None:
    testbed.control_plane.apiserver.start()
    testbed.control_plane.controller_manager.launch()


def _kill_etcd(testbed: Testbed) -> None:
    testbed.control_plane.etcd.kill()
    _kill_controller_manager(testbed)


def _start_etcd(testbed: Testbed) -> None:
    testbed.control_plane.etcd.start()
    testbed.control_plane.apiserver.wait_ready()
    testbed.control_plane.controller_manager.launch()


def _kill_controller_manager(testbed: Testbed) -> None:
    """Kill it as in a real cluster, where it exits when it cannot renew its leader lease."""
    testbed.control_plane.controller_manager.kill()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Loss of a component, which is started again later."""

    name: str
    kill: Callable[[Testbed], None]
    start: Callable[[Testbed], None]
    """Returns when the component is ready."""
    recovery_includes_start: bool = False
    """Whether the recovery time includes the start: only for the adapter itself."""


FAULTS = (
    Fault(
        name="Prometheus",
        kill=lambda testbed: testbed.cluster.prometheus.kill(),
        start=lambda testbed: testbed.cluster.prometheus.start(),
    ),
    Fault(
        name="the adapter",
        kill=lambda testbed: testbed.adapter.kill(),
        start=lambda testbed: testbed.adapter.start(),
        recovery_includes_start=True,
    ),
    Fault(name="the API server", kill=_kill_api_server, start=_start_api_server),
    Fault(name="etcd", kill=_kill_etcd, start=_start_etcd),
)


def _with_fault(testbed: Testbed, fault: Fault, outage: float) -> bool:
    """Kill a component, start it after `outage` seconds, and wait for fresh values."""
    print(f"  ... killed {fault.name}; starting it again in {outage:.0f} s", flush=True)
    fault.kill(testbed)
    time.sleep(outage)
    testbed.step_load()
    recovery_started = time.monotonic()
    fault.start(testbed)
    if not fault.recovery_includes_start:
        recovery_started = time.monotonic()
    try:
        testbed.wait_healthy(RECOVERY_TIMEOUT)
    except TimeoutError as error:
        return _report(f"recovery from the loss of {fault.name}", [str(error)])
    seconds = time.monotonic() - recovery_started
    problems = [] if seconds <= RECOVERY_TIMEOUT else [f"longer than {RECOVERY_TIMEOUT:.0f} s"]
    return _report(f"recovery from the loss of {fault.name}: {seconds:.1f} s", problems)


def _kubectl(name: str, check: Callable[[Testbed], list[str]], testbed: Testbed) -> bool:
    started = time.monotonic()
    try:
        problems = check(testbed)
    except RuntimeError as error:
        problems = [str(error)]
    return _report(f"kubectl {name} ({time.monotonic() - started:.1f} s)", problems)


def _report(what: str, problems: list[str]) -> bool:
    """Print the result of a check, and return whether it passed."""
    print(f"  {'FAIL' if problems else 'ok  '}  {what}", flush=True)
    for problem in problems:
        print(f"        {problem}", flush=True)
    return not problems
