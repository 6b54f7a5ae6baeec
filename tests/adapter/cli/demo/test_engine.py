"""The simulated engine: its limits, and its values beside those of a real vLLM under the same load.

The recordings are of `python -m tools.model_server --record`: one vLLM 0.18 without a GPU, whose
batch has four requests, under sixteen clients.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.cli.demo.engine import BOUNDS, Engine, Model
from adapter.cli.demo.serving import SERVERS
from tools.model_server.server import MAX_RUNNING
from tools.model_server.story import LIKE_VLLM, MANY, PROMPT, TOKENS
from tools.real import prometheus

RECORDED = Path(__file__).parents[3] / "fixtures" / "recorded"


def recorded(state: str) -> dict[str, float]:
    """Return the values of a recording by the name of the series, added up over labels."""
    text = (RECORDED / f"vllm-0.18-{state}.prom").read_text()
    found: dict[str, float] = {}
    for labels, value in prometheus.samples(
        line for line in text.splitlines() if line.startswith("vllm:") and "_bucket" not in line
    ):
        name = labels["__name__"].removeprefix("vllm:")
        found[name] = found.get(name, 0.0) + value
    return found


def asked_by(clients: int, *, until: float) -> Engine:
    """Return an engine to which each client sent a request again when the last was answered."""
    engine = Engine(LIKE_VLLM)
    while engine.now < until:
        engine.submit(clients - engine.waiting - engine.running)
        engine.advance(engine.now + 1e-6)
    return engine


def test_a_loaded_engine_has_the_load_of_a_real_one() -> None:
    engine, real = asked_by(MANY, until=60), recorded("loaded")

    assert (engine.waiting, engine.running) == (MANY - MAX_RUNNING, MAX_RUNNING)
    assert engine.waiting == real["num_requests_waiting"]
    assert engine.running == real["num_requests_running"]
    # A request has one block until its 128th token, then two.
    uses = {round(blocks * MAX_RUNNING / 15, 6) for blocks in (1, 2)}
    assert round(real["kv_cache_usage_perc"], 6) in uses
    assert round(engine.cache_use, 6) in uses


def test_requests_wait_for_the_same_share_of_their_time_as_in_a_real_engine() -> None:
    engine, before, after = asked_by(MANY, until=60), recorded("loaded"), recorded("after")

    waited, whole = (
        after[f"{name}_sum"] - before[f"{name}_sum"]
        for name in ("request_queue_time_seconds", "e2e_request_latency_seconds")
    )
    assert engine.queue_time.total / engine.whole_request.total == pytest.approx(
        waited / whole, rel=0.2
    )


def test_a_request_has_the_tokens_that_a_real_engine_counts() -> None:
    engine, real = asked_by(1, until=60), recorded("after")

    # The warm-up had fewer.
    finished = real["request_success_total"] - 1
    tokens = real["generation_tokens_total"] - 4
    assert tokens == finished * TOKENS
    assert engine.answer_tokens // engine.finished == TOKENS
    assert (real["prompt_tokens_total"] - len("warm-up")) / finished == len(PROMPT)


def test_an_idle_engine_is_as_empty_as_a_real_one() -> None:
    engine = Engine(LIKE_VLLM)
    engine.advance(10)

    for state in ("idle", "after"):
        real = recorded(state)
        assert real["num_requests_waiting"] == real["num_requests_running"] == 0
        assert real["kv_cache_usage_perc"] == 0
    assert (engine.waiting, engine.running, engine.cache_use) == (0, 0, 0)


@pytest.mark.slow
def test_arrivals_below_the_capacity_never_wait_long_and_above_it_pile_up_to_a_bound() -> None:
    model = Model()
    below, above = Engine(model), Engine(model)
    below.rate, above.rate = 0.8 * model.capacity, 2 * model.capacity

    below.advance(100)
    above.advance(1000)

    assert below.waiting <= 1
    assert below.finished == pytest.approx(0.8 * model.capacity * 100, rel=0.1)
    assert 1000 - model.batch <= above.waiting <= 1000
    assert above.running == model.batch


def test_the_cache_bounds_the_batch() -> None:
    small = Model(blocks=40, block_tokens=16, prompt_tokens=128, answer_tokens=32)
    engine = Engine(small)
    engine.submit(32)

    engine.advance(0.01)

    assert engine.running == 4
    engine.advance((small.answer_tokens - 1) * small.step(4) - 0.001)
    assert engine.cache_use == 1


@pytest.mark.parametrize("name", SERVERS)
def test_the_histograms_of_a_server_count_every_request(name: str) -> None:
    engine = asked_by(8, until=30)

    text = SERVERS[name].render(engine)

    assert text.count("# TYPE") == text.count("# HELP")
    for labels, value in prometheus.samples(
        line for line in text.splitlines() if "_bucket" in line and 'le="+Inf"' in line
    ):
        if "e2e" in labels["__name__"]:
            assert value == engine.finished
    assert len(engine.first_token.counts) == len(BOUNDS) + 1
