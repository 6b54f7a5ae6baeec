"""Pins the actions of CI by commit, and the base of the image by digest.

`make pin` runs this where GitHub and Docker Hub can be reached. Run it again to follow the tags.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKFLOWS = tuple(Path(f".github/workflows/{name}.yaml") for name in ("ci", "nightly", "release"))
DOCKERFILE = Path("manifests/image/Dockerfile")

GITHUB = "https://github.com"
TOKENS = "https://auth.docker.io/token"
REGISTRY = "https://registry-1.docker.io/v2"
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""Media types of what a tag of several platforms names."""
TIMEOUT = 30
"""Seconds for each request."""

USES = re.compile(
    r"(?P<head>uses: (?P<repository>[\w-][\w.-]*/[\w.-]+)\S*)@(?P<ref>\S+)(?: # (?P<tag>\S+))?$",
    re.MULTILINE,
)
"""`uses: actions/checkout@v4`, or `uses: actions/checkout@COMMIT # v4`."""
BASE = re.compile(
    r"^(?P<head>ARG BASE=(?P<name>[\w-]+):(?P<tag>[\w.-]+))(?:@sha256:[0-9a-f]{64})?$", re.MULTILINE
)
"""`ARG BASE=python:3.11-slim-trixie`, with or without `@sha256:DIGEST`: an official image."""


class UnavailableError(Exception):
    """A commit or digest cannot be read."""


def main(root: Path = ROOT) -> int:
    """Pin everything below `root`; return 1, and change nothing, if something cannot be pinned."""
    texts = {path: (root / path).read_text(encoding="utf-8") for path in (*WORKFLOWS, DOCKERFILE)}
    try:
        for path in WORKFLOWS:
            texts[path] = USES.sub(_pin_action, texts[path])
        texts[DOCKERFILE] = BASE.sub(_pin_base, texts[DOCKERFILE])
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    for path, text in texts.items():
        (root / path).write_text(text, encoding="utf-8")
    return 0


def _pin_action(uses: re.Match[str]) -> str:
    tag = uses["tag"] or uses["ref"]
    return f"{uses['head']}@{_commit(uses['repository'], tag)} # {tag}"


def _pin_base(base: re.Match[str]) -> str:
    return f"{base['head']}@{_digest(base['name'], base['tag'])}"


def _commit(repository: str, tag: str) -> str:
    """Return the commit of a tag in a repository on GitHub."""
    refs = (f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}")
    command = ["git", "ls-remote", f"{GITHUB}/{repository}", *refs]
    # GitHub wants a password for a repository that does not exist.
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"cannot pin {repository}: {done.stderr.strip()}")
    if not done.stdout:
        raise UnavailableError(f"cannot pin {repository}: it has no tag {tag}")
    # An annotated tag is an object of its own; its commit comes last, as `TAG^{}`.
    return done.stdout.splitlines()[-1].split()[0]


def _digest(name: str, tag: str) -> str:
    """Return the digest of an official image on Docker Hub, computed from what the tag names."""
    scope = f"service=registry.docker.io&scope=repository:library/{name}:pull"
    try:
        token = json.loads(_get(f"{TOKENS}?{scope}", {}))["token"]
        headers = {"Authorization": f"Bearer {token}", "Accept": ", ".join(INDEXES)}
        index = _get(f"{REGISTRY}/library/{name}/manifests/{tag}", headers)
        if json.loads(index)["mediaType"] not in INDEXES:
            raise UnavailableError(f"cannot pin {name}: the tag {tag} names no index of platforms")
    except (OSError, ValueError, KeyError) as error:
        raise UnavailableError(f"cannot pin {name}: {error!r}") from error
    return f"sha256:{hashlib.sha256(index).hexdigest()}"


def _get(url: str, headers: dict[str, str]) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as r:
        body: bytes = r.read()
        return body


if __name__ == "__main__":
    sys.exit(main())
