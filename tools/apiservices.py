"""Generated parts of the manifests: APIServices, and the rights to register them and read scales.

`rules.metrics_apis` has the API versions; in the manifests, each is an APIService. The components
of kustomize and `apiServices` of the chart say which of them belong to an installation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from rules.kinds import SCALE_TARGETS
from rules.metrics_apis import APIS, CUSTOM, EXTERNAL, USAGE, MetricsApi

_APISERVICE = """\
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: {version}.{group}
spec:
  group: {group}
  version: {version}
  groupPriorityMinimum: 100
  versionPriority: {priority}
  service:
    name: gpu-metrics-adapter
    namespace: gpu-metrics-adapter
    port: 443
"""
_HEADER = """\
# Written by `make fix` from the versions in rules/metrics_apis.py.
#
# The adapter adds the caBundle to these APIServices, so insecureSkipTLSVerify is not needed.
"""
_PATCH = """\
# Written by `make fix` from the versions in rules/metrics_apis.py.
- op: test
  path: /rules/1/verbs
  value: [patch]
"""
_ADDED_NAME = """\
- op: add
  path: /rules/1/resourceNames/-
  value: {}
"""
_REGISTRATION = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: gpu-metrics-adapter:registration
rules:
  - apiGroups: [apiregistration.k8s.io]
    resources: [apiservices]
    resourceNames:
{every}
    verbs: [get]
  - apiGroups: [apiregistration.k8s.io]
    resources: [apiservices]
    resourceNames:
{own}
    verbs: [patch]
"""


def registration() -> str:
    """Return the ClusterRole of manifests/base/rbac.yaml that registers APIServices."""
    return _REGISTRATION.format(every=_names(*APIS), own=_names(CUSTOM))


def scale_targets() -> str:
    """Return the rules of manifests/base/rbac.yaml by which scales are read."""
    return "\n".join(
        f"  - apiGroups: [{each.group}]\n    resources: [{each.resource}/scale]\n    verbs: [get]"
        for each in SCALE_TARGETS
    )


def _manifest(api: MetricsApi) -> str:
    return _HEADER + "---\n".join(_APISERVICE.format(**each) for each in _versions(api))


def _patch(api: MetricsApi) -> str:
    """Return the JSON Patch that adds the APIServices of a component to the ClusterRole."""
    return _PATCH + "".join(map(_ADDED_NAME.format, api.apiservices))


def _chart() -> str:
    """Return the APIServices by API group."""
    lines = (f"{json.dumps(api.name)}: {json.dumps(_versions(api))}" for api in APIS)
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _versions(api: MetricsApi) -> list[dict[str, str | int]]:
    """Return the versions of an API group; the newest has the highest priority.

    Clients that choose by discovery, such as the HPA controller for custom metrics, prefer it.
    """
    return [
        {"group": api.name, "version": version, "priority": 100 * place}
        for place, version in enumerate(api.versions, start=1)
    ]


def _names(*apis: MetricsApi) -> str:
    return "\n".join(f"      - {name}" for api in apis for name in api.apiservices)


FILES: Mapping[str, Callable[[], str]] = {
    "manifests/base/apiservices.yaml": partial(_manifest, CUSTOM),
    "manifests/components/external-metrics/apiservices.yaml": partial(_manifest, EXTERNAL),
    "manifests/components/external-metrics/registration.yaml": partial(_patch, EXTERNAL),
    "manifests/components/resource-metrics/apiservices.yaml": partial(_manifest, USAGE),
    "manifests/components/resource-metrics/registration.yaml": partial(_patch, USAGE),
    "manifests/chart/files/apiservices.json": _chart,
}
"""File -> its text."""
