"""Rules of teams in ConfigMaps: what is in use, in whatever order ConfigMaps come and change."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest

from adapter import errors
from adapter.server.teams import config_maps
from adapter.server.teams.config_maps import ConfigMapIndex, WatchedConfigMap
from adapter.server.teams.rules import TeamRules
from rules import findings, limits, teams
from rules.causes.reasons import Reason
from rules.limits import Key, Limits
from rules.teams import ConfigMap

RULE = """\
- seriesQuery: {name}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
"""
SMALL = limits.DEFAULT.with_values(
    {"team-config-maps": 3, "team-rules": 4, "team-rules-all": 9, "team-text": 2_000}
)


VERSIONS = itertools.count()


def text(*names: str) -> str:
    return "rules:\n" + "".join(RULE.format(name=each) for each in names)


def document(
    rules: str, *, namespace: str = "a", name: str = "rules", created: str = "", **data: str
) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"{namespace}/{name}",
            "creationTimestamp": created or "2026-01-01T00:00:00Z",
        },
        "data": {"rules.yaml": rules, **data},
    }


class Replica:
    """Watch of ConfigMaps and the rules of teams; `objects` is what the API server has."""

    def __init__(self, limits: Limits = SMALL, *, began: float = 0.0) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.index: ConfigMapIndex | None = ConfigMapIndex(20_000)
        self.now = began
        self.fetched: list[Key] = []
        self.requests = 0
        self.failure: Exception | None = None
        self.rules = TeamRules(
            lambda: self.index, self.fetch, label="namespace", limits=limits, clock=lambda: self.now
        )

    def put(self, *documents: dict[str, Any]) -> None:
        assert self.index is not None
        for each in documents:
            metadata = {**each["metadata"], "resourceVersion": str(next(VERSIONS))}
            item = config_maps.parse({"metadata": metadata})
            self.objects[item.namespace, item.name] = each
            self.index.put(item)

    def remove(self, *key: str) -> None:
        assert self.index is not None
        del self.objects[key[0], key[1]]
        self.index.remove(*key)

    async def fetch(self, watched: WatchedConfigMap) -> dict[str, Any] | None:
        self.fetched.append(watched.key)
        if self.failure is not None:
            raise self.failure
        return self.objects.get(watched.key)

    async def settle(self) -> None:
        """Let everything be read that is due, and let it be used."""
        for _ in range(20):
            self.now += 10
            await self.rules.look(self.request)
            self.rules.adopted(self.rules.in_use.version)

    def request(self) -> None:
        self.requests += 1

    @property
    def in_use(self) -> dict[str, list[str | None]]:
        found = self.rules.in_use.rulesets.items()
        return {"/".join(key): [rule.pinned_series for rule in own.all] for key, own in found}

    def states(self, namespace: str = "a") -> dict[str, str | None]:
        return {each.name: state for each, state in self.rules.states(namespace)}


async def test_a_defect_beside_the_rules_refuses_that_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = teams.read

    def failing(document: Any) -> ConfigMap:
        if document["metadata"]["name"] == "bad":
            raise RecursionError
        return read(document)

    monkeypatch.setattr(teams, "read", failing)
    replica = Replica()
    replica.put(document(text("m"), name="bad"), document(text("n")))

    await replica.settle()

    assert replica.in_use == {"a/rules": ["n"]}
    assert "RecursionError" in (replica.states()["bad"] or "")


@pytest.mark.parametrize("failure", [RecursionError, MemoryError, AssertionError])
async def test_whatever_fails_while_one_is_read_refuses_that_one_alone(
    monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    load = teams._load

    def failing(config_map: ConfigMap, team: Any) -> Any:
        if config_map.name == "bad":
            raise failure
        return load(config_map, team)

    monkeypatch.setattr(teams, "_load", failing)
    replica = Replica()
    replica.put(document(text("m")), document(text("n"), name="bad"))
    replica.put(document(text("o"), namespace="b"))

    await replica.settle()

    assert replica.in_use == {"a/rules": ["m"], "b/rules": ["o"]}
    assert failure.__name__ in (replica.states()["bad"] or "")
    assert replica.states()["rules"] == ""
    (cause,) = replica.rules.causes("a")
    assert cause.reason == Reason.RULES_REFUSED
    assert cause.sentence.count("bad") == 1
    assert replica.rules.causes("b") == ()


async def test_a_refused_version_has_no_effect() -> None:
    replica, restarted = Replica(), Replica()
    replica.put(document(text("m")))
    await replica.settle()
    assert replica.in_use == {"a/rules": ["m"]}

    for each in (replica, restarted):
        each.put(document("rules: ["))
        await each.settle()

    assert replica.in_use == restarted.in_use == {}
    assert "invalid YAML" in (replica.states()["rules"] or "")


async def test_a_namespace_is_pending_until_its_rules_are_in_use() -> None:
    replica = Replica()
    index, replica.index = replica.index, None
    await replica.rules.look(replica.request)
    for namespace in ("a", "b"):
        cause = replica.rules.pending(namespace)
        assert cause is not None
        assert cause.reason == Reason.RULES_NOT_LOADED
    with pytest.raises(RuntimeError):
        replica.rules.check()

    replica.index = index
    replica.put(document(text("m")))
    await replica.rules.look(replica.request)

    assert replica.rules.pending("a") is not None  # read, but not in use
    assert replica.rules.pending("b") is None
    with pytest.raises(RuntimeError):
        replica.rules.check()
    replica.rules.adopted(replica.rules.in_use.version)
    assert replica.rules.pending("a") is None
    assert replica.rules.check().fact == "1 ConfigMaps of 1 namespaces, 0 refused"
    replica.index = None
    assert replica.rules.check().state is findings.State.WARNING


async def test_a_namespace_is_pending_while_others_are_read() -> None:
    replica = Replica()
    replica.put(*(document(text("m"), namespace=each) for each in "abc"))
    seen: list[bool] = []
    fetch = replica.rules._fetch

    async def noted(watched: WatchedConfigMap) -> Any:
        seen.append(all(replica.rules.pending(each) for each in "abc"))
        return await fetch(watched)

    replica.rules._fetch = noted
    await replica.rules.look(replica.request)

    assert seen == [True] * 3


async def test_a_list_that_does_not_come_is_awaited_for_ten_seconds() -> None:
    replica = Replica()
    replica.index = None
    replica.now = 9.9
    assert replica.rules.pending("a") is not None
    replica.now = 10.0
    await replica.rules.look(replica.request)

    assert replica.rules.pending("a") is None
    assert [each.reason for each in replica.rules.causes("a")] == [Reason.RULES_UNREADABLE]
    assert replica.rules.check().state is findings.State.WARNING


async def test_only_what_changes_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    load = teams.load

    def noted(config_map: ConfigMap, **more: Any) -> Any:
        read.append(str(config_map))
        return load(config_map, **more)

    monkeypatch.setattr(teams, "load", noted)
    replica = Replica()
    replica.put(document(text("m")), document(text("n"), namespace="b"))
    await replica.settle()
    assert sorted(read) == ["a/rules", "b/rules"]

    changed = document(text("m"))
    changed["metadata"]["annotations"] = {"any": "thing", config_maps.STATUS: "status"}
    replica.put(changed, document(text("o"), namespace="b"))
    await replica.settle()

    assert sorted(read) == ["a/rules", "b/rules", "b/rules"]
    assert replica.in_use == {"a/rules": ["m"], "b/rules": ["o"]}
    assert replica.requests == 2


async def test_of_3_000_refused_ones_of_a_namespace_only_those_in_the_limit_are_read() -> None:
    replica = Replica(limits.DEFAULT)
    replica.put(*(document("rules: [", name=f"c{number}") for number in range(3_000)))
    replica.put(document(text("m"), namespace="b", created="2026-02-01"))

    await replica.rules.look(replica.request)

    assert replica.fetched.index(("b", "rules")) == 1  # after the first of the other namespace
    assert replica.in_use == {"b/rules": ["m"]}
    await replica.settle()
    assert len(replica.fetched) == 101
    assert replica.rules.check().fact == "3001 ConfigMaps of 2 namespaces, 3000 refused"


async def test_those_beyond_the_number_that_is_kept_are_counted_as_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The index keeps the names of 20 at most; `a` has its share of 10 admitted."""
    replica = Replica()
    replica.index = ConfigMapIndex(10)
    replica.put(*(document(text("m"), name=f"c{number}") for number in range(25)))
    replica.put(document(text("n"), namespace="b"))

    await replica.settle()

    assert replica.rules.count("a") == 25
    assert replica.in_use["b/rules"] == ["n"]
    assert replica.rules.check().fact == "26 ConfigMaps of 2 namespaces, 22 refused"
    (line,) = (each for each in caplog.messages if "too many" in each)
    assert "16 ConfigMaps" in line
    assert "in a: " in line
    assert "--limit=team-config-maps-all=" in line


async def test_a_free_place_is_taken_by_one_that_was_not_read() -> None:
    replica = Replica()
    for number in range(4):
        replica.put(
            document(text(f"m{number}"), name=f"c{number}", created=f"2026-01-0{number + 1}")
        )
    await replica.settle()
    assert sorted(replica.in_use) == ["a/c0", "a/c1", "a/c2"]
    assert "--limit=team-config-maps=NUMBER" in (replica.states()["c3"] or "")
    assert ("a", "c3") not in replica.fetched

    replica.remove("a", "c0")
    replica.failure = errors.Unreachable("down")
    await replica.settle()
    assert replica.states()["c3"] is None
    replica.failure = None
    await replica.settle()

    assert replica.in_use == {"a/c1": ["m1"], "a/c2": ["m2"], "a/c3": ["m3"]}
    assert replica.fetched[:4] == [("a", "c0"), ("a", "c1"), ("a", "c2"), ("a", "c3")]


async def test_rules_that_the_limit_left_out_are_read_again_when_there_is_room() -> None:
    replica = Replica()
    replica.put(
        document(text("m", "n"), name="old", created="2026-01-01"),
        document(text("o", "p", "q"), name="young", created="2026-01-02"),
    )
    await replica.settle()
    assert replica.in_use == {"a/old": ["m", "n"]}
    assert "--limit=team-rules=NUMBER" in (replica.states()["young"] or "")

    replica.put(document(text("m"), name="old", created="2026-01-01"))
    await replica.settle()

    assert replica.in_use == {"a/old": ["m"], "a/young": ["o", "p", "q"]}


async def test_what_is_kept_of_one_that_is_refused_is_short() -> None:
    replica = Replica()
    replica.put(
        document("x" * 100_000, name="large"),
        document("rules:\n" + "- {x: y}\n" * 200, name="bad"),
        document("rules: [", name="with-notes", **{"notes.txt": "y" * 100_000}),
    )
    await replica.settle()

    assert all(replica.states().values())
    assert "has 100000 characters" in (replica.states()["large"] or "")
    assert len(pickle.dumps((replica.rules._outcomes, replica.rules._plan))) < 5_000


async def test_a_namespace_with_many_changes_delays_only_itself() -> None:
    replica = Replica()
    loads = 0
    for number in range(40):
        replica.put(document(text(f"m{number}")))
        replica.now += 0.5
        before = replica.states().get("rules"), replica.in_use
        await replica.rules.look(replica.request)
        loads += replica.in_use != before[1]
        if number == 30:
            replica.put(document(text("n"), namespace="b"))
            await replica.rules.look(replica.request)
            assert replica.in_use["b/rules"] == ["n"]
    assert 6 <= loads <= 8  # three at once, and one each 5 s

    await replica.settle()
    assert replica.in_use["a/rules"] == ["m39"]
