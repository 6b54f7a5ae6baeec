"""Each clause of the proof is needed: without it, a query is shared that answers differently."""

from __future__ import annotations

import contextlib
import inspect
import re
import time
from dataclasses import dataclass

import pytest

from rules.query import clauses, scope
from rules.query.label_binding import LabelBinding
from rules.query.scope import Scope
from rules.selectors.selectors import Selector
from tests.rules.query import worlds
from tests.rules.query.scoped import NODE, POD, step_of
from tests.rules.query.worlds import Client, Question
from tools.real import prometheus

_M = "{<<.LabelMatchers>>}"
_A, _B = f"A{_M}", f"B{_M}"
_SUM = f"sum by (<<.GroupBy>>) ({_A})"
_QUESTIONS = (
    *(Question(namespace="n1", names=(f"p{number}",)) for number in range(1, 9)),
    Question(namespace="n1", names=("p1", "p2")),
    Question(namespace="n2", names=("p1",)),
    Question(namespace="pod", names=("p1",)),
    Question(namespace="pod", names=("p2",)),
)
_QUESTIONS_OF_NODES = (
    Question(namespace="", names=("x",)),
    Question(namespace="", names=("x", "y")),
)
_WIDTH = (Scope.ALONE, Scope.NAMESPACE, Scope.CLUSTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    clause: str
    query: str
    data: tuple[tuple[dict[str, str], float], ...]
    """Labels and values."""
    binding: LabelBinding = POD


def sample(metric: str, value: float, **labels: str) -> tuple[dict[str, str], float]:
    """Return a sample, of namespace n1 if `labels` do not say otherwise."""
    return {"__name__": metric, "namespace": "n1", **labels}, value


# A{p1, x}, and B of both pods on the same node: the counterexamples to matching on the node.
_NODE = (
    sample("A", 1, pod="p1", node="x"),
    sample("B", 2, pod="p1", node="x"),
    sample("B", 3, pod="p2", node="x"),
)
# Two series of p2 that `or` and `unless` leave as long as A of p2 is not selected.
_LEFT = (
    sample("A", 1, pod="p1"),
    sample("A", 2, pod="p2"),
    sample("B", 3, pod="p2", zone="u"),
    sample("B", 4, pod="p2", zone="v"),
)
# A and B of p2, which differ by nothing but their names.
_NAMED = (sample("A", 1, pod="p1"), sample("A", 2, pod="p2"), sample("B", 3, pod="p2"))
_OR_B = f"{_A} or on (pod) B"
_OR_BOTH = f'{_A} or on (pod) {{__name__=~"A|B"}}'

CASES = [
    Case(clause="matches_objects", query=f"B unless on (node) {_A}", data=_NODE),
    Case(clause="matches_objects", query=f"B and on (node) {_A}", data=_NODE),
    Case(clause="matches_objects", query=f"{_A} or on (node) B", data=_NODE),
    Case(
        clause="matches_objects",
        query=f"{_A} and on (zone) {_B}",
        data=(sample("A", 1, pod="p1", zone="u"), sample("B", 1, pod="p2", zone="u")),
    ),
    Case(
        clause="selects_whole_objects",
        query="A{x<<.LabelMatchers>>}",
        data=(sample("A", 1, xnamespace="n1", namespace="n2", pod="p1"),),
    ),
    Case(
        clause="keeps_objects",
        query=f"sum by (pod) ({_A})",
        data=(sample("A", 1, pod="p1"), sample("A", 2, namespace="n2", pod="p1")),
    ),
    Case(
        clause="groups_the_same",
        query=f"{_A} / on (<<.GroupBy>>) B",
        data=(sample("A", 6, pod="p1"), sample("B", 2, namespace="n2", pod="p1")),
    ),
    Case(
        clause="writes_no_wanted_label",
        query=f'label_replace({_A}, "pod", "p1", "node", "x")',
        data=(sample("A", 1, pod="p1", node="x"), sample("A", 2, pod="p2", node="x", zone="u")),
    ),
    Case(
        clause="writes_no_wanted_label",
        query=f'label_join(label_replace({_A}, "pod", "", "", ""), "pod", "p", "node", "zone")',
        data=(sample("A", 1, pod="p2", zone="1"),),
    ),
    Case(
        clause="reads_the_same_labels",
        query=f'label_replace({_SUM}, "zone", "$1", "namespace", "(.+)") and on (zone) B',
        data=(sample("A", 1, pod="p1"), sample("B", 1, zone="n1")),
    ),
    Case(
        clause="computes_each_object",
        query=f"{_A} / scalar({_A})",
        data=(sample("A", 2, pod="p1"), sample("A", 3, pod="p2")),
    ),
    Case(
        clause="namespaces_alike",
        query=f"{_SUM} + on (namespace, pod) {_B}",
        data=(sample("A", 1, pod="p1"), sample("B", 1, pod="p1")),
    ),
    Case(
        clause="matches_the_same",
        query=f"{_SUM} and on (namespace, pod) B",
        data=(sample("A", 1, pod="p1"), sample("B", 1, pod="p1")),
    ),
    Case(
        clause="adds_no_other_objects",
        query=f"{_A} or B",
        data=(sample("A", 1, pod="p1"), sample("B", 2, namespace="n2", pod="p1")),
    ),
    Case(
        clause="adds_no_other_objects",
        query=f"B unless on (namespace, pod) {_A}",
        data=(sample("A", 1, pod="p1"), sample("B", 2, namespace="n2", pod="p1")),
    ),
    *(
        Case(clause="CHOOSES_SAMPLES", query=query, data=data)
        for query, data in (
            (
                f"{_A} or topk(1, B)",
                (sample("A", 1, pod="p1"), sample("B", 2, namespace="n2", pod="p1")),
            ),
            (
                f"{_A} or on () topk(1, B)",
                (sample("A", 1, pod="p1"), sample("B", 2, pod="p2")),
            ),
            (
                f"bottomk by (node) (1, B) unless on (namespace, pod) {_A}",
                (sample("A", 1, pod="p1"), sample("B", 2, namespace="n2", pod="p1")),
            ),
        )
    ),
    *(
        Case(clause="fails_alike", query=query, data=_LEFT)
        for query in (
            f'label_join({_OR_B}, "zone", "")',
            f'label_replace({_OR_B}, "zone", "", "", "")',
            f'label_replace(max by (<<.GroupBy>>, zone) ({_OR_B}), "zone", "", "", "")',
            f'label_replace({_A} or on (pod) ({_OR_B}), "zone", "", "", "")',
            f'label_replace(B unless on (pod) {_A}, "zone", "", "", "")',
            f'label_replace(B and on (pod, zone) ({_OR_B}), "zone", "", "", "")',
            f'label_replace((B or on (pod) {_A}) unless on (pod) {_A}, "zone", "", "", "")',
            f"{_A} * on (pod) ({_OR_B})",
            f"({_OR_B}) * on (pod) group_right {_A}",
            f"B * on (pod) group_left () ({_OR_B})",
        )
    ),
    *(
        Case(clause="fails_alike", query=query, data=_NAMED)
        for query in (
            f"-({_OR_BOTH})",
            f"({_OR_BOTH}) * 100",
            f"abs({_OR_BOTH})",
            f"max_over_time(({_OR_BOTH})[2s:1s])",
            f"-({_A} or on (pod) ({_OR_BOTH}))",
            f'-({{__name__=~"A|B"}} unless on (pod) {_A})',
            f"-max by (<<.GroupBy>>, __name__) ({_OR_BOTH})",
            f"-({_A} or on (pod) topk(9, {{__name__=~'A|B'}}))",
            f"-({_A} or on (pod) max by (pod, __name__) ({{__name__=~'A|B'}}))",
            f"-({_A} or on (pod) (A or on (__name__) B))",
        )
    ),
    Case(
        clause="fails_alike",
        query=f'-({{__name__=~"A|B"}} and on (pod, zone) ({_SUM} or on (pod) B))',
        data=(
            sample("A", 1, pod="p1"),
            sample("A", 2, pod="p2", zone="u"),
            sample("B", 3, pod="p2", zone="u"),
        ),
    ),
    Case(
        clause="fails_alike",
        query=f'-({_A} or on (pod) count_values by (pod) ("__name__", B))',
        data=_LEFT,
    ),
    Case(
        clause="fails_alike",
        query=f'-count_values by (<<.GroupBy>>) ("__name__", {_OR_B})',
        data=_LEFT,
    ),
    Case(
        clause="fails_alike",
        query=f'-({_A} or on (pod) label_replace(label_replace(max by (pod, zone) (B), "__name__", '
        '"$1", "zone", "(.*)"), "zone", "", "", ""))',
        data=_LEFT,
    ),
    Case(
        clause="fails_alike",
        query=f'label_replace({_A} or on (node) max by (node) (B), "node", "", "", "")',
        data=(
            sample("A", 1, pod="p1"),
            sample("A", 2, pod="p2", node="x"),
            sample("B", 3, node="x"),
            sample("B", 4, node="y"),
        ),
    ),
    Case(
        clause="copies_no_wanted_label",
        query=f"{_A} * on (node) group_left (pod) B",
        data=(
            sample("A", 1, pod="p1", node="x"),
            sample("A", 2, pod="p2", node="x", zone="u"),
            sample("B", 1, node="x", pod="p1"),
        ),
    ),
    Case(
        clause="selects_result",
        query="A",
        data=(sample("A", 1, pod="p1"), sample("A", 2, namespace="n2", pod="p1")),
    ),
    Case(
        clause="matches_nothing_else",
        query="A and on (z) label_replace(vector(1), 'z', '<<.LabelMatchers>>', '', '')",
        data=(sample("A", 1, node="x", z='node="x"'),),
        binding=NODE,
    ),
    Case(
        clause="groups_nothing_else",
        query=f"label_replace({_A}, 'z', '<<.GroupBy>>', '', '') and on (z) B",
        data=(sample("A", 1, pod="p1"), sample("B", 1, z="pod")),
    ),
    Case(
        clause="reads_nothing_of_names",
        query=f'<<if eq (index .LabelValuesByName "pod") "p1">>{_A}<<else>>{_B}<<end>>',
        data=(sample("A", 1, pod="p1"), sample("B", 2, pod="p1")),
    ),
    Case(
        clause="reads_nothing_of_names",
        query=f'<<if eq (index .LabelValuesByName "namespace") "n1">>'
        f"topk(1, {_A})<<else>>{_B}<<end>>",
        data=(sample("A", 1, pod="p1"), sample("A", 2, pod="p2")),
    ),
    Case(
        clause="writes_matchers",
        query=f'label_replace({_A}, "<<index .LabelValuesByName "namespace">>", "p1", "", "")',
        data=(
            sample("A", 1, namespace="pod", pod="p1"),
            sample("A", 2, namespace="pod", pod="p2", zone="u"),
        ),
    ),
    Case(
        clause="reads_nothing_of_objects",
        query=f'{_A} and on (pod) B{{namespace="<<index .LabelValuesByName "namespace">>"}}',
        data=(sample("A", 1, pod="p1"), sample("B", 2, pod="p1")),
    ),
    Case(
        clause="renders_alike",
        query=f"<<if eq (len .GroupBySlice) 1>>{_A}<<else>>{_B}<<end>>",
        data=(sample("A", 1, pod="p1"), sample("B", 2, pod="p1")),
    ),
    Case(
        clause="computes_each_object",
        query=f"topk by (<<.GroupBy>>) (1, sort({_A})) * on (node) group_left () B",
        data=(
            *(
                sample("A", (pod * 7 + ord(node)) % 3, pod=f"p{pod}", node=node)
                for pod in range(1, 41)
                for node in "wxyz"
            ),
            *(sample("B", index, node=node) for index, node in enumerate("wxyz", 1)),
        ),
    ),
]
CLAUSES = {
    name
    for name, each in inspect.getmembers(clauses, inspect.isfunction)
    if each.__module__ == clauses.__name__ and not name.startswith("_")
} - {"fills_in_nothing"}
"""The clauses that can be shown; the Prometheus of the tests does not know `fill`."""
FACTS = {"CHOOSES_SAMPLES": frozenset()}
"""What else the proof relies on, and how it is left out."""


@pytest.fixture(scope="module")
def client(tmp_path_factory, real_servers):
    end = float(int(time.time()))
    with prometheus.run(tmp_path_factory.mktemp("clauses")) as server:
        for number, case in enumerate(CASES):
            samples = [
                ({**labels, "__name__": f"{labels['__name__']}{number}"}, value)
                for labels, value in case.data
            ]
            server.write(samples, at=end)
        with contextlib.closing(Client(server, time=end)) as client:
            yield client


@pytest.mark.parametrize(
    ("number", "case"),
    [pytest.param(*each, id=f"{each[1].clause}-{each[0]}") for each in enumerate(CASES)],
)
def test_a_clause_is_needed(client, monkeypatch, number, case):
    step = step_of(re.sub(r"\b[AB]\b", rf"\g<0>{number}", case.query), case.binding)
    proved = scope.sharing(step)

    monkeypatch.setattr(clauses, case.clause, FACTS.get(case.clause, lambda *_, **__: None))
    weakened = scope.sharing(step)

    assert _WIDTH.index(weakened.scope) > _WIDTH.index(proved.scope), weakened
    questions = _QUESTIONS if case.binding.namespace else _QUESTIONS_OF_NODES
    found = worlds.differences(client, step, weakened.scope, questions, Selector())
    assert list(found) != []


def test_every_clause_has_a_case():
    assert {case.clause for case in CASES} == CLAUSES | FACTS.keys()
