"""Subcommands of the program, one module each.

Each module of a command has its command line, and `main(argv)`, which returns the exit code, and
raises UsageError and HelpRequested of `adapter.settings`. So that --help stays fast, a module is
imported only when its command runs, and what does the work is imported after the flags are parsed;
this module imports neither.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence

SUMMARIES = {
    "serve": "serve the Kubernetes metrics APIs (default command)",
    "demo": "serve the metrics of a simulated GPU fleet, without GPUs and without a cluster",
    "check": "report errors and warnings in rules files",
    "rules": "list the rules of files, or those that an adapter in the cluster uses",
    "migrate": "turn prometheus-adapter installations and ScaledObjects into values and HPAs",
    "test": "run unit tests of rules on a real Prometheus",
    "doctor": "check an installation, from the API server to Prometheus, with cause and cure",
    "presets": "list the presets, print one, or detect which match the series in Prometheus",
    "explain": "print how the value of a metric, or the decision of an HPA, comes about",
    "replay": "print what an autoscaler would have done in the past with other settings",
    "advise": "find the target by which an autoscaler keeps an objective, from its past",
    "conformance": "show by a workload and its HPA that pods scale by metrics of accelerators",
    "console": "show autoscalers, metrics and the checks of doctor in the browser",
    "certs": "issue a CA, a serving certificate and their Secret",
    "completion": "print the completion of a shell: bash, zsh or fish",
    "version": "print the version, as --version does",
}
"""Names of the commands, which are also the names of their modules."""
_NEEDS_JINJA = "needs the package jinja2; run: pip install 'gpu-metrics-adapter[console]'"
_MISSING = {
    "adapter.cli.demo": "not part of this image; run it in a checkout of the repository",
    "jinja2": _NEEDS_JINJA,
    "markupsafe": _NEEDS_JINJA,
}
"""Module that not every installation has -> what a command that needs it prints."""


def run(name: str, argv: Sequence[str]) -> int:
    """Run the command `name` with the arguments after its name; return the exit code."""
    from adapter import settings

    try:
        code: int = importlib.import_module(f"{__name__}.{name}").main(argv)
    except ModuleNotFoundError as error:
        if error.name not in _MISSING:
            raise
        print(f"{name}: {_MISSING[error.name]}", file=sys.stderr)
        return 1
    except settings.HelpRequested as requested:
        print(requested)
        return 0
    except settings.UsageError as error:
        see = f"`gpu-metrics-adapter {error.command} --help` explains the command line"
        print(f"{error}\n{see}", file=sys.stderr)
        return 2
    return code


@contextlib.contextmanager
def without_log() -> Iterator[None]:
    """Log nothing inside: a report has what matters."""
    import logging

    log = logging.getLogger("adapter")
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(logging.NOTSET)
