from __future__ import annotations

import pytest

from tools.bench import relist
from tools.real import prometheus


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("operation", relist.OPERATIONS)
async def test_operation_is_measured(operation: str, tmp_path) -> None:
    with prometheus.run(tmp_path) as running:
        running.write(relist._series(0, 100))

        row = await relist._measure(operation, running.url, running.pid)

    assert row["bytes"] > 0
