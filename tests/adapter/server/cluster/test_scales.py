"""Which scales are read, and how often; time is that of the test."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from adapter import bounds, errors
from adapter.server.cluster.scales import QPS, Scales, ScaleTarget
from rules.kinds import GroupResource, Kinds
from rules.selectors import selectors
from tests.world import group

SETS = GroupResource("leaderworkerset.x-k8s.io", "leaderworkersets")
LEADERS = "leaderworkerset.sigs.k8s.io/name=llm,leaderworkerset.sigs.k8s.io/worker-index=0"
LLM = ScaleTarget(SETS, "default", "llm")
PATH = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets/llm/scale"
KINDS = Kinds.of(
    [group(SETS.group, "leaderworkersets LeaderWorkerSet")],
    [SETS, GroupResource("example.com", "absent")],
)


class Bed:
    """Scales that an API server answers which the test is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reads: Counter[str] = Counter()
        self.answer: Any = {"status": {"selector": LEADERS}}
        api: Any = self
        self.scales = Scales(
            api, resources=[SETS], kinds=lambda: KINDS, clock=lambda: self.now, sleep=self._sleep
        )
        self._end, self._ended = 0.0, asyncio.Event()

    async def get(self, path: str) -> Any:
        self.reads[path] += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def _sleep(self, seconds: float) -> None:
        if self.now >= self._end:
            self._ended.set()
            await asyncio.Event().wait()
        self.now += seconds

    async def run(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._end = self.now + seconds
        self._ended.clear()
        running = asyncio.create_task(self.scales.run())
        async with asyncio.timeout(90):
            await self._ended.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    @property
    def selected(self) -> str:
        return str(self.scales.selected(LLM) or "")


async def test_a_scale_is_read_at_once_and_then_each_minute() -> None:
    bed = Bed()
    bed.scales.want({LLM: False})

    await bed.run(1)
    assert bed.reads == {PATH: 1}

    await bed.run(180)
    assert bed.reads == {PATH: 4}


async def test_workloads_have_all_pods_of_a_group_and_the_controller_its_leaders() -> None:
    bed = Bed()
    bed.scales.want({LLM: False})

    await bed.run(1)

    assert bed.selected == LEADERS
    pods = bed.scales.pods(SETS, "default")
    assert {name: str(each) for name, each in pods.items()} == {
        "llm": "leaderworkerset.sigs.k8s.io/name=llm"
    }


async def test_a_scale_whose_pods_have_no_value_is_read_again_after_five_seconds() -> None:
    bed = Bed()
    bed.scales.want({LLM: False})
    await bed.run(1)
    bed.answer = {"status": {"selector": "app=new"}}

    bed.scales.want({LLM: True})
    await bed.run(5)

    assert bed.selected == "app=new"
    assert bed.reads == {PATH: 2}


async def test_a_scale_that_is_not_wanted_any_more_is_forgotten() -> None:
    bed = Bed()
    bed.scales.want({LLM: False})
    await bed.run(1)

    bed.scales.want({})

    assert bed.selected == ""
    await bed.run(120)
    assert bed.reads == {PATH: 1}


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (errors.Refused("not found", status=404), ""),
        ({"status": {}}, ""),
        (errors.Refused("forbidden", status=403), LEADERS),
        (errors.TimedOut("slow"), LEADERS),
        ({"status": [1]}, LEADERS),
        ({"status": {"selector": "a in ("}}, LEADERS),
        ({"status": {"selector": f"a in ({','.join(map(str, range(99)))})"}}, LEADERS),
    ],
    ids=str,
)
async def test_after_a_failure_the_last_selector_counts(
    answer: object, kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    bed = Bed()
    bed.scales.want({LLM: False})
    await bed.run(1)
    bed.answer = answer

    await bed.run(180)

    assert bed.selected == kept
    warned = caplog.text.count("scales of leaderworkersets.leaderworkerset.x-k8s.io cannot be read")
    assert warned == bool(kept)


@pytest.mark.parametrize("text", [f"a in ({',' * 100_000})", "a" * 100_000], ids=len)
async def test_a_long_selector_is_refused_before_it_is_parsed(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(selectors, "parse", parsed.append)
    bed = Bed()
    bed.answer = {"status": {"selector": text}}
    bed.scales.want({LLM: False})

    await bed.run(1)

    assert parsed == []
    assert "default/llm: its selector has 1000" in caplog.text


async def test_a_scale_that_is_dropped_before_its_read_begins_ends_nothing() -> None:
    bed = Bed()
    other = LLM._replace(name="other")
    bed.scales.want({LLM: False, other: False})

    async def drop_llm(seconds: float) -> None:
        await bed._sleep(seconds)
        asyncio.get_running_loop().call_soon(bed.scales.want, {other: False})

    bed.scales._sleep = drop_llm
    await bed.run(1)

    assert bed.reads == {PATH.replace("llm", "other"): 1}


async def test_a_defect_in_one_read_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed()
    bed.scales.want({LLM: False})
    bed.answer = ZeroDivisionError()
    await bed.run(1)
    bed.answer = {"status": {"selector": "app=new"}}

    await bed.run(60)

    assert "default/llm: its scale cannot be read" in caplog.text
    assert bed.selected == "app=new"


async def test_a_selector_of_leader_labels_alone_selects_no_other_pods() -> None:
    bed = Bed()
    bed.answer = {"status": {"selector": "leaderworkerset.sigs.k8s.io/worker-index=0"}}
    bed.scales.want({LLM: False})

    await bed.run(1)

    assert str(bed.scales.pods(SETS, "default")["llm"]) == bed.selected != ""


async def test_many_scales_are_read_at_the_stated_rate_and_shared_by_namespaces() -> None:
    bed = Bed()
    greedy = {ScaleTarget(SETS, "a-greedy", f"x{each}"): True for each in range(2 * bounds.SCALES)}
    bed.scales.want({**greedy, LLM: False})

    await bed.run(10)
    assert bed.reads.total() == 10 * QPS

    await bed.run(60)
    assert len(bed.reads) == bounds.SCALES
    assert bed.reads[PATH] >= 1
