"""Model servers in the pods of the fleet: their engines, and what they expose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adapter.cli.demo import series
from adapter.cli.demo.engine import Engine, Model
from adapter.cli.demo.fleet import Fleet, Gpu
from adapter.cli.demo.series import DemoSeries

Page = Callable[[float], str]
"""Returns what is exposed some seconds after the start."""

_LLAMA = {"model_name": "llama-3-8b"}
_FULL = 1.2
"""Requests in the second in which a GPU is busy all the time, as a share of what it can answer."""
_BEFORE = 60
"""Seconds for which the engines have run when the demo starts."""


@dataclass(frozen=True, slots=True)
class DemoServer:
    """A kind of model server."""

    title: str
    preset: str
    series: tuple[DemoSeries, ...]
    labels: Mapping[str, str]

    def render(self, engine: Engine) -> str:
        """Return the exposition of one server."""
        return series.render(self.series, [(engine, self.labels)])


SERVERS: Mapping[str, DemoServer] = {
    "vllm": DemoServer("vLLM", "inference-vllm", series.of("vllm"), {**_LLAMA, "engine": "0"}),
    "sglang": DemoServer(
        "SGLang",
        "inference-sglang",
        series.of("sglang"),
        {**_LLAMA, "engine_type": "unified", "tp_rank": "0"},
    ),
    "triton": DemoServer(
        "Triton with TensorRT-LLM",
        "inference-triton",
        series.of("triton"),
        {"model": "tensorrt_llm", "version": "1"},
    ),
}


class Serving:
    """The engine of a server in one pod, asked as much as its GPU is busy."""

    def __init__(self, server: DemoServer) -> None:
        self._server = server
        self._engine = Engine(Model())

    def page(self, seconds: float, busy: Callable[[int], float]) -> str:
        """Return what it exposes after so many seconds.

        `busy` is the per cent to which the GPU is used in a second; at 100, more requests arrive
        than the engine can answer.
        """
        engine = self._engine
        while engine.now < seconds:
            second = int(engine.now)
            engine.rate = busy(second) / 100 * _FULL * engine.model.capacity
            engine.advance(min(seconds, second + 1))
        return self._server.render(engine)


def pages(fleet: Fleet, server: DemoServer) -> Mapping[str, Page]:
    """Return the page of the server in each pod that uses GPUs, by the name of the pod."""

    def page(gpu: Gpu) -> Page:
        serving = Serving(server)
        return lambda seconds: serving.page(
            seconds + _BEFORE, lambda second: fleet.read(gpu, second).utilization
        )

    first = {gpu.pod.name: gpu for gpu in reversed(fleet.gpus) if gpu.pod is not None}
    return {pod: page(gpu) for pod, gpu in first.items()}
