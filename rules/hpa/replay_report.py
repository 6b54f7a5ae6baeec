"""A replay as a document and as lines of text."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rules.hpa.autoscaler import Autoscaler
from rules.hpa.replay import Fit, Result, Sync
from rules.hpa.replay_ahead import Week

KIND, API_VERSION = "Replay", "replay.gpu-metrics-adapter/v1"
COLUMNS = (
    "model",
    "pod-hours",
    "above target",
    "saturated",
    "scale-ups",
    "scale-downs",
    "largest step",
)
WEEK = "week from"
OF_WEEK = "Each week with the present settings and with `ahead`; above: above target and tolerance"
WEEK_COLUMNS = (
    "forecast served",
    "false rises",
    "above",
    "above, ahead",
    "pod-hours",
    "pod-hours, ahead",
)
_WIDTH = 60
_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Everything that a replay found. Times are in Unix seconds."""

    hpa: Autoscaler
    history: tuple[Sync, ...]
    step: float
    results: tuple[Result, ...]
    """What was, then the present settings, then the other variants."""
    decided: tuple[int | None, ...]
    """What the controller decided at each sync, from the values and replicas that there were."""
    fit: Fit
    weeks: tuple[Week, ...] = ()
    """What a forecast changed; empty if none was replayed, or none could be made."""
    notes: tuple[str, ...]
    """Where the history comes from, the model, and what is not known."""

    @property
    def title(self) -> str:
        """The HPA and the period."""
        return (
            f"{period(self.hpa, self.history)}: {len(self.history)} syncs, one every "
            f"{self.step:g} s"
        )

    @property
    def verdict(self) -> str:
        """How far the decisions from the past values are from what was."""
        total = self.fit.equal + self.fit.near + self.fit.different
        if not total:
            return "The replicas of the past are not known, so the replay cannot be compared"
        return (
            f"From the values and replicas that there were, the controller decides what it did at "
            f"{self.fit.equal} of {total} syncs; {self.fit.near} differ by one, "
            f"{self.fit.different} by more"
        )


def period(hpa: Autoscaler, history: Sequence[Sync]) -> str:
    """Return the HPA and its period."""
    begin, end = (clock(each.time) for each in (history[0], history[-1]))
    return f"{hpa.namespace}/{hpa.name} from {begin} to {end} UTC"


def clock(seconds: float) -> str:
    """Return a time for people, in UTC: `2026-11-27 07:45`."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M")


def duration(seconds: float) -> str:
    """Return a time for people: `3 h 05 min`, `12 min`, `45 s`."""
    if seconds < 60:
        return f"{seconds:g} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def percent(share: float) -> str:
    """Return a share for people: `97 %`."""
    return f"{100 * share:.0f} %"


def cells(result: Result) -> tuple[str, ...]:
    """Return the cells of a row, in the order of COLUMNS."""
    return (
        duration(result.modelled),
        f"{result.pod_hours:.1f}",
        duration(result.above),
        duration(result.saturated),
        str(result.ups),
        str(result.downs),
        str(result.largest),
    )


def document(replay: Replay) -> dict[str, Any]:
    """Return the document for clients; times are in seconds."""
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "summary": replay.title,
        "namespace": replay.hpa.namespace,
        "name": replay.hpa.name,
        "begin": replay.history[0].time,
        "syncPeriod": replay.step,
        "syncs": len(replay.history),
        "notes": list(replay.notes),
        "variants": list(map(variant, replay.results)),
        "weeks": [
            {
                "begin": each.begin,
                "forecastSeconds": each.forecast,
                "falseRises": each.error,
                "aboveToleranceSeconds": each.above,
                "aboveToleranceSecondsAhead": each.above_ahead,
                "podHours": round(each.pod_hours, 3),
                "podHoursAhead": round(each.pod_hours_ahead, 3),
            }
            for each in replay.weeks
        ],
        "decisions": _runs(replay.decided),
        "fit": asdict(replay.fit),
        "verdict": replay.verdict,
    }


def variant(result: Result) -> dict[str, Any]:
    """Return a result as a document for clients; times are in seconds."""
    return {
        "title": result.title,
        "modelledSeconds": result.modelled,
        "podHours": round(result.pod_hours, 3),
        "aboveTargetSeconds": result.above,
        "saturatedSeconds": result.saturated,
        "scaleUps": result.ups,
        "scaleDowns": result.downs,
        "largestStep": result.largest,
        "replicas": _runs(result.replicas),
    }


def _runs(replicas: Sequence[int | None]) -> list[list[int | None]]:
    """Return replicas as pairs: the number of a sync, and the replicas from then on."""
    return [
        [index, number]
        for index, number in enumerate(replicas)
        if not index or number != replicas[index - 1]
    ]


def lines(replay: Replay) -> Iterator[str]:
    """Yield the lines of the text; the last one is the verdict."""
    yield replay.title
    for note in replay.notes:
        yield f"* {note}"
    yield ""
    rows = [("", *COLUMNS), *((each.title, *cells(each)) for each in replay.results)]
    yield from table(rows)
    yield ""
    if replay.weeks:
        yield OF_WEEK
        yield from table([(WEEK, *WEEK_COLUMNS), *map(week_cells, replay.weeks)])
        yield ""
    width = max(len(each.title) for each in replay.results)
    highest = max(max(each.replicas) for each in replay.results)
    yield f"Replicas, 0 to {highest}"
    for each in replay.results:
        yield f"{each.title:<{width}}  {_drawn(each.replicas, highest)}"
    yield ""
    yield replay.verdict


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; the first column has titles, the others numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for title, *row in rows:
        numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(row, widths[1:], strict=True))
        yield f"{title:<{widths[0]}}{numbers}"


def week_cells(week: Week) -> tuple[str, ...]:
    """Return the begin of a week, and its cells in the order of WEEK_COLUMNS."""
    return (
        clock(week.begin),
        duration(week.forecast),
        "" if week.error is None else f"{week.error:.0%}",
        duration(week.above),
        duration(week.above_ahead),
        f"{week.pod_hours:.1f}",
        f"{week.pod_hours_ahead:.1f}",
    )


def _drawn(replicas: Sequence[int], highest: int) -> str:
    """Draw replicas as blocks: of each part of the time, the most."""
    width = min(_WIDTH, len(replicas))
    edges = [len(replicas) * index // width for index in range(width + 1)]
    parts = (max(replicas[begin:end]) for begin, end in itertools.pairwise(edges))
    scale = len(_BLOCKS) - 1
    return "".join(_BLOCKS[-(-each * scale // max(1, highest))] for each in parts)
