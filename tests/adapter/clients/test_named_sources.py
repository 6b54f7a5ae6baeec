"""Clients of the Prometheus servers that `sources` of a rules file name."""

from __future__ import annotations

import asyncio

import pytest

from adapter import errors
from adapter.clients import sources
from adapter.clients.limits import Held
from rules import ruleset
from tests.adapter.clients.credentials import BASIC, EMPTY, PASSWORD, USER, kubeconfig, sent
from tools.fakes import prometheus as fakes
from tools.waiting import until


def named(text):
    """Return the sources of a rules file."""
    return ruleset.load([("rules.yaml", f"sources:\n{text}")]).sources


async def start_error(text):
    with pytest.raises(errors.StartError) as caught:
        async with sources.connect_sources(named(text)):
            pass
    return str(caught.value)


async def test_each_source_sends_its_own_credentials_and_headers(fake, account, tmp_path):
    (tmp_path / "other").write_text("of-the-file")
    config = kubeconfig(tmp_path, user={"username": USER, "password": PASSWORD})
    text = f"""
  plain: {{url: "{fake.url}"}}
  file: {{url: "{fake.url}", tokenFile: "{tmp_path}/other", headers: {{X-Scope-OrgID: b}}}}
  account: {{url: "{fake.url}", authInCluster: true, verb: POST, timeout: 7s}}
  config: {{url: "{fake.url}", authConfig: "{config.partition("=")[2]}"}}
"""
    async with sources.connect_sources(named(text)) as clients:
        for client in clients.values():
            await client.query("vector(1)")

    assert list(clients) == ["plain", "file", "account", "config"]
    assert sent(fake) == [None, "Bearer of-the-file", "Bearer from-the-kubelet", BASIC]
    assert [one.headers.get("X-Scope-OrgID") for one in fake.requests] == [None, "b", None, None]
    assert [one.verb for one in fake.requests] == ["GET", "GET", "POST", "GET"]
    assert [one.parameters["timeout"] for one in fake.requests] == ["10000ms"] * 2 + [
        "7000ms",
        "10000ms",
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("tokenFile: /none", "tokenFile=/none: No such file or directory"),
        ("caFile: /none", "TLS for Prometheus: /none: "),
        ("authConfig: /none", "authConfig=/none: "),
        ("authInCluster: true", "authInCluster: in-cluster configuration: "),
    ],
)
async def test_a_file_of_a_source_that_cannot_be_read_is_an_error_at_its_place(keys, message):
    text = await start_error(f"  a: {{url: http://p}}\n  b: {{url: http://p, {keys}}}\n")

    assert text.startswith(f"sources.b (rules.yaml:3): {message}")
    assert "--prometheus" not in text


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch"}},
        {"auth-provider": {"name": "gcp", "config": {"cmd-path": "touch"}}},
    ],
    ids=["exec", "auth-provider"],
)
async def test_a_kubeconfig_of_a_source_cannot_run_commands(tmp_path, user):
    config = kubeconfig(tmp_path, user=user)

    text = await start_error(f"  a: {{url: http://p, authConfig: {config.partition('=')[2]}}}")

    assert "the user 'it' has" in text
    assert "which runs a command: here, use a token" in text


async def test_a_source_leaves_the_other_sources_their_parts_of_the_limit_of_responses(
    fake, monkeypatch
):
    monkeypatch.setattr("adapter.clients.limits.MAX_HELD", 1 << 20)
    behave = fakes.says(EMPTY[:-1] + " " * (17 << 10) + EMPTY[-1])

    async def respond(request, received):
        if received.parameters["query"] != "slow":
            return await behave(request, received)
        return await fakes.stalls(EMPTY[:-1] + " " * length)(request, received)

    fake.behave = respond
    every = Held()
    text = f"  a: {{url: '{fake.url}'}}\n  b: {{url: '{fake.url}'}}\n"
    async with sources.connect_sources(named(text), held=every) as clients:
        length = 760 << 10
        slow = [asyncio.create_task(clients["a"].query("slow"))]
        await until(lambda: every.bytes > length)
        with pytest.raises(errors.TooLarge, match="all responses in flight together"):
            await clients["a"].query("up")
        await clients["b"].query("up")

        length = 250 << 10
        slow.append(asyncio.create_task(clients["b"].query("slow")))
        await until(lambda: every.bytes > 1010 << 10)
        with pytest.raises(errors.TooLarge, match="all responses in flight together"):
            await clients["b"].query("up")
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
