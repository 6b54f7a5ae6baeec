from __future__ import annotations

import dataclasses
import re

import pytest

from tests.playground import drawing, sample
from tests.playground.view import Event, Moment, View

SPACIOUS = """\
 playground · 01:59                                   Kubernetes 1.36.3

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

 NAME   TARGETS   MINPODS   MAXPODS   REPLICAS   AGE
 bert   24/20     1         10        5          2m

 GPUs      5/8    ▂▂▂▂  ▂···   a group is a node; · is a free GPU

 01:00  load 15 % -> 120 %: 8 x bert-load
 01:04  scaled to 5: above target





 In another terminal (Ctrl-C in this one ends it all):
   let kubectl in   export KUBECONFIG=/tmp/p/kubeconfig
   ask as it does   kubectl get --raw '/apis/custom.metrics.k8s.io/v1beta1/nodes/*/duty_cycle'
"""
"""Of 72 columns and 37 lines, of which the terminal makes the last one two."""

NARROW = """\
 playground · 01:59                       Kubernetes 1.36.3
 load      120 %  of one GPU · 8 replicas of bert-load
       ▏▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆
 metric    24.0   target 20 · duty_cycle_current
       ▏▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▲▲▲▲▲▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅
 replicas  5      of 1 to 10
       ▏▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄
        01:42 ago                                       now

 NAME   TARGETS   MINPODS   MAXPODS   REPLICAS   AGE
 bert   24/20     1         10        5          2m

 GPUs      5/8    ▂▂▂▂  ▂···   a group is a node; · is a fr…

 01:00  load 15 % -> 120 %: 8 x bert-load
 01:04  scaled to 5: above target



 In another terminal (Ctrl-C in this one ends it all):
   let kubectl in   export KUBECONFIG=/tmp/p/kubeconfig
   ask as it does   kubectl get --raw '/apis/custom.metrics.k8s.io/v1beta1/nodes/*/duty_cycle'
"""

COLOURS = [
    "\x1b[1m load      \x1b[0m\x1b[36m120 %  \x1b[0m\x1b[2mof one GPU · 8 replicas of be\x1b[0m…",
    "\x1b[2m       ▏\x1b[0m\x1b[36m     ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▆▆▆▆\x1b[0m",
    "\x1b[1m metric    \x1b[0m\x1b[33m100.0  \x1b[0m\x1b[2mtarget 20 · duty_cycle_current\x1b[0m",
    "\x1b[2m       ▏\x1b[0m\x1b[32m     ··▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃\x1b[0m\x1b[33m▲▲▲▲\x1b[0m",
    "\x1b[1m replicas  \x1b[0m\x1b[34m5      \x1b[0m\x1b[2mof 1 to 10 · 1 ready\x1b[0m",
    "\x1b[2m       ▏\x1b[0m\x1b[34m     ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁\x1b[0m\x1b[90m▄▄\x1b[0m",
]
"""Of 48 columns, two seconds after it was scaled: much is yellow, who waits is grey."""


def drawn(view: View, *, width: int = 72, height: int = 37) -> str:
    lines = drawing.frame(view, width=width, height=height, colour=False)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def physical(lines: list[str], width: int) -> int:
    """Lines of the terminal."""
    return sum(max(1, -(-len(line) // width)) for line in lines)


@pytest.mark.parametrize(
    ("width", "height", "golden"),
    [
        pytest.param(72, 37, SPACIOUS, id="spacious"),
        pytest.param(60, 23, NARROW, id="narrow and low"),
    ],
)
def test_a_frame_has_everything(width: int, height: int, golden: str) -> None:
    assert drawn(sample.view(), width=width, height=height) == golden


def test_colours_tell_what_is_too_much_and_who_waits() -> None:
    lines = drawing.frame(sample.after(66), width=48, height=23, colour=True)

    assert lines[1:7] == COLOURS


@pytest.mark.parametrize("width", [20, 59, 80, 200])
@pytest.mark.parametrize("height", [5, 12, 20, 24, 33, 60])
def test_a_frame_fills_the_terminal_and_no_more(width: int, height: int) -> None:
    lines = drawing.frame(sample.view(), width=width, height=height, colour=False)

    assert physical(lines, width) == height
    commands = [line for line in lines if "kubectl" in line or "export" in line]
    assert all(len(line) <= width for line in lines if line not in commands)


def test_what_kubectl_is_told_is_never_cut() -> None:
    assert f"ask as it does   {sample.RAW}\n" in drawn(sample.view(), width=40)


def test_kubectls_whole_line_is_shown_where_there_is_room() -> None:
    lines = drawn(sample.view(), width=90)

    assert " NAME   REFERENCE                          TARGETS   MINPODS" in lines
    assert " bert   Deployment/bert-intent-detection   24/20     1      " in lines


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"askers": 1, "load": 15}, "15 %   of one GPU · 1 replica of bert", id="one"),
        pytest.param({"value": None}, "metric    <unknown> target 20", id="no value"),
        pytest.param({"value": 19.6666}, "metric    19.7   target 20", id="rounded"),
        pytest.param({"ready": 3}, "replicas  5      of 1 to 10 · 3 ready", id="some wait"),
        pytest.param({"ready": 5}, "replicas  5      of 1 to 10\n", id="all are ready"),
    ],
)
def test_a_headline_tells_what_is_now(changes, told: str) -> None:
    view = sample.view()
    now = dataclasses.replace(view.now, **changes)

    assert told in drawn(dataclasses.replace(view, moments=[*view.moments, now]))


def test_it_says_that_pods_wait_because_no_gpu_is_free() -> None:
    view = sample.after(66, gpus=((24.0, 25.0), (23.0, 24.0)))

    assert "· 1 ready, and no GPU is free\n" in drawn(view)


def test_it_says_that_nothing_scales_and_draws_what_was() -> None:
    lines = drawn(sample.after(40, autoscaler=None)).splitlines()
    at = lines.index(" metric    <unknown> no HPA asks")

    assert lines[at + 1].startswith("    15 ▏ ")
    assert lines[at + 1].endswith(f"  {19 * '█'}")
    assert " No HPA scales this Deployment." in lines


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, "NAME   REFERENCE   TARGETS   MINPODS   MAXPODS   REPLICAS   AGE"),
        (66, "NAME   TARGETS   MINPODS   MAXPODS   REPLICAS   AGE"),
        (50, "TARGETS   MINPODS   MAXPODS   REPLICAS   AGE"),
        (40, "TARGETS   MAXPODS   REPLICAS   AGE"),
    ],
)
def test_kubectls_line_keeps_what_moves_where_there_is_little_room(width: int, shown: str) -> None:
    lines = drawing.frame(sample.view(), width=width, height=40, colour=False)

    (header,) = (line for line in lines if " TARGETS " in line)
    assert " ".join(header.split()) == " ".join(shown.split())


def test_kubectls_two_lines_are_shown_both_or_neither() -> None:
    for height in range(10, 30):
        lines = drawing.frame(sample.view(), width=80, height=height, colour=False)
        told = {key for key in ("TARGETS", "24/20") for line in lines if f" {key} " in line}
        assert len(told) in (0, 2), height


def test_the_latest_events_are_shown() -> None:
    events = tuple(Event(seconds=each, text=f"event {each}") for each in range(99))
    lines = re.findall(r"event (\d+)", drawn(sample.view(events=events)))

    assert lines == [str(each) for each in range(99 - len(lines), 99)]
    assert len(lines) > 3


@pytest.mark.parametrize(
    ("view", "line"),
    [
        pytest.param(
            sample.after(66),
            "01:06  load 120 %  duty_cycle_current 100.0/20  replicas 5 (1 ready)",
            id="scaled",
        ),
        pytest.param(
            sample.after(0),
            "00:00  load 15 %  duty_cycle_current <unknown>/20  replicas 1 (1 ready)",
            id="no value yet",
        ),
        pytest.param(
            sample.after(5, autoscaler=None),
            "00:05  load 15 %  no HPA  replicas 1 (1 ready)",
            id="no HPA",
        ),
    ],
)
def test_a_log_has_the_same_in_a_line(view: View, line: str) -> None:
    assert drawing.line(view) == line


def test_a_log_has_events_and_commands() -> None:
    assert drawing.event(Event(seconds=3725.9, text="scaled to 5")) == "62:05  scaled to 5"
    assert drawing.commands(sample.view()) == SPACIOUS.splitlines()[-3:]


def test_it_starts_with_a_single_look() -> None:
    only = Moment(seconds=0.2, load=0, askers=0, value=None, wanted=0, ready=0)

    assert "replicas  0      of 1 to 10\n" in drawn(sample.view(moments=[only]))
