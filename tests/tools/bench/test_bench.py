from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.backends import programs
from tools.bench import __main__ as bench
from tools.bench import report, sidecar, testbed
from tools.bench.load import ClosedResult, OpenResult
from tools.bench.workload import Size

ROOT = Path(__file__).parents[3]
SIZE = Size(autoscalers=4, pods=8, namespaces=2)
TINY = ("--size=4x8x2", "--period=1", "--measured=1", "--round=0.2", "--rounds=1", "--load-only")


@pytest.mark.usefixtures("real_servers")
def test_adapter_peer_and_another_checkout_are_measured(tmp_path, capsys) -> None:
    file = tmp_path / "results" / "bench.json"
    peer = {"PEER": f"{sys.executable} -m adapter {{flags}}"}

    bench.main((*TINY, f"--json={file}", f"--other={ROOT}"), peer)

    results = json.loads(file.read_text())
    assert [each["server"] for each in results["open"]] == ["adapter", "other", "peer"]
    for each in results["open"]:
        assert each["statuses"] == {"200": SIZE.autoscalers}
        assert each["cpu"] > 0
        assert each["prometheus_cpu"] > 0
        assert each["kubernetes_cpu"] > 0
        assert (each["lists"], each["open_watches"]) == (0, 1)
    names = {each["name"] for each in results["closed"]}
    assert {"bare asyncio", "adapter", "adapter, JSON", "other", "peer"} <= names
    assert all(set(each["statuses"]) == {"200"} for each in results["closed"])
    output = capsys.readouterr().out
    assert "p99, x bare" in output
    assert "adapter, x other" in output


@pytest.mark.usefixtures("real_servers")
def test_the_sidecar_scrapes_each_pod_once_an_interval(monkeypatch) -> None:
    if programs.find(programs.PROMETHEUS_3) is None:
        pytest.skip(programs.missing(programs.PROMETHEUS_3))
    monkeypatch.setattr(sidecar, "_PERIOD", 1.0)
    monkeypatch.setattr(sidecar, "_MEASURED", 4.0)

    (row,), problems = sidecar.run(["20x1", "1000000x1"])

    assert row["pages/s"] == pytest.approx(20, rel=0.3)
    assert row["series"] == 20 * 102
    assert row["lost"] == 0
    assert problems == []


def test_peer_without_flags_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"PEER='adapter' has no \{flags\}"):
        testbed.peer("adapter")


def test_another_checkout_must_be_one(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"is not a checkout: it has no adapter/__main__.py"):
        testbed.other(tmp_path)


def test_two_servers_are_compared_by_the_medians_of_their_runs() -> None:
    columns = [("adapter", SIZE, open_result(rss=rss)) for rss in (300.0, 50.0, 100.0)]
    columns += [("other", SIZE, open_result(rss=80.0, queries=0.0))]
    names = ("adapter", "adapter, JSON", "other", "other, JSON")
    closed = [closed_result(name, rate_ratio=len(name)) for name in names]

    lines = {
        line[:32].strip(): line[32:].split()
        for line in report.comparison(columns, closed, "adapter", "other")
    }

    assert lines["open loop"] == ["4", "x", "8"]
    assert lines["RSS"] == ["1.250"]
    assert lines["queries, per request"] == ["nan"]
    assert lines["requests/s"] == ["1.400", "1.182"]
    assert [*report.regressions(columns, "adapter", "other")] == [
        "4x8x2: RSS: 1.250 times that of the other version"
    ]


def test_kept_claims_are_no_problem() -> None:
    columns = [("adapter", SIZE, open_result()), ("peer", SIZE, open_result(lists=100))]
    closed = [closed_result(name) for name in ("bare asyncio", "adapter", "adapter, JSON")]

    assert [*report.problems("adapter", columns, closed)] == []


def test_broken_claims_are_problems() -> None:
    statuses = {"200": 98, "429": 2}
    broken = open_result(statuses=statuses, lists=100, cpu=10.0, rss=201.0)
    closed = [
        closed_result("bare asyncio"),
        closed_result("adapter", rate_ratio=0.001),
        closed_result("adapter, JSON"),
    ]

    found = [*report.problems("adapter", [("adapter", SIZE, broken)], closed)]

    assert [each.partition(", must be at ")[0] for each in found] == [
        "4x8x2: requests without status 200: 0.02",
        "4x8x2: LISTs per request: 1",
        "4x8x2: CPU of the server, x bare: 100",
        "4x8x2: RSS, x before: 2.01",
        "closed loop: requests/s, x bare: 0.001",
        "closed loop: requests/s in protobuf, x JSON: 0.001",
    ]


def open_result(**changed) -> OpenResult:
    measured = {
        "statuses": {"200": 100},
        "answered": 100,
        "bare_answered": 100,
        "seconds": 45.0,
        "p50": 0.001,
        "p99": 0.002,
        "bare_p50": 0.001,
        "bare_p99": 0.001,
        "cpu": 0.1,
        "bare_cpu": 0.1,
        "prometheus_cpu": 0.1,
        "kubernetes_cpu": 0.1,
        "lists": 0,
        "watches": 0,
        "open_watches": 1,
        "reviews": 0,
        "queries": 100.0,
        "relist_requests": 0.0,
        "rss": 100.0,
        "rss_before": 100.0,
        "stall": 0.001,
        "counters": {},
    }
    return OpenResult(**(measured | changed))


def closed_result(name, *, rate_ratio=1.0) -> ClosedResult:
    return ClosedResult(
        name=name,
        requests_per_second=1000.0,
        cpu=0.0001,
        utilisation=0.9,
        client_utilisation=0.4,
        p50=0.001,
        p99=0.002,
        statuses={"200": 1000},
        rate_ratio=rate_ratio,
        cpu_ratio=1.0,
    )
