"""Values of the chart as a kustomize overlay on manifests/base."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.document import nodes
from rules.findings import Finding
from rules.migration.notes import Notes
from rules.migration.workload import CONTAINER, FLAGS, PLACES, SECTIONS

_NAME = "gpu-metrics-adapter"
_COMPONENTS = {"external": "external-metrics", "resource": "resource-metrics"}
_READ = frozenset(("prometheus", "rules", "presets", "extraArguments", *FLAGS.values()))
_POD_LISTS = {"extraVolumes": "volumes", "extraContainers": "containers"}

Files = dict[str, dict[str, Any]]


def build(values: Mapping[str, Any], manifests: str) -> tuple[Files, list[Finding]]:
    """Return the files of the overlay, by name, and notes about values that have no place in it.

    `manifests` is the path of our folder `manifests`, as the overlay sees it.
    """
    notes = Notes("kustomization.yaml")
    rules = values.get("rules") or {}
    address = url(values)
    if "{{" in address:
        message = "is a template of Helm: write the URL itself"
        notes.left_out("prometheus.url", nodes.EMPTY, message)
    if rules.get("existing"):
        message = "copy its config.yaml into this folder"
        notes.left_out("rules.existing", nodes.EMPTY, message)
    components = [
        f"{manifests}/components/{name}" for key, name in _COMPONENTS.items() if rules.get(key)
    ]
    patch = _deployment(values)
    known = _READ | PLACES.keys() | _POD_LISTS.keys() | {"extraVolumeMounts"}
    for key in sorted(values.keys() - known):
        message = "has no place in this overlay: the base has its own, patch it"
        notes.left_out(key, nodes.EMPTY, message)
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{manifests}/base"],
        **({"components": components} if components else {}),
        "configMapGenerator": [
            {
                "name": _NAME,
                "namespace": _NAME,
                "behavior": "merge",
                "literals": [f"PROMETHEUS_URL={address}"],
                "files": ["config.yaml"],
            }
        ],
        "patches": [{"path": "deployment.yaml"}],
    }
    return {
        "kustomization.yaml": kustomization,
        "config.yaml": rules_file(values),
        "deployment.yaml": patch,
    }, notes.notes


def rules_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of config.yaml, as the chart renders it."""
    rules = values.get("rules") or {}
    found = {name: rules[key] for name, key in SECTIONS.items() if rules.get(key)}
    return found or {"rules": []}


def url(values: Mapping[str, Any]) -> str:
    """Return the URL of Prometheus, as the chart makes it of three values."""
    server = values.get("prometheus") or {}
    host = str(server.get("url") or "http://prometheus.default.svc")
    port = server.get("port", 9090)
    scheme = "" if "://" in host else "http://"
    return f"{scheme}{host}{f':{port}' if port else ''}{server.get('path') or ''}"


def _deployment(values: Mapping[str, Any]) -> dict[str, Any]:
    presets = list(values.get("presets") or ())
    if (values.get("rules") or {}).get("default", True):
        presets.insert(0, "prometheus-adapter")
    container: dict[str, Any] = {
        "name": "adapter",
        "args": [
            "--secure-port=6443",
            "--prometheus-url=$(PROMETHEUS_URL)",
            *(f"--preset={each}" for each in presets),
            "--config=/etc/gpu-metrics-adapter/config.yaml",
            "--shutdown-delay=5s",
            *(f"--{flag}={values[key]}" for flag, key in FLAGS.items() if key in values),
            *map(str, values.get("extraArguments") or ()),
        ],
    }
    if mounts := values.get("extraVolumeMounts"):
        container["volumeMounts"] = mounts
    pod: dict[str, Any] = {"containers": [container]}
    for key, name in _POD_LISTS.items():
        if values.get(key):
            pod[name] = [*pod.get(name, ()), *values[key]]
    spec: dict[str, Any] = {"template": {"spec": pod}}
    for key, place in PLACES.items():
        if not values.get(key):
            continue
        if place[:-1] == CONTAINER:
            container[place[-1]] = values[key]
            continue
        level = {"spec": spec}
        for name in place[:-1]:
            level = level.setdefault(name, {})
        level[place[-1]] = values[key]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _NAME, "namespace": _NAME},
        "spec": spec,
    }
