"""`python -m tests.console.screenshots ADDRESS`: writes docs/images from a running console.

ADDRESS is the first address, with the token, as `make playground` prints it. The autoscaler and the
metric are examples of the playground.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.console import chromium
from tests.playground.manifests import BERT

_FOLDER = Path(__file__).parents[2] / "docs" / "images"
_WIDTHS = (1100, 400)
_HEIGHT = 800
"""Pixels of a picture at most: what is below is left out, so that the files stay small."""
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
        addresses["metric"] = f"{root}/metrics/pods/duty_cycle_current"
        for name, each in addresses.items():
            for width in _WIDTHS:
                page.goto(each)
                _shoot(page, width, _FOLDER / f"console-{name}-{width}.png")
        browser.close()


def _shoot(page: Page, width: int, path: Path) -> None:
    page.set_viewport_size({"width": width, "height": 300})
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": min(height, _HEIGHT)})
    page.screenshot(path=path)


if __name__ == "__main__":
    main(sys.argv[1])
