from __future__ import annotations

import pytest

from tools.bench import watch


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("workload", watch.WORKLOADS)
async def test_cache_is_measured(workload: str) -> None:
    row = await watch._measure(200, workload)

    assert row["seconds"] > 0
    assert row["selector"] > 0
