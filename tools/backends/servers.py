"""Starts each backend on loopback: servers with Prometheus' API, some made of several processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from adapter.cli.local_prometheus.process import free_ports
from tools.backends import programs
from tools.backends.programs import Program
from tools.control_plane import daemon
from tools.control_plane.daemon import Daemon
from tools.real import prometheus
from tools.real.prometheus import Client

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A backend that runs."""

    url: str
    """What `--prometheus-url` is, without a query string."""
    shards: Sequence[Client]
    """Where samples are written; all of them are in the answers of `url`."""
    parts: Sequence[Daemon] = ()
    """The processes that hold the samples, each those of one shard, if an answer can be partial."""

    @property
    def client(self) -> Client:
        """Client that queries the backend, and writes samples to its first shard."""
        return self.shards[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """How a backend is started and set up, and what the documents say about it."""

    title: str
    program: Program
    start: Callable[[Path, Path, ExitStack], Server]
    """Takes the program, a folder, and the stack that stops what was started."""
    parameters: str = ""
    """Query string that `--prometheus-url` needs."""
    answers: str = "all 589"
    """How many answers over public configurations are those of Prometheus 2."""
    age: str = "now"
    partial: str = "not possible: one process"
    limits: str
    max_series: int | None = None
    """Series that a query may select in the tests, if the backend limits them."""
    settings: str

    def url(self, server: Server) -> str:
        """Return what `--prometheus-url` is."""
        return f"{server.url}?{self.parameters}" if self.parameters else server.url


@contextlib.contextmanager
def running(backend: Backend, folder: Path) -> Iterator[Server]:
    """Run a backend, whose program must be here, until the context ends."""
    program = programs.find(backend.program)
    assert program is not None
    with ExitStack() as stack:
        yield backend.start(program, folder, stack)


def _daemon(
    stack: ExitStack, name: str, command: Sequence[str | Path], folder: Path, ready: str
) -> Daemon:
    """Start a process, and wait until the URL `ready` answers with 200."""
    log = folder / f"{name}.log"
    return stack.enter_context(
        daemon.running(name, command, log, lambda: prometheus.status(ready) == 200)
    )


def _victoria_metrics(program: Path, folder: Path, stack: ExitStack) -> Server:
    (port,) = free_ports(1)
    url = f"http://{_HOST}:{port}"
    command: list[str | Path] = [
        program,
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr={_HOST}:{port}",
        "-loggerLevel=WARN",
    ]
    _daemon(stack, "victoria-metrics", command, folder, f"{url}/health")
    return Server(url=url, shards=[Client(url)])


def _victoria_metrics_cluster(program: Path, folder: Path, stack: ExitStack) -> Server:
    """Start two storage nodes, and for each a vminsert that writes to it alone."""
    select, *ports = free_ports(9)
    url = f"http://{_HOST}:{select}/select/0/prometheus"
    storages, shards, nodes = [], [], []
    for number in range(2):
        http, insert, query, writer = ports[4 * number : 4 * number + 4]
        storages.append(
            _daemon(
                stack,
                f"vmstorage-{number}",
                [
                    program / "vmstorage",
                    f"-storageDataPath={folder / f'data-{number}'}",
                    f"-httpListenAddr={_HOST}:{http}",
                    f"-vminsertAddr={_HOST}:{insert}",
                    f"-vmselectAddr={_HOST}:{query}",
                ],
                folder,
                f"http://{_HOST}:{http}/health",
            )
        )
        nodes.append(f"{_HOST}:{query}")
        _daemon(
            stack,
            f"vminsert-{number}",
            [
                program / "vminsert",
                f"-storageNode={_HOST}:{insert}",
                f"-httpListenAddr={_HOST}:{writer}",
            ],
            folder,
            f"http://{_HOST}:{writer}/health",
        )
        write_url = f"http://{_HOST}:{writer}/insert/0/prometheus/api/v1/write"
        shards.append(Client(url, write_url))
    command: list[str | Path] = [
        program / "vmselect",
        f"-storageNode={','.join(nodes)}",
        f"-httpListenAddr={_HOST}:{select}",
        f"-cacheDataPath={folder / 'cache'}",
    ]
    _daemon(stack, "vmselect", command, folder, f"http://{_HOST}:{select}/health")
    return Server(url=url, shards=shards, parts=storages)


def _prometheus_3(program: Path, folder: Path, stack: ExitStack) -> Server:
    server = stack.enter_context(prometheus.run(folder, program=program))
    return Server(url=server.url, shards=[server])


def _thanos(program: Path, folder: Path, stack: ExitStack) -> Server:
    """Start two Prometheus, each with a sidecar, and a querier of both."""
    http, grpc, *ports = free_ports(6)
    url = f"http://{_HOST}:{http}"
    sidecars, endpoints, shards = [], [], []
    for number in range(2):
        place = folder / f"shard-{number}"
        place.mkdir()
        config = json.dumps({"global": {"external_labels": {"shard": str(number)}}})
        server = stack.enter_context(prometheus.run(place, config))
        own_http, own_grpc = ports[2 * number : 2 * number + 2]
        command: list[str | Path] = [
            program,
            "sidecar",
            f"--prometheus.url={server.url}",
            f"--tsdb.path={place / 'data'}",
            f"--http-address={_HOST}:{own_http}",
            f"--grpc-address={_HOST}:{own_grpc}",
        ]
        ready = f"http://{_HOST}:{own_http}/-/ready"
        sidecars.append(_daemon(stack, f"sidecar-{number}", command, folder, ready))
        endpoints.append(f"--endpoint-strict={_HOST}:{own_grpc}")
        shards.append(Client(url, f"{server.url}/api/v1/write"))
    command = [
        program,
        "query",
        f"--http-address={_HOST}:{http}",
        f"--grpc-address={_HOST}:{grpc}",
        "--query.replica-label=shard",
        *endpoints,
    ]
    _daemon(stack, "thanos-query", command, folder, f"{url}/-/ready")
    prometheus.wait_for(
        lambda: prometheus.status(f"{url}/api/v1/query?query=1") == 200, "Thanos answers"
    )
    return Server(url=url, shards=shards, parts=sidecars)


def _cortex(program: Path, folder: Path, stack: ExitStack) -> Server:
    """Start all parts in one process, without a ring that other processes could join."""
    http, grpc = free_ports(2)
    base = f"http://{_HOST}:{http}"
    # Rules and alerts have folders of their own: Cortex reads each file there as one of them.
    folders = {each: folder / each for each in ("blocks", "tsdb", "sync", "rules", "alerts")}
    for each in folders.values():
        each.mkdir()
    ring = {"kvstore": {"store": "inmemory"}}
    local_ring = {"ring": {**ring, "instance_addr": _HOST}}
    config = {
        "target": "all",
        "auth_enabled": False,
        "server": {
            "http_listen_address": _HOST,
            "http_listen_port": http,
            "grpc_listen_address": _HOST,
            "grpc_listen_port": grpc,
        },
        "memberlist": {"bind_addr": [_HOST], "bind_port": 0, "advertise_addr": _HOST},
        "distributor": local_ring,
        "ingester": {
            "lifecycler": {
                "address": _HOST,
                "final_sleep": "0s",
                "min_ready_duration": "0s",
                "ring": {**ring, "replication_factor": 1},
            }
        },
        "blocks_storage": {
            "backend": "filesystem",
            "filesystem": {"dir": str(folders["blocks"])},
            "tsdb": {"dir": str(folders["tsdb"])},
            "bucket_store": {"sync_dir": str(folders["sync"])},
        },
        "compactor": {"data_dir": str(folder / "compactor"), "sharding_ring": local_ring["ring"]},
        "store_gateway": {"sharding_ring": {**local_ring["ring"], "replication_factor": 1}},
        "ruler": {**local_ring, "rule_path": str(folder / "rules-loaded")},
        "ruler_storage": {"backend": "local", "local": {"directory": str(folders["rules"])}},
        "alertmanager": {
            "data_dir": str(folder / "alertmanager"),
            "external_url": base,
            "cluster": {"listen_address": ""},
        },
        "alertmanager_storage": {"backend": "local", "local": {"path": str(folders["alerts"])}},
        "frontend_worker": {"frontend_address": f"{_HOST}:{grpc}"},
        "querier": {"active_query_tracker_dir": str(folder / "active-queries")},
        "limits": {"max_fetched_series_per_query": MAX_SERIES},
    }
    file = folder / "cortex.yaml"
    file.write_text(json.dumps(config))
    _daemon(stack, "cortex", [program, f"-config.file={file}"], folder, f"{base}/ready")
    url = f"{base}/prometheus"
    prometheus.wait_for(
        lambda: prometheus.status(f"{url}/api/v1/query?query=1") == 200, "Cortex answers"
    )
    return Server(url=url, shards=[Client(url, f"{base}/api/v1/push")])


MAX_SERIES = 2_000
"""Series that a query may select in the Cortex of the tests; the public configurations select
less."""

REFUSED = "refused with `PartialResponse`"
_NOCACHE_AGE = "now; 30 s without `nocache=1`; a new series up to 10 s"
_LENGTH = "16 384 bytes of a query (`-search.maxQueryLen`)"

BACKENDS = {
    "victoria-metrics-debian": Backend(
        title="VictoriaMetrics 1.79.5",
        program=programs.OLD_VICTORIA_METRICS,
        start=_victoria_metrics,
        limits=_LENGTH,
        settings="`?nocache=1`",
        parameters="nocache=1",
        age=_NOCACHE_AGE,
    ),
    "victoria-metrics": Backend(
        title="VictoriaMetrics 1.150.0",
        program=programs.VICTORIA_METRICS,
        start=_victoria_metrics,
        limits=_LENGTH,
        settings="`?nocache=1`",
        parameters="nocache=1",
        age=_NOCACHE_AGE,
    ),
    "victoria-metrics-cluster": Backend(
        title="VictoriaMetrics 1.150.0, cluster",
        program=programs.VICTORIA_METRICS_CLUSTER,
        start=_victoria_metrics_cluster,
        partial=REFUSED,
        limits=_LENGTH,
        settings="`/select/0/prometheus?nocache=1`",
        parameters="nocache=1",
        age=_NOCACHE_AGE,
    ),
    "prometheus-3": Backend(
        title="Prometheus 3.16.0",
        program=programs.PROMETHEUS_3,
        start=_prometheus_3,
        limits="50 million samples of a query",
        settings="nothing",
    ),
    "thanos": Backend(
        title="Thanos 0.42.4",
        program=programs.THANOS,
        start=_thanos,
        partial=REFUSED,
        limits="none by default",
        settings="`--query.replica-label`; `--endpoint-strict` or `--endpoint-group-strict` for "
        "each store: one of `--endpoint` that is down is forgotten, and answers look whole",
    ),
    "cortex": Backend(
        title="Cortex 1.21.1",
        program=programs.CORTEX,
        start=_cortex,
        age="up to 1 s",
        partial="not tried: one process",
        limits="series, chunks and bytes of a query: refused with `LimitExceeded`",
        max_series=MAX_SERIES,
        settings="`/prometheus`, and the tenant by `--prometheus-header`",
    ),
}
"""Key of the tests -> backend."""
