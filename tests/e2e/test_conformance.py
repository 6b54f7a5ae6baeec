"""`conformance --rehearsal` with kubelets: pods report their load, and Prometheus scrapes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tools.e2e.installation import SECONDS, Cluster


def test_a_stand_in_scales_out_and_in(
    installed: Cluster, tmp_path: Path, report: Callable[[object], None]
) -> None:
    code, output = installed.program(
        "conformance",
        "--rehearsal",
        "--output=json",
        f"--directory={tmp_path}",
        f"--step-timeout={SECONDS:g}s",
    )

    document = json.loads(output)
    steps = {each["subject"]: each["fact"] for each in document["findings"]}
    report({name: steps.get(name) for name in ("scale-out", "scale-in")})
    assert (code, document["outcome"]) == (0, "rehearsal")
    assert document["versions"]["adapter"].rpartition("/")[2].startswith("gpu-metrics-adapter:")
    values = [
        value for each in document["samples"] for value in each["metrics"] if value is not None
    ]
    assert (min(values), max(values)) == (0, 100_000)
    assert (tmp_path / "pod_autoscaling.html").exists()
