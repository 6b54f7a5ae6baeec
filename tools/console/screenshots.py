"""`python -m tools.console.screenshots ADDRESS`: writes docs/images from a running console.

ADDRESS is the first address, with the token, as `make playground` prints it. The autoscaler is an
example of the playground.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tools.console import chromium
from tools.playground.manifests import BERT

_FOLDER = Path(__file__).parents[2] / "docs" / "images"
_WIDTH = 1100
_HEIGHTS = range(1000, 300, -100)
"""Heights in pixels: the first whose file is small enough. What is below is left out."""
_MAX_SIZE = 150_000
_VIEWS = {
    "autoscalers": "/autoscalers",
    "autoscaler": f"/autoscalers/default/{BERT}",
    "replay": f"/autoscalers/default/{BERT}/replay?since=3m&target=20,40",
}
"""View -> its address."""


def main(address: str) -> None:
    """Write a picture of each view that docs/console.md shows."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium.options())
        page = browser.new_page()
        page.goto(address)
        root = page.url.rpartition("/")[0]
        for name, path in _VIEWS.items():
            page.goto(root + path)
            _shoot(page, _FOLDER / f"console-{name}.png")
        browser.close()


def _shoot(page: Page, path: Path) -> None:
    page.set_viewport_size({"width": _WIDTH, "height": 300})
    needed = page.evaluate("document.documentElement.scrollHeight")
    for height in _HEIGHTS:
        page.set_viewport_size({"width": _WIDTH, "height": min(needed, height)})
        page.screenshot(path=path)
        if path.stat().st_size <= _MAX_SIZE:
            return


if __name__ == "__main__":
    main(sys.argv[1])
