"""What the console shows of an installation, as its pages have it in text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from adapter.background import Background
from adapter.cli.console.reader import Installation, Reader
from adapter.cli.console.views import Query, Views
from adapter.clients.kubernetes import Kube
from rules.quoting import escaped
from tools.cluster.server import NAME, NAMESPACE
from tools.waiting import until

_RATE = 1000
_TIMEOUT = 20.0
"""As in the console."""


def lines(kubeconfig: str, *, page: tuple[str, str] | None) -> Iterator[str]:
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
            installation = Installation(
                kubeconfig=kubeconfig, namespace=NAMESPACE, service=NAME, prometheus=None
            )
            views = Views(Reader(kube, installation, None))
            seen = views.reader.autoscalers
            background.start("autoscalers", seen.run())
            await views.autoscalers(Query())  # metrics are requested once a row is shown
            await until(lambda: not seen._pending)  # noqa: SLF001 - no page says that it is complete
            rows = await views.autoscalers(Query())
            shown = await views.autoscaler(Query(), *page) if page else None
            return rows.lines, shown.lines if shown else ()
    finally:
        await kube.close()
