"""Which rules read the Prometheus in the pod: a real one, with a clock that the tests set."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapter import errors
from adapter.clients.prometheus import Prometheus
from adapter.server.series.embedded import Embedded, Filling
from rules import presets, teams
from rules.document.sources import DEFAULT, EMBEDDED, FILLING
from rules.findings import State
from rules.ruleset import RuleSet, load
from tools.fakes import prometheus as fakes
from tools.real import prometheus as real

SERIES = 'DCGM_FI_DEV_GPU_UTIL{UUID="1",exported_pod="a",exported_namespace="default"} 5'
DOWN = "http://127.0.0.1:9"
SETTLED = 20
"""Seconds after the start: 10 s of discovery, and two intervals of 5 s."""
LOAD = """
rules:
- seriesQuery: load
  resources: {overrides: {pod: {resource: pod}}}
  metricsQuery: 'avg_over_time(<<.Series>>{<<.LabelMatchers>>}[1m])'
"""
PRESETS = ("gpu-dcgm", "inference-vllm")
RULES = load([*((f"preset {each}", presets.text(each)) for each in PRESETS), ("rules.yaml", LOAD)])


class Clock:
    """Unix time that tests move forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def server(real_servers: None, tmp_path: Path) -> Iterator[real.Prometheus]:
    with real.run(tmp_path) as prometheus:
        prometheus.put(SERIES)
        yield prometheus


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def embedded(server, session, clock) -> Callable[..., Embedded]:
    def create(*, alone: bool = False, url: str = server.url, other: str = DOWN) -> Embedded:
        given = None if alone else Prometheus(session, other, timeout=90)
        client = Prometheus(session, url, timeout=90)
        return Embedded(client, interval=5.0, other=given, clock=clock)

    return create


def sources(routed: RuleSet) -> dict[str, str]:
    """Return the source by file and metric, of metrics that tests compare."""
    return {
        f"{rule.config.where.file} {rule.config.name.as_}".strip(): rule.config.source
        for rule in routed.rules
        if rule.config.name.as_
        in {"", "duty_cycle_current", "duty_cycle_over_time", "requests_waiting_current"}
    }


def given(**others: str) -> dict[str, str]:
    """Return the sources if all rules but `others`, of gpu-dcgm, read --prometheus-url."""
    known = {
        "preset gpu-dcgm duty_cycle_current": DEFAULT,
        "preset gpu-dcgm duty_cycle_over_time": DEFAULT,
        "preset inference-vllm requests_waiting_current": DEFAULT,
        "rules.yaml": DEFAULT,
    }
    return known | {f"preset gpu-dcgm {name}": source for name, source in others.items()}


async def test_a_rule_reads_it_once_its_window_is_full_if_the_preset_has_series(
    embedded, clock
) -> None:
    chosen = embedded()
    await chosen.observe()
    assert sources(chosen.route(RULES)) == given()
    assert chosen.route(RULES) is chosen.route(RULES)

    clock.ahead = SETTLED
    await chosen.observe()
    routed = chosen.route(RULES)
    assert sources(routed) == given(duty_cycle_current=EMBEDDED)
    assert chosen.intervals == {EMBEDDED: 5.0}
    assert routed is chosen.route(RULES)
    assert [rule.index for rule in routed.rules] == [rule.index for rule in RULES.rules]
    # What is kept of a rule belongs to one source.
    moved = {rule for rule in routed.rules if rule.config.source == EMBEDDED}
    assert moved
    assert moved.isdisjoint(RULES.rules)
    finding = chosen.check()
    assert finding.state is State.WARNING
    assert "rules that would read it read --prometheus-url until" in finding.fact

    clock.ahead = SETTLED + 180
    assert sources(chosen.route(RULES)) == given(
        duty_cycle_current=EMBEDDED, duty_cycle_over_time=EMBEDDED
    )
    assert chosen.check().state is not State.WARNING


async def test_after_a_restart_windows_fill_anew(embedded, server, clock, caplog) -> None:
    chosen = embedded()
    chosen.route(RULES)
    clock.ahead = SETTLED + 180
    await chosen.observe()
    assert sources(chosen.route(RULES))["preset gpu-dcgm duty_cycle_over_time"] == EMBEDDED

    server.stop()
    for _ in range(2):
        await chosen.observe()
    assert sources(chosen.route(RULES))["preset gpu-dcgm duty_cycle_current"] == EMBEDDED
    with caplog.at_level(logging.WARNING):
        await chosen.observe()
    assert sources(chosen.route(RULES)) == given()
    assert "does not respond since" in chosen.check().fact
    assert "the embedded Prometheus does not respond: " in caplog.text

    clock.ahead = 0
    server.start()
    await chosen.observe()
    assert sources(chosen.route(RULES)) == given()
    clock.ahead = SETTLED + 1
    await chosen.observe()
    assert sources(chosen.route(RULES)) == given(duty_cycle_current=EMBEDDED)


async def test_windows_fill_anew_after_it_did_not_respond(embedded, server, serve, clock) -> None:
    proxy = await serve(fakes.through(server.url))
    chosen = embedded(url=proxy.url)
    chosen.route(RULES)
    clock.ahead = 1000
    await chosen.observe()
    answers, proxy.behave = proxy.behave, fakes.says("{}", status=500)
    for _ in range(3):
        await chosen.observe()
    proxy.behave = answers
    await chosen.observe()
    assert sources(chosen.route(RULES)) == given()
    clock.ahead += SETTLED + 1
    assert sources(chosen.route(RULES)) == given(duty_cycle_current=EMBEDDED)


async def test_windows_stay_full_while_only_queries_are_answered(
    embedded, server, serve, clock
) -> None:
    def spoil(received: fakes.Received) -> fakes.Behaviour | None:
        return fakes.says("{}", status=503) if received.path.endswith("/runtimeinfo") else None

    proxy = await serve(fakes.through(server.url))
    chosen = embedded(url=proxy.url)
    chosen.route(RULES)
    clock.ahead = 1000
    await chosen.observe()
    before = sources(chosen.route(RULES))
    proxy.behave = fakes.through(server.url, spoil=spoil)
    for _ in range(4):
        await chosen.observe()

    assert sources(chosen.route(RULES)) == before != given()


async def test_alone_it_answers_no_query_whose_window_is_not_full(embedded, clock) -> None:
    chosen = embedded(alone=True)
    assert {*sources(chosen.route(RULES)).values()} == {FILLING}
    await chosen.observe()
    clock.ahead = SETTLED + 60
    assert sources(chosen.route(RULES)) == given(duty_cycle_over_time=FILLING)
    assert "rules that would read it have no value until" in chosen.check().fact

    client = Filling(chosen).for_team(None)
    with pytest.raises(
        errors.WindowNotFull, match=r"in the pod has data since .*, and the query reads 180 s: it"
    ):
        await client.query("avg_over_time(a[3m:15s])")
    clock.ahead = SETTLED + 180
    assert sources(chosen.route(RULES)) == given()
    assert chosen.intervals == {DEFAULT: 5.0, teams.SOURCE: 5.0}


async def test_a_preset_reads_it_only_with_all_targets_of_the_other_one(
    embedded, server, clock, tmp_path
) -> None:
    def targets(count: int) -> list[str]:
        return [SERIES.replace("{", f'{{instance="{each}",') for each in range(count)]

    (tmp_path / "other").mkdir()
    with real.run(tmp_path / "other") as other:
        other.put(*targets(3))
        server.put(*targets(2))
        server.end(SERIES)
        chosen = embedded(other=other.url)
        chosen.route(RULES)
        clock.ahead = SETTLED + 180
        await chosen.observe()
        assert sources(chosen.route(RULES)) == given()
        assert "lacks targets (gpu-dcgm: 2 of 3)" in chosen.check().fact

        server.put(*targets(3))
        clock.ahead += 30
        await chosen.observe()
        complete = given(duty_cycle_current=EMBEDDED, duty_cycle_over_time=EMBEDDED)
        assert sources(chosen.route(RULES)) == complete

        # The other one forgets targets that are gone a little later.
        server.end(targets(3)[2])
        for ahead, expected in ((30, complete), (330, given())):
            clock.ahead += ahead
            await chosen.observe()
            assert sources(chosen.route(RULES)) == expected
            lacks = "lacks targets (gpu-dcgm: 2 of 3)" in chosen.check().fact
            assert lacks is (expected != complete)
