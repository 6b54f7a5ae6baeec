"""Programs of the backends that the tests compare with Prometheus 2: looked up, or built once.

`python -m tools.backends.programs [TITLE...]` builds the missing ones into the user's cache, or
unpacks Debian's package, and prints the path of each. Nothing is built during the tests: they use
those that are there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from adapter.cli.local_prometheus import binary, debian
from adapter.cli.local_prometheus.debian import NoProgramError
from tools.control_plane import go_build


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """Main package of a Go module, which is built in the module's own folder.

    Therefore the module's go.mod and go.sum hold the versions and the checksums of all others.
    """

    title: str
    variable: str
    """Environment variable with the path of the program, in place of a build."""
    path: str
    version: str
    sum: str
    """Checksum as in go.sum."""
    package: str
    tags: str = ""
    stamps: tuple[tuple[str, str], ...] = ()
    """Variables of the program and their values."""

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.package.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Programs of which the user has to name the folder: no Go module contains them."""

    title: str
    variable: str
    names: tuple[str, ...]


OLD_VICTORIA_METRICS = debian.Program(
    title="VictoriaMetrics 1.79.5",
    name="victoria-metrics",
    package="victoria-metrics",
    variable="VICTORIA_METRICS_DEBIAN",
    home="https://docs.victoriametrics.com/",
)
VICTORIA_METRICS = Module(
    title="VictoriaMetrics 1.150.0",
    variable="VICTORIA_METRICS",
    path="github.com/VictoriaMetrics/VictoriaMetrics",
    version="v1.150.0",
    sum="h1:HyHgg1neFIM/+Db3XXUNditq+Iu9nBc1UCIZ3M09eTE=",
    package="./app/victoria-metrics",
)
VICTORIA_METRICS_CLUSTER = Folder(
    title="VictoriaMetrics cluster",
    variable="VICTORIA_METRICS_CLUSTER",
    names=("vminsert", "vmselect", "vmstorage"),
)
PROMETHEUS_3 = Module(
    title="Prometheus 3.16.0",
    variable="PROMETHEUS_3",
    path="github.com/prometheus/prometheus",
    version="v0.316.0",
    sum="h1:f1GRFerhTMKQma+awCoC9T820ecWeGSdF+xAlMHzZzM=",
    package="./cmd/prometheus",
    # Debian's Prometheus 2 has no discovery of pods.
    tags="remove_all_sd,enable_kubernetes_sd",
)
PROMTOOL_3 = replace(
    PROMETHEUS_3, title="promtool 3.16.0", variable="PROMTOOL_3", package="./cmd/promtool"
)
"""It checks generated configurations; it is no backend."""
THANOS = Module(
    title="Thanos 0.42.4",
    variable="THANOS",
    path="github.com/thanos-io/thanos",
    version="v0.42.4",
    sum="h1:Cs7iARVNKcgewjzAfpoFnscgfNi+XN8slcyW5e0ozWs=",
    package="./cmd/thanos",
    tags="slicelabels",
)
CORTEX = Module(
    title="Cortex 1.21.1",
    variable="CORTEX",
    path="github.com/cortexproject/cortex",
    version="v1.21.1",
    sum="h1:UvP5UCub39HI57hhhugsAYlm2N9J3LlJtiuj0UKOq8U=",
    package="./cmd/cortex",
    tags="netgo,slicelabels",
)
PROMETHEUS_ADAPTER = Module(
    title="prometheus-adapter 0.12.0",
    variable="PROMETHEUS_ADAPTER",
    path="sigs.k8s.io/prometheus-adapter",
    version="v0.12.0",
    sum="h1:e29A6BIwA/NKxPZeuamBMHJsvz0sSUXTb92Obg7RMV4=",
    package="./cmd/adapter",
)
"""The original, which tests replace in a cluster; it is no backend."""
Program = debian.Program | Module | Folder
PROGRAMS: tuple[Program, ...] = (
    OLD_VICTORIA_METRICS,
    VICTORIA_METRICS,
    VICTORIA_METRICS_CLUSTER,
    PROMETHEUS_3,
    PROMTOOL_3,
    THANOS,
    CORTEX,
)


def find(program: Program, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of a program, or of the folder of several; None if it is not here."""
    if path := environ.get(program.variable):
        return Path(path)
    cached = _cached(program, environ)
    return cached if cached is not None and cached.exists() else None


def ensure(program: Program, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of a program as `find`; build or download it if it is not here.

    A build takes minutes and prints its progress on stderr. Raises NoProgramError, whose text says
    what to do.
    """
    if found := find(program, environ):
        return found
    if isinstance(program, debian.Program):
        return debian.find(program, binary.cache(environ) / program.package, environ)
    if isinstance(program, Folder):
        raise NoProgramError(
            f"{program.title}: no Go module has it: set ${program.variable} to a folder with "
            f"{', '.join(program.names)}"
        )
    return _build(program, environ)


def missing(program: Program) -> str:
    """Return the line with which tests are skipped."""
    cure = "" if isinstance(program, Folder) else "run `make backends` or "
    return f"{program.title} is not here: {cure}set ${program.variable}"


def _cached(program: Program, environ: Mapping[str, str]) -> Path | None:
    cache = binary.cache(environ)
    if isinstance(program, debian.Program):
        return cache / program.package / "usr/bin" / program.name
    if isinstance(program, Module):
        return cache / f"{program.name}-{program.version}" / program.name
    return None


def _build(program: Module, environ: Mapping[str, str]) -> Path:
    path = _cached(program, environ)
    assert path is not None
    otherwise = f"set ${program.variable} to the path of {program.name}"
    go_build.require_go(program.name, program.title, otherwise, environ)
    go_build.build(
        {program.name: program.package},
        _source(program, environ, otherwise),
        path.parent,
        {**environ, "GOFLAGS": "-mod=readonly"},
        flags=("-tags", program.tags),
        stamps=dict(program.stamps),
        title=program.title,
        task=f"building {program.title}",
        otherwise=otherwise,
    )
    return path


def _source(program: Module, environ: Mapping[str, str], otherwise: str) -> Path:
    """Download the module; return its folder. Raises NoProgramError."""
    command = ["go", "mod", "download", "-json", f"{program.path}@{program.version}"]
    # Outside of any module: Go must not read the one of the caller's folder.
    done = subprocess.run(
        command,
        cwd="/",
        env={**environ, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        answer = {"Error": done.stderr}
    problem = answer.get("Error")
    if not problem and answer["Sum"] != program.sum:
        problem = f"its checksum is {answer['Sum']}, not {program.sum}"
    if problem:
        raise NoProgramError(f"`{' '.join(command)}` failed:\n{problem.strip()}\n{otherwise}")
    return Path(answer["Dir"])


def main(titles: list[str]) -> int:
    """Print the path of each program whose title contains one of `titles`; all by default."""
    chosen: list[Program] = []
    for title in titles or [""]:
        found = [each for each in PROGRAMS if title.lower() in each.title.lower()]
        if not found:
            known = ", ".join(each.title for each in PROGRAMS)
            print(f"no backend has {title!r} in its title; there are {known}", file=sys.stderr)
            return 2
        chosen += found
    failed = False
    for program in dict.fromkeys(chosen):
        try:
            print(f"{program.title:<24} {ensure(program)}", flush=True)
        except NoProgramError as error:
            failed |= not isinstance(program, Folder)
            print(error, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
