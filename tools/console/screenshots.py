"""`python -m tools.console.screenshots ADDRESS`: writes docs/images from a running console.

ADDRESS is the first address, with the token, as `make playground` prints it. The autoscaler and the
metric are examples of the playground.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tools.console import chromium
from tools.playground.manifests import BERT

_FOLDER = Path(__file__).parents[2] / "docs" / "images"
_WIDTHS = (1100, 400)
_HEIGHTS = range(1000, 300, -100)
"""Heights in pixels: the first whose file is small enough. What is below is left out."""
_MAX_SIZE = 150_000
_VIEWS = ("autoscalers", "metrics", "exporters", "doctor", "adapter")


def main(address: str) -> None:
    """Write a picture of each view at each width."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium.options())
        page = browser.new_page()
        page.goto(address)
        root = page.url.rpartition("/")[0]
        addresses = {name: f"{root}/{name}" for name in _VIEWS}
        addresses["autoscaler"] = f"{root}/autoscalers/default/{BERT}"
        addresses["replay"] = f"{addresses['autoscaler']}/replay?since=3m&target=20,40"
        addresses["metric"] = f"{root}/metrics/pods/duty_cycle_current"
        for name, each in addresses.items():
            for width in _WIDTHS:
                page.goto(each)
                _shoot(page, width, _FOLDER / f"console-{name}-{width}.png")
        browser.close()


def _shoot(page: Page, width: int, path: Path) -> None:
    page.set_viewport_size({"width": width, "height": 300})
    needed = page.evaluate("document.documentElement.scrollHeight")
    for height in _HEIGHTS:
        page.set_viewport_size({"width": width, "height": min(needed, height)})
        page.screenshot(path=path)
        if path.stat().st_size <= _MAX_SIZE:
            return


if __name__ == "__main__":
    main(sys.argv[1])
