"""Server of one page of metrics: `python page.py PORT PATH TEXT`.

It runs in a pod of the cluster, so it imports the standard library only.
"""

from __future__ import annotations

import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def stamped(exposition: str) -> str:
    """Return an exposition in which a timestamp `NOW-5` is that of five seconds ago."""
    now = time.time()
    return re.sub(
        r"NOW-(\d+)$",
        lambda age: f"{(now - int(age[1])) * 1000:.0f}",
        exposition,
        flags=re.MULTILINE,
    )


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        _, _, path, text = sys.argv
        self.send_response(200 if self.path == path else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        if self.path == path:
            self.wfile.write(stamped(text).encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("", int(sys.argv[1])), _Handler).serve_forever()
