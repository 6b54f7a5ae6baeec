"""A Prometheus in the pod beside that of --prometheus-url, in the whole server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.presets import api
from tools.presets.api import GROUP
from tools.real import prometheus
from tools.real.prometheus import Prometheus
from tools.waiting import until

SERIES = 'DCGM_FI_DEV_GPU_UTIL{{UUID="1",exported_pod="a",exported_namespace="default"}} {}'
INTERVAL = "--embedded-prometheus-interval=100ms"
PODS = f"{GROUP}/namespaces/default/pods/*"
CURRENT, OVER_TIME = f"{PODS}/duty_cycle_current", f"{PODS}/duty_cycle_over_time"


@pytest.fixture
def servers(real_servers, tmp_path: Path) -> Iterator[tuple[Prometheus, Prometheus]]:
    """The Prometheus of --prometheus-url, and the one in the pod, each with a value of its own."""
    folders = [tmp_path / name for name in ("given", "embedded")]
    for each in folders:
        each.mkdir()
    with prometheus.run(folders[0]) as given, prometheus.run(folders[1]) as embedded:
        given.put(SERIES.format(1))
        embedded.put(SERIES.format(2))
        yield given, embedded


@pytest.mark.slow
async def test_presets_read_it_while_it_responds_and_the_given_one_otherwise(
    servers, tmp_path: Path
) -> None:
    given, embedded = servers
    flags = [f"--embedded-prometheus-url={embedded.url}", INTERVAL, "--preset=gpu-dcgm"]
    seen: list[int] = []
    async with api.serving(tmp_path, given.url, api.manifests(["default/a"]), flags) as served:

        async def reads(value: int) -> bool:
            for server, own in zip(servers, (1, 2), strict=True):
                if server is not stopped:
                    server.put(SERIES.format(own))
            status, document = await served.get(CURRENT)
            if status == 200:
                seen.append(int(document["items"][0]["value"]))
            return status == 200 and seen[-1] == value

        stopped: Prometheus | None = None
        await until(lambda: reads(1))
        await until(lambda: reads(2))

        async def has_one_over_time() -> bool:
            given.put(SERIES.format(1))
            return await served.pods("default", "duty_cycle_over_time") == {"a": 1}

        # Its data do not cover three minutes, and those of the other one have a step each 15 s.
        await until(has_one_over_time)

        stopped = given
        given.stop()
        for _ in range(10):
            await until(lambda: reads(2))
            await asyncio.sleep(0.2)
        given.start()
        stopped = embedded
        embedded.stop()
        await until(lambda: reads(1))
        async with served.session.get(f"{served.url}/readyz?verbose", ssl=False) as response:
            assert "[!]prometheus-embedded degraded: does not respond" in await response.text()

    # It never alternates.
    assert [each for i, each in enumerate(seen) if i == 0 or seen[i - 1] != each] == [1, 2, 1]


@pytest.mark.slow
async def test_alone_it_is_read_by_all_rules_and_says_what_it_has_no_data_for(
    servers, tmp_path: Path
) -> None:
    _, embedded = servers
    flags = [f"--embedded-prometheus-url={embedded.url}", INTERVAL, "--preset=gpu-dcgm"]
    async with api.serving(tmp_path, "", api.manifests(["default/a"]), flags) as served:

        async def has_a_value() -> bool:
            embedded.put(SERIES.format(2))
            return (await served.get(CURRENT))[0] == 200

        async def says_since_when() -> bool:
            status, document = await served.get(OVER_TIME)
            assert status == 500
            causes = {each["reason"]: each["message"] for each in document["details"]["causes"][1:]}
            return "Prometheus in the pod has data since" in causes["WindowNotFull"]

        await until(says_since_when)
        await until(has_a_value)
        assert await served.pods("default", "duty_cycle_current") == {"a": 2}
        assert (await served.get(OVER_TIME))[0] == 500
