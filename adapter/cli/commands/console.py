"""`console`: shows autoscalers, metrics and the checks of `doctor` in the browser."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adapter import errors, settings
from adapter.cli.commands import prometheus_url, without_log
from adapter.settings.flag import STRING, SWITCH, FlagGroup, flag, integer
from adapter.settings.kubectl import KubectlSettings, NamespaceSettings
from rules.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class _Console(FlagGroup):
    """Where the console listens."""

    TITLE = "Console"

    port: int = flag(
        "port", integer(0, 65535), "Port on 127.0.0.1; 0 takes any free one.", default="6444"
    )
    prefix: str = flag(
        "path-prefix", STRING, "Path below which a proxy serves the console, such as `/console`."
    )
    no_browser: bool = flag("no-browser", SWITCH, "Print the address only.")

    def problems(self) -> Iterable[Finding]:
        """Yield what is wrong with the prefix."""
        if self.prefix and not re.fullmatch(r"(/[\w.~-]+)+", self.prefix, re.ASCII):
            yield Finding(
                subject=f"--path-prefix={self.prefix}",
                fact="must be a path such as /console",
            )


_GROUPS = (_Console, NamespaceSettings, KubectlSettings, settings.PrometheusSettings)
COMMAND = settings.CommandSpec(
    name="console",
    help=f"""Usage: gpu-metrics-adapter console [FLAGS]

Serves pages on 127.0.0.1 and opens them in the browser, until Ctrl-C: the autoscalers of the
cluster, errors first, with their metrics, replicas, Events and decisions; metrics, exporters, the
rules in use, the checks of doctor, and the health of the adapter. Each page is also there as JSON
and as text: append .json or .txt to its address.

All requests go to the API server, with your rights; they only read. The role view in a namespace is
enough for the autoscalers of this namespace; a page names the right that it lacks. Only the browser
that opens the printed address can use the console, because the address has a secret token.

{settings.flag_help(*_GROUPS)}

Exit code: 0 after a signal, 1 if it cannot start, 2 for an invalid command line.""",
    groups=_GROUPS,
)


def main(argv: Sequence[str]) -> int:
    """Return 0 after a signal, 1 if the console cannot start. Raises UsageError, HelpRequested."""
    line, prometheus = prometheus_url.parse(COMMAND, argv)
    options, namespaces, cluster, _ = line.groups
    from adapter.cli.commands import shutdown

    try:
        with without_log():
            shutdown.run(_run(options, namespaces, cluster, prometheus))
    except errors.StartError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _run(
    options: _Console,
    namespaces: NamespaceSettings,
    flags: KubectlSettings,
    prometheus: settings.PrometheusSettings | None,
) -> None:
    import asyncio
    import webbrowser

    from adapter.cli.commands import rules_list, shutdown
    from adapter.cli.console import reader, server

    cluster = reader.ShownCluster(
        kubeconfig=flags,
        prometheus=prometheus,
        namespaces=namespaces,
        rules=lambda: rules_list.read((), flags, prometheus, ""),
    )
    with shutdown.stopping() as stop:
        async with server.running(cluster, port=options.port, prefix=options.prefix) as address:
            print(f"Console: {address}\nCtrl-C ends it.", flush=True)
            if not options.no_browser:
                await asyncio.to_thread(webbrowser.open, address)
            await stop.wait()
