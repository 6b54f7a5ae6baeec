"""Images of the cluster, built by buildah in the root of the node and kept in the cache.

The image of the adapter is made by manifests/image/build, as `make image` does.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from adapter import __version__
from tools.control_plane import go_build
from tools.node.root import CERTIFICATES, STORE, Root
from tools.presets import pods
from tools.workload import objects

ADAPTER = f"docker.io/library/gpu-metrics-adapter:{__version__}"
BASE = "localhost/base"
BUSYBOX = "docker.io/library/busybox:local"
COREDNS = "docker.io/library/coredns:local"
ORIGINAL = "registry.k8s.io/prometheus-adapter/prometheus-adapter:v0.12.0"
PROMETHEUS = objects.PROMETHEUS_IMAGE
SERVING = sorted({each.pod.image for each in pods.EXPOSITIONS})
"""Names that ADAPTER has, too, in an empty cluster: pods of a test serve metrics by them."""
_DOCKERFILE = "--file=/src/tools/node/Dockerfile"
_MOST_IMAGES = 100
"""Images with those between two steps of a build: about 2 GB, of five builds of the adapter."""
_REGISTRY = "https://registry-1.docker.io/v2/"
_BUILD = (
    *("--layers", "--isolation=chroot", "--network=host", "--quiet"),
    f"--volume=/{CERTIFICATES}:/{CERTIFICATES}:ro",
)


def build(root: Root, store: Path, folder: Path, *names: str) -> list[Path]:
    """Build images; return an archive of each in `folder`, for `ctr images import`.

    `store` is the folder of buildah, which several processes may use at once. With BASE, the
    adapter's image has Debian's packages as its base, else that of its Dockerfile.
    """
    with go_build.exclusive(store.with_name("images.lock"), "images"):
        for name in names:
            if name == ADAPTER:
                environ = ("env", "BUILDER=buildah", f"IMAGE={name}")
                base = [f"--build-arg=BASE={BASE}"] if BASE in names else []
                root.run(*environ, "/src/manifests/image/build", *_BUILD, *base)
            else:
                target = f"--target={name.rpartition('/')[2].partition(':')[0]}"
                root.run("buildah", "build", *_BUILD, target, f"--tag={name}", _DOCKERFILE, "/")
        archives = [_archive(root, store, each) for each in names if each != BASE]
        _prune(root, store, archives)
        links = [folder / each.name for each in archives]
        for link, archive in zip(links, archives, strict=True):
            link.hardlink_to(archive)
    return links


def registry_responds() -> bool:
    """Return whether the registry of the Dockerfile's base image responds."""
    try:
        with urllib.request.urlopen(_REGISTRY, timeout=5):
            return True
    except urllib.error.HTTPError:  # it wants a token
        return True
    except OSError:
        return False


def _archive(root: Root, store: Path, name: str) -> Path:
    """Return the archive of an image; write it unless that image has one."""
    image_id = root.run("buildah", "images", "--quiet", "--no-trunc", name).strip()
    path = store / "archives" / f"{image_id.removeprefix('sha256:')}.tar"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        part = path.with_suffix(".part")
        root.run("buildah", "push", name, f"docker-archive:{STORE}/archives/{part.name}:{name}")
        part.rename(path)
    return path


def _prune(root: Root, store: Path, archives: Sequence[Path]) -> None:
    """Remove other archives, and the layers that speed up builds once there are many."""
    for each in set((store / "archives").iterdir()) - set(archives):
        each.unlink()
    if len(root.run("buildah", "images", "--all", "--quiet").split()) > _MOST_IMAGES:
        root.run("buildah", "rm", "--all")  # of builds that were killed
        root.run("buildah", "rmi", "--prune")
