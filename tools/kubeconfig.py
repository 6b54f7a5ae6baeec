"""Kubeconfigs with one cluster and one user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Path:
    """Write a kubeconfig with these fields of the cluster and of the user; return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": user}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    path.write_text(json.dumps(document, indent=2))
    path.chmod(0o600)
    return path
