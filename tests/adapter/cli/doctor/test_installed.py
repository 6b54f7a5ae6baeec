"""The documented installation on a real API server: what `doctor` says, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.cli import program
from rules.metrics_apis import CUSTOM
from tools import docs, helm
from tools.cluster import server
from tools.control_plane.client import MERGE_PATCH
from tools.control_plane.daemon import Daemon, free_ports
from tools.control_plane.plane import ControlPlane
from tools.presets.table import EXPORTERS
from tools.real import prometheus as real

RELEASE, NAMESPACE = "gpu", "scaling"
NAME = f"{RELEASE}-prometheus-adapter"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"


@pytest.fixture
def _adapter(control_plane: ControlPlane, tmp_path: Path) -> Iterator[None]:
    """Install the chart, and run a process in place of its pods."""
    kubeconfig = control_plane.kubeconfig
    flags = (f"--namespace={NAMESPACE}", f"--kubeconfig={kubeconfig}")
    with real.run(tmp_path) as prometheus:
        for each in sorted((EXPORTERS / "c4-4.8.2-default").glob("*.prom")):
            prometheus.put(*each.read_text().splitlines())
        url = {"url": "http://127.0.0.1", "port": prometheus.port}
        values = {"presets": ["auto"], "rules": {"default": False}, "prometheus": url}
        helm.run(
            "upgrade", "--install", RELEASE, helm.CHART, "--create-namespace", *flags, values=values
        )
        control_plane.local_service(NAME, NAMESPACE)
        (port,) = free_ports(1)
        for name in CUSTOM.apiservices:
            path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
            spec = {"service": {"port": port}}
            control_plane.admin.call("PATCH", path, {"spec": spec}, content_type=MERGE_PATCH)
        command = [
            *(sys.executable, "-m", "adapter", f"--secure-port={port}", "--preset=auto"),
            f"--lister-kubeconfig={control_plane.account_kubeconfig(NAME, NAMESPACE)}",
            *(f"--service-name={NAME}", f"--service-namespace={NAMESPACE}"),
            f"--prometheus-url={prometheus.url}",
        ]
        log = tmp_path / "adapter.log"
        daemon = Daemon("adapter", command, log, lambda: "serving on" in log.read_text())
        try:
            daemon.start()
            for name in CUSTOM.apiservices:
                control_plane.wait_available(name, seconds=60)
            yield
        finally:
            daemon.kill()
            helm.run("uninstall", RELEASE, *flags)


@pytest.mark.usefixtures("_adapter")
def test_a_release_of_its_own_name_has_no_failure_for_an_administrator_and_for_its_account(
    control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    account = control_plane.account_kubeconfig(NAME, NAMESPACE)

    for kubeconfig in (control_plane.kubeconfig, account):
        assert program.main(["doctor", f"--kubeconfig={kubeconfig}"]) == 0

        report = capsys.readouterr().out
        assert f"is Available, served by {NAMESPACE}/{NAME}\n" in report, report
        assert f"rights: {ACCOUNT} has the " in report


def test_the_documented_command_deletes_what_kustomize_installed(
    control_plane: ControlPlane,
) -> None:
    assert "\nkubectl delete -k mycluster " in (docs.ROOT / "docs" / "install.md").read_text()
    server.install(control_plane)

    # It would fail for an object that does not exist any more.
    control_plane.kubectl("delete", "--timeout=60s", "-k", server.OVERLAY)

    found = control_plane.kubectl("get", "apiservices", "--output=name")
    assert "metrics.k8s.io" not in found
