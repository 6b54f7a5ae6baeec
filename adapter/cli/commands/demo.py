"""`demo`: runs a simulated GPU fleet, a real Prometheus that scrapes it, and the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapter import settings
from adapter.cli.demo.generations import DEFAULT, GENERATIONS
from adapter.settings.flag import SWITCH, FlagGroup, FlagType, choice, flag, integer

DEFAULT_LOAD = "3"
FIXED = "fixed"
GPU = "gpu"


def _load(text: str) -> float | str:
    """Return the factor, or FIXED or GPU."""
    if text in {FIXED, GPU}:
        return text
    try:
        factor = float(text)
    except ValueError:
        factor = -1
    if not 0 <= factor <= 1000:
        raise ValueError("must be between 0 and 1000, fixed or gpu")
    return factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(FlagGroup):
    """The simulated fleet, and the server beside it."""

    TITLE = "Simulation"

    secure_port: int = flag(
        "secure-port", integer(1, 65535), "HTTPS port of the adapter on 127.0.0.1.", default="6443"
    )
    generation: str = flag(
        "generation",
        choice(*sorted(GENERATIONS)),
        "Exporter whose series the fleet has, or model server in its pods; the matching presets "
        "are used: "
        f"{', '.join(sorted(GENERATIONS))}.",
        default=DEFAULT,
    )
    nodes: int = flag(
        "nodes", integer(1, 1000), "Number of nodes, with four GPUs each.", default="3"
    )
    load: float | str = flag(
        "load",
        FlagType(name="number", parse=_load),
        "Factor for the recorded utilization, 0 to 1000; `fixed` for values that do not change; "
        "`gpu` for the readings of this machine's NVIDIA GPUs, without --generation and --nodes.",
        default=DEFAULT_LOAD,
    )
    honor_labels: bool = flag(
        "honor-labels",
        SWITCH,
        "Scrape with honor_labels: series keep the labels `pod` and `namespace` instead of "
        "`exported_pod` and `exported_namespace`.",
    )
    verbose: bool = flag("verbose", SWITCH, "Log at debug level.")


COMMAND = settings.CommandSpec(
    name="demo",
    help=f"""Usage: gpu-metrics-adapter demo [FLAGS]

Runs a simulated GPU fleet, a Prometheus that scrapes it, and the adapter, until Ctrl-C. Needs no
GPU and no cluster; with --load=gpu, the GPUs are those of this machine.

{settings.flag_help(Simulation)}""",
    groups=(Simulation,),
)


def main(argv: Sequence[str]) -> int:
    """Return 0 after a signal, 1 if something cannot start. Raises UsageError, HelpRequested."""
    (options,) = COMMAND.parse(argv).groups
    from adapter.cli.commands import demo_run

    return demo_run.run(options)
