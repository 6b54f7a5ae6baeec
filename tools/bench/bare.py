"""Bare aiohttp handler, the unit of comparison: `python -m tools.bench.bare FOLDER PORT LOOP`.

It serves one constant response over TLS with aiohttp's own classes and defaults, on asyncio's event
loop or uvloop. FOLDER/response.json has the headers and the body of that response.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from pathlib import Path

from aiohttp import web

DESCRIPTION = "response.json"


async def main(folder: Path, port: int) -> None:
    """Serve until the process ends."""
    description = json.loads((folder / DESCRIPTION).read_text())
    body: bytes = description["body"].encode("latin-1")
    headers: dict[str, str] = description["headers"]

    async def respond(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, headers=headers)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(folder / "proxy-ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    runner = web.ServerRunner(web.Server(respond))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    serving = main(Path(sys.argv[1]), int(sys.argv[2]))
    if sys.argv[3] == "uvloop":
        import uvloop

        uvloop.run(serving)
    else:
        asyncio.run(serving)
