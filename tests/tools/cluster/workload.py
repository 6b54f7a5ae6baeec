"""A ReplicaSet `web` with running pods and an HPA, and an adapter, on a real control plane."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import documents
from tools.cluster import server
from tools.cluster.kubelet import running_status
from tools.cluster.server import Server
from tools.control_plane.client import STRATEGIC_MERGE_PATCH
from tools.control_plane.plane import ControlPlane
from tools.faults import testbed


@contextlib.contextmanager
def running(
    control_plane: ControlPlane,
    folder: Path,
    flags: Sequence[str],
    pods: Sequence[str],
    metric: Mapping[str, Any],
) -> Iterator[Server]:
    """Run an adapter with these flags, and what it serves; `metric` is that of the HPA."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(server.installed(control_plane))
        items = [
            testbed.replica_set("web"),
            *(documents.pod(name, labels={"app": "web"}) for name in pods),
            documents.hpa("web", metric, kind="ReplicaSet"),
        ]
        items[0]["spec"]["replicas"] = len(pods)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        started = Server(control_plane, folder / "adapter.log", (*flags, "--shutdown-delay=0s"))
        started.start()
        stack.callback(started.kill)
        control_plane.kubectl("apply", "-f", "-", text=text)
        delete = ("delete", "--force", "--ignore-not-found", "-f", "-")
        stack.callback(control_plane.kubectl, *delete, text=text)
        for name in pods:
            path = f"/api/v1/namespaces/default/pods/{name}"
            status = {"status": running_status(control_plane.admin.get(path))}
            control_plane.admin.call(
                "PATCH", f"{path}/status", status, content_type=STRATEGIC_MERGE_PATCH
            )
        yield started
