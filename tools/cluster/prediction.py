"""Compares what `explain hpa` predicts with what the HPA controller does, sync by sync.

A thread reads the HPA and what the controller reads, a few times between two syncs. A change of the
status of the HPA shows that there was a sync since the last poll. Then one of the last two polls
with the same replicas and the same values must have predicted `desiredReplicas`. Where the inputs
stay the same for longer than a sync takes, the prediction must be true, too.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from rules import quantity
from rules.errors import UnreadableError
from rules.hpa import decision, reading
from rules.hpa.decision import Decision, History
from rules.hpa.reading import ApiReply, ApiRequest, Observation, Steps
from tools.cluster.hpa import source_field
from tools.control_plane.client import Client

_POLL_SECONDS = 0.25
_SYNC_SECONDS = 2.3
"""Longest time between two syncs: two seconds, and what a sync takes."""
_MAX_UNMATCHED = 0.4
"""Share of syncs whose values may differ from those of all polls around them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a sync wrote."""

    current: int
    desired: int
    values: tuple[int | None, ...]
    """Of each metric in thousandths; None for `<unknown>`."""
    document: Any = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """One poll: the status before it, and what it predicts."""

    time: float
    status: Status
    observation: Observation
    predicted: frozenset[int]
    """One number, or two where the history matters and the times of the syncs are not known."""

    @property
    def values(self) -> tuple[int | None, ...]:
        """Return the current value of each metric, None where it has none."""
        proposals = self.observation.proposals
        return tuple(None if each.replicas is None else each.current for each in proposals)

    @property
    def proposed(self) -> tuple[int | None, ...]:
        """Return the replicas that each metric asks for, None where it has no value."""
        return tuple(each.replicas for each in self.observation.proposals)

    @property
    def inputs(self) -> tuple[object, ...]:
        """Everything that the prediction follows from."""
        observed = self.observation
        return self.status.document, observed.scale, observed.pods, self.values, self.predicted


class Predictions:
    """Polls an HPA of namespace default in a thread until `stop`."""

    def __init__(self, client: Client, name: str) -> None:
        self.syncs = self.exact = self.quiet = 0
        """Syncs that changed the status; those with one predicted number; quiet periods."""
        self.mismatches: list[str] = []
        self.unmatched: list[str] = []
        self._client = client
        self._name = name
        self._documents: dict[str, Any] = {}
        self._document: Any = None
        self._polls: list[Poll] = []
        self._recommended: list[tuple[float, int]] = []
        self._recommended_by_syncs: list[tuple[float, int]] = []
        self._changes: list[tuple[float, int]] = []
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="predictions", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stopping.set()
        self._thread.join()

    def check(self) -> str:
        """Return a summary. Raises AssertionError if a sync was not predicted."""
        self.stop()
        if self._error is not None:
            raise self._error
        summary = (
            f"predicted {self.syncs - len(self.mismatches) - len(self.unmatched)} of {self.syncs} "
            f"syncs that changed the status, {self.exact} of them by a single number, and "
            f"{self.quiet} periods without a change; {len(self.unmatched)} had values that no poll "
            "saw"
        )
        assert self.mismatches == [], "\n".join((summary, *self.mismatches))
        assert self.syncs > 2, summary
        assert len(self.unmatched) <= _MAX_UNMATCHED * self.syncs, "\n".join(
            (summary, *self.unmatched)
        )
        return summary

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            try:
                self._poll()
            except UnreadableError:
                pass  # the HPA does not exist yet, or the API server does not answer
            except Exception as error:  # noqa: BLE001 - raised again by `check`
                self._error = error
                return

    def _poll(self) -> None:
        started = time.time()
        observation = self._read(reading.read("default", self._name, time.time))
        status = _status(self._document)
        if not self._polls:
            self._recommended.append((started, observation.scale.spec))
        elif status.document != self._polls[-1].status.document:
            self._compare(status, started)
        if "conditions" not in status.document:  # the first sync recommends what there is
            self._recommended_by_syncs = [(started, observation.scale.spec)]
        now = time.time()
        decisions = list(self._decisions(observation, now))
        if decisions[0].recommended is not None:
            self._recommended.append((now, decisions[0].recommended))
        poll = Poll(
            time=started,
            status=status,
            observation=observation,
            predicted=frozenset(
                # After a sync without a recommendation, the status keeps the last number.
                status.desired if each.inactive and observation.proposals else each.low
                for each in decisions
            ),
        )
        self._polls = [each for each in self._polls if each.time > started - 2 * _SYNC_SECONDS]
        self._polls.append(poll)
        self._check_quiet(poll)

    def _read(self, steps: Steps[Observation]) -> Observation:
        reply: ApiReply | None = None
        try:
            while True:
                request = steps.send(reply) if reply is not None else next(steps)
                reply = self._get(request)
                if "/horizontalpodautoscalers/" in request.path:
                    self._document = reply.document
        except StopIteration as stop:
            observation: Observation = stop.value
            return observation

    def _get(self, request: ApiRequest) -> ApiReply:
        path = f"{request.path}?{urlencode(request.params)}"
        is_discovery = "namespaces" not in request.path
        if is_discovery and path in self._documents:
            return ApiReply(document=self._documents[path])
        try:
            response = self._client.request("GET", path)
        except OSError as error:
            return ApiReply(status=0, message=str(error))
        if response.status != 200:
            return ApiReply(status=response.status, message=response.body.decode())
        if is_discovery:
            self._documents[path] = response.document
        return ApiReply(document=response.document)

    def _decisions(self, observation: Observation, now: float) -> Iterator[Decision]:
        """Yield what is desired for the histories that the controller may have."""
        hpa, current, proposals = observation.hpa, observation.scale.spec, observation.proposals
        for recommended, moment in (
            (self._recommended, now),
            (self._recommended, now + _SYNC_SECONDS),
            (self._recommended_by_syncs, now),
        ):
            history = History(recommendations=tuple(recommended), changes=tuple(self._changes))
            yield decision.decide(hpa, current, proposals, now=moment, history=history)

    def _compare(self, status: Status, now: float) -> None:
        """Compare the status that a sync just wrote with the polls before it."""
        if status.desired != status.current:
            self._changes.append((now, status.desired - status.current))
        before = self._polls[-1].status
        if (status.current, status.desired, status.values) == (
            before.current,
            before.desired,
            before.values,
        ):
            return  # only conditions changed
        self.syncs += 1
        recent = [each for each in self._polls if each.time > now - _SYNC_SECONDS]
        fitting = [
            each
            for each in recent
            if each.observation.scale.spec == status.current
            # Without replicas, the status has no meaningful average.
            and (each.values == status.values or not status.current)
        ][-2:]
        if fitting and not status.current and fitting[-1].proposed != recent[-1].proposed:
            fitting = []  # the value may have changed between the last poll and the sync
        predicted = frozenset[int]().union(*(each.predicted for each in fitting))
        line = (
            f"{status} after {[(each.observation.scale.spec, each.values) for each in recent]}"
            f": predicted {sorted(predicted)}"
        )
        if not fitting:
            self.unmatched.append(line)
        elif status.desired not in predicted:
            self.mismatches.append(line)
        else:
            self.exact += len(predicted) == 1
            proposals = fitting[-1].observation.proposals
            numbers = [each.replicas for each in proposals if each.replicas is not None]
            if numbers:
                self._recommended_by_syncs.append((now, max(numbers)))

    def _check_quiet(self, poll: Poll) -> None:
        """Check the prediction if no input changed for longer than a sync takes."""
        same = [each for each in self._polls if each.inputs == poll.inputs]
        if same != self._polls[-len(same) :] or poll.time - same[0].time < _SYNC_SECONDS:
            return
        self.quiet += 1
        if poll.status.desired not in poll.predicted:
            self.mismatches.append(f"{poll.status} is quiet: predicted {sorted(poll.predicted)}")
        self._polls = [poll]


def _status(document: Any) -> Status:
    status, specs = document.get("status") or {}, document["spec"]["metrics"]
    current = status.get("currentMetrics") or ()
    return Status(
        current=status.get("currentReplicas", 0),
        desired=status.get("desiredReplicas", 0),
        values=tuple(_values(specs, current)),
        document={key: value for key, value in status.items() if key != "lastScaleTime"},
    )


def _values(specs: Sequence[Any], current: Sequence[Any]) -> Iterator[int | None]:
    for index, spec in enumerate(specs):
        source = current[index].get(source_field(spec), {}) if index < len(current) else {}
        values = source.get("current") or {}
        text = values.get("averageValue") or values.get("value")
        yield None if text is None else quantity.milli_value(text)
