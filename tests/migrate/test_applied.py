"""What `migrate` writes for public files, on a real API server."""

from __future__ import annotations

import contextlib
import os
import subprocess

import yaml

from rules import ruleset
from rules.migration import overlay
from tests.manifests.chart.test_applied import cluster  # noqa: F401 - a fixture
from tests.manifests.test_manifests import MANIFESTS
from tests.migrate import keda
from tests.migrate.golden import RELEASES, SCALED, inputs, run
from tools.cluster import hpa, server
from tools.helm import template
from tools.real import prometheus

INPUTS = inputs()
NAMES = sorted(each.stem for each in RELEASES.glob("*.yaml"))


def apply(control_plane, documents):
    """Let the server validate the documents, in a namespace that exists."""
    for each in documents:
        if "namespace" in each["metadata"]:
            each["metadata"]["namespace"] = "default"
    output = control_plane.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-"),
        text=yaml.safe_dump_all(documents),
    )
    assert output.count("(server dry run)") == len(documents)


def load(documents):
    """Load the rules in the adapter's ConfigMap, which fails if they have errors."""
    (text,) = (
        each["data"]["config.yaml"]
        for each in documents
        if each["kind"] == "ConfigMap" and "config.yaml" in each["data"]
    )
    ruleset.load([("config.yaml", text)])


def test_values_render_objects_that_are_accepted_and_rules_that_load(cluster):  # noqa: F811
    documents = []
    for text in INPUTS.values():
        rendered = template(run(text).files["values.yaml"][0], namespace="default")
        load(rendered)
        documents += rendered

    assert len(documents) > 100
    apply(cluster, documents)


def test_overlays_build_objects_that_are_accepted(cluster, programs, tmp_path):  # noqa: F811
    documents = []
    for name in NAMES:
        folder = tmp_path / name
        folder.mkdir()
        path = os.path.relpath(MANIFESTS, folder)
        done = run(INPUTS[name], "--format=kustomize", f"--manifests={path}")
        for file, (document,) in done.files.items():
            (folder / file).write_text(yaml.safe_dump(document))
        built = subprocess.run(
            [programs.kubectl, "kustomize", folder], capture_output=True, text=True, check=False
        )
        assert (built.returncode, built.stderr) == (0, "")
        objects = list(yaml.safe_load_all(built.stdout))
        load(objects)
        documents += objects

    apply(cluster, documents)


def test_autoscalers_of_public_files_are_accepted(control_plane):
    names = [each.stem for each in SCALED.glob("*.yaml")]
    documents = [each for name in names for each in run(INPUTS[name]).files.get("hpas.yaml", ())]

    assert len(documents) == 9
    apply(control_plane, documents)


def test_autoscalers_and_values_of_all_cases_are_accepted(control_plane, cluster):  # noqa: F811
    done = [keda.migrated(each) for each in keda.CASES.values()]
    autoscalers = [hpa for each in done for hpa in keda.hpas(each)]
    assert len(autoscalers) == 73
    apply(control_plane, autoscalers)

    values = [each.files["values.yaml"][0] for each in done if each.files]
    rendered = [
        template(each, namespace="default") for each in values if "sources" in each["rules"]
    ]
    assert len(rendered) == 2
    for documents in rendered:
        load(documents)
    apply(cluster, [each for documents in rendered for each in documents])


SCALED_OBJECT = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: {name}, namespace: default}}
spec:
  scaleTargetRef: {{name: migrated-{name}}}
  minReplicaCount: 1
  maxReplicaCount: 4
  triggers:
  - type: prometheus
    metricType: {type}
    metadata: {{serverAddress: "{url}", query: '{query}', threshold: "100", namespace: "{tenant}"}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: migrated-{name}, namespace: default}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: migrated-{name}}}}}
  template:
    metadata: {{labels: {{app: migrated-{name}}}}}
    spec: {{containers: [{{name: a, image: a}}]}}
"""
END_TO_END = {
    "sum": ("a", "AverageValue", "sum(keda_probe)", "", "3"),
    "labelled": ("a", "AverageValue", 'keda_probe{p="1"} * 7', "", "7"),
    "fraction": ("a", "AverageValue", "sum(keda_probe) / 9", "", "333m"),
    "value": ("a", "Value", "sum(keda_probe) * 1000", "", "3k"),
    "negative": ("a", "AverageValue", "sum(keda_probe) - 8", "", "0"),
    "division": ("a", "AverageValue", "sum(keda_probe) / 0", "", "0"),
    "nothing": ("a", "AverageValue", "sum(keda_probe) > 5", "", "0"),
    "other-server": ("b", "AverageValue", "sum(keda_probe)", "", "50"),
    "other-tenant": ("b", "AverageValue", "sum(keda_probe) + 1", "b", "51"),
    "several": ("a", "AverageValue", "keda_probe", "", hpa.UNKNOWN),
}
"""Name -> server, type, query, tenant, and the value that KEDA's HPA has with one replica."""


def test_each_autoscaler_gets_kedas_value_from_the_adapter(control_plane, tmp_path):
    with contextlib.ExitStack() as stack:
        servers = {}
        for name, lines in {"a": keda.SERIES, "b": ['keda_probe{p="1"} 50']}.items():
            (tmp_path / name).mkdir()
            servers[name] = stack.enter_context(prometheus.run(tmp_path / name))
            servers[name].put(*lines)
        text = "---".join(
            SCALED_OBJECT.format(
                name=name, type=kind, query=query, url=servers[server].url, tenant=tenant
            )
            for name, (server, kind, query, tenant, _) in END_TO_END.items()
        )
        done = run(text)
        (values,) = done.files["values.yaml"]
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump(overlay.rules_file(values)))
        stack.enter_context(server.installed(control_plane))
        flags = (f"--prometheus-url={overlay.url(values)}", f"--config={config}")
        adapter = server.Server(control_plane, tmp_path / "adapter.log", flags)
        stack.callback(adapter.stop)
        adapter.start()
        documents = [yaml.safe_load(DEPLOYMENT.format(name=name)) for name in END_TO_END]
        objects = yaml.safe_dump_all([*documents, *done.files["hpas.yaml"]])
        stack.callback(control_plane.kubectl, "delete", "--wait=false", "-f", "-", text=objects)
        control_plane.kubectl("apply", "--validate=strict", "-f", "-", text=objects)

        for name, (*_, expected) in END_TO_END.items():
            reason = "FailedGetExternalMetric" if name == "several" else "ValidMetricFound"
            prometheus.wait_for(
                lambda name=name, reason=reason, expected=expected: (
                    (found := hpa.read(control_plane.admin, name)).metrics == [expected]
                    and found.condition("ScalingActive").reason == reason
                ),
                f"HPA {name} shows {expected}",
                seconds=90,
            )
