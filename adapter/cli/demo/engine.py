"""Simulation of a model server's engine: requests wait, run in one batch, and fill the KV cache.

As in vLLM (continuous batching), each step adds a token to every running request, and waiting
requests join between two steps. Without a clock: `Engine.advance` moves the time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of histogram buckets in seconds."""
_MAX_WAITING = 1000
"""Further requests are refused, as by a gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """How much fits into an engine, how fast it is, and what it is asked."""

    batch: int = 32
    """Requests that run at once."""
    blocks: int = 640
    """Blocks of the KV cache."""
    block_tokens: int = 16
    prompt_tokens: int = 128
    answer_tokens: int = 128
    step_seconds: float = 0.02
    """Duration of a step with one request."""
    seconds_per_request: float = 0.0005
    """What each further request of the batch adds to it."""

    def step(self, running: int) -> float:
        """Return the seconds of a step with so many requests."""
        return self.step_seconds + self.seconds_per_request * (running - 1)

    def needed(self, answered: int) -> int:
        """Return the blocks of a request with so many tokens answered."""
        return -(-(self.prompt_tokens + answered) // self.block_tokens)

    @property
    def capacity(self) -> float:
        """Requests per second of a full batch."""
        return self.batch / (self.answer_tokens * self.step(self.batch))


@dataclass(slots=True)
class Histogram:
    """Counts of seconds by BOUNDS, the last of them without a bound."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.total += seconds * times


@dataclass(slots=True)
class _Request:
    arrived: float
    answered: int = 0


class Engine:
    """One engine. Times are seconds since its start."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rate = 0.0
        """Requests per second that arrive from now on."""
        self.now = 0.0
        self.prompt_tokens = 0
        self.answer_tokens = 0
        self.finished = 0
        self.first_token = Histogram()
        self.between_tokens = Histogram()
        self.whole_request = Histogram()
        self.queue_time = Histogram()
        self._part = 0.0
        """What of the next request has arrived."""
        self._waiting: deque[float] = deque()
        """When each arrived."""
        self._running: list[_Request] = []

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of requests in the batch."""
        return len(self._running)

    @property
    def cache_use(self) -> float:
        """Used share of the KV cache, 0 to 1."""
        used = sum(self.model.needed(each.answered) for each in self._running)
        return used / self.model.blocks

    def submit(self, requests: int) -> None:
        """Add requests that arrive now."""
        free = _MAX_WAITING - len(self._waiting)
        self._waiting.extend([self.now] * min(requests, free))

    def advance(self, to: float) -> None:
        """Run until `to`, or until the end of the step in which that is."""
        while self.now < to:
            self._admit()
            if self._running:
                self._pass(self.model.step(len(self._running)))
                self._answer()
            else:
                self._pass(min(to - self.now, (1 - self._part) / self.rate if self.rate else to))

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self._part += self.rate * seconds
        # A tenth of a nanosecond: the part of a request for which `advance` waits is not exact.
        arrived = int(self._part + 1e-10)
        self._part -= arrived
        self.submit(arrived)

    def _admit(self) -> None:
        """Let waiting requests join the batch, while the KV cache has room for whole answers."""
        model = self.model
        each = model.needed(model.answer_tokens)
        while (
            self._waiting
            and len(self._running) < model.batch
            and (len(self._running) + 1) * each <= model.blocks
        ):
            arrived = self._waiting.popleft()
            self.queue_time.observe(self.now - arrived)
            self._running.append(_Request(arrived))

    def _answer(self) -> None:
        """Give each running request its next token."""
        model = self.model
        step = model.step(len(self._running))
        self.answer_tokens += len(self._running)
        for request in self._running:
            request.answered += 1
            if request.answered == 1:
                self.prompt_tokens += model.prompt_tokens
                self.first_token.observe(self.now - request.arrived)
            else:
                self.between_tokens.observe(step)
            if request.answered == model.answer_tokens:
                self.finished += 1
                self.whole_request.observe(self.now - request.arrived)
        self._running = [each for each in self._running if each.answered < model.answer_tokens]
