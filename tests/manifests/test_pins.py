"""`make pin`, with a real git repository as GitHub and a small server as Docker Hub."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import shutil
import subprocess
import threading

import pytest

from tools import pins

WORKFLOW = """\
jobs:
  run:
    steps:
      - uses: actions/checkout@v4
      - uses: actions/checkout/sub/folder@v4
      - uses: ./.github/actions/own
      - run: make
"""
DOCKERFILE = "# Comment.\nARG BASE=python:3.11-slim-trixie\nFROM ${BASE} AS build\n"
INDEX = json.dumps({"schemaVersion": 2, "mediaType": pins.INDEXES[0], "manifests": []}).encode()
DIGEST = f"sha256:{hashlib.sha256(INDEX).hexdigest()}"


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves a token, and one index to who has it."""

    def do_GET(self):
        if self.path == "/token?service=registry.docker.io&scope=repository:library/python:pull":
            self.respond(json.dumps({"token": "t"}).encode())
        elif (
            self.path == "/v2/library/python/manifests/3.11-slim-trixie"
            and self.headers["Authorization"] == "Bearer t"
            and pins.INDEXES[0] in self.headers["Accept"]
        ):
            self.respond(INDEX)
        else:
            self.send_error(404)

    def respond(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def git(folder, *arguments):
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def action(tmp_path):
    """The repository of an action with the annotated tag v4; returns its folder."""
    folder = tmp_path / "github" / "actions" / "checkout"
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=one")
    git(folder, "tag", "--annotate", "--message=four", "v4")
    return folder


@pytest.fixture
def project(tmp_path, action, monkeypatch):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(pins, "GITHUB", str(action.parents[1]))
    monkeypatch.setattr(pins, "TOKENS", f"{url}/token")
    monkeypatch.setattr(pins, "REGISTRY", f"{url}/v2")
    root = tmp_path / "project"
    texts = dict.fromkeys(pins.WORKFLOWS, WORKFLOW) | {pins.DOCKERFILE: DOCKERFILE}
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    yield root
    server.shutdown()
    thread.join()
    server.server_close()


def test_this_repository_is_pinned():
    workflow = "".join((pins.ROOT / path).read_text() for path in pins.WORKFLOWS)
    dockerfile = (pins.ROOT / pins.DOCKERFILE).read_text()

    assert all(re.fullmatch("[0-9a-f]{40}", each["ref"]) for each in pins.USES.finditer(workflow))
    assert len(pins.USES.findall(workflow)) == workflow.count("uses:") - workflow.count("uses: ./")
    assert re.search("^ARG BASE=[^@]+@sha256:[0-9a-f]{64}$", dockerfile, re.MULTILINE)


@pytest.mark.slow
def test_actions_are_pinned_by_the_commit_of_their_tag(project, action):
    commit = git(action, "rev-parse", "HEAD")

    assert pins.main(project) == 0

    assert (project / pins.WORKFLOWS[-1]).read_text() == WORKFLOW.replace("@v4", f"@{commit} # v4")


@pytest.mark.slow
def test_the_base_image_is_pinned_by_the_digest_of_its_index(project):
    assert pins.main(project) == 0

    pinned = DOCKERFILE.replace("trixie\n", f"trixie@{DIGEST}\n")
    assert (project / pins.DOCKERFILE).read_text() == pinned


@pytest.mark.slow
def test_pins_follow_their_tags(project, action):
    pins.main(project)
    git(action, "commit", "--quiet", "--allow-empty", "--message=two")
    git(action, "tag", "--annotate", "--force", "--message=four", "v4")
    (project / pins.DOCKERFILE).write_text(
        DOCKERFILE.replace("trixie\n", f"trixie@sha256:{'0' * 64}\n")
    )

    assert pins.main(project) == 0

    commit = git(action, "rev-parse", "HEAD")
    assert (project / pins.WORKFLOWS[-1]).read_text() == WORKFLOW.replace("@v4", f"@{commit} # v4")
    assert DIGEST in (project / pins.DOCKERFILE).read_text()


@pytest.mark.slow
def test_without_the_tag_nothing_changes(project, action, capsys):
    git(action, "tag", "--delete", "v4")

    assert pins.main(project) == 1

    assert "cannot pin actions/checkout: it has no tag v4" in capsys.readouterr().err
    assert (project / pins.WORKFLOWS[-1]).read_text() == WORKFLOW
    assert (project / pins.DOCKERFILE).read_text() == DOCKERFILE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "name"),
    [
        (lambda patch, folder: shutil.rmtree(folder), "actions/checkout"),
        (lambda patch, folder: patch.setattr(pins, "REGISTRY", "http://127.0.0.1:9"), "python"),
        (lambda patch, folder: patch.setattr(pins, "TOKENS", pins.REGISTRY), "python"),
    ],
    ids=["no repository", "no registry", "no token"],
)
def test_a_failure_says_what_cannot_be_pinned(project, action, monkeypatch, capsys, break_it, name):
    break_it(monkeypatch, action)

    assert pins.main(project) == 1

    assert f"cannot pin {name}: " in capsys.readouterr().err
    assert (project / pins.WORKFLOWS[-1]).read_text() == WORKFLOW
