"""`replay hpa` without a past: what is refused before it is read, and the notes."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.cli.doctor import history, replay
from adapter.cli.doctor.history import Past
from adapter.cli.doctor.replay import ReplayOptions
from rules.errors import UnreadableError
from tests.rules.hpa import documents

HPA = documents.hpa(documents.pods_metric())


class Client:
    """Returns the HPA, whatever is read."""

    async def run(self, _: object) -> object:
        return HPA


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"maximum": 0}, "must not be above"),
        ({"targets": ("1",), "metric": "other"}, "give one of the metrics duty_cycle_current"),
    ],
)
async def test_what_cannot_be_replayed_is_refused_before_the_past_is_read(
    options: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(history, "read")

    with pytest.raises(UnreadableError, match=problem):
        await replay.run(Client(), None, "default", "gpu-hpa", ReplayOptions(**options))


def test_without_a_metric_that_decides_the_notes_name_none() -> None:
    past = Past(
        hpa=HPA,
        history=(),
        metrics=HPA.metrics,
        totals=(False,),
        delays=(0.0,),
        queries=3,
        replicas_known=True,
        pods="the pods are known",
        sources=(),
        late=False,
        partial="",
    )

    facts, startup = replay.notes(past, [], "60 s", 0.0)

    assert facts.startswith("Facts: the replicas are those that kube-state-metrics recorded; the")
    assert startup == "A new pod has a value after 60 s"
