"""Hostile ConfigMaps, HPAs and pods at random in a real cluster, and whether others notice.

Two teams and the cluster have a metric each. Pairs of attacks are created at once in namespaces of
somebody else. It is a problem if a value of others changes, if it or `/livez` takes MAX_SECONDS
longer than an answer of the API server itself, or if the memory reaches the limit of the
Deployment.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rules import limits
from rules.limits import name_of
from tools import documents
from tools.attack import hostile
from tools.attack.__main__ import memory_limit
from tools.bench import processes
from tools.certificates import INSECURE
from tools.cluster import server
from tools.cluster.server import Server
from tools.control_plane.plane import ControlPlane
from tools.documents import Document
from tools.real import prometheus
from tools.real.prometheus import Prometheus, status, wait_for
from tools.waiting import repeated

MAX_SECONDS = 1.0
TEAMS = ("team-one", "team-two")
_HOSTILE = tuple(f"hostile-{number}" for number in range(6))
_THREADS = 8
_SETTLED_SECONDS = 180.0
_PODS = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{}/pods/web/{}"
_VALUES = {
    _PODS.format("default", "cluster_load"): "7",
    **{_PODS.format(team, "load"): str(101 + at) for at, team in enumerate(TEAMS)},
}
_CLUSTER_RULES = json.dumps({"rules": [hostile.rule("cluster_load")]})
_COLLECTIONS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "Pod": "/api/v1/namespaces/{}/pods",
}
_HPA_LIMITS = tuple(map(name_of, ("hpa_metrics", "hpa_metric_text")))
"""What the log says of metrics that are not watched."""
_UNREAD = "NotReadYet"
_REPORT = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/{}/teamrules"


class Generator:
    """Hostile objects at random; the same seed yields the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = itertools.count()

    def __iter__(self) -> Iterator[Document]:
        """Yield objects of all kinds without end."""
        makes = (self._rules, self._rules, self._broken, self._hpa, self._pod)
        while True:
            yield self._random.choice(makes)()

    def _place(self) -> tuple[str, str]:
        return self._random.choice(_HOSTILE), f"x{next(self._numbers)}"

    def _size(self, most: int) -> int:
        """Return a size at an edge of a limit, or any up to its double."""
        return self._random.choice((1, most - 1, most, most + 1, self._random.randrange(2 * most)))

    def _rules(self) -> Document:
        namespace, name = self._place()
        limited, size = limits.DEFAULT, self._size
        makes: Sequence[Callable[[], Document]] = (
            lambda: hostile.nested(self._random.randrange(2000)),
            lambda: hostile.nested(size(limited.team_query_depth)),
            lambda: hostile.operands(self._random.randrange(20_000)),
            lambda: hostile.joined(self._random.randrange(800)),
            lambda: hostile.overrides(size(limited.team_overrides)),
            lambda: hostile.renamed(self._random.randrange(30_000), self._random.randrange(1, 99)),
            lambda: hostile.renamed(size(limited.team_metric_name), 1),
            lambda: hostile.filters(size(limited.team_filters)),
            lambda: hostile.filters(1, pattern="a" * size(limited.team_pattern)),
            lambda: hostile.filters(9, pattern="(" * self._random.randrange(400)),
            lambda: hostile.unknown_fields(self._random.randrange(9000)),
            lambda: hostile.rendered(size(limited.team_template_actions)),
            lambda: hostile.rule("cluster_load", "vector(999)"),
            lambda: hostile.rule(f'load{{namespace="{TEAMS[0]}"}}'),
            lambda: hostile.rule('{__name__=~".*"}', name={"as": "load"}),
        )
        return hostile.config_map(name, self._random.choice(makes)(), namespace=namespace)

    def _broken(self) -> Document:
        """Return a ConfigMap whose text is no rules file, or one of unusual YAML."""
        namespace, name = self._place()
        size = self._random.randrange(1, 30_000)
        texts: Sequence[Callable[[], str]] = (
            lambda: "[" * size,
            lambda: "{a: " * size,
            lambda: "x" * 10 * size,
            lambda: "rules: [" + "x, " * size,
            lambda: "rules:\n" + "- {}\n" * size,
            lambda: "a: &a [x]\n" + "".join(f"b{n}: &a [*a, *a]\n" for n in range(size % 99)),
            lambda: f"rules: [{'9' * size}]",
            lambda: "rules: [!!python/object:os.system {}]",
            lambda: "".join(chr(self._random.randrange(32, 0xD000)) for _ in range(size % 5000)),
            lambda: "rules:\n- seriesQuery: [a]\n  metricsQuery: {b: c}\n  resources: 7\n",
        )
        return hostile.config_map(name, text=self._random.choice(texts)(), namespace=namespace)

    def _hpa(self) -> Document:
        namespace, name = self._place()
        limited, number = limits.DEFAULT, next(self._numbers)
        makes: Sequence[Callable[[], list[Document]]] = (
            lambda: [
                hostile.external(f"m{number}-{each}")
                for each in range(1 + self._size(limited.hpa_metrics))
            ],
            lambda: [hostile.external("m" * (1 + self._size(limited.hpa_metric_text)))],
            lambda: [hostile.external(each) for each in ("load", "../../x", "%ff")],
            lambda: [
                documents.pods_metric(
                    "load", "1", matchLabels={f"k{n}": "v" for n in range(self._size(64))}
                )
            ],
            lambda: [
                documents.object_metric("load", "v1", kind, of)
                for kind, of in (("Pod", "web"), ("Quantum", "a/b"))
            ],
        )
        return hostile.hpa(name, self._random.choice(makes)(), namespace=namespace)

    def _pod(self) -> Document:
        """Return a pod that pretends to be another one, or has many labels."""
        namespace, name = self._place()
        labels = {f"l{n}": "x" * 63 for n in range(self._random.choice((0, 1, 500)))}
        owner = {
            "apiVersion": "apps/v1",
            "kind": self._random.choice(("ReplicaSet", "StatefulSet", "Job", "Quantum")),
            "name": "web",
            "uid": f"{self._random.getrandbits(128):032x}",
            "controller": True,
        }
        document = documents.pod(
            self._random.choice((name, f"{'x' * 200}{name}")),
            namespace,
            labels={"app": "web", **labels},
            automountServiceAccountToken=False,
            nodeName=self._random.choice(("nowhere", "")),
        )
        document["metadata"]["ownerReferences"] = [owner] * self._random.choice((0, 1))
        return document


@dataclass(kw_only=True)
class Watching:
    """Requests the values of others all the time, and `/livez`."""

    control_plane: ControlPlane
    adapter: Server
    problems: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    slowest: float = 0.0
    """Seconds of the slowest answer of the adapter, by its `own_time`."""
    slowest_of_api_server: float = 0.0

    def look(self) -> None:
        """Request each value and `/livez` once, and note what is wrong."""
        for path, expected in _VALUES.items():
            self._note(path, expected, functools.partial(_value, self.control_plane, path))
        livez = functools.partial(status, f"{self.adapter.url}/livez", context=INSECURE, timeout=30)
        self._note("/livez", "200", lambda: str(livez()))

    def look_at_api_server(self) -> None:
        """Measure an answer of the API server itself.

        This goes on beside `look`, since a busy machine may halt all its processes for a second.
        """
        began = time.monotonic()
        self.control_plane.admin.get("/api/v1/namespaces/default")
        passed = time.monotonic() - began
        self.slowest_of_api_server = max(self.slowest_of_api_server, passed)

    def _note(self, what: str, expected: str, request: Callable[[], str]) -> None:
        clock = functools.partial(processes.own_time, self.adapter.daemon.pid)
        began = clock()
        found = request()
        self.answers += 1
        self.slowest = max(self.slowest, clock() - began)
        if found != expected:
            self.problems[f"{what} was {found}, not {expected}"] += 1


def _value(control_plane: ControlPlane, path: str) -> str:
    try:
        reply = control_plane.admin.request("GET", path)
    except OSError as error:
        return type(error).__name__
    if reply.status != 200:
        return str(reply.status)
    return ",".join(item["value"] for item in reply.document["items"])


@contextlib.contextmanager
def series(folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus with the series of the cluster and of the teams, and samples in the future."""
    with prometheus.run(folder) as running:
        for later in range(0, 900, 120):
            running.put(
                'cluster_load{namespace="default",pod="web"} 7',
                *(
                    f'load{{namespace="{team}",pod="web"}} {101 + at}'
                    for at, team in enumerate(TEAMS)
                ),
                *(f'load{{namespace="{each}",pod="web"}} 666' for each in _HOSTILE),
                at=time.time() + later,
            )
        yield running


@contextlib.contextmanager
def installed(control_plane: ControlPlane, folder: Path) -> Iterator[None]:
    """Install the adapter with rules of teams, and create the teams with their rules and pods."""
    spaces = (*TEAMS, *_HOSTILE)
    with server.installed(control_plane):
        server.install(control_plane, overlay=server.overlay(folder, "team-rules"))
        try:
            for each in spaces:
                created = documents.new("v1", "Namespace", each, "")
                control_plane.admin.call("POST", "/api/v1/namespaces", created)
            for namespace in ("default", *TEAMS):
                web = documents.pod("web", namespace, automountServiceAccountToken=False)
                create(control_plane, web)
            for namespace in TEAMS:
                rules = hostile.config_map("rules", hostile.rule("load"), namespace=namespace)
                create(control_plane, rules)
            yield
        finally:
            for namespace in spaces:
                remove(control_plane, namespace)
            control_plane.admin.request("DELETE", "/api/v1/namespaces/default/pods/web")
            for role in ("team-rules", "team-rules-reader"):
                name = f"gpu-metrics-adapter:{role}"
                control_plane.kubectl("delete", "--ignore-not-found", f"clusterrole/{name}")
                control_plane.kubectl("delete", "--ignore-not-found", f"clusterrolebinding/{name}")


def create(control_plane: ControlPlane, document: Document) -> bool:
    """Create an object; return whether the API server accepts it."""
    path = _COLLECTIONS[document["kind"]].format(document["metadata"]["namespace"])
    sent = {**document, "metadata": dict(document["metadata"])}
    for each in ("uid", "resourceVersion", "creationTimestamp"):
        sent["metadata"].pop(each, None)
    return control_plane.admin.request("POST", path, sent).status < 300


def remove(control_plane: ControlPlane, namespace: str) -> None:
    """Delete the objects of a namespace, and then the namespace, without waiting for it."""
    for path in _COLLECTIONS.values():
        control_plane.admin.request("DELETE", f"{path.format(namespace)}?gracePeriodSeconds=0")
    control_plane.admin.request("DELETE", f"/api/v1/namespaces/{namespace}")


def states(control_plane: ControlPlane) -> Counter[str]:
    """Return how many ConfigMaps of the attacker are in which state, or are not listed yet."""
    found: Counter[str] = Counter()
    for each in _HOSTILE:
        report = control_plane.admin.get(_REPORT.format(each))
        found.update(item["state"] for item in report["items"])
        found[_UNREAD] += "pending" in report
    return +found


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an attack did."""

    created: Counter[str]
    """Objects that the API server accepted, by kind."""
    states: Counter[str]
    """ConfigMaps of the attacker, by state."""
    answers: int
    """To others."""
    problems: list[str]


def attack(control_plane: ControlPlane, folder: Path, *, seed: int, count: int) -> Outcome:
    """Create `count` hostile objects, in pairs, and watch what others get."""
    rules = folder / "rules.yaml"
    rules.write_text(_CLUSTER_RULES)
    with contextlib.ExitStack() as stack:
        scraped = stack.enter_context(series(folder))
        stack.enter_context(installed(control_plane, folder))
        flags = (
            *(f"--config={rules}", f"--prometheus-url={scraped.url}"),
            *(f"--team-rules-selector={hostile.SELECTOR}", "--shutdown-delay=0s"),
        )
        adapter = Server(control_plane, folder / "adapter.log", flags)
        adapter.start()
        stack.callback(adapter.kill)
        wait_for(
            lambda: all(_value(control_plane, each) == _VALUES[each] for each in _VALUES),
            "others have their values",
        )
        return _attacked(control_plane, adapter, seed, count)


def _attacked(control_plane: ControlPlane, adapter: Server, seed: int, count: int) -> Outcome:
    watching = Watching(control_plane=control_plane, adapter=adapter)
    created: Counter[str] = Counter()
    with (
        repeated(watching.look, every=0.05),
        repeated(watching.look_at_api_server, every=0.05),
    ):
        generated = iter(Generator(seed))
        while (missing := count - created.total()) > 0:
            created.update(_created(control_plane, itertools.islice(generated, missing)))
        wait_for(
            lambda: _UNREAD not in states(control_plane),
            "all ConfigMaps are read",
            seconds=_SETTLED_SECONDS,
        )
        wait_for(
            lambda: all(f"{each}: " in adapter.log for each in _HPA_LIMITS),
            "the log names the limits of HPAs",
        )
    problems = [f"{each} ({number} times)" for each, number in watching.problems.items()]
    if "Traceback" in adapter.log or "CRITICAL" in adapter.log:
        problems.append("the log has a traceback")
    if watching.slowest >= watching.slowest_of_api_server + MAX_SECONDS:
        problems.append(f"an answer took {watching.slowest:.1f} s")
    if (rss := processes.mebibytes(adapter.daemon.pid, "VmHWM")) >= memory_limit():
        problems.append(f"peak RSS {rss:.0f} MiB, must be below {memory_limit():.0f}")
    return Outcome(
        created=created,
        states=states(control_plane),
        answers=watching.answers,
        problems=problems,
    )


def _created(control_plane: ControlPlane, objects: Iterable[Document]) -> Iterator[str]:
    """Create objects in pairs; yield the kinds of those that the API server accepts."""
    with ThreadPoolExecutor(_THREADS) as threads:
        listed = list(objects)
        accepted = threads.map(lambda each: create(control_plane, each), listed)
        yield from (each["kind"] for each, yes in zip(listed, accepted, strict=True) if yes)
