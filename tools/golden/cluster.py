"""What `doctor`, `explain hpa` and the console read of a faulty installation, and what they print.

`python -m tools.faults --write` records it in a real control plane.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import time_machine

from adapter.background import Background
from adapter.cli.console.reader import ClusterReader, ShownCluster
from adapter.cli.console.views import PageQuery, Views
from adapter.clients.kubernetes import Kube
from adapter.settings.kubectl import KubectlSettings
from rules.quoting import escaped
from tools import kubeconfig as kubeconfigs
from tools.faults.seeds import FAULTS, Fault
from tools.golden import exchanges, run
from tools.golden.exchanges import KUBERNETES, Recording
from tools.waiting import until

_HERE = Path(__file__).parents[2] / "tests" / "golden"
_HOST = "127.0.0.1"
_COMMANDS = (("doctor",), ("explain", "hpa", "default/web"))
_OURS = "ours.example"
_COMPARE = ("--compare", f"--ours=https://{_OURS}")
_CHANGED = '"value":"100k"', '"value":"150k"'
"""A recorded value, and the one of the other server of `migrate --compare`."""
_PAGES = ("exporter stopped", "counter as gauge")
"""Faults whose page of the console, and `migrate --compare`, are held: without and with a value."""
_RATE = 1000
_TIMEOUT = 20.0
"""As in the console."""
TITLES = {f"cluster: {each.title}": each for each in FAULTS}


def path_of(fault: Fault) -> Path:
    """Return the file with what the API server answered."""
    name = "".join(each if each.isalnum() else "-" for each in fault.title.lower())
    return _HERE / "recordings" / f"cluster--{name}.json"


@contextlib.contextmanager
def record(fault: Fault, kubeconfig: str) -> Iterator[None]:
    """Record what the commands read until the context ends, and what the console reads."""
    at = time.time()
    with exchanges.recorded({}, names={_HOST: KUBERNETES}) as recorded:
        yield
        list(_console(kubeconfig, page=_page(fault)))
    Recording.of(at, recorded).save(path_of(fault))


def _page(fault: Fault) -> tuple[str, str] | None:
    return ("default", "web") if fault.title in _PAGES else None


def section(title: str) -> str:
    """Return the lines of the commands, from the recording."""
    recorded = Recording.load(path_of(TITLES[title]))
    ours = (
        replace(
            each,
            request=each.request.replace(KUBERNETES, _OURS),
            body=each.body.replace(*_CHANGED),
        )
        for each in recorded.exchanges
    )
    both = replace(recorded, exchanges=(*recorded.exchanges, *ours))
    with (
        time_machine.travel(recorded.at, tick=False),
        exchanges.replayed(
            both, {KUBERNETES: KUBERNETES, _HOST: KUBERNETES, _OURS: _OURS}, hangs=True
        ) as missing,
        tempfile.TemporaryDirectory(prefix="golden-") as folder,
        mock.patch.object(socket.socket, "connect", side_effect=ConnectionRefusedError),
    ):
        server = {"server": f"https://{KUBERNETES}:6443"}
        kubeconfig = kubeconfigs.write(Path(folder, "kubeconfig"), server, {})
        lines = [
            run.normalized(line)
            for each in _COMMANDS
            for line in run.command(*each, f"--kubeconfig={kubeconfig}")
        ]
        if _page(TITLES[title]):
            compared = run.command("migrate", *_COMPARE, f"--kubeconfig={kubeconfig}")
            lines += map(run.normalized, compared)
        shown = _console(str(kubeconfig), page=_page(TITLES[title]))
        lines += map(run.normalized, shown)
    assert not missing, f"{title}: record it again; there is no answer to {missing[:3]}"
    return "\n".join((f"=== {title}", *lines, "\n"))


def _console(kubeconfig: str, *, page: tuple[str, str] | None) -> Iterator[str]:
    """Yield the rows of autoscalers, and the page of the one with this namespace and name."""
    rows, shown = asyncio.run(_views(kubeconfig, page))
    yield "$ console: /autoscalers.txt"
    yield from map(escaped, rows)
    if page:
        yield f"$ console: /autoscalers/{'/'.join(page)}.txt"
        yield from map(escaped, shown)


async def _views(
    kubeconfig: str, page: tuple[str, str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    kube = await Kube.connect(kubeconfig, qps=_RATE, burst=_RATE, timeout=_TIMEOUT)
    try:
        async with Background.running() as background:
            flags = KubectlSettings(kubeconfig=kubeconfig)
            cluster = ShownCluster(kubeconfig=flags, prometheus=None)
            views = Views(ClusterReader(kube, cluster, None))
            seen = views.reader.autoscalers
            background.start("autoscalers", seen.run())
            await views.autoscalers(PageQuery())  # metrics are requested once a row is shown
            await until(lambda: not seen._pending)  # noqa: SLF001 - no page says that it is complete
            rows = await views.autoscalers(PageQuery())
            shown = await views.autoscaler(PageQuery(), *page) if page else None
            return rows.lines, shown.lines if shown else ()
    finally:
        await kube.close()
