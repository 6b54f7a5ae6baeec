"""Runs the console: connects to the cluster, and listens on 127.0.0.1."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from adapter import errors
from adapter.background import Background
from adapter.cli.console import pages
from adapter.cli.console.guard import TokenGuard
from adapter.cli.console.reader import ClusterReader, ShownCluster
from adapter.cli.console.views import Views
from adapter.clients import kubectl, sources
from adapter.clients.kubernetes import Kube

_ADDRESS = "127.0.0.1"
_QPS, _BURST = 20.0, 100
"""Requests per second to the API server, whatever is shown."""
_TIMEOUT = 20.0


@contextlib.asynccontextmanager
async def running(cluster: ShownCluster, *, port: int, prefix: str) -> AsyncIterator[str]:
    """Run the console and yield its first address, which has the token. Raises StartError.

    With a `port` of 0, any free one is taken. `prefix` is empty or a path without a slash at its
    end.
    """
    async with contextlib.AsyncExitStack() as stack:
        flags = cluster.kubeconfig
        try:
            title = kubectl.select(flags).title
            if names := cluster.namespaces.names:
                title += f", only {', '.join(names)}"
            kube = await Kube.connect(flags, qps=_QPS, burst=_BURST, timeout=_TIMEOUT)
        except errors.BackendError as error:
            raise errors.StartError(
                f"{str(error).rstrip('.')}. Set --kubeconfig or --context"
            ) from error
        stack.push_async_callback(kube.close)
        background = await stack.enter_async_context(Background.running())
        prometheus = None
        if cluster.prometheus is not None:
            connection = sources.connect_prometheus(cluster.prometheus)
            prometheus = await stack.enter_async_context(connection)
        reader = ClusterReader(kube, cluster, prometheus)
        background.start("autoscalers of the console", reader.autoscalers.run())
        background.start("probe of the API server", reader.api_server.run())
        guard = TokenGuard(f"{prefix}/")
        app = pages.application(Views(reader), guard, prefix, cluster=title)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, _ADDRESS, port).start()
        except OSError as error:
            raise errors.StartError(
                f"cannot listen on {_ADDRESS}:{port}: {error.strerror}; set --port to another one"
            ) from error
        yield f"http://{_ADDRESS}:{runner.addresses[0][1]}{prefix}/?{guard.query}"
