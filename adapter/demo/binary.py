"""Where the Prometheus program comes from: named, on the PATH, in the cache, or Debian's package.

`python -m adapter.demo.binary` prints its path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from adapter.demo import debian

PROMETHEUS = debian.Program(
    title="Prometheus",
    name="prometheus",
    package="prometheus",
    variable="PROMETHEUS",
    home="https://prometheus.io/download/",
)


class NoPrometheusError(Exception):
    """No Prometheus program is to be had here; `str()` says what to do."""


def cache(environ: Mapping[str, str]) -> Path:
    """The folder for what is fetched once: `$GPU_METRICS_ADAPTER_CACHE`, else the user's cache.

    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    if named := environ.get("GPU_METRICS_ADAPTER_CACHE"):
        return Path(named)
    base = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME", "/tmp"), ".cache")  # noqa: PTH118, S108 - HOME may be unset in a container
    return Path(base) / "gpu-metrics-adapter"


def find(environ: Mapping[str, str] = os.environ) -> Path:
    """The Prometheus program; fetches Debian's package where nothing else gives one.

    `$PROMETHEUS` names one; else the PATH, else the cache decide. Raises NoPrometheusError.
    """
    try:
        return debian.find(PROMETHEUS, cache(environ) / "prometheus", environ)
    except debian.NoProgramError as error:
        raise NoPrometheusError(str(error)) from error


if __name__ == "__main__":
    try:
        print(find())
    except NoPrometheusError as error:
        sys.exit(str(error))
