"""The pages as a client sees them: content, twins, hostile names and texts."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from adapter.cli.console import guard, reader, views
from adapter.settings.kubectl import NamespaceSettings
from rules.hpa import proposal
from rules.hpa.reading import ApiReply
from tests.adapter.cli.commands.test_explain import EXPLANATION
from tests.adapter.cli.commands.test_rules import DEPLOYMENT, RULES, TEAMS
from tests.adapter.cli.console.conftest import HPAS, VALUES, World, status
from tests.rules.hpa.documents import hpa, pods_metric
from tests.rules.hpa.test_reading import SCALE
from tools.waiting import Clock, until

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'\x1b[2J\x9b31m\u202egnp.exe"
EVENTS = "/api/v1/namespaces/default/events"


def event(message: str, at: str = "2026-01-01T00:00:00Z", **fields: Any) -> dict[str, Any]:
    return {"reason": "R", "message": message, "type": "Warning", "lastTimestamp": at, **fields}


async def test_errors_come_first_with_cause_and_cure(world, start):
    world.healthy("default", "a-good-one")
    broken = ("False", "FailedGetPodsMetric", "no metrics returned: NotScraped: no GPU")
    world.add("team", "broken", pods_metric(), **status(None, ScalingActive=broken))
    limited = ("True", "TooManyReplicas", "")
    world.add("team", "limited", pods_metric(), **status("70", ScalingLimited=limited))
    world.add("team", "new", pods_metric())
    client = await start(world)

    listed = await (await client.get("/autoscalers.json")).json()

    assert [each["name"] for each in listed["items"]] == ["broken", "limited", "new", "a-good-one"]
    assert [each["state"] for each in listed["items"]] == ["failure", "warning", "warning", "ok"]
    first = listed["items"][0]
    assert first["sentence"].startswith("FailedGetPodsMetric: no metrics returned: NotScraped")
    assert (first["currentReplicas"], first["desiredReplicas"]) == (1, 2)
    assert first["metrics"][0]["current"] is None
    assert listed["summary"] == "4 autoscalers: 1 failure, 2 warnings"
    page = await (await client.get("/autoscalers")).text()
    assert page.index("team/broken") < page.index("default/a-good-one")


async def test_search_matches_each_word_anywhere(world, start):
    world.healthy("default", "bert")
    world.healthy("team", "bert")
    client = await start(world)

    page = await (await client.get("/autoscalers.json?search=TEAM+duty_cycle")).json()

    assert [each["namespace"] for each in page["items"]] == ["team"]
    nothing = await (await client.get("/autoscalers?search=%3Cb%3E")).text()
    assert "No autoscaler matches" in nothing
    assert 'value="&lt;b&gt;"' in nothing


async def test_a_row_shown_has_the_age_of_its_value_and_is_not_read_again_at_once(world, start):
    world.healthy()
    world.documents[VALUES]["items"][0]["timestamp"] = "2026-01-01T00:00:00Z"
    client = await start(world)

    async def age() -> Any:
        page = await (await client.get("/autoscalers.json")).json()
        return page["items"][0]["metrics"][0]["age"]

    await until(age)
    for _ in range(3):
        assert await age() > 0
    assert world.requests.count(VALUES) == 1


@pytest.mark.slow
async def test_only_rows_on_the_screen_are_requested(world, start):
    for index in range(100):
        world.healthy("default", f"hpa-{index:03}")
        world.healthy("hidden", f"hpa-{index:03}")
    client = await start(world)

    async def requested() -> bool:
        visible = {"X-Visible": "default/hpa-007 no/such default/hpa-008"}
        assert (await client.get("/autoscalers", headers=visible)).status == 200
        return world.requests.count(VALUES) == 2

    await until(requested)
    assert not [each for each in world.requests if "/hidden/" in each]


async def test_a_metric_that_fails_now_is_judged_before_the_controller_says_so(world, start):
    world.healthy()
    world.documents[VALUES] = ApiReply(status=404, message="the server could not find the metric")
    client = await start(world)

    async def state() -> bool:
        (row,) = (await (await client.get("/autoscalers.json")).json())["items"]
        return row["state"] == "failure" and "could not find the metric" in row["sentence"]

    await until(state)


async def test_what_the_adapter_says_replaces_the_condition(world, start):
    broken = ("False", "FailedGetPodsMetric", "the HPA was unable to compute the replica count")
    failing = status(None, ScalingActive=broken) | {"desiredReplicas": 0}
    world.add("default", "gpu-hpa", pods_metric(), **failing)
    causes = [{"reason": "NotScraped", "message": "no GPU. Scrape it"}]
    world.documents[VALUES] = ApiReply(status=404, document={"details": {"causes": causes}})
    client = await start(world)

    async def said() -> bool:
        (row,) = (await (await client.get("/autoscalers.json")).json())["items"]
        assert row["desiredReplicas"] == 1  # 0 is what the controller writes without a value
        return row["sentence"] == "NotScraped: no GPU. Scrape it"

    await until(said)


async def test_an_odd_answer_ends_no_other_look(world, start):
    world.healthy("default", "first")
    world.healthy("other", "second")
    world.documents[SCALE] = {"spec": 1}
    client = await start(world)

    async def looked() -> bool:
        first, second = (await (await client.get("/autoscalers.json")).json())["items"]
        if first["state"] != "failure":
            return False
        assert "AttributeError" in first["sentence"]
        return second["state"] == "ok" and VALUES.replace("default", "other") in world.requests

    await until(looked)


async def test_an_autoscaler_of_a_later_release_is_listed(world, start):
    world.add("default", "new", {"type": "Quantum", "quantum": {}})
    client = await start(world)

    (row,) = (await (await client.get("/autoscalers.json")).json())["items"]

    assert row["state"] == "unknown"
    assert "cannot be read" in row["sentence"]


async def test_one_autoscaler_has_decision_events_and_history(world, start, monkeypatch):
    for kind in ("decision", "events"):
        monkeypatch.setitem(reader._TTL, kind, 3600.0)
    world.healthy()
    world.documents[EVENTS] = {"items": [event("old"), event("new", "2026-01-02T00:00:00Z")]}
    client = await start(world)

    document = await (await client.get("/autoscalers/default/gpu-hpa.json")).json()
    assert document["verdict"].startswith("default/gpu-hpa scales Deployment/serving from 1 to 2 ")
    assert [each["message"] for each in document["events"]] == ["new", "old"]
    text = await (await client.get("/autoscalers/default/gpu-hpa.txt")).text()
    assert "VERDICT: default/gpu-hpa scales" in text
    page = await (await client.get("/autoscalers/default/gpu-hpa")).text()
    assert "ratio 1.575" in page
    assert document["values"] == [{"pod": "p0", "metrics": {"duty_cycle_current": "63 %"}}]
    assert 'href="/autoscalers/default/gpu-hpa?range=15m"' in page
    assert (await client.get("/autoscalers/default/gpu-hpa?range=1y")).status == 400
    before = len(world.requests)
    await client.get("/autoscalers/default/gpu-hpa")
    assert set(world.requests[before:]) <= {"/version"}
    assert '<p role="status" class="verdict ok">' in page


async def test_what_was_seen_is_drawn_with_its_gaps(world, start):
    world.healthy()
    client = await start(world)
    seen = client.reader.autoscalers
    await seen.rows()
    seen._clock = clock = Clock(time.time() + 60)
    for value in ("10", "20", None, "30", "30", "30", "30"):
        clock.now += 15
        world.cluster.put(HPAS.name, "default", "gpu-hpa", status=status(value))
        await until(lambda: seen.samples("default/gpu-hpa")[-1].time == clock.now)

    samples = seen.samples("default/gpu-hpa")[1:]
    values = (10_000, 20_000, None, 30_000, 30_000)
    assert [each.values for each in samples] == [(value,) for value in values]
    assert samples[-1].time - samples[-2].time == 45
    page = await (await client.get("/autoscalers/default/gpu-hpa")).text()
    assert page.count('<polyline class="value"') == 3  # two parts of the value, and replicas


async def test_each_change_is_seen_however_soon_the_next_one_follows(world, start):
    world.add("default", "gpu-hpa", pods_metric())
    client = await start(world)
    seen = client.reader.autoscalers
    await seen.rows()
    assert not seen.samples("default/gpu-hpa")  # the controller has not synced
    for present in (1, 4, 7):
        changed = {**status("63"), "currentReplicas": present}
        world.cluster.put(HPAS.name, "default", "gpu-hpa", status=changed)

    await until(lambda: len(seen.samples("default/gpu-hpa")) == 3)
    assert [each.present for each in seen.samples("default/gpu-hpa")] == [1, 4, 7]


async def test_rescales_before_the_console_are_drawn_from_events(world, start):
    def rescale(size: int, ago: int, **fields: Any) -> dict[str, Any]:
        at = datetime.fromtimestamp(time.time() - ago, UTC).isoformat()
        message = f"New size: {size}; reason: pods metric duty_cycle_current above target"
        return event(message, at, **fields) | {"reason": "SuccessfulRescale"}

    world.healthy()
    world.documents[EVENTS] = {
        "items": [
            rescale(9, 1800),
            rescale(3, 1200, count=2),  # its first time is not known: what was before, too
            rescale(7, 600),
            event("New size: 99; reason: not an Event of a rescale", "2026-01-01T00:30:00Z"),
        ]
    }
    client = await start(world)

    document = await (await client.get("/autoscalers/default/gpu-hpa.json")).json()
    page = await (await client.get("/autoscalers/default/gpu-hpa")).text()

    replicas = [(each["currentReplicas"], each["desiredReplicas"]) for each in document["history"]]
    assert replicas[:3] == [(None, 3), (None, 7), (1, 2)]
    assert document["historySource"].startswith("Desired replicas from Events, and as seen since")
    assert "desired: 2 to 7" in page


async def test_an_autoscaler_that_does_not_exist_is_404_in_each_form(world, start):
    client = await start(world)

    for suffix in ("", ".json", ".txt"):
        response = await client.get(f"/autoscalers/default/nope{suffix}")
        assert response.status == 404
        assert "not found" in await response.text()


async def test_an_autoscaler_whose_target_is_missing_has_the_cause_of_its_row(world, start):
    broken = ("False", "FailedGetScale", 'deployments.apps "serving" not found')
    world.add("default", "gpu-hpa", pods_metric(), **status(None, AbleToScale=broken))
    world.documents[SCALE] = ApiReply(status=404, message=broken[2])
    client = await start(world)
    await client.get("/autoscalers")

    page = await (await client.get("/autoscalers/default/gpu-hpa")).text()

    assert "<h1>default/gpu-hpa</h1>" in page
    assert 'class="verdict failure">FailedGetScale: deployments.apps &#34;serving&#34; not' in page
    assert "Correct scaleTargetRef in the HPA" in page


async def test_a_name_that_ends_like_a_twin_has_an_address(world, start):
    world.healthy("default", "a.json")
    client = await start(world)

    page = await (await client.get("/autoscalers")).text()

    assert 'href="/autoscalers/default/a.json.html"' in page
    assert "default/a.json" in await (await client.get("/autoscalers/default/a.json.html")).text()


@pytest.mark.slow
async def test_while_the_api_server_hangs_pages_show_their_state_and_age(world, start, monkeypatch):
    world.healthy()
    client = await start(world)
    one = "/autoscalers/default/gpu-hpa"
    before = await (await client.get(f"{one}.json")).json()
    world.hangs = True

    async def warned() -> Any:
        return (await (await client.get("/autoscalers.json")).json()).get("warning")

    await until(warned, seconds=25)  # the timeout of a request for HPAs is 30 s

    assert (await warned()).startswith("The API server does not respond. This page shows the state")
    page = await (await client.get("/autoscalers")).text()
    assert re.search(r'class="state ok">ok</span><br><small>\d+ s ago<', page)
    monkeypatch.setitem(reader._TTL, "decision", 0.0)
    kept = await (await client.get(f"{one}.json")).json()
    assert kept["verdict"] == before["verdict"]
    lines = (await (await client.get("/adapter.txt")).text()).splitlines()
    assert lines[1:] == ["The API server does not respond"]
    world.hangs = False

    async def well() -> bool:
        return await warned() is None

    await until(well)


async def test_what_this_user_cannot_tell_is_no_failure(world, start):
    world.healthy("default", "a")
    world.healthy("team", "b")
    world.documents[VALUES] = "<html>a proxy</html>"
    world.documents[VALUES.replace("default", "team")] = ApiReply(status=403, message="forbidden")
    client = await start(world)

    async def looked() -> bool:
        listed = await (await client.get("/autoscalers.json")).json()
        states = [each["state"] for each in listed["items"]]
        assert "failure" not in states
        return states == ["unknown", "ok"] and "0 failures, 0 warnings, 1 un" in listed["summary"]

    await until(looked)


def add_rules(world: World) -> None:
    """Let the adapter have rules of its own and of a team."""
    world.documents["/apis/apps/v1/deployments"] = {"items": [DEPLOYMENT]}
    world.documents["/api/v1/configmaps"] = {"items": TEAMS}
    world.documents["/api/v1/namespaces/gpu/configmaps/adapter"] = {
        "metadata": {"name": "adapter"},
        "data": {"config.yaml": RULES},
    }


def add_pod(world: World, readyz: str) -> None:
    """Let the adapter have the pod `one`, whose health checks are `readyz`."""
    apiservice = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io"
    world.documents[apiservice] = {"spec": {"service": {"namespace": "gpu", "name": "gpu"}}}
    world.documents["/api/v1/namespaces/gpu/services/gpu"] = {"spec": {"selector": {"a": "b"}}}
    pod = {
        "metadata": {"name": "one"},
        "spec": {"nodeName": "n1", "containers": [{"ports": [{"containerPort": 6443}]}]},
        "status": {"phase": "Running", "containerStatuses": [{"restartCount": 2, "image": "i"}]},
    }
    world.documents["/api/v1/namespaces/gpu/pods"] = {"items": [pod]}
    world.documents["/api/v1/namespaces/gpu/pods/https:one:6443/proxy/readyz"] = readyz


async def test_rules_in_use_are_those_of_the_command(world, start):
    add_rules(world)
    client = await start(world)

    document = await (await client.get("/rules.json?search=team-a+util")).json()

    (row,) = document["items"]
    assert (row["team"], row["metric"]) == ("team-a", "util")
    assert document["relists"] == ["no pod of the adapter says when it listed series last"]
    page = await (await client.get("/rules")).text()
    assert "preset gpu-node" in page
    assert "DCGM_FI_DEV_GPU_UTIL" in page
    world.documents["/apis/apps/v1/deployments"] = {"items": []}
    assert (
        "no Deployment of gpu-metrics-adapter"
        in await (await (await start(world)).get("/rules")).text()
    )


async def test_rules_in_use_have_the_last_relists_of_the_pods(world, start):
    add_rules(world)
    add_pod(world, "[+]ping ok\n[+]rules ok: 2 of 2 rules listed by their last relist\nreadyz ok\n")
    client = await start(world)

    document = await (await client.get("/rules.json")).json()

    assert document["relists"] == ["one: rules ok: 2 of 2 rules listed by their last relist"]


async def test_each_error_has_the_navigation(world, start):
    client = await start(world)

    for address in ("/nothing", "/autoscalers/default/none", "/autoscalers?sort=x&page=1"):
        response = await client.get(address)
        assert response.status in {400, 404}
        assert '<a href="/doctor">' in await response.text()
    assert "there is no page nothing" in await (await client.get("/nothing.txt")).text()


async def test_a_page_has_a_hundred_rows_and_its_twins_all(world, start):
    for index in range(130):
        world.add(f"team-{index % 2}", f"hpa-{index:03}", pods_metric(), **status("63"))
    client = await start(world)
    address = "/autoscalers?namespace=team-0&sort=name"

    page = await (await client.get("/autoscalers", headers={"X-Visible": "team-1/hpa-001"})).text()

    assert page.count("<tr") == 101
    assert "130 autoscalers: 0 failures, 0 warnings<" in page
    assert 'href="/autoscalers?page=2"' in page
    assert (await (await client.get("/autoscalers?page=2")).text()).count("<tr") == 31
    listed = await (await client.get("/autoscalers.json")).json()
    assert len(listed["items"]) == listed["matching"] == 130
    filtered = await (await client.get(address)).text()
    assert filtered.count("<tr") == 66
    assert "130 autoscalers: 0 failures, 0 warnings; 65 match" in filtered
    assert 'href="/autoscalers?namespace=team-0&amp;state=ok&amp;sort=name"' in filtered


async def test_doctor_has_its_findings(world, start):
    client = await start(world)

    document = await (await client.get("/doctor.json")).json()

    assert document["findings"]
    assert document["failures"] >= 1
    assert document["findings"][0]["subject"] in await (await client.get("/doctor")).text()
    assert (await (await client.get("/doctor.txt")).text()).splitlines()[-1] == document["summary"]


def denied(namespace: str = "") -> ApiReply:
    within = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    resource = 'resource "horizontalpodautoscalers" in API group "autoscaling"'
    message = (
        f'horizontalpodautoscalers.autoscaling is forbidden: User "jane" cannot list {resource}'
    )
    return ApiReply(status=403, message=message + within)


async def test_without_the_right_to_list_all_the_namespace_of_the_context_is_shown(world, start):
    world.healthy()
    world.healthy("team", "hidden")
    world.documents["/apis/autoscaling/v2/horizontalpodautoscalers"] = denied()
    client = await start(world)

    listed = await (await client.get("/autoscalers.json")).json()

    assert [each["name"] for each in listed["items"]] == ["gpu-hpa"]
    (note,) = listed["notes"]
    assert note.startswith("you lack a right: horizontalpodautoscalers.autoscaling is forbidden")
    cure = "kubectl create clusterrole list-horizontalpodautoscalers --verb=list --resource="
    assert cure in note
    assert cure in await (await client.get("/autoscalers")).text()
    assert "serving" in await (await client.get("/autoscalers/default/gpu-hpa.txt")).text()


@pytest.mark.parametrize(
    ("flags", "names", "problem"),
    [
        (NamespaceSettings(names=("team", "other")), ["a"], ""),
        (NamespaceSettings(names=("team", "secret")), ["a"], "kubectl -n secret create role list-"),
        (NamespaceSettings(names=("secret",)), [], "kubectl -n secret create role list-"),
        (NamespaceSettings(all=True), [], "kubectl create clusterrole list-"),
    ],
)
async def test_only_given_namespaces_are_listed(world, start, flags, names, problem):
    path = "/apis/autoscaling/v2{}/horizontalpodautoscalers"
    world.documents[path.format("")] = denied()
    world.documents[path.format("/namespaces/secret")] = denied("secret")
    world.healthy()
    world.healthy("team", "a")
    client = await start(world, namespaces=flags)

    response = await client.get("/autoscalers.json")

    listed = await response.json()
    assert [each["name"] for each in listed.get("items", ())] == names
    assert problem in await response.text()
    assert response.status == (200 if names else 502)


async def test_a_metric_that_the_user_may_not_read_is_named_with_the_right(world, start):
    world.healthy()
    message = denied("default").message.replace("autoscaling", "custom.metrics.k8s.io")
    world.documents[VALUES] = ApiReply(status=403, message=message)
    client = await start(world)

    async def noted() -> Any:
        return (await (await client.get("/autoscalers.json")).json())["notes"]

    await until(noted)
    assert "set rbac.aggregateToView of the chart" in (await noted())[0]
    one = await (await client.get("/autoscalers/default/gpu-hpa")).text()
    assert 'class="verdict unknown"' in one


async def test_a_refused_list_says_why(world, start):
    path = "/apis/autoscaling/v2/horizontalpodautoscalers"
    world.documents[path] = ApiReply(status=403, message="user x cannot list <b>all</b> HPAs")
    client = await start(world, namespaces=NamespaceSettings(all=True))

    response = await client.get("/autoscalers")

    assert response.status == 502
    assert "user x cannot list &lt;b&gt;all&lt;/b&gt; HPAs" in await response.text()


async def test_hostile_content_is_text_in_each_form(world, start):
    broken = ("False", "Failed", HOSTILE)
    world.add("default", "gpu-hpa", pods_metric(name=HOSTILE), **status("1", AbleToScale=broken))
    world.documents[EVENTS] = {"items": [event(HOSTILE, HOSTILE, reason=HOSTILE, type=HOSTILE)]}
    client = await start(world)

    for address in ("/autoscalers", "/autoscalers/default/gpu-hpa", f"/autoscalers?search={'<b>'}"):
        page = await (await client.get(address)).text()
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "<b>" not in page
        assert page.replace("\n", "").isprintable()
    for address in ("/autoscalers.txt", "/autoscalers/default/gpu-hpa.txt"):
        response = await client.get(address)
        assert response.content_type == "text/plain"
        text = await response.text()
        assert r"\x1b[2J" in text
        assert text.replace("\n", "").isprintable()
    listed = await (await client.get("/autoscalers.json")).text()
    assert listed.isascii()
    assert json.loads(listed)["items"][0]["metrics"][0]["name"] == HOSTILE


@pytest.mark.slow
@pytest.mark.parametrize("address", ["/autoscalers", "/doctor", "/static/console.js", "/nothing"])
async def test_each_response_has_the_headers(world, start, address):
    client = await start(world)

    response = await client.get(address)

    assert {name: response.headers[name] for name in guard.HEADERS} == dict(guard.HEADERS)
    assert "unsafe" not in response.headers["Content-Security-Policy"]


async def test_a_page_that_did_not_change_is_304(world, start):
    client = await start(world)
    first = await client.get("/autoscalers")

    again = await client.get("/autoscalers", headers={"If-None-Match": first.headers["ETag"]})

    assert (again.status, await again.read()) == (304, b"")


async def test_all_addresses_are_below_the_prefix(world, start):
    world.healthy()
    client = await start(world, prefix="/team/console")

    for address in ("/team/console", "/team/console/"):
        response = await client.get(address, allow_redirects=False)
        assert response.headers["Location"] == "/team/console/autoscalers"
    page = await (await client.get("/team/console/autoscalers")).text()
    links = page.replace('href="#main"', "").split('href="')[1:] + page.split('src="')[1:]
    assert all(each.startswith("/team/console/") for each in links)
    assert (await client.get("/autoscalers")).status == 404


LISTED = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNALS = "/apis/external.metrics.k8s.io/v1beta1"


async def test_metrics_are_listed_with_their_kinds(world, start):
    world.healthy()
    names = ("pods/duty", "deployments.apps/duty", "nodes/duty", "namespaces/queue")
    world.documents[LISTED] = {
        "resources": [
            {"name": each, "namespaced": not each.startswith(("nodes", "namespaces"))}
            for each in names
        ]
    }
    world.documents[EXTERNALS] = {"resources": [{"name": "Jobs", "namespaced": True}]}
    client = await start(world)

    listed = await (await client.get("/metrics.json")).json()

    assert {each["metric"]: each["objects"] for each in listed["items"]} == {
        "duty": ["deployments.apps", "nodes", "pods"],
        "Jobs": ["external"],
        "queue": ["namespaces"],
    }
    for search in ("external", "Jobs"):
        found = await (await client.get(f"/metrics.txt?search={search}")).text()
        assert found.splitlines() == ["1 metric", "Jobs  external"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("pods/duty_cycle_current", f"{LISTED}/namespaces/default/pods/*/duty_cycle_current"),
        ("pods/duty_cycle_current?namespace=a", f"{LISTED}/namespaces/a/pods/*/duty_cycle_current"),
        ("nodes/duty", f"{LISTED}/nodes/*/duty"),
        ("namespaces/queue?namespace=a", f"{LISTED}/namespaces/a/metrics/queue"),
        ("external/jobs?namespace=a", f"{EXTERNALS}/namespaces/a/jobs"),
    ],
)
async def test_a_metric_is_explained_for_one_namespace(world, start, address, path):
    world.healthy()
    world.documents[LISTED] = {"resources": [{"name": "nodes/duty", "namespaced": False}]}
    world.documents[f"{path}?explain=true"] = EXPLANATION | {"verdict": HOSTILE}
    client = await start(world)

    response = await client.get(f"/metrics/{address}")

    assert response.status == 200
    page = await response.text()
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    if "duty_cycle" in address:
        assert 'href="/autoscalers/default/gpu-hpa"' in page
    again = len(world.requests)
    await client.get(f"/metrics/{address}")
    assert path not in world.requests[again:]


async def test_without_prometheus_exporters_say_what_is_missing(world, start):
    client = await start(world)

    response = await client.get("/exporters.txt")

    assert response.status == 404
    assert "--prometheus-url" in await response.text()


async def test_the_adapter_has_its_pods_with_their_checks(world, start):
    readyz = (
        "[+]ping ok\n[!]prometheus degraded: <b>slow</b>\n[-]relist failed: never\n"
        "[+]team-rules ok: 4 ConfigMaps of 2 namespaces, 1 refused\nreadyz ok\n"
    )
    add_pod(world, readyz)
    client = await start(world)

    document = await (await client.get("/adapter.json")).json()

    assert document["summary"] == "1 pod, 3 health checks not ok"
    (shown,) = document["pods"]
    assert (shown["node"], shown["restarts"]) == ("n1", 2)
    assert [each["state"] for each in shown["checks"]] == ["ok", "warning", "failure", "warning"]
    page = await (await client.get("/adapter")).text()
    assert "degraded: &lt;b&gt;slow&lt;/b&gt;" in page
    assert "failure relist: relist failed: never" in await (await client.get("/adapter.txt")).text()


def test_a_pod_that_is_not_ready_does_not_count() -> None:
    found = proposal.failed(hpa(pods_metric()).metrics[0], "no value")
    unready = replace(found, groups=proposal.Groups(unready=("a",)))

    (row,) = views._values_of_pods([unready])

    assert row["metrics"] == {"duty_cycle_current": "not ready: does not count"}
