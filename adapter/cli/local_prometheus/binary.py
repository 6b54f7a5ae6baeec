"""Finds the Prometheus program, or downloads it.

`python -m adapter.cli.local_prometheus.binary` prints its path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from adapter.cli.local_prometheus import debian

PROMETHEUS = debian.Program(
    title="Prometheus",
    name="prometheus",
    package="prometheus",
    variable="PROMETHEUS",
    home="https://prometheus.io/download/",
)


def cache(environ: Mapping[str, str]) -> Path:
    """Return the folder for downloads: `$GPU_METRICS_ADAPTER_CACHE`, else in the user's cache.

    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    if configured := environ.get("GPU_METRICS_ADAPTER_CACHE"):
        return Path(configured)
    home = environ.get("HOME", "/tmp")  # noqa: S108 - HOME may be unset in a container
    return Path(environ.get("XDG_CACHE_HOME") or f"{home}/.cache", "gpu-metrics-adapter")


def find(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of Prometheus; download Debian's package if nothing else provides one.

    `$PROMETHEUS` comes first, then the PATH, then the cache. Raises NoProgramError.
    """
    return debian.find(PROMETHEUS, cache(environ) / "prometheus", environ)


if __name__ == "__main__":
    try:
        print(find())
    except debian.NoProgramError as error:
        sys.exit(str(error))
