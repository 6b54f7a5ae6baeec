"""The story of `make model-server ARGS=--advise`: the target of `advise hpa` keeps its limit.

Clients sweep the load of one server, whose replicas are fixed; `advise hpa` reads this past. Where
it refuses, the clients do the load test that it names. Under another load up to the target, the
time to the first token is compared with the limit. 20 to 30 minutes.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from adapter.cli import program
from tools import documents, quantity
from tools.cluster.cluster import Cluster
from tools.cluster.walkthrough import Walkthrough, echo
from tools.control_plane.plane import ControlPlane
from tools.model_server import story
from tools.model_server.story import APP, Server
from tools.real.prometheus import Prometheus

WINDOW = 15
"""Seconds that the percentile covers: three scrapes. That of the preset covers five minutes."""
WARM_UP = (8, 4, 1)
"""Clients before the sweep: the first batches of each size compile kernels."""
LEVELS = {1: 1, 2: 1, 3: 2, 4: 2, 5: 1, 6: 1, 8: 1}
"""Clients -> how often."""
HELD = 75.0
"""Seconds of each level: a window in which it changes may be broken by the load before."""
LIMITS = ("250ms", "500ms", "1s", "2s")
"""Of them, the first one for which a target is advised is taken: machines differ."""
TESTS = 2
"""Load tests that are done for a limit."""
_TEST = re.compile(r"hold (?:about )?([\d.]+) of \S+ for each pod for (\d+) min")
AFTER = 300.0
"""Seconds of the other load."""
METRIC = "first_token_p95_milliseconds"
_P95 = "1000 * histogram_quantile(0.95, sum by ({by}le) (rate({series}{{{matchers}}}[15s])))"
_SERIES = "vllm:time_to_first_token_seconds_bucket"
_ADVICE = ("advise", "hpa", f"default/{APP}", f"--window={WINDOW}s", "--sync-period=5s", "-o=json")


def rules(prometheus: Prometheus) -> str:
    """Return the text of a rules file with METRIC, from a Prometheus."""
    rule = {
        "seriesQuery": _SERIES,
        "source": "servers",
        "resources": {"overrides": {each: {"resource": each} for each in ("namespace", "pod")}},
        "name": {"as": METRIC},
        "onNaN": "zero",
        "workloads": "max",
        "metricsQuery": _P95.format(
            by="<<.GroupBy>>,", series="<<.Series>>", matchers="<<.LabelMatchers>>"
        ),
    }
    return yaml.safe_dump({"sources": {"servers": {"url": prometheus.url}}, "rules": [rule]})


def tell(cluster: Cluster, servers: Sequence[Server]) -> None:
    """Run the sweep on the first of the servers. Raises AssertionError if the limit is not kept."""
    luck = random.Random(5)
    hpa = documents.hpa(
        APP, documents.pods_metric("requests_waiting_current", "5"), minReplicas=1, maxReplicas=1
    )
    with (
        cluster.embedded_prometheus() as prometheus,
        story.running(cluster, servers, prometheus, rules(prometheus)) as (_, ask),
    ):
        walkthrough = Walkthrough(cluster, hpa=APP)
        story.deploy(walkthrough, hpa)
        hold(ask, WARM_UP, seconds=20)
        begin = time.time()
        levels = [clients for clients, times in LEVELS.items() for _ in range(times)]
        luck.shuffle(levels)
        hold(ask, levels)
        limit, advice = advised(cluster.control_plane, prometheus, begin, ask)
        echo(f"# {advice['objective']['metric']} < {limit}: {advice['verdict']}")
        walkthrough.apply(f"{APP}-hpa.yaml", yaml.safe_dump(advice["hpa"]))
        most = int(float(quantity.parse(advice["target"])))
        begin = time.time()
        hold(ask, [luck.randint(max(1, most - 2), most) for _ in range(int(AFTER / HELD))])
        query = _P95.format(by="", series=_SERIES, matchers="")
        values = past(prometheus, query, begin + WINDOW)
        kept = sum(each < float(quantity.parse(advice["objective"]["below"])) for each in values)
        echo(f"# the limit held in {kept} of {len(values)} windows: {list(map(round, values))}")
        assert kept >= 0.95 * len(values)


def hold(ask: Callable[[int], None], levels: Sequence[int], *, seconds: float = HELD) -> None:
    """Let so many clients ask, one level after the other."""
    for number, clients in enumerate(levels):
        echo(f"# {clients} clients ({number + 1} of {len(levels)})")
        ask(clients)
        time.sleep(seconds)


def advised(
    control_plane: ControlPlane, prometheus: Prometheus, begin: float, ask: Callable[[int], None]
) -> tuple[str, Any]:
    """Return the first limit with a target, and the advice. Raises AssertionError without one."""
    flags = [f"--kubeconfig={control_plane.kubeconfig}", f"--prometheus-url={prometheus.url}"]
    for limit in LIMITS:
        for left in reversed(range(1 + TESTS)):
            echo(f"$ gpu-metrics-adapter advise hpa default/{APP} --objective='{METRIC} < {limit}'")
            line = [*_ADVICE, *flags, f"--objective={METRIC} < {limit}"]
            with (
                contextlib.redirect_stdout(io.StringIO()) as output,
                contextlib.redirect_stderr(io.StringIO()) as refusal,
            ):
                code = program.main([*line, f"--since={time.time() - begin:.0f}s"])
            if code == 0:
                return limit, json.loads(output.getvalue())
            echo(refusal.getvalue().splitlines()[-1])
            tests = _TEST.findall(refusal.getvalue())
            if not tests or not left:
                break
            for load, minutes in tests:
                hold(ask, [round(float(load))] * math.ceil(60 * int(minutes) / HELD))
    raise AssertionError(f"no target for {LIMITS}")


def past(prometheus: Prometheus, query: str, begin: float) -> list[float]:
    """Return the value of a query at the end of each window since `begin`."""
    found = prometheus.get(
        "/api/v1/query_range",
        query=query,
        start=str(begin),
        end=str(time.time()),
        step=str(WINDOW),
    )
    ((_, points),) = (each.values() for each in found["result"])
    return [float(value) for _, value in points]
