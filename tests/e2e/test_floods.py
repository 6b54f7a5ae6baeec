"""Floods of `make attack` from within a pod of the adapter, whose memory limit has to hold."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.e2e.test_defaults import inspect, restarts
from tools.attack.__main__ import memory_limit
from tools.e2e import installation
from tools.e2e.installation import NAMESPACE, RELEASE, Cluster
from tools.workload import objects

FLOODS = (
    *("silent_connections", "stalled_handshakes", "idle_sessions", "http_2", "kept_heads"),
    *("kept_headers", "unread_answers", "pipelined", "many_headers", "trailers"),
    *("incomplete_heads", "selectors", "compressed_bodies", "anonymous_reviews", "tokens"),
)
"""Those that need no certificate of the front proxy, which the API server keeps."""
CONTAINER, FOLDER = "flood", "/tmp"
TOOLS = Path(__file__).parents[2] / "tools"
_UNPACK = (
    "import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|').extractall('/tmp')"
)
_FLOOD = (
    "import runpy, sys, gpu_metrics_adapter; "
    f"sys.path[:0] = [*gpu_metrics_adapter.__path__, '{FOLDER}']; "
    "runpy.run_module('tools.attack.floods', run_name='__main__')"
)


def archive(certificates: Path) -> bytes:
    """Return a tar archive of the tools, and of the certificates under the names of a flood."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for each in TOOLS.rglob("*.py"):
            tar.add(each, Path("tools", each.relative_to(TOOLS)))
        tar.add(certificates / "ca.crt", "tls.crt")
        pair = certificates / "proxy.pem"
        names = ("tls.crt", "tls.key")
        pair.write_text("".join((certificates / name).read_text() for name in names))
        tar.add(pair, pair.name)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def flooded(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install one replica with a container beside it that can flood it; return the pod's name."""
    folder = tmp_path_factory.mktemp("flood") / "certificates"
    code, output = installed.program(
        *("certs", "issue", f"--service-namespace={NAMESPACE}", f"--service-name={RELEASE}"),
        *("--host=127.0.0.1", f"--out={folder}"),
    )
    assert code == 0, output
    container = objects.idle(CONTAINER, image=installation.image())
    mount = {"name": "flood", "mountPath": FOLDER}
    installed.install(
        {
            "replicas": 1,
            "tls": {
                "enable": True,
                "ca": (folder / "ca.crt").read_text(),
                "key": (folder / "tls.key").read_text(),
                "certificate": (folder / "tls.crt").read_text(),
            },
            "extraContainers": [container | {"volumeMounts": [mount]}],
            "extraVolumes": [{"name": "flood", "emptyDir": {}}],
        }
    )
    installed.settled()
    (pod,) = installed.pods()
    name: str = pod["metadata"]["name"]
    installed.kubectl(
        *("exec", "--stdin", name, f"--container={CONTAINER}", "--", "python", "-c", _UNPACK),
        text=archive(folder),
    )
    return name


@pytest.mark.parametrize("flood", FLOODS)
def test_memory_stays_below_the_limit(installed: Cluster, flooded: str, flood, report) -> None:
    with installed.probing() as probe:
        statuses = installed.kubectl(
            *("exec", flooded, f"--container={CONTAINER}", "--", "python", "-c", _FLOOD),
            *(flood, FOLDER, "6443"),
        )

    peak = inspect(installed, flooded)["peak_mib"]  # since the start of the pod
    report(f"peak {peak} MiB until now; {json.loads(statuses)}; {probe}")
    assert restarts(installed) == 0
    assert peak < memory_limit()
