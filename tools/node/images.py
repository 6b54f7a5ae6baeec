"""Images of the cluster, built by buildah in the root of the node and kept in the cache.

The image of the adapter is made by manifests/image/build, as `make image` does.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from adapter import __version__
from tools.node.root import CERTIFICATES, Root

ADAPTER = f"gpu-metrics-adapter:{__version__}"
BUSYBOX = "busybox:local"
COREDNS = "coredns:local"
PROMETHEUS = "prometheus:local"
_BASE = "base:local"
_FOLDER = Path("/var/lib/containers/archives")
_REGISTRY = "https://registry-1.docker.io/v2/"
_BUILD = (
    *("--layers", "--isolation=chroot", "--network=host", "--quiet"),
    f"--volume=/{CERTIFICATES}:/{CERTIFICATES}:ro",
)


def build(root: Root, *, with_base: bool) -> list[Path]:
    """Build the images; return the path of each archive in the root, for `ctr images import`.

    The image of the adapter has Debian's packages as its base `with_base`, else the one of its
    Dockerfile.
    """
    for name in (BUSYBOX, COREDNS, PROMETHEUS):
        _build(root, name)
    base = []
    if with_base:
        _build(root, _BASE)
        base = [f"--build-arg=BASE=localhost/{_BASE}"]
    root.run(
        "env", "BUILDER=buildah", f"IMAGE={ADAPTER}", "/src/manifests/image/build", *_BUILD, *base
    )
    return [_archive(root, each) for each in (BUSYBOX, COREDNS, PROMETHEUS, ADAPTER)]


def registry_responds() -> bool:
    """Return whether the registry of the Dockerfile's base image responds."""
    try:
        with urllib.request.urlopen(_REGISTRY, timeout=5):
            return True
    except urllib.error.HTTPError:  # it wants a token
        return True
    except OSError:
        return False


def _build(root: Root, name: str) -> None:
    target = name.partition(":")[0]
    root.run(
        "buildah",
        "build",
        *_BUILD,
        f"--target={target}",
        f"--tag={name}",
        "--file=/src/tools/node/Dockerfile",
        "/",
    )


def _archive(root: Root, name: str) -> Path:
    """Return the archive of an image; write it unless that image has one."""
    image_id = root.run("buildah", "images", "--quiet", "--no-trunc", name).strip()
    path = _FOLDER / f"{image_id.removeprefix('sha256:')}.tar"
    if not (root.path / path.relative_to("/")).exists():
        root.run("mkdir", "-p", _FOLDER)
        root.run("buildah", "push", name, f"docker-archive:{path}.part:docker.io/library/{name}")
        root.run("mv", f"{path}.part", path)
    return path
