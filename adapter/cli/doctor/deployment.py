"""Flags of the adapter, read from its Deployment: `doctor` need not be told what they are.

Flags whose values are in files of the pod, such as credentials, can be used only in the pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from adapter import settings
from adapter.cli.doctor.installation import Installed
from adapter.clients.kubernetes import Kube
from adapter.settings import Settings, UsageError

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


async def flags(installed: Installed) -> Settings | None:
    """Return the settings of the first Deployment behind the Service; None if there is none.

    Also None if its command line is not that of this version, or needs a Secret. Raises
    BackendError.
    """
    found = await template(installed)
    return None if found is None else await _settings(installed, found["spec"]["containers"][0])


async def template(installed: Installed) -> Mapping[str, Any] | None:
    """Return the pod template of that Deployment; None if there is none. Raises BackendError."""
    selector = ((await installed.service_spec() or {}).get("selector") or {}).items()
    path = f"/apis/apps/v1/namespaces/{installed.namespace}/deployments"
    for each in (await installed.api.get(path, {"limit": "50"})).get("items") or ():
        found: Mapping[str, Any] = each["spec"]["template"]
        labels = (found.get("metadata") or {}).get("labels") or {}
        if selector and selector <= labels.items():
            return found
    return None


async def _settings(installed: Installed, container: Mapping[str, Any]) -> Settings | None:
    variables = await _variables(installed.api, installed.path, container.get("env") or ())
    arguments = [
        _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), argument)
        for argument in container.get("args") or ()
    ]
    if any(map(_VARIABLE.search, arguments)):  # a value from a Secret
        return None
    try:
        return settings.parse(arguments)
    except UsageError:
        return None


async def _variables(api: Kube, path: str, env: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return the environment variables with values and of ConfigMaps; no Secret is read."""
    found = {}
    for each in env:
        reference = (each.get("valueFrom") or {}).get("configMapKeyRef")
        if reference:
            data = (await api.get(f"{path}/configmaps/{reference['name']}")).get("data") or {}
            found[each["name"]] = str(data.get(reference["key"], ""))
        elif "value" in each:
            found[each["name"]] = str(each["value"])
    return found
