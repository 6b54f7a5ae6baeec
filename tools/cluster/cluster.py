"""Simulated GPU cluster around a real control plane: nodes, pods under load, Prometheus, adapter.

    with cluster.running(control_plane, folder, generation="alibaba") as c:
        c.apply(DEPLOYMENT_AND_HPA)
        with c.adapter("--preset=gpu-nvidia-alibaba"):
            c.fleet.set_load("bert-intent-detection", 300)
            c.watch_hpa("bert-intent-detection", until=lambda hpa: hpa.current_replicas == 8)

By default every object that it created in the control plane is deleted at the end, also after a
failure.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from adapter.cli.demo.generations import GENERATIONS, DemoGeneration
from tools import embedded
from tools.backends import programs
from tools.cluster import exporters, hpa, scrape, server
from tools.cluster.fleet import LiveFleet
from tools.cluster.hpa import Hpa, Table
from tools.cluster.kubelet import Kubelet
from tools.cluster.server import Server
from tools.control_plane.client import RefusedError
from tools.control_plane.plane import ControlPlane
from tools.real import prometheus
from tools.real.prometheus import Prometheus, wait_for

_RETRY_SECONDS = 0.3
"""Pause before a failed watch of an HPA is started again."""


@dataclass(kw_only=True)
class Cluster:
    """Parts of a running cluster."""

    control_plane: ControlPlane
    folder: Path
    """Has logs and files."""
    fleet: LiveFleet
    kubelet: Kubelet
    prometheus: Prometheus
    exit_stack: contextlib.ExitStack
    """Is closed at the end of the cluster, before its parts end."""
    clean_up: bool
    _installed: bool = False
    _adapter_numbers: Iterator[int] = field(default_factory=itertools.count)

    def wait_scraped(self) -> None:
        """Wait until every exporter is up. Prometheus starts to scrape after five seconds."""
        up = f'up{{job=~"{scrape.EXPORTERS}"}} == 1'
        wait_for(
            lambda: len(self.prometheus.query(up)) == len(self.fleet.nodes) + 1,
            "every exporter is scraped",
        )

    def apply(self, text: str) -> None:
        """Run `kubectl apply -f -`; the objects and their pods are deleted at the end."""
        delete = (
            "delete",
            "--ignore-not-found",
            "--cascade=foreground",
            "--timeout=90s",
            "-f",
            "-",
        )
        if self.clean_up:
            self.exit_stack.callback(self.control_plane.kubectl, *delete, text=text)
        self.control_plane.kubectl("apply", "-f", "-", text=text)

    @contextlib.contextmanager
    def embedded_prometheus(self) -> Iterator[Prometheus]:
        """Run the Prometheus of the adapter's pod until the context ends.

        It scrapes running pods at their `podIP`, by the generated configuration, every five seconds
        as by default. Raises NoProgramError.
        """
        program = programs.ensure(programs.PROMETHEUS_3)
        folder = self.folder / "embedded"
        folder.mkdir()
        config = embedded.local(self.control_plane.kubeconfig, interval=5)
        with prometheus.run(folder, config, program=program, flags=embedded.flags()) as running:
            yield running

    @contextlib.contextmanager
    def adapter(
        self,
        *flags: str,
        config: str | None = None,
        tls: tuple[Path, Path] | None = None,
        ca: bytes | None = None,
        overlay: Path = server.OVERLAY,
    ) -> Iterator[Server]:
        """Run the adapter against this Prometheus until the context ends.

        Starts it after the first scrape and yields once every APIService is Available. `config` is
        the text of a rules file. `tls` (certificate, key) replaces the certificate that the adapter
        issues; `ca` (PEM) is then the caBundle of the APIServices. `overlay` is what was installed.
        """
        if not self._installed:
            self._install()
        name = f"adapter-{next(self._adapter_numbers)}"
        arguments = [f"--prometheus-url={self.prometheus.url}", *flags]
        if config is not None:
            rules = self.folder / f"{name}.yaml"
            rules.write_text(config)
            arguments.append(f"--config={rules}")
        if tls is not None:
            arguments += [f"--tls-cert-file={tls[0]}", f"--tls-private-key-file={tls[1]}"]
        log = self.folder / f"{name}.log"
        adapter = Server(self.control_plane, log, arguments, ca=ca, overlay=overlay)
        try:
            self.wait_scraped()
            adapter.start()
            yield adapter
        finally:
            if self.clean_up:
                adapter.stop()
            else:
                adapter.kill()

    def _install(self) -> None:
        if self.clean_up:
            self.exit_stack.enter_context(server.installed(self.control_plane))
        else:
            server.install(self.control_plane)
        self._installed = True

    def watch_hpa(
        self,
        name: str,
        *,
        until: Callable[[Hpa], object],
        seconds: float = 90,
        table: Table | None = None,
    ) -> Hpa:
        """Watch an HPA of namespace default and return the first state for which `until` holds.

        `until` sees every state, and at least one a second. `table` gets a row for each change of
        the line of `kubectl get hpa`. The watch is restarted after errors of the API server. Raises
        TimeoutError with the table and the conditions.
        """
        rows = Table() if table is None else table
        deadline = time.monotonic() + seconds
        last = "it was never read"
        while time.monotonic() < deadline:
            try:
                with contextlib.closing(hpa.watch(self.control_plane.admin, name)) as states:
                    for state in states:
                        rows.add(state)
                        if until(state):
                            return state
                        conditions = state.conditions.items()
                        last = "\n".join(f"{kind}: {each}" for kind, each in conditions)
                        if time.monotonic() > deadline:
                            break
            except (RefusedError, OSError, http.client.HTTPException, ValueError) as error:
                last = str(error)
            time.sleep(_RETRY_SECONDS)
        raise TimeoutError(
            f"HPA {name} did not reach the expected state within {seconds} s; its states:\n{rows}\n"
            f"last conditions or error:\n{last}"
        )


@contextlib.contextmanager
def running(
    control_plane: ControlPlane,
    folder: Path,
    *,
    generation: str | DemoGeneration,
    nodes: int = 4,
    gpus: int = 4,
    rules_yaml: str | None = None,
    start_seconds: float = 0.0,
    noise: float = 0.0,
    clean_up: bool = True,
) -> Iterator[Cluster]:
    """Run a cluster until the context ends. The first scrape comes later: see `wait_scraped`.

    `generation` is the format of the GPU exporters, or its name in GENERATIONS. `gpus` is their
    number per node. `rules_yaml` is the text of a Prometheus rule file. Pods become Ready
    `start_seconds` after they are bound. `noise` scales the fluctuation of GPU utilisation: 1 as in
    the recording, 0 for none. Without `clean_up` no object is deleted and the adapter is killed at
    the end: that is faster, but the control plane must end as well.
    """
    # Names that no other cluster used: a cache may still hold the nodes of an earlier one.
    run = secrets.token_hex(2)
    fleet = LiveFleet([f"gpu-node-{run}-{i}" for i in range(nodes)], gpus=gpus, noise=noise)
    kubelet = Kubelet(control_plane.admin, fleet, start_seconds=start_seconds)
    if isinstance(generation, str):
        generation = GENERATIONS[generation]
    pages = exporters.pages(fleet, kubelet, generation)
    rules: Path | None = None
    if rules_yaml is not None:
        rules = folder / "rules.yml"
        rules.write_text(rules_yaml)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(exporters.serving(pages))
        scrape_config = scrape.config(fleet.nodes, port, rules=rules)
        running_prometheus = stack.enter_context(prometheus.run(folder, scrape_config))
        if clean_up:
            stack.callback(kubelet.unregister)
        stack.callback(kubelet.stop)
        kubelet.start()
        yield Cluster(
            control_plane=control_plane,
            folder=folder,
            fleet=fleet,
            kubelet=kubelet,
            prometheus=running_prometheus,
            exit_stack=stack,
            clean_up=clean_up,
        )
