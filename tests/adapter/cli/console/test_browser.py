"""The pages in the real Chromium: updates, keyboard, hostile content, foreign pages.

tools/playground has the stories on a real cluster.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from playwright import async_api
from playwright.async_api import expect

from tests.adapter.cli.console.conftest import HPAS, status
from tests.adapter.cli.console.test_pages import EVENTS, HOSTILE, event
from tests.rules.hpa.documents import pods_metric
from tools.console import chromium

expect.set_options(timeout=90_000)  # the page updates itself every five seconds
GONE = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
"""Errors of requests to a console that has ended."""


@pytest.fixture
async def page(real_servers: None) -> AsyncIterator[async_api.Page]:
    """A page of 1100 pixels; a violation of the CSP or an error of a script fails the test."""
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(**chromium.options())
        context = await browser.new_context(viewport={"width": 1100, "height": 700})
        context.set_default_timeout(90_000)
        page = await context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}"))
        page.on(
            "console",
            lambda line: (
                line.type == "error"
                and not any(each in line.text for each in GONE)
                and problems.append(line.text)
            ),
        )
        yield page
        await browser.close()
        assert problems == []


async def open_console(page: async_api.Page, client: Any, address: str = "/") -> str:
    """Open the first address of the console as a user does; return its root."""
    root = str(client.make_url("")).rstrip("/")
    await page.goto(f"{root}{address}?{client.guard.query}")
    assert "token" not in page.url
    return root


async def test_a_change_arrives_without_losing_scroll_selection_and_focus(page, world, start):
    for index in range(60):
        world.healthy("default", f"hpa-{index:02}")
    await open_console(page, await start(world))
    row = page.locator("tr", has_text="default/hpa-40")
    await row.scroll_into_view_if_needed()
    await row.get_by_role("link").first.focus()
    await page.locator("tr", has_text="default/hpa-41").evaluate(
        "row => getSelection().selectAllChildren(row.querySelector('a'))"
    )
    before = await row.bounding_box()

    world.cluster.put(HPAS.name, "default", "hpa-42", status=status("777"))
    broken = ("False", "Failed", "no value")
    world.cluster.put(HPAS.name, "default", "hpa-59", status=status(None, ScalingActive=broken))

    await expect(page.locator("tr", has_text="hpa-42")).to_contain_text("777")
    await expect(page.locator("tbody tr").first).to_contain_text("hpa-59")
    await expect(page.get_by_role("status").first).to_have_text(
        "60 autoscalers: 1 failure, 0 warnings"
    )
    assert await page.evaluate("getSelection().toString()") == "default/hpa-41"
    assert await page.evaluate("document.activeElement.textContent") == "default/hpa-40"
    after = await row.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) <= 2  # although a row was inserted above


async def test_hostile_content_is_shown_as_text(page, world, start):
    broken = ("False", "Failed", HOSTILE)
    world.add("default", "gpu-hpa", pods_metric(name=HOSTILE), **status("1", AbleToScale=broken))
    world.documents[EVENTS] = {"items": [event(HOSTILE, reason=HOSTILE, type=HOSTILE)]}
    root = await open_console(page, await start(world))

    for address in ("/autoscalers", "/autoscalers/default/gpu-hpa", "/autoscalers?search=<svg>"):
        await page.goto(f"{root}{address}")
        assert await page.locator("main script, main img, main b").count() == 0
    await page.goto(f"{root}/autoscalers")
    await expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
    await expect(page.locator("main")).to_contain_text(r"\x1b[2J")


async def test_pages_are_used_by_keyboard_and_have_landmarks(page, world, start):
    world.healthy()
    await open_console(page, await start(world))

    for landmark in ("banner", "navigation", "main", "contentinfo", "search"):
        await expect(page.get_by_role(landmark)).to_have_count(1)
    await expect(page.get_by_role("columnheader")).to_have_count(5)
    await expect(page.get_by_role("rowheader")).to_have_count(1)
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "main"
    for _ in range(9):  # search, namespace, button, two counts, four columns
        await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/autoscalers/default/gpu-hpa")
    await expect(page.get_by_role("heading", level=1)).to_have_text("default/gpu-hpa")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_fit_400_pixels_in_both_colours(page, world, start, scheme):
    world.add("a" * 63, "b" * 200, pods_metric(name="c" * 200), **status("1"))
    world.healthy()
    root = await open_console(page, await start(world))
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": 400, "height": 700})

    for address in ("/autoscalers", "/autoscalers/default/gpu-hpa", "/doctor"):
        await page.goto(f"{root}{address}")
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 400, address
    light = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (light == "rgb(251, 251, 250)") is (scheme == "light")


async def test_a_console_that_ended_says_so_on_top(page, world, start):
    world.healthy()
    client = await start(world)
    await open_console(page, client)
    await expect(page.locator("#updated")).to_have_text(re.compile("updated [1-9] s ago"))

    world.hangs = True
    await expect(page.get_by_role("alert")).to_contain_text("does not respond")
    await client.server.close()

    banner = page.locator("#gone")
    await expect(banner).to_contain_text("The console has ended: start it again")
    await page.mouse.wheel(0, 5000)
    await expect(banner).to_be_in_viewport()


async def test_a_foreign_page_reads_and_triggers_nothing(page, world, start, aiohttp_server):
    """The foreign page is of another port of 127.0.0.1, whose requests have the cookie."""
    world.healthy()
    client = await start(world)
    root = await open_console(page, client)
    view = f"{root}/autoscalers/default/gpu-hpa"
    attack = f"""<iframe src="{view}"></iframe><img src="{view}"><script>
    globalThis.read = [];
    for (const mode of ["cors", "no-cors"])
      fetch("{view}", {{credentials: "include", mode}})
        .then(r => r.text()).then(t => read.push(t)).catch(() => read.push(""));
    </script>"""

    async def foreign(_: web.Request) -> web.Response:
        return web.Response(text=attack, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", foreign)
    server = await aiohttp_server(app)
    other = await page.context.new_page()
    before = len(world.requests)
    await other.goto(str(server.make_url("/")))
    await other.wait_for_function("read.length === 2")

    assert await other.evaluate("read") == ["", ""]
    assert "serving" not in await other.frames[1].content()
    assert not [each for each in world.requests[before:] if "gpu-hpa" in each]
    await other.goto(view)  # typed: that is no foreign page
    await expect(other.get_by_role("heading", level=1)).to_have_text("default/gpu-hpa")
