"""The cluster and the user that kubectl's flags and kubeconfig files select."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from aiohttp import web

from adapter import errors
from adapter.clients import kubectl
from adapter.clients.kubernetes import Kube
from adapter.settings.command_line import parse
from adapter.settings.kubectl import KubectlSettings

FIRST = {
    "current-context": "dev",
    "contexts": [
        {"name": "dev", "context": {"cluster": "one", "user": "jane", "namespace": "team-a"}},
        {"name": "prod", "context": {"cluster": "two", "user": "admin"}},
    ],
    "clusters": [
        {"name": "one", "cluster": {"server": "https://one", "certificate-authority": "ca.crt"}}
    ],
    "users": [{"name": "jane", "user": {"token": "first"}}],
}
SECOND = {
    "current-context": "prod",
    "clusters": [
        {"name": "one", "cluster": {"server": "https://other"}},
        {"name": "two", "cluster": {"server": "https://two", "tls-server-name": "two"}},
    ],
    "users": [{"name": "admin", "user": {"exec": {"command": "x"}, "as": "root"}}],
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    paths = (tmp_path / "absent", tmp_path / "a" / "first", tmp_path / "second")
    paths[1].parent.mkdir()
    for path, document in zip(paths[1:], (FIRST, SECOND), strict=True):
        path.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))
    return tmp_path


def flags(*arguments: str) -> KubectlSettings:
    line = parse(arguments, [KubectlSettings])
    assert line.problems == ()
    return line.groups[0]


def select(*arguments: str):
    """Return the selection, its cluster and its user."""
    selected = kubectl.select(flags(*arguments))
    (cluster,), (user,) = (selected.document[key] for key in ("clusters", "users"))
    return selected, cluster["cluster"], user["user"]


def test_the_current_context_of_the_first_file_is_selected(files: Path) -> None:
    selected, cluster, user = select()

    assert selected.title == "context dev, cluster one, user jane"
    assert selected.namespace == "team-a"
    assert cluster == {
        "server": "https://one",
        "certificate-authority": str(files / "a" / "ca.crt"),
    }
    assert user == {"token": "first"}


def test_a_context_may_name_entries_of_another_file() -> None:
    selected, cluster, user = select("--context=prod")

    assert selected.title == "context prod, cluster two, user admin"
    assert cluster["server"] == "https://two"
    assert user["exec"] == {"command": "x"}
    assert selected.headers == (("Impersonate-User", "root"),)


def test_flags_replace_parts_as_in_client_go(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)

    _, cluster, _ = select("--context=prod", "--server=https://three")
    assert cluster == {"server": "https://three"}
    _, cluster, _ = select("--insecure-skip-tls-verify")
    assert cluster == {"server": "https://one", "insecure-skip-tls-verify": True}
    _, cluster, _ = select("--certificate-authority=new.crt")
    assert cluster["certificate-authority"] == str(files / "new.crt")
    selected, _, user = select(
        "--user=admin", "--token=t", "--as=x", "--as-group=g", "--as-group=h"
    )
    assert user == {"token": "t", "as": "root"}
    assert selected.headers == (
        ("Impersonate-User", "x"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Group", "h"),
    )


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--context=prd", "context 'prd' does not exist; there is: dev, prod"),
        ("--cluster=three", "cluster 'three' does not exist; there is: one, two"),
        ("--user=joe", "user 'joe' does not exist; there is: admin, jane"),
        ("--kubeconfig=/none", "/none: [Errno 2] No such file"),
    ],
)
def test_what_does_not_exist_is_named(argument: str, words: str) -> None:
    with pytest.raises(errors.Unreachable) as raised:
        kubectl.select(flags(argument))

    assert words in str(raised.value)


def test_a_server_needs_no_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))

    _, cluster, user = select("--server=https://three", "--token=t")

    assert (cluster, user) == ({"server": "https://three"}, {"token": "t"})
    assert kubectl.select(flags()).title == "cluster of this pod"


async def test_requests_impersonate_with_the_given_credentials(aiohttp_server) -> None:
    async def headers(request: web.Request) -> web.Response:
        return web.json_response([list(each) for each in request.headers.items()])

    app = web.Application()
    app.router.add_get("/version", headers)
    url = (await aiohttp_server(app)).make_url("/")
    kube = await Kube.connect(
        flags(f"-s={url}", "--token=t", "--as=jane", "--as-group=a", "--as-group=b"),
        qps=1e6,
        burst=10**6,
    )

    sent = await kube.get("/version")

    await kube.close()
    assert [value for name, value in sent if name == "Impersonate-Group"] == ["a", "b"]
    assert ["Impersonate-User", "jane"] in sent
    assert ["Authorization", "Bearer t"] in sent
