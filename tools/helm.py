"""Helm, built once into the user's cache, and what it renders of the chart."""

from __future__ import annotations

import base64
import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tools.backends import programs
from tools.control_plane.build import VERSION

CHART = Path(__file__).parents[1] / "manifests" / "chart"
NAMESPACE = "monitoring"
_WARNING = "WARNING: "
_MAJOR, _MINOR, _ = VERSION.split(".")
HELM = programs.Module(
    title="Helm 3.22.0",
    variable="HELM",
    path="helm.sh/helm/v3",
    version="v3.22.0",
    sum="h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=",
    package="./cmd/helm",
    # The Kubernetes that `template` assumes; without it, a build from source assumes 1.20.
    stamps=tuple(
        (f"helm.sh/helm/v3/pkg/chartutil.k8sVersion{part}", value)
        for part, value in (("Major", _MAJOR), ("Minor", _MINOR))
    ),
)

Document = dict[str, Any]


def run(*arguments: str | Path, values: object = None) -> str:
    """Return what helm prints. `values` is passed as `--values`. Raises RuntimeError."""
    command = [programs.ensure(HELM), *arguments]
    if values is not None:
        command += ["--values", "-"]
    done = subprocess.run(
        command,
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def template(
    values: object = None,
    *flags: str,
    release: str = "prometheus-adapter",
    namespace: str = NAMESPACE,
    chart: Path = CHART,
) -> list[Document]:
    """Return the objects that the chart renders."""
    output = run("template", release, chart, f"--namespace={namespace}", *flags, values=values)
    return [each for each in yaml.load_all(output, Loader=yaml.CSafeLoader) if each]


def notes(values: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return what NOTES.txt prints, without a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(shutil.copytree(CHART, Path(folder) / "chart"))
        text = (chart / "templates" / "NOTES.txt").read_text()
        (chart / "templates" / "notes.yaml").write_text(
            f'{{{{ define "notes" }}}}{text}{{{{ end }}}}'
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: notes}, "
            'data: {text: {{ include "notes" . | b64enc }}}}'
        )
        (document,) = template(dict(values), "--show-only=templates/notes.yaml", chart=chart)
    return base64.b64decode(document["data"]["text"]).decode()


def warnings(values: Mapping[str, Any] = MappingProxyType({})) -> list[str]:
    """Return the warnings in the notes."""
    lines = notes(values).splitlines()
    return [each.removeprefix(_WARNING) for each in lines if each.startswith(_WARNING)]


def original() -> list[Document]:
    """Return the objects of a release of the original's chart."""
    text = (CHART.parents[1] / "tests/manifests/chart/original.yaml").read_text()
    return list(yaml.safe_load_all(text))


def write_original(folder: Path, documents: Iterable[Document]) -> Path:
    """Write a chart of the original's name with these objects, and return it."""
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("{apiVersion: v1, name: prometheus-adapter, version: 5.3.0}")
    (folder / "templates" / "all.yaml").write_text(yaml.safe_dump_all(documents))
    return folder


def key(document: Document) -> tuple[str, str, str]:
    """Return kind, namespace and name of an object."""
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


@functools.cache
def default_values() -> Mapping[str, Any]:
    """Return the values of the chart."""
    values: Mapping[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return values
