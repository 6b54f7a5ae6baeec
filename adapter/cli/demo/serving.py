"""Model servers in the pods of the fleet: their engines, and what they expose.

`servers.csv` has the series: what each reports is a property of the engine times a factor. Names
and labels are those of the servers' sources; the buckets of histograms are fewer.
"""

from __future__ import annotations

import csv
import importlib.resources
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from adapter.cli.demo.engine import BOUNDS, Engine, Histogram, Model
from adapter.cli.demo.fleet import Fleet, Gpu
from adapter.cli.demo.labels import label_set

Page = Callable[[float], str]
"""Returns what is exposed some seconds after the start."""

MODEL_NAME = "llama-3-8b"
DEFAULT_MODEL = Model()
_FULL = 1.2
"""Requests in the second in which a GPU is busy all the time, as a share of what it can answer."""
_BEFORE = 60
"""Seconds for which the engines have run when the demo starts."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a server, or one histogram."""

    name: str
    help: str
    type: str
    reading: str
    """Property of Engine."""
    factor: float
    labels: Mapping[str, str]
    """Labels that only this series has."""

    def lines(self, engine: Engine, labels: Mapping[str, str]) -> Iterator[str]:
        """Yield the samples; `labels` are those of every series of the server."""
        reading = getattr(engine, self.reading)
        every = {**labels, **self.labels}
        if not isinstance(reading, Histogram):
            yield f"{self.name}{label_set(every)} {reading * self.factor:.10g}"
            return
        counted = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), reading.counts, strict=True):
            counted += count
            yield f"{self.name}_bucket{label_set({**every, 'le': bound})} {counted}"
        yield f"{self.name}_count{label_set(every)} {counted}"
        yield f"{self.name}_sum{label_set(every)} {reading.total:.10g}"


@dataclass(frozen=True, slots=True)
class Server:
    """A kind of model server."""

    title: str
    preset: str
    series: tuple[Series, ...]
    labels: Mapping[str, str]

    def render(self, engine: Engine) -> str:
        """Return the exposition of one server.

        https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
        """
        lines: list[str] = []
        described = ""
        for series in self.series:
            if series.name != described:
                described = series.name
                lines.append(f"# HELP {series.name} {series.help}")
                lines.append(f"# TYPE {series.name} {series.type}")
            lines.extend(series.lines(engine, self.labels))
        return "\n".join(lines) + "\n"


def _series(server: str) -> tuple[Series, ...]:
    text = importlib.resources.files(__package__).joinpath("servers.csv").read_text("utf-8")
    return tuple(
        Series(
            row["series"],
            row["help"],
            row["type"],
            row["reading"],
            float(row["factor"]),
            dict(pair.split("=") for pair in row["labels"].split()),
        )
        for row in csv.DictReader(text.splitlines())
        if row["server"] == server
    )


SERVERS: Mapping[str, Server] = {
    "vllm": Server(
        "vLLM", "inference-vllm", _series("vllm"), {"model_name": MODEL_NAME, "engine": "0"}
    ),
    "sglang": Server(
        "SGLang",
        "inference-sglang",
        _series("sglang"),
        {"model_name": MODEL_NAME, "engine_type": "unified", "tp_rank": "0"},
    ),
    "triton": Server(
        "Triton with TensorRT-LLM",
        "inference-triton",
        _series("triton"),
        {"model": "tensorrt_llm", "version": "1"},
    ),
}


class Serving:
    """The engine of a server in one pod, asked as much as its GPU is busy."""

    def __init__(self, server: Server, model: Model = DEFAULT_MODEL) -> None:
        self._server = server
        self._engine = Engine(model)

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


def pages(fleet: Fleet, server: Server, model: Model = DEFAULT_MODEL) -> Mapping[str, Page]:
    """Return the page of the server in each pod that uses GPUs, by the name of the pod."""

    def page(gpu: Gpu) -> Page:
        serving = Serving(server, model)
        return lambda seconds: serving.page(
            seconds + _BEFORE, lambda second: fleet.read(gpu, second).utilization
        )

    first = {gpu.pod.name: gpu for gpu in reversed(fleet.gpus) if gpu.pod is not None}
    return {pod: page(gpu) for pod, gpu in first.items()}
