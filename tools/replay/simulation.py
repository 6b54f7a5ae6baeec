"""A second simulation of the controller and of the model, which imports nothing of `rules`.

It is written after horizontal.go and replica_calculator.go of Kubernetes 1.36 and docs/console.md,
with lists of places that are used anew, as the controller has them, and with plain dictionaries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

DOWNSCALE = 300
TOLERANCE = 0.1
_SUFFIXES = {"m": Fraction(1, 1000), "": Fraction(1)}
Document = Mapping[str, Any]
Read = Mapping[str, Any]
"""What was read at a sync: `milli`, `counted`, `missing` and `unready`."""


class Controller:
    """What the controller keeps of one HPA, and what it does at a sync."""

    def __init__(self, hpa: Document) -> None:
        spec = hpa["spec"]
        self.low, self.high = spec.get("minReplicas", 1), spec["maxReplicas"]
        self.behavior = spec.get("behavior")
        self.metrics = spec["metrics"]
        self.recommendations: list[list[Any]] = []
        self.ups: list[dict[str, Any]] = []
        self.downs: list[dict[str, Any]] = []
        self.scaled_to_zero = False

    def sync(
        self,
        now: float,
        replicas: int,
        pods: tuple[int, int, int],
        reads: Sequence[Read],
    ) -> int:
        """Return the desired replicas.

        `pods` are those of the status, those that are listed, and those that are Ready.
        """
        if not self.recommendations:
            self.recommendations.append([replicas, now])
            self.scaled_to_zero = not replicas and not self.low
        wakes = any(each["type"] in ("Object", "External") for each in self.metrics)
        if replicas == 0:
            if not (self.scaled_to_zero and (wakes or self.low)):
                return 0
        elif replicas > self.high:
            return int(self.high)
        elif replicas < self.low:
            return int(self.low)
        proposed = [
            self.propose(metric, read, replicas, pods)
            for metric, read in zip(self.metrics, reads, strict=True)
        ]
        best, invalid = 0, 0
        for each in proposed:
            if each is None:
                invalid += 1
            elif best == 0 or each > best:
                best = each
        if invalid == len(proposed) or (invalid and best < replicas):
            return replicas
        wanted = max(0, best)
        desired = self.plain(now, replicas, wanted) if self.behavior is None else None
        if desired is None:
            desired = self.with_behavior(now, replicas, wanted)
        if replicas == 0 and self.low and desired < self.low:
            desired = self.low
        return desired

    def scaled(self, now: float, before: int, after: int) -> None:
        """Note a change of the replicas."""
        if before == after:
            return
        wakes = any(each["type"] in ("Object", "External") for each in self.metrics)
        self.scaled_to_zero = before > 0 and after == 0 and self.low == 0 and wakes
        if self.behavior is None:
            return
        up = after > before
        events = self.ups if up else self.downs
        rules = self.behavior["scaleUp" if up else "scaleDown"]
        longest = max(each["periodSeconds"] for each in rules["policies"])
        place = None
        for index, event in enumerate(events):
            event["outdated"] |= event["time"] < now - longest
            if event["outdated"]:
                place = index
        event = {"change": abs(after - before), "time": now, "outdated": False}
        if place is None:
            events.append(event)
        else:
            events[place] = event

    def propose(
        self, metric: Document, read: Read, replicas: int, pods: tuple[int, int, int]
    ) -> int | None:
        """Return what one metric proposes; None if it has no value."""
        status, listed, ready = pods
        source = metric[metric["type"][0].lower() + metric["type"][1:]]
        target = source["target"]
        kind = target["type"]
        wanted = _milli(target["averageValue" if kind == "AverageValue" else "value"])
        value = read["milli"]
        if value is None:
            return None
        if metric["type"] == "Pods":
            return self.of_pods(read, wanted, replicas)
        if kind == "AverageValue":
            ratio = _divide(value, wanted * status)
            if self.within(ratio):
                return status
            result = _divide(value, wanted)
            if metric["type"] == "External":
                result = min(result, 2.0**31 - 1)
            return _int32(math.ceil(result))
        ratio = value / wanted
        if replicas == 0:
            return _int32(math.ceil(ratio))
        if self.within(ratio):
            return replicas
        return None if not listed else _int32(math.ceil(min(ratio * ready, 2.0**31 - 1)))

    def of_pods(self, read: Read, wanted: int, replicas: int) -> int | None:
        """Return what a metric of pods proposes."""
        total, count = read["milli"], read["counted"]
        if count == 0:
            return None
        ratio = int(_quotient(total, count)) / wanted
        unready = read["unready"] if ratio > 1 else 0
        if not unready and not read["missing"]:
            return replicas if self.within(ratio) else _int32(math.ceil(ratio * count))
        if ratio != 1:
            total += wanted * read["missing"] if ratio < 1 else 0
            count += read["missing"]
        count += unready
        second = int(_quotient(total, count)) / wanted
        if self.within(second) or ratio < 1 < second or second < 1 < ratio:
            return replicas
        found = _int32(math.ceil(second * count))
        turned = found > replicas if second < 1 else found < replicas
        return replicas if turned and second != 1 else found

    def within(self, ratio: float) -> bool:
        """Return whether a ratio is within the tolerance."""
        return 1 - TOLERANCE <= ratio <= 1 + TOLERANCE

    def plain(self, now: float, replicas: int, wanted: int) -> int:
        """Return the desired replicas without `spec.behavior`."""
        highest, place = wanted, None
        for index, (number, time) in enumerate(self.recommendations):
            if time < now - DOWNSCALE:
                place = index
            else:
                highest = max(highest, number)
        self.keep(place, wanted, now)
        ceiling = min(self.high, max(2 * replicas, 4))
        return int(min(max(highest, self.low), ceiling))

    def with_behavior(self, now: float, replicas: int, wanted: int) -> int:
        """Return the desired replicas with `spec.behavior`."""
        up, down = self.behavior["scaleUp"], self.behavior["scaleDown"]
        above, below, place = wanted, wanted, None
        for index, (number, time) in enumerate(self.recommendations):
            of_up = time > now - up["stabilizationWindowSeconds"]
            of_down = time > now - down["stabilizationWindowSeconds"]
            above = min(above, number) if of_up else above
            below = max(below, number) if of_down else below
            if (
                time < now - up["stabilizationWindowSeconds"]
                and time < now - down["stabilizationWindowSeconds"]
            ):
                place = index
        self.keep(place, wanted, now)
        stable = min(max(replicas, above), below)
        if stable > replicas:
            most = max(replicas, self.limit(up, now, replicas, 1))
            return int(min(stable, most, self.high))
        if stable < replicas:
            least = min(replicas, self.limit(down, now, replicas, -1))
            return int(max(stable, least, self.low))
        return int(stable)

    def limit(self, rules: Document, now: float, replicas: int, sign: int) -> int:
        """Return the replicas that the policies allow."""
        found = []
        for policy in rules["policies"]:
            since = now - policy["periodSeconds"]
            start = replicas
            start -= sum(each["change"] for each in self.ups if each["time"] > since)
            start += sum(each["change"] for each in self.downs if each["time"] > since)
            if policy["type"] == "Pods":
                found.append(start + sign * policy["value"])
            elif sign > 0:
                found.append(math.ceil(start * (1 + policy["value"] / 100)))
            else:
                found.append(int(start * (1 - policy["value"] / 100)))
        largest = rules.get("selectPolicy", "Max") == "Max"
        return int(max(found) if largest == (sign > 0) else min(found))

    def keep(self, place: int | None, number: int, now: float) -> None:
        """Keep a recommendation, in an outdated place if there is one."""
        if place is None:
            self.recommendations.append([number, now])
        else:
            self.recommendations[place] = [number, now]


def decisions(hpa: Document, syncs: Sequence[Document]) -> Iterator[int]:
    """Yield what the controller decides from what there was."""
    controller = Controller(hpa)
    before = None
    for sync in syncs:
        if before is not None:
            controller.scaled(before["time"], before["replicas"], sync["replicas"])
        pods = sync["present"], sync["pods"], sync["ready"]
        yield controller.sync(sync["time"], sync["replicas"], pods, sync["reads"])
        before = sync


def simulated(
    hpa: Document, syncs: Sequence[Document], *, startup: float, loads: Sequence[bool]
) -> list[int]:
    """Return the replicas at each sync with these settings, by facts and model.

    `loads` says of each metric whether it is that of all pods together.
    """
    controller, metrics = Controller(hpa), hpa["spec"]["metrics"]
    current = syncs[0]["replicas"]
    started_at = [-math.inf] * current
    last_other, found = -math.inf, []
    for sync in syncs:
        now, reads = sync["time"], sync["reads"]
        found.append(current)
        if current != sync["replicas"]:
            last_other = now
        pods = sync["present"], sync["pods"], sync["ready"]
        if now - last_other < startup or current != sync["replicas"]:
            ready = len([each for each in started_at if each <= now])
            pods = current, current, ready
            reads = [
                _modelled(metric, read, sync, current, ready, load=load)
                for metric, read, load in zip(metrics, reads, loads, strict=True)
            ]
        desired = controller.sync(now, current, pods, reads)
        controller.scaled(now, current, desired)
        while len(started_at) > desired:
            started_at.pop()
        while len(started_at) < desired:
            started_at.append(now + startup)
        current = desired
    return found


def _modelled(
    metric: Document, read: Read, sync: Document, current: int, started: int, *, load: bool
) -> Read:
    """Return what would have been read with other replicas."""
    nothing = {"milli": None, "counted": 1, "missing": 0, "unready": 0}
    if read["milli"] is None or load:
        return read
    if not started:
        return nothing
    if metric["type"] == "Pods":
        share = int(read["milli"] / started)
        missing = current - started
        return {"milli": share * started, "counted": started, "missing": missing, "unready": 0}
    before = sync["ready"] or sync["replicas"] or 1
    return {**nothing, "milli": int(read["milli"] * before / started)}


def _milli(text: str) -> int:
    number, suffix = (text[:-1], "m") if text.endswith("m") else (text, "")
    return int(Fraction(number) * _SUFFIXES[suffix] * 1000)


def _quotient(number: int, divisor: int) -> int:
    number = (number + (1 << 63)) % (1 << 64) - (1 << 63)
    return abs(number) // divisor * (1 if number >= 0 else -1)


def _divide(value: float, target: float) -> float:
    if target:
        return value / target
    return math.copysign(math.inf, value) if value else math.nan


def _int32(number: float) -> int:
    return int(number) if -(2**31) <= number < 2**31 else -(2**31)
