"""A small cluster of GPUs around a control plane: a fleet under load, a kubelet's shadow, Prometheus.

    with cluster.running(plane, folder, generation="alibaba") as c:
        c.apply(DEPLOYMENT)
        with c.adapter("--preset=gpu-nvidia-alibaba"):
            c.fleet.offer("bert-intent-detection", 300)
            c.watch_hpa("bert-intent-detection", until=lambda hpa: hpa.current_replicas == 8)

Whatever it put into the control plane is gone at its end, also after a failure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cluster.fleet import LiveFleet
from tests.cluster.hpa import Hpa, Table
from tests.cluster.kubelet import Kubelet
from tests.cluster.server import Server
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import Prometheus


class Cluster:
    plane: ControlPlane
    fleet: LiveFleet
    kubelet: Kubelet
    prometheus: Prometheus
    folder: Path

    def apply(self, text: str) -> None:
        """`kubectl apply -f -`; what it made is deleted at the end."""
        raise NotImplementedError

    @contextlib.contextmanager
    def adapter(
        self,
        *flags: str,
        config: str | None = None,
        tls: tuple[Path, Path] | None = None,
        ca: bytes | None = None,
    ) -> Iterator[Server]:
        """The adapter with manifests/base applied; begins when every APIService is Available.

        `config` is the text of a rules file. `tls` (certificate, key) is shown instead of a
        certificate of its own; `ca` (PEM) is then what the APIServices say vouches for it.
        """
        raise NotImplementedError
        yield

    def hpa(self, name: str, namespace: str = "default") -> Hpa:
        raise NotImplementedError

    def watch_hpa(
        self,
        name: str,
        *,
        until: Callable[[Hpa], object],
        seconds: float = 60,
        table: Table | None = None,
        namespace: str = "default",
    ) -> Hpa:
        """Wait for `until`; `table` gets a row each time that the line of `kubectl get hpa` changes.

        Raises TimeoutError with the table and the conditions.
        """
        raise NotImplementedError


@contextlib.contextmanager
def running(
    plane: ControlPlane,
    folder: Path,
    *,
    generation: str,
    nodes: int = 4,
    gpus: int = 4,
    rules_yaml: str | None = None,
    honor_labels: bool = True,
    start_seconds: float = 0.0,
    wobble: bool = False,
) -> Iterator[Cluster]:
    """The cluster, once Prometheus has scraped every exporter.

    `gpus` are those of each node; `rules_yaml` is a rule file of Prometheus; pods are Ready
    `start_seconds` after they were bound; with `wobble` GPUs do not read their share of the load
    exactly, but as unsteadily as the recording.
    """
    raise NotImplementedError
    yield
