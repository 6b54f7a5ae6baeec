"""Images of the cluster, built by buildah in the root of the node and kept in the cache.

The image of the adapter is made by manifests/image/build, as `make image` does.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from adapter import __version__
from tools.node.root import CERTIFICATES, Root
from tools.workload import objects

ADAPTER = f"docker.io/library/gpu-metrics-adapter:{__version__}"
BASE = "localhost/base"
BUSYBOX = "docker.io/library/busybox:local"
COREDNS = "docker.io/library/coredns:local"
ORIGINAL = "registry.k8s.io/prometheus-adapter/prometheus-adapter:v0.12.0"
PROMETHEUS = objects.PROMETHEUS_IMAGE
_ARCHIVES = Path("/var/lib/containers/archives")
_REGISTRY = "https://registry-1.docker.io/v2/"
_BUILD = (
    *("--layers", "--isolation=chroot", "--network=host", "--quiet"),
    f"--volume=/{CERTIFICATES}:/{CERTIFICATES}:ro",
)


def build(root: Root, *names: str) -> list[Path]:
    """Build images; return the path of each archive in the root, for `ctr images import`.

    With BASE, the adapter's image has Debian's packages as its base, else that of its Dockerfile.
    """
    for name in names:
        if name == ADAPTER:
            environ = ("env", "BUILDER=buildah", f"IMAGE={name}")
            base = [f"--build-arg=BASE={BASE}"] if BASE in names else []
            root.run(*environ, "/src/manifests/image/build", *_BUILD, *base)
        else:
            target = name.rpartition("/")[2].partition(":")[0]
            file = "--file=/src/tools/node/Dockerfile"
            root.run("buildah", "build", *_BUILD, f"--target={target}", f"--tag={name}", file, "/")
    return [_archive(root, each) for each in names if each != BASE]


def registry_responds() -> bool:
    """Return whether the registry of the Dockerfile's base image responds."""
    try:
        with urllib.request.urlopen(_REGISTRY, timeout=5):
            return True
    except urllib.error.HTTPError:  # it wants a token
        return True
    except OSError:
        return False


def _archive(root: Root, name: str) -> Path:
    """Return the archive of an image; write it unless that image has one."""
    image_id = root.run("buildah", "images", "--quiet", "--no-trunc", name).strip()
    path = _ARCHIVES / f"{image_id.removeprefix('sha256:')}.tar"
    if not (root.path / path.relative_to("/")).exists():
        root.run("mkdir", "-p", _ARCHIVES)
        root.run("buildah", "push", name, f"docker-archive:{path}.part:{name}")
        root.run("mv", f"{path}.part", path)
    return path
