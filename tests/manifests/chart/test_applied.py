"""The chart on a real API server: its objects are accepted, and it upgrades a release in place."""

from __future__ import annotations

import base64
import json
import re
from itertools import chain

import pytest
import yaml

from adapter.cli import program
from tests.manifests.chart.test_chart import GOLDEN, read
from tests.manifests.chart.test_chart import RELEASES as NAMES
from tests.manifests.test_discovery import discovered
from tests.test_docs import blocks
from tools import helm
from tools.helm import CHART, NAMESPACE, template
from tools.real.prometheus import wait_for

CRDS = {
    "cert-manager.io": ("Issuer", "Certificate"),
    "monitoring.coreos.com": ("ServiceMonitor", "PodMonitor", "PrometheusRule"),
}
RELEASE = "prometheus-adapter"
API_SERVICE = "v1beta2.custom.metrics.k8s.io"
CA, NEXT = (base64.b64encode(f"-----BEGIN {name}".encode()).decode() for name in ("CA", "NEXT"))
PARTS = {
    "tls": {"tls": {"enable": True}},
    "selinux": {"podSecurityContext": {"fsGroup": None}, "securityContext": {"runAsUser": None}},
    "numbers as text": {"replicas": "1", "prometheus": {"port": "80"}, "listenPort": "6443"},
    "everything null": {"rules": {"custom": None, "external": None}, "resources": None},
    "merged": {
        "strategy": {"type": "Recreate"},
        "readinessProbe": {"tcpSocket": {"port": "https"}},
        "podDisruptionBudget": {"minAvailable": 1},
        "podAnnotations": {"prometheus.io/scrape": True, "prometheus.io/port": 6443},
    },
}
"""Values of which the original makes invalid objects, and others that change many objects."""


RELEASES = {name: read(name) for name in NAMES}
NAMESPACES = {NAMESPACE, *(each["namespace"] for each in RELEASES.values())} - {"default"}


def public():
    """Yield the objects of all public releases."""
    for each in RELEASES.values():
        yield from template(each["values"], release=each["release"], namespace=each["namespace"])


ACCEPTED = {
    "public releases": public,
    "golden renderings": lambda: chain.from_iterable(map(template, GOLDEN.values())),
    "other values": lambda: chain.from_iterable(map(template, PARTS.values())),
}


@pytest.fixture(scope="module")
def cluster(control_plane):
    """The control plane with the resources of cert-manager and of the Prometheus operator."""
    crds = []
    for group, kinds in CRDS.items():
        for kind in kinds:
            plural = f"{kind.lower()}s"
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            version = {"name": "v1", "served": True, "storage": True}
            crds.append(
                {
                    "apiVersion": "apiextensions.k8s.io/v1",
                    "kind": "CustomResourceDefinition",
                    "metadata": {"name": f"{plural}.{group}"},
                    "spec": {
                        "group": group,
                        "scope": "Namespaced",
                        "names": {"kind": kind, "plural": plural},
                        "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
                    },
                }
            )
    crds += [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": crds})
    control_plane.kubectl("apply", "-f", "-", text=text)
    # Discovery lists a kind some time after its CustomResourceDefinition is Established.
    wait_for(lambda: all(map(kinds_of(control_plane).issuperset, CRDS.values())), "discovery")
    yield control_plane
    control_plane.kubectl("delete", "--wait=false", "-f", "-", text=text)


def kinds_of(control_plane):
    """Return the kinds of CRDS in the cluster's discovery, as kubectl reads it."""
    return {
        each["responseKind"]["kind"]
        for group in CRDS
        for version in discovered(control_plane, group).values()
        for each in version["resources"]
    }


@pytest.mark.parametrize("documents", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_every_object_is_accepted_without_a_warning(cluster, documents):
    found = list(documents())

    output = cluster.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-"),
        text=yaml.safe_dump_all(found),
    )

    assert output.count("(server dry run)") == len(found) > 20


def test_the_objects_of_the_recipes_are_accepted_without_a_warning(cluster, capsys):
    found = [
        block for block in blocks("docs/hpa-recipes.md", "yaml") if block.startswith("apiVersion:")
    ]
    assert program.main(["presets", "scrape", "inference-vllm", "--format=podmonitor"]) == 0
    monitors = cluster.kubectl(
        *("label", "--local", "-f", "-", "-o", "json", "release=kube-prometheus-stack"),
        text=capsys.readouterr().out,
    )

    apply = ("apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-")
    output = cluster.kubectl(*apply, text="---\n".join(found))
    output += cluster.kubectl(*apply, text=monitors)

    assert output.count("horizontalpodautoscaler") == len(found) == 2
    assert output.count("podmonitor") == monitors.count('"kind": "PodMonitor"') > 0
    assert output.count("(server dry run)") == len(output.splitlines())


class Release:
    """A Helm release of the objects in original.yaml."""

    def __init__(self, cluster, folder):
        self.cluster = cluster
        self.kubeconfig = cluster.admin.write_kubeconfig(folder / "kubeconfig")
        self.values = {"rules": {"external": [{"seriesQuery": "x", "metricsQuery": "x"}]}}
        self.values["rules"]["resource"] = {"window": "3m"}
        self.original = helm.write_original(folder / "original", helm.original())

    def run(self, command, *arguments):
        values = self.values if command in ("install", "upgrade") else None
        flags = (f"--namespace={NAMESPACE}", f"--kubeconfig={self.kubeconfig}")
        return helm.run(command, RELEASE, *arguments, *flags, values=values)

    def get(self, kind, name=RELEASE, *, namespaced=True):
        where = [f"--namespace={NAMESPACE}"] if namespaced else []
        return json.loads(self.cluster.kubectl("get", kind, name, "--output=json", *where))

    def patch(self, kind, name, document):
        self.cluster.kubectl(
            *("patch", kind, name, f"--namespace={NAMESPACE}", "--type=merge"),
            *("--patch", json.dumps(document)),
        )

    def bundle(self):
        """Return the caBundle of the APIService that no version of the original has."""
        return self.get("apiservice", API_SERVICE, namespaced=False)["spec"].get("caBundle")

    def insecure(self):
        """Return whether each APIService skips the verification."""
        found = self.cluster.kubectl("get", "apiservice", "--output=json")
        return {
            each["spec"].get("insecureSkipTLSVerify", False)
            for each in json.loads(found)["items"]
            if each["metadata"]["name"].endswith("metrics.k8s.io")
        }


@pytest.fixture
def release(cluster, tmp_path):
    found = Release(cluster, tmp_path)
    found.run("install", found.original)
    yield found
    found.run("uninstall")


def test_a_release_of_the_original_is_upgraded_in_place(release):
    before = {kind: release.get(kind)["metadata"]["uid"] for kind in ("deployment", "service")}

    notes = release.run("upgrade", CHART)
    first = release.insecure()
    release.patch("secret", f"{RELEASE}-tls", {"data": {"ca.crt": CA}})
    again = release.run("upgrade", CHART)
    pods = release.get("deployment")["spec"]["template"]

    assert {kind: release.get(kind)["metadata"]["uid"] for kind in before} == before
    # Pods of the original serve a certificate that cannot be verified.
    assert "run the same `helm upgrade` again" in notes
    assert "WARNING" not in again
    assert (first, release.insecure()) == ({True}, {False})
    # Without it, HPAs would have no metrics until the adapter publishes it.
    assert release.bundle() == CA
    (container,) = pods["spec"]["containers"]
    assert "/adapter" not in container["args"]
    assert {each["name"] for each in pods["spec"]["volumes"]} == {"config", "tmp"}


def test_the_documented_command_writes_values_without_a_warning(release, tmp_path):
    page = (CHART.parents[1] / "docs" / "migration.md").read_text()
    (command,) = re.findall(
        r"^helm -n monitoring (get values .*) > values.yaml$", page, re.MULTILINE
    )
    file = tmp_path / "values.yaml"
    flags = (f"--namespace={NAMESPACE}", f"--kubeconfig={release.kubeconfig}")
    file.write_text(helm.run(*command.split(), *flags))

    notes = release.run("upgrade", CHART, f"--values={file}")

    assert yaml.safe_load(file.read_text()) == release.values
    assert "has no effect" not in notes


def test_upgrades_keep_what_the_adapter_wrote(release):
    release.run("upgrade", CHART)
    release.patch("secret", f"{RELEASE}-tls", {"data": {"ca.crt": CA}})
    release.run("upgrade", CHART)
    # The adapter renews its CA.
    release.patch("secret", f"{RELEASE}-tls", {"data": {"ca.crt": NEXT}})
    release.patch("apiservice", API_SERVICE, {"spec": {"caBundle": NEXT}})

    for replicas in (3, 4):
        release.run("upgrade", CHART, f"--set=replicas={replicas}")

        assert release.get("secret", f"{RELEASE}-tls")["data"] == {"ca.crt": NEXT}
        assert release.bundle() == NEXT


def test_a_rollback_brings_the_original_back(release):
    release.run("upgrade", CHART)
    release.run("upgrade", CHART)

    release.run("rollback", "1")

    (container,) = release.get("deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "/adapter"
    found = release.get("apiservice", "v1beta1.custom.metrics.k8s.io", namespaced=False)
    assert found["spec"]["insecureSkipTLSVerify"]
