"""A small cluster of GPUs around a control plane: nodes and pods under load, Prometheus, adapter.

    with cluster.running(plane, folder, generation="alibaba") as c:
        c.apply(DEPLOYMENT_AND_HPA)
        with c.adapter("--preset=gpu-nvidia-alibaba"):
            c.fleet.offer("bert-intent-detection", 300)
            c.watch_hpa("bert-intent-detection", until=lambda hpa: hpa.current_replicas == 8)

Whatever it put into the control plane is gone at its end, also after a failure.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from adapter.demo.generations import GENERATIONS, Generation
from tests.cluster import exporters, hpa, scrape, server
from tests.cluster.fleet import LiveFleet
from tests.cluster.hpa import Hpa, Table
from tests.cluster.kubelet import Kubelet
from tests.cluster.server import Server
from tests.control_plane.client import RefusedError
from tests.control_plane.plane import ControlPlane
from tests.real import prometheus
from tests.real.prometheus import Prometheus, wait_for

_PAUSE = 0.3
"""Seconds until an HPA that could not be seen is looked for again."""


class Cluster:
    """What runs. `folder` has logs and files."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        *,
        fleet: LiveFleet,
        kubelet: Kubelet,
        prometheus: Prometheus,
        ending: contextlib.ExitStack,
        tidy: bool,
    ) -> None:
        self.plane = plane
        self.folder = folder
        self.fleet = fleet
        self.kubelet = kubelet
        self.prometheus = prometheus
        self._ending = ending
        self._tidy = tidy
        self._installed = False
        self._adapters = itertools.count()

    def wait_scraped(self) -> None:
        """Until Prometheus has been everywhere, for which it sets out after five seconds."""
        targets = len(self.fleet.nodes) + 1
        wait_for(
            lambda: len(self.prometheus.get("/api/v1/query", query="up == 1")["result"]) == targets,
            "everything is scraped",
            seconds=60,
        )

    def apply(self, text: str) -> None:
        """`kubectl apply -f -`; what it made is deleted at the end, with its pods."""
        gone = ("delete", "--ignore-not-found", "--cascade=foreground", "--timeout=60s", "-f", "-")
        if self._tidy:
            self._ending.callback(self.plane.kubectl, *gone, text=text)
        self.plane.kubectl("apply", "-f", "-", text=text)

    @contextlib.contextmanager
    def adapter(
        self,
        *flags: str,
        config: str | None = None,
        tls: tuple[Path, Path] | None = None,
        ca: bytes | None = None,
    ) -> Iterator[Server]:
        """The adapter on this Prometheus, once that has scraped; Available in every APIService.

        `config` is the text of a rules file. `tls` (certificate, key) is shown instead of a
        certificate of its own; `ca` (PEM) is then what the APIServices say vouches for it.
        """
        if not self._installed:
            self._install()
        name = f"adapter-{next(self._adapters)}"
        told = [f"--prometheus-url={self.prometheus.url}", *flags]
        if config is not None:
            rules = self.folder / f"{name}.yaml"
            rules.write_text(config)
            told.append(f"--config={rules}")
        if tls is not None:
            told += [f"--tls-cert-file={tls[0]}", f"--tls-private-key-file={tls[1]}"]
        found = Server(self.plane, self.folder / f"{name}.log", told, ca=ca)
        try:
            self.wait_scraped()
            found.start()
            yield found
        finally:
            if self._tidy:
                found.stop()
            else:
                found.kill()

    def _install(self) -> None:
        if self._tidy:
            self._ending.enter_context(server.installed(self.plane))
        else:
            server.install(self.plane)
        self._installed = True

    def hpa(self, name: str, namespace: str = "default") -> Hpa:
        return hpa.read(self.plane.admin, name, namespace)

    def watch_hpa(
        self,
        name: str,
        *,
        until: Callable[[Hpa], object],
        seconds: float = 60,
        table: Table | None = None,
        namespace: str = "default",
    ) -> Hpa:
        """Wait for `until`; `table` gets a row whenever the line of `kubectl get hpa` changes.

        No state is missed, however short; `until` is asked at least once a second. An outage of
        the API server is waited out. Raises TimeoutError with the table and the conditions.
        """
        rows = Table() if table is None else table
        deadline = time.monotonic() + seconds
        told = "it was never seen"
        while time.monotonic() < deadline:
            try:
                with contextlib.closing(hpa.states(self.plane.admin, name, namespace)) as states:
                    for found in states:
                        rows.add(found)
                        if until(found):
                            return found
                        conditions = found.conditions.items()
                        told = "\n".join(f"{kind}: {each}" for kind, each in conditions)
                        if time.monotonic() > deadline:
                            break
            except (RefusedError, OSError, http.client.HTTPException, ValueError) as problem:
                told = str(problem)
            time.sleep(_PAUSE)
        raise TimeoutError(f"not within {seconds} s; {name} has been\n{rows}\nand now\n{told}")


@contextlib.contextmanager
def running(
    plane: ControlPlane,
    folder: Path,
    *,
    generation: str | Generation,
    nodes: int = 4,
    gpus: int = 4,
    rules_yaml: str | None = None,
    honor_labels: bool = True,
    start_seconds: float = 0.0,
    wobble: float = 0.0,
    tidy: bool = True,
) -> Iterator[Cluster]:
    """The cluster; what Prometheus scrapes is there when `Cluster.wait_scraped` returns.

    `generation` is that of the GPU exporters, by its name if it is one of GENERATIONS.
    `gpus` are those of each node; `rules_yaml` is a rule file of Prometheus; pods are Ready
    `start_seconds` after they were bound. With a `wobble` of 1 GPUs are as unsteady as the
    recording, with 0 they read exactly their share of the load. Without `tidy` nothing is put in
    order at the end, which takes a moment then: the control plane has to end as well.
    """
    # Their names are nobody else's: those of another cluster may still be remembered somewhere.
    run = secrets.token_hex(2)
    fleet = LiveFleet([f"gpu-node-{run}-{i}" for i in range(nodes)], gpus=gpus, wobble=wobble)
    kubelet = Kubelet(plane.admin, fleet, start_seconds=start_seconds)
    if isinstance(generation, str):
        generation = GENERATIONS[generation]
    pages = exporters.pages(fleet, kubelet, generation)
    rules = folder / "rules.yml"
    if rules_yaml is not None:
        rules.write_text(rules_yaml)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(exporters.serving(pages))
        text = scrape.config(
            fleet.nodes,
            port,
            honor_labels=honor_labels,
            rules=rules if rules_yaml is not None else None,
        )
        scraping = stack.enter_context(prometheus.run(folder, text))
        if tidy:
            stack.callback(kubelet.withdraw)
        stack.callback(kubelet.stop)
        kubelet.start()
        yield Cluster(
            plane,
            folder,
            fleet=fleet,
            kubelet=kubelet,
            prometheus=scraping,
            ending=stack,
            tidy=tidy,
        )
