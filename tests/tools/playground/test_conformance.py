"""`conformance` on the playground: without a real GPU, killed and run again, and its page."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from tests.tools.playground.test_playground import Process, running
from tools.cluster.walkthrough import STEP_TIMEOUT
from tools.console import chromium
from tools.real.prometheus import wait_for


@pytest.mark.usefixtures("real_servers")
def test_simulated_gpus_are_no_evidence_and_the_next_run_deletes_what_sigkill_left(
    tmp_path: Path,
) -> None:
    with running(sys.executable, "-m", "tools.playground") as playground:
        command = (
            *(sys.executable, "-m", "adapter", "conformance", "--output=json"),
            f"--kubeconfig={kubeconfig(playground)}",
            f"--directory={tmp_path}",
            f"--step-timeout={STEP_TIMEOUT:g}s",
        )

        refused = run(*command)
        assert refused["outcome"] == "failed"
        states = {each["subject"]: each["state"] for each in refused["findings"]}
        assert states["scale-out"] == states["clean-up"] == "ok"
        assert states["accelerator"] == "failure"
        assert "scale-in" not in states

        with subprocess.Popen([*command, "--rehearsal"], stderr=subprocess.PIPE) as victim:
            assert victim.stderr
            created = next(line for line in victim.stderr if line.startswith(b"created run "))
            victim.send_signal(signal.SIGKILL)
        rehearsed = run(*command, "--rehearsal")

    print(json.dumps(rehearsed, indent=2))
    assert rehearsed["outcome"] == "rehearsal"
    (left,) = [each["fact"] for each in rehearsed["findings"] if each["subject"] == "left over"]
    assert (
        left == f"namespace gpu-metrics-conformance of run {created.split()[2].decode()} is deleted"
    )
    replicas = [each["desiredReplicas"] for each in rehearsed["samples"]]
    assert (replicas[0], max(replicas), replicas[-1]) == (1, 2, 1)
    rescales = [each for each in rehearsed["events"] if each["reason"] == "SuccessfulRescale"]
    assert [each["message"][:11] for each in rescales] == ["New size: 2", "New size: 1"]
    assert {each["type"] for each in rehearsed["conditions"]} >= {"AbleToScale", "ScalingActive"}
    assert json.loads((tmp_path / "pod_autoscaling.json").read_text()) == rehearsed
    check_page(tmp_path / "pod_autoscaling.html")


def kubeconfig(playground: Process) -> str:
    """Return the file that the playground names, once everything runs."""

    def named() -> Sequence[str]:
        return [each for each in playground.lines if "export KUBECONFIG=" in each]

    wait_for(lambda: bool(named()), "the playground runs", seconds=2 * STEP_TIMEOUT)
    return named()[0].partition("KUBECONFIG=")[2].split()[0]


def run(*command: str) -> dict[str, Any]:
    """Run a command, and return the document that it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stderr)
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (document["outcome"] == "failed")
    return document


def check_page(path: Path) -> None:
    """Check that a browser shows the claim and three drawn curves, and blocks nothing."""
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium.options())
        page = browser.new_page()
        page.on("console", lambda each: problems.append(each.text))
        page.goto(path.as_uri())
        assert "no evidence" in page.locator(".verdict").inner_text()
        boxes = [each.bounding_box() for each in page.locator("polyline").all()]
        browser.close()
    assert len(boxes) >= 5
    assert all(box and box["width"] > 100 for box in boxes)
    assert problems == []
