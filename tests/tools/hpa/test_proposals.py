"""The series of proposed replicas, compared with the real controller.

`python -m tools.hpa.proposals` compares 100 HPAs, and `--seed=26` others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.control_plane import build
from tools.hpa import proposals


@pytest.mark.slow
def test_the_series_are_what_the_controller_proposes_at_each_sync(
    programs: build.Programs, tmp_path: Path
) -> None:
    with proposals.running(tmp_path, programs, sync=10) as bed:
        result = bed.compare(12, sync=10)

    assert result.wrong == [], str(result)
    assert len(result.hpas) >= 8, str(result)
    assert len(result.values) >= 4, str(result)


def test_what_is_shown_is_compared_with_each_sync_that_it_may_be_of() -> None:
    syncs = [
        proposals.Sync(at=at, proposed=number)
        for at, number in ((100, 3), (114.2, 5), (129.2, None), (144.2, 3), (146.2, 4), (300, 3))
    ]

    def shown(at: float) -> list[int | None]:
        return [each.proposed for each in proposals.candidates(syncs, at, 15)]

    assert shown(109) == []  # it may be of before the first sync
    assert shown(112) == [3]
    assert shown(113) == [3, 5]  # the next one, which came early, has begun
    assert shown(124) == [3, 5]  # the adapter may not have looked since
    assert shown(126) == [5]
    assert shown(137) == []  # it failed
    assert shown(155) == [3, 4]
    assert shown(157) == [4]
    assert shown(170) == []  # none was logged in time
    assert shown(90) == []
