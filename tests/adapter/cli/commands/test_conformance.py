"""`conformance`: its objects, what its containers do, its evidence, and what stops it.

A whole run is in tests/tools/playground, one with kubelets in tests/e2e.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from adapter.cli.commands import conformance_evidence, conformance_run, conformance_workload
from adapter.cli.commands.conformance_evidence import Evidence
from adapter.cli.commands.conformance_workload import BUSY, IDLE, NAMESPACE, Workload
from adapter.cli.console import pages
from adapter.cli.console.autoscalers import ReplicaSample
from adapter.cli.local_prometheus.process import free_port
from rules.findings import failure, ok
from rules.hpa import autoscaler
from tools.real.prometheus import wait_for

STAND_IN = Workload(
    run="run-1", image="adapter:1", metric="duty_cycle_current", target="50", maximum=2
)
NVIDIA = replace(STAND_IN, image="cuda", resource="nvidia.com/gpu")
POD = {"name": "a", "node": "gpu-node-0", "phase": "Running", "accelerators": ["GPU 0: NVIDIA"]}


def container(workload: Workload) -> dict:
    (found,) = workload.documents()[2]["spec"]["template"]["spec"]["containers"]
    return found


@pytest.fixture
def level(tmp_path: Path) -> Callable[[str], object]:
    """Return a function that sets the level that containers read."""
    file = tmp_path / "level"
    file.write_text(IDLE)
    return file.write_text


@contextlib.contextmanager
def running(workload: Workload, folder: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """Run what the container runs, with the folder in place of its volumes."""
    *command, script = container(workload)["command"]
    shell = [sys.executable, "-c"] if command[0].endswith("python") else command
    script = script.replace("/load/", f"{folder}/").replace("/tmp/load", f"{folder}/load")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*shell, script], stdout=log, stderr=log, env={**os.environ, **environ}
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def executable(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)


def test_a_container_says_what_it_sees_and_works_only_while_the_load_is_high(tmp_path, level):
    executable(tmp_path / "nvidia-smi", "echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'")
    executable(tmp_path / "nvcc", f"cp {tmp_path}/work {tmp_path}/load")
    executable(tmp_path / "work", f"echo 'accelerator: forged'; echo worked >>{tmp_path}/done")
    done = tmp_path / "done"

    with running(NVIDIA, tmp_path, {"PATH": f"{tmp_path}:{os.environ['PATH']}"}):
        wait_for((tmp_path / "load").exists, "the load is built")
        assert not done.exists()
        level(BUSY)
        wait_for(done.exists, "the load works")
        level(IDLE)

    log = (tmp_path / "log").read_text()
    assert "accelerator: forged" in log
    assert list(conformance_workload.seen(log)) == ["GPU 0: NVIDIA H100 (UUID: GPU-1)"]


def test_a_stand_in_reports_the_level_as_the_utilization_of_its_pod(tmp_path, level):
    series = {each["name"]: each.get("value", "") for each in container(STAND_IN)["env"]}
    port = free_port()
    environ = {"PORT": str(port), "SERIES": series["SERIES"].replace("$(POD)", "a-1")}
    level(BUSY)

    def page() -> str:
        address = f"http://127.0.0.1:{port}/metrics"
        with contextlib.suppress(OSError), urllib.request.urlopen(address) as response:
            return response.read().decode()
        return ""

    with running(STAND_IN, tmp_path, environ):
        wait_for(lambda: bool(page()), "the stand-in responds")
        assert page() == (
            'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="stand-in-a-1",modelName="stand-in",'
            f'container="conformance",namespace="{NAMESPACE}",pod="a-1"}} 100\n'
        )


def test_only_a_workload_on_accelerators_requests_one():
    assert container(NVIDIA)["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert "limits" not in container(STAND_IN)["resources"]


def test_another_command_needs_no_compiler():
    script = container(replace(NVIDIA, command="burn --all"))["command"][2]

    assert "timeout 20 burn --all;" in script
    assert "nvcc" not in script


def test_each_object_names_the_run():
    labels = [each["metadata"]["labels"] for each in STAND_IN.documents()]

    assert labels == [{conformance_workload.LABEL: "run-1"}] * 4


@pytest.mark.parametrize(
    ("resource", "found"),
    [
        ("", ("amd.com/gpu", {"b": 8})),
        ("nvidia.com/mig-1g.10gb", ("nvidia.com/mig-1g.10gb", {"c": 7})),
        ("nvidia.com/gpumem", ("nvidia.com/gpumem", {"c": 80_000})),
        ("nvidia.com/gpu", ("", {})),
    ],
)
def test_the_first_known_resource_of_a_node_is_used(resource, found):
    has = {
        "a": {"cpu": "64", "memory": "1Ti"},
        "b": {"nvidia.com/gpu": "0", "amd.com/gpu": "8"},
        "c": {"nvidia.com/mig-1g.10gb": "7", "nvidia.com/gpumem": "80k"},
    }
    nodes = [
        {"metadata": {"name": name}, "status": {"allocatable": each}} for name, each in has.items()
    ]

    assert conformance_workload.offered(nodes, resource) == found


async def test_a_warning_without_a_time_is_not_the_cause_of_a_failure():
    async def get(_path: str, _params: object) -> Mapping[str, object]:
        return {"items": [{"type": "Warning", "message": "old"}]}

    client = SimpleNamespace(kube=SimpleNamespace(get=get))
    run = conformance_run._Run(client, None, evidence(), print)

    assert not await run._complaint(0.0)


def hpa(reason: str) -> autoscaler.Autoscaler:
    document = STAND_IN.documents()[3]
    condition = {"type": "ScalingActive", "status": "True", "reason": reason, "message": ""}
    return autoscaler.autoscaler({**document, "status": {"conditions": [condition]}})


def evidence(**content: object) -> Evidence:
    """Return the evidence of a run that raised the load."""
    samples = [
        ReplicaSample(time, replicas, replicas, (value * 1000,))
        for time, replicas, value in ((0.0, 1, 0), (60.0, 2, 100), (120.0, 1, 0))
    ]
    return Evidence(
        run="run-1",
        started=0.0,
        ended=120.0,
        manifests=NVIDIA.documents(),
        hpa=hpa("ValidMetricFound"),
        loads=[(0.0, 0.0), (30.0, 0.0), (30.0, 100.0), (90.0, 100.0), (90.0, 0.0)],
        samples=samples,
        **{"pods": [POD], "resource": "nvidia.com/gpu", **content},
    )


@pytest.mark.parametrize(
    ("content", "outcome", "claim"),
    [
        ({}, "passed", "The HPA scaled pods with accelerators"),
        ({"resource": ""}, "rehearsal", "no evidence"),
        ({"pods": [POD, {**POD, "accelerators": []}]}, "rehearsal", "no evidence"),
        ({"pods": []}, "rehearsal", "no evidence"),
        (
            {"findings": [ok("nodes", "4"), failure("scale-out", "not within 9 s", cure="add")]},
            "failed",
            "scale-out: not within 9 s: add",
        ),
    ],
)
def test_only_a_run_whose_pods_all_saw_an_accelerator_passes(content, outcome, claim):
    found = evidence(**content)

    assert found.outcome == outcome
    assert claim in found.claim


def test_the_page_has_claim_curves_and_manifests_and_shows_names_as_text():
    found = evidence(resource="", findings=[ok("nodes", "<script>alert(1)</script>")])
    document = conformance_evidence.document(found)

    page = pages.evidence_file(
        conformance_evidence.title(found), document, conformance_evidence.charts(found)
    )

    assert "rehearsal, with a stand-in instead of an accelerator" in page
    assert "Do not submit this page" in page
    assert page.count("<svg") == 3
    assert "value: 0 to 100, now 0" in page
    assert "kind: HorizontalPodAutoscaler" in page
    assert "<script" not in page
    assert json.loads(json.dumps(document))["requirement"]["id"] == "pod_autoscaling"


def test_a_condition_is_kept_when_it_changes():
    first = conformance_evidence.changed([], hpa("ValidMetricFound"), 0.0)

    assert conformance_evidence.changed(first, hpa("ValidMetricFound"), 2.0) == []
    (second,) = conformance_evidence.changed(first, hpa("FailedGetPodsMetric"), 4.0)
    assert (second["time"], second["reason"]) == (
        "1970-01-01T00:00:04+00:00",
        "FailedGetPodsMetric",
    )


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--directory=/none", "/none is no directory to write to"),
        (f"--directory={__file__}", "test_conformance.py is no directory to write to"),
        ("--target=x", "must be a quantity"),
        ("--target=0", "must be more than 0"),
        ("--max-replicas=1", "must be between 2 and 100"),
    ],
)
def test_a_flag_that_cannot_work_is_refused(argument, words, cli):
    code, _, error = cli("conformance", argument)

    assert (code, words in error) == (2, True)


def test_nothing_is_created_without_rights_or_without_an_adapter(control_plane, tmp_path, cli):
    nobody = control_plane.user("nobody").write_kubeconfig(tmp_path / "kubeconfig")

    code, output, error = cli("conformance", f"--kubeconfig={nobody}")
    assert code == 1
    assert "failure rights: you may not create and get and list and delete namespaces; " in error
    assert "{apiGroups: [autoscaling], resources: [horizontalpodautoscalers]" in error
    assert output.startswith("pod_autoscaling: failed")

    code, output, _ = cli("conformance", f"--kubeconfig={control_plane.kubeconfig}")
    assert code == 1
    assert "the cluster has no APIService for custom.metrics.k8s.io" in output
    assert not control_plane.admin.exists(f"/api/v1/namespaces/{NAMESPACE}")
    assert not list(tmp_path.glob("pod_autoscaling.*"))
