"""Actions, control structures, variables, pipelines: each case is what Go 1.26 answers."""

from __future__ import annotations

import pytest

from rules import template

DATA = {
    "Series": "container_cpu",
    "LabelMatchers": 'app="x"',
    "LabelValuesByName": {"pod": "web-0", "app": "x", "empty": ""},
    "GroupBy": "pod,node",
    "GroupBySlice": ("pod", "node"),
}

CASES = [
    # text, comments, trimming
    ("{{.Series}} a < b >> c", "{{.Series}} a < b >> c"),
    ("a <</* c >> */>> b", "a  b"),
    ("a <<- /* c */ ->> b", "ab"),
    ("a\n\t<<- .Series ->>\n b", "acontainer_cpub"),
    ("a <<-1>> b", "a -1 b"),
    ("a <<1 ->> b", "a 1b"),
    ("a << ( 1 )  ->>", "a 1"),
    # fields
    ("<<.LabelValuesByName.pod>>", "web-0"),
    ("<<.LabelValuesByName.nope>>", "<no value>"),
    ("<<.LabelValuesByName.nope.more 1>>", "<no value>"),
    ("<<$.LabelValuesByName.app>><<(.LabelValuesByName).app>>", "xx"),
    ("<<.>>", '{container_cpu app="x" map[app:x empty: pod:web-0] pod,node [pod node]}'),
    # if
    ("<<if .Series>>a<<else>>b<<end>>", "a"),
    ("<<if 0>>a<<else if eq .GroupBy ``>>b<<else if 1>>c<<else>>d<<end>>", "c"),
    ("<<if 0>>a<<else if 0>>b<<end>>", ""),
    ("<<if .>>T<<end>><<if .GroupBySlice>>T<<end>><<if .LabelValuesByName.empty>>F<<end>>", "TT"),
    ("<<if $x := 0>>a<<else if $y := 5>><<$x>><<$y>><<end>>", "05"),
    # with
    ("<<with .GroupBy>>[<<$.Series>> <<.>>]<<end>>", "[container_cpu pod,node]"),
    ("<<with ``>>a<<else with .Series>><<.>><<else>>c<<end>>", "container_cpu"),
    ("<<with ``>>a<<else>><<.GroupBy>><<end>>", "pod,node"),
    ("<<with $x := 5>><<$x>><<.>><<end>>", "55"),
    # range
    ("<<range .GroupBySlice>>[<<.>>]<<end>>", "[pod][node]"),
    ("<<range $x := .GroupBySlice>><<$x>>;<<end>>", "pod;node;"),
    ("<<range $i, $x := .GroupBySlice>><<if $i>>,<<end>><<$x>><<end>>", "pod,node"),
    ("<<range $k, $v := .LabelValuesByName>><<$k>>=<<$v>>;<<end>>", "app=x;empty=;pod=web-0;"),
    ("<<range 3>><<.>><<end>>", "012"),
    ("<<range $i := 3>><<$i>><<end>>", "012"),
    ('<<range index "\\x03" 0>><<printf "%T" .>> <<end>>', "uint8 uint8 uint8 "),
    ("<<range -1>>x<<else>>none<<end>>", "none"),
    ("<<range .LabelValuesByName.nope>>x<<else>>none<<end>>", "none"),
    ("<<range .LabelValuesByName.nope>>x<<end>>", ""),
    ("<<range $x := slice .GroupBySlice 0 0>>a<<else>><<$x>><<end>>", "[]"),
    ("<<$x := 8>><<range $x = .GroupBySlice>><<end>><<$x>>", "node"),
    ("<<$i := 9>><<$x := 8>><<range $i, $x = .GroupBySlice>><<end>><<$i>><<$x>>", "1node"),
    ("<<range 5>><<if eq . 3>><<break>><<end>><<.>><<end>>", "012"),
    ("<<range 5>><<if eq . 3>><<continue>><<end>><<.>><<end>>", "0124"),
    ("<<range 2>><<range 3>><<if eq . 1>><<break>><<end>><<.>><<end>>|<<end>>", "0|0|"),
    ("<<range 2>><<with 1>><<break>><<end>>x<<end>>", ""),
    ("<<range 2>>[<<range 0>><<else>><<break>><<end>>]<<end>>", "[][]"),
    ("<<range 2>>[<<range 0>><<else>><<continue>><<end>>]<<end>>", "[["),
    ("<<range 1_000_000_000>><<if eq . 2>><<break>><<end>><<.>><<end>>", "01"),
    # variables
    ("<<$x := 1>><<$x = 2>><<$x>>", "2"),
    ("<<$x := 1>><<if 1>><<$x := 2>><<$x>><<end>><<$x>>", "21"),
    ("<<$x := 1>><<if 1>><<$x = 2>><<end>><<$x>>", "2"),
    ("<<$m := .LabelValuesByName>><<$m.pod>>", "web-0"),
    ("<<print ($y := 3) $y>>", "3 3"),
    # pipelines
    ("<<.Series | printf `%s-%s` `a`>>", "a-container_cpu"),
    ("<<.Series | >>", "container_cpu"),
    ("<<.GroupBySlice | len | printf `%03d`>>", "002"),
    ("<<`pod` | index .LabelValuesByName>>", "web-0"),
    ("<<print (len (slice .Series 1)) print>>", "12"),
    ("<<(and .Series (not 0)) | print>>", "true"),
    # define, template, block
    (
        "<<define `a`>>A<<.>><<end>><<template `a` .Series>><<template `a`>>",
        "Acontainer_cpuA<no value>",
    ),
    ("<<define `a`>> <<end>><<define `a`>>2<<end>><<template `a`>>", "2"),
    ("<<define `a`>>1<<end>><<define `a`>> <<end>><<template `a`>>", "1"),
    ("<<define `metrics-query`>>over<<end>>", "over"),
    ("<<block `a` .Series>>[<<.>>]<<end>><<template `a` 1>>", "[container_cpu][1]"),
    ("<<range 2>><<block `a` .>>b<<.>><<end>><<end>>", "b0b1"),
    ("<<$x := 1>><<template `a`>><<$x>><<define `a`>><<$x := 2>><<$x>><<end>>", "21"),
    (
        (
            "<<define `r`>><<if .>>(<<.>>)<<template `r` (slice . 1)>><<end>><<end>>"
            "<<template `r` `abc`>>"
        ),
        "(abc)(bc)(c)",
    ),
    ("<<define `a`>><<.Series>><<end>><<template `a`>>", "<no value>"),
]


@pytest.mark.parametrize(("source", "output"), CASES, ids=str)
def test_an_action_does_what_it_does_in_go(source, output):
    assert template.parse(source).render(DATA) == output
