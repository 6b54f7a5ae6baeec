"""Past pods: which names are those of a workload's pods, and how states are read."""

from __future__ import annotations

import re

import pytest

from rules.errors import UnreadableError
from rules.hpa import past_pods
from rules.hpa.autoscaler import Reference
from rules.hpa.past_pods import States
from rules.selectors import selectors
from tests.adapter.server.evaluation.support import USED


def reference(kind, name="web"):
    return Reference(api_version="apps/v1", kind=kind, name=name)


def pattern(kind):
    query = past_pods.named("n", reference(kind), USED.steps)
    return re.search('pod=~"(.*?)"', query).group(1).replace("\\\\", "\\")


@pytest.mark.parametrize(
    ("kind", "name", "matches"),
    [
        ("Deployment", "web-6f7c9d5b4-x8k2p", True),
        ("Deployment", "web-5c9f-bbbbb", True),
        ("Deployment", "web-train-x8k2p", False),  # of a Job: no hash has a vowel
        ("Deployment", "web-api-6f7c9d5b4-x8k2p", False),
        ("Deployment", "web-6f7c9d5b4", False),
        ("Deployment", "web-0", False),
        ("ReplicaSet", "web-x8k2p", True),
        ("ReplicaSet", "web-6f7c9d5b4-x8k2p", False),
        ("ReplicaSet", "web-train", False),
        ("StatefulSet", "web-12", True),
        ("StatefulSet", "web-x8k2p", False),
        ("Rollout", "web-6f7c9d5b4-x8k2p", True),
        ("LeaderWorkerSet", "web-12", True),
        ("LeaderWorkerSet", "web-12-3", True),
        ("LeaderWorkerSet", "web-12-3-0", False),
    ],
)
def test_names_of_pods_have_hashes_that_no_word_fits(kind, name, matches):
    assert bool(re.fullmatch(pattern(kind), name)) is matches


@pytest.mark.parametrize("workload", [reference("Widget"), reference("Deployment", "w" * 47)])
def test_names_that_are_not_certain_are_refused(workload):
    with pytest.raises(UnreadableError, match=f"past pods of {workload} are not certain"):
        past_pods.named("n", workload, USED.steps)


SETS = "leaderworkerset.sigs.k8s.io"


def test_the_pods_that_a_scale_selects_are_those_of_the_leaders():
    target = Reference(api_version="x/v1", kind="LeaderWorkerSet", name="llm")
    leaders = selectors.parse(f"{SETS}/name=llm,{SETS}/worker-index=0")

    found = past_pods.of_scale(target, leaders)

    assert str(found) == "StatefulSet/llm"
    assert past_pods.of_scale(target, selectors.parse("app=llm")) is target
    assert 'owner_name="llm"' in past_pods.owned("n", found)
    assert 'owner_name=~"llm(-[0-9]+)?"' in past_pods.owned("n", target)


def test_leaders_of_another_kind_are_not_certain():
    entry = selectors.parse("modelserving.volcano.sh/name=llm,modelserving.volcano.sh/entry=true")
    with pytest.raises(UnreadableError, match="past pods of ModelServing/llm are not certain"):
        past_pods.of_scale(reference("ModelServing", "llm"), entry)


def test_pods_have_the_states_that_kube_state_metrics_says():
    names = [({"pod": each}, 1000, 1.0) for each in ("c", "b", "a")]
    states = [
        ({"pod": "a", "of": "since"}, 1000, 0.25),
        ({"pod": "b", "of": "phase", "phase": "Succeeded"}, 1000, 1.0),
        ({"pod": "b", "of": "deleted"}, 1000, 7.0),
        ({"pod": "c", "of": "unready"}, 1000, 0.0),
        ({"pod": "other", "of": "unready"}, 1000, 0.0),
    ]

    now, later = States().read(names, states, [1000, 2000])

    assert [(each.name, each.phase, each.deleted, each.ready) for each in now.pods] == [
        ("a", "Running", False, "True"),
        ("b", "Succeeded", True, "False"),
        ("c", "Running", False, "False"),
    ]
    assert (now.live, now.ready, now.ready_since) == (("a", "c"), 1, {"a": 0.25})
    assert later.pods == ()


def test_without_the_time_at_which_pods_became_ready_it_is_the_first_sync_that_says_so():
    names = [({"pod": "a"}, time, 1.0) for time in (1000, 2000, 3000)]
    states = [({"pod": "a", "of": "unready"}, 1000, 0.0)]

    found = States().read(names, states, [1000, 2000, 3000])

    assert [each.ready_since for each in found] == [{}, {"a": 2.0}, {"a": 2.0}]
