"""What `migrate` writes for public files, on a real API server."""

from __future__ import annotations

import os
import subprocess

import yaml

from rules import ruleset
from tests.manifests.chart.test_applied import cluster  # noqa: F401 - a fixture
from tests.manifests.test_manifests import MANIFESTS
from tests.migrate import keda
from tests.migrate.golden import RELEASES, SCALED, inputs, run
from tools.helm import template

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
