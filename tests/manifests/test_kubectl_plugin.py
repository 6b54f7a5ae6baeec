"""The kubectl plugin, as kubectl runs it: by its path, with the arguments after its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from adapter import __version__

PLUGIN = Path(__file__).parents[2] / "manifests" / "kubectl" / "kubectl-gpu_metrics"


def test_the_plugin_runs_the_installed_command() -> None:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"

    done = subprocess.run(
        [PLUGIN, "version"], env={"PATH": path}, capture_output=True, text=True, check=True
    )

    assert done.stdout == f"gpu-metrics-adapter {__version__}\n"


def test_without_the_command_the_plugin_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [PLUGIN, "doctor"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "gpu-metrics-adapter is not in the PATH" in done.stderr
