"""What teams learn of their ConfigMaps: the document, Events and the annotation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapter import errors
from adapter.server.series import generation
from adapter.server.teams import report
from adapter.server.teams.reports import Reports
from rules import ruleset, teams
from rules.kinds import Kinds
from rules.ruleset import RuleSet
from tests.adapter.server.teams.test_rules import Replica, document, text

CLUSTER = ruleset.load([("c.yaml", text("shared"))])


class Kube:
    """Records what is written."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.annotated: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self.attempts = 0

    async def post(self, path: str, document: dict[str, Any]) -> None:
        self._attempt()
        self.events.append(document)

    async def patch(self, path: str, document: dict[str, Any]) -> None:
        self._attempt()
        (status,) = document["metadata"]["annotations"].values()
        self.annotated.append((path.removeprefix("/api/v1/namespaces/"), status))

    def _attempt(self) -> None:
        self.attempts += 1
        if self.error is not None:
            raise self.error

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(each["involvedObject"]["namespace"], each["reason"]) for each in self.events]


class Served:
    """A replica whose rules are in use, and its reports."""

    def __init__(self, *, annotate: bool = False) -> None:
        self.replica = Replica()
        self.kube = Kube()
        self.generation = generation.build(CLUSTER, {}, {}, Kinds.builtin())
        self.reports = Reports(
            self.replica.rules, lambda: self.generation, self.kube, annotate=annotate
        )

    async def look(self) -> None:
        await self.replica.settle()
        merged: RuleSet = teams.merge(CLUSTER, self.replica.rules.in_use.rulesets)
        self.generation = generation.build(merged, {}, {}, Kinds.builtin())
        await self.reports.look()

    async def document(self, namespace: str = "a") -> Any:
        return await self.reports.document(namespace, self.generation.of(namespace))


async def test_the_document_has_states_metrics_and_problems() -> None:
    served = Served()
    served.replica.put(
        document("rules: [", name="bad"),
        document(text("m", "shared"), name="good"),
        document(text("other"), namespace="b"),
    )
    await served.look()

    found = await served.document()

    assert found["metadata"] == {"namespace": "a"}
    assert found["count"] == 2
    bad, good = found["items"]
    assert (bad["configMap"], bad["state"], bad["rules"]) == ("bad", "Refused", 0)
    assert bad["problems"][0].startswith("rules.yaml:2:1: error: invalid YAML")
    assert (good["configMap"], good["state"], good["rules"]) == ("good", "InUse", 2)
    assert "b/rules" not in str(found)
    assert "pods/other" not in str(found)
    assert (await served.document("c"))["items"] == []


async def test_the_document_of_many_config_maps_is_bounded() -> None:
    served = Served()
    served.replica.put(*(document("rules: [", name=f"c{each:04}") for each in range(2_000)))
    await served.look()

    found = await served.document()

    assert found["count"] == 2_000
    assert [each["configMap"] for each in found["items"]] == [f"c{each:04}" for each in range(6)]
    assert len(str(found)) < 10_000


async def test_problems_are_told_once_and_nothing_is_annotated() -> None:
    served = Served()
    served.replica.put(document("rules: ["))
    await served.look()
    await served.look()
    assert served.kube.told == [("a", "RulesRefused")]

    served.replica.put(document("rules: 1"))
    await served.look()
    served.replica.put(document(text("m")))
    await served.look()

    assert served.kube.told == [("a", "RulesRefused")] * 2
    assert not served.kube.annotated
    first, second = (each["metadata"]["name"] for each in served.kube.events)
    assert first != second


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (errors.Unreachable("down"), True),
        (errors.Broken("500", status=500), True),
        (errors.Refused("token", status=401), True),
        *((errors.Refused("no", status=status), False) for status in (403, 404, 409, 422)),
    ],
    ids=str,
)
async def test_what_the_api_server_did_not_refuse_is_written_later(
    error: errors.BackendError, again: bool
) -> None:
    served = Served(annotate=True)
    served.replica.put(document("rules: ["))
    served.kube.error = error
    await served.look()
    assert served.kube.attempts == 2
    served.kube.error = None

    await served.look()

    assert len(served.kube.events) == len(served.kube.annotated) == again


async def test_a_restarted_replica_tells_the_same_event() -> None:
    names = []
    for _ in range(2):
        served = Served()
        served.replica.put(document("rules: ["))
        await served.look()
        names += [each["metadata"]["name"] for each in served.kube.events]

    assert len(names) == 2
    assert len({*names}) == 1


async def test_events_of_one_namespace_leave_those_of_others_their_turn() -> None:
    served = Served()
    for number in range(40):
        served.replica.put(document(f"unknown{'x' * number}: 1"))
        await served.look()
    served.replica.put(document("rules: [", namespace="b"))
    await served.look()

    assert served.kube.told.count(("a", "RulesRefused")) == 20
    assert ("b", "RulesRefused") in served.kube.told


async def test_the_annotation_is_written_if_wanted_and_only_if_it_changes() -> None:
    served = Served(annotate=True)
    served.replica.put(document(text("m")))
    await served.look()
    await served.look()
    served.replica.put(document("rules: ["))
    await served.look()

    first, second = served.kube.annotated
    assert first == (
        "a/configmaps/rules",
        "1 rule in use; metrics: namespaces/m, pods/m",
    )
    assert second[1].startswith("refused: rules.yaml:2:1: error: invalid YAML")


def test_a_report_on_rules_that_cannot_be_used_says_so() -> None:
    served = Served()
    served.replica.put(document(text("m")))
    watched = next(iter(served.replica.index.values()))
    view = replace(served.generation, problem="cannot be used")

    (found,) = report.of([(watched, "")], view)

    assert (found.state, found.rules, found.problems) == ("InUse", 0, ["cannot be used"])
    assert found.status == "cannot be used"


async def test_what_cannot_be_reported_of_one_namespace_or_config_map_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served()
    served.replica.put(
        document("rules: [", name="hit"),
        document("rules: [", name="sound"),
        document("rules: [", namespace="b"),
        document("rules: [", namespace="c"),
    )
    of, create = report.of, served.kube.post

    def fail_for_b(states: Any, view: Any) -> Any:
        if any(watched.key[0] == "b" for watched, _ in states):
            raise RecursionError
        return of(states, view)

    async def fail_for_hit(path: str, document: dict[str, Any]) -> None:
        if document["involvedObject"]["name"] == "hit":
            raise RecursionError
        await create(path, document)

    monkeypatch.setattr(report, "of", fail_for_b)
    monkeypatch.setattr(served.kube, "post", fail_for_hit)
    await served.look()

    assert served.kube.told == [("a", "RulesRefused"), ("c", "RulesRefused")]
