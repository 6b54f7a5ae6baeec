from __future__ import annotations

import dataclasses
import re

import pytest

from tests.tools.playground import sample_view
from tools.playground import drawing
from tools.playground.view import Event, View

LARGE = """\
 gpu-metrics-adapter playground · 01:59               Kubernetes 1.36.3

 load      120 %  of one GPU · 8 replicas of bert-load
   150 ▏                                 ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂
       ▏                                 ██████████████████████████████
       ▏                                 ██████████████████████████████
     0 ▏   ▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃██████████████████████████████

 metric    24.0   target 20 · duty_cycle_current
    40 ▏                                 ▲▲▲▲▲
    20 ▏╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌█████▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃
       ▏     ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄██████████████████████████████
     0 ▏   ··██████████████████████████████████████████████████████████

 replicas  5      of 1 to 10
    10 ▏
       ▏
       ▏                                   ████████████████████████████
     0 ▏   ▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃████████████████████████████
        02:06 ago                                                   now

 TARGETS   MINPODS   MAXPODS   REPLICAS   AGE
 24/20     1         10        5          2m

 GPUs      5/8    ▂▂▂▂  ▂···   one group per node; · = free GPU

 01:00  load 15 % -> 120 %: 8 x bert-load
 01:04  scaled to 5: above target





 In another terminal (Ctrl-C in this one stops everything):
   set up kubectl   export KUBECONFIG=/tmp/p/kubeconfig
   query metric     kubectl get --raw '/apis/custom.metrics.k8s.io/v1beta1/nodes/*/duty_cycle'
"""
"""72 columns, 37 rows; the terminal wraps the last line."""

COLOURS = [
    "\x1b[1m load      \x1b[0m\x1b[36m120 %  \x1b[0m\x1b[2mof one GPU · 8 replicas of be\x1b[0m…",
    "\x1b[2m       ▏\x1b[0m\x1b[36m     ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▆▆▆▆\x1b[0m",
    "\x1b[1m metric    \x1b[0m\x1b[33m100.0  \x1b[0m\x1b[2mtarget 20 · duty_cycle_current\x1b[0m",
    "\x1b[2m       ▏\x1b[0m\x1b[32m     ··▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃\x1b[0m\x1b[33m▲▲▲▲\x1b[0m",
    "\x1b[1m replicas  \x1b[0m\x1b[34m5      \x1b[0m\x1b[2mof 1 to 10 · 1 ready\x1b[0m",
    "\x1b[2m       ▏\x1b[0m\x1b[34m     ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁\x1b[0m\x1b[90m▄▄\x1b[0m",
]
"""48 columns, two seconds after a scale-up: the high value is yellow, pending replicas are grey."""


def draw(view: View, *, width: int = 72, height: int = 37) -> str:
    lines = drawing.frame(view, width=width, height=height, colour=False)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def terminal_rows(lines: list[str], width: int) -> int:
    """Return the number of rows on a terminal that wraps long lines."""
    return sum(max(1, -(-len(line) // width)) for line in lines)


def test_frame_has_all_parts() -> None:
    assert draw(sample_view.view()) == LARGE


def test_colours_mark_high_values_and_pending_replicas() -> None:
    lines = drawing.frame(sample_view.view_at(66), width=48, height=23, colour=True)

    assert lines[1:7] == COLOURS


@pytest.mark.parametrize("width", [20, 59, 80, 200])
@pytest.mark.parametrize("height", [5, 12, 20, 24, 33, 60])
def test_frame_fills_the_terminal_exactly(width: int, height: int) -> None:
    lines = drawing.frame(sample_view.view(), width=width, height=height, colour=False)

    assert terminal_rows(lines, width) == height
    commands = [line for line in lines if "kubectl" in line or "export" in line]
    assert all(len(line) <= width for line in lines if line not in commands)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param(
            {"load_replicas": 1, "load": 15}, "15 %   of one GPU · 1 replica of bert", id="singular"
        ),
        pytest.param({"value": None}, "metric    <unknown> target 20", id="no value"),
        pytest.param({"value": 19.6666}, "metric    19.7   target 20", id="rounded"),
        pytest.param({"ready": 3}, "replicas  5      of 1 to 10 · 3 ready", id="some are pending"),
        pytest.param({"ready": 5}, "replicas  5      of 1 to 10\n", id="all are ready"),
    ],
)
def test_headline_shows_the_current_value(changes, text: str) -> None:
    view = sample_view.view()
    now = dataclasses.replace(view.now, **changes)

    assert text in draw(dataclasses.replace(view, snapshots=[*view.snapshots, now]))


def test_frame_without_an_hpa_says_so_and_still_draws_the_metric() -> None:
    lines = draw(sample_view.view_at(40, autoscaler=None)).splitlines()
    at = lines.index(" metric    <unknown> no HPA")

    assert lines[at + 1].startswith("    15 ▏ ")
    assert lines[at + 1].endswith(f"  {19 * '█'}")
    assert " No HPA scales this Deployment." in lines


def test_frame_shows_the_latest_events() -> None:
    events = tuple(Event(seconds=each, text=f"event {each}") for each in range(99))
    lines = re.findall(r"event (\d+)", draw(sample_view.view(events=events)))

    assert lines == [str(each) for each in range(99 - len(lines), 99)]
    assert len(lines) > 3


@pytest.mark.parametrize(
    ("view", "line"),
    [
        pytest.param(
            sample_view.view_at(66),
            "01:06  load 120 %  duty_cycle_current 100.0/20  replicas 5 (1 ready)",
            id="scaled",
        ),
        pytest.param(
            sample_view.view_at(0),
            "00:00  load 15 %  duty_cycle_current <unknown>/20  replicas 1 (1 ready)",
            id="no value yet",
        ),
        pytest.param(
            sample_view.view_at(5, autoscaler=None),
            "00:05  load 15 %  no HPA  replicas 1 (1 ready)",
            id="no HPA",
        ),
    ],
)
def test_log_line_has_load_metric_and_replicas(view: View, line: str) -> None:
    assert drawing.line(view) == line
