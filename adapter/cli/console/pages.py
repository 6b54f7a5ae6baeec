"""The HTTP side of the console: addresses, and each view as HTML, JSON and text."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import markupsafe
from aiohttp import web

from adapter.cli.console import autoscalers
from adapter.cli.console.guard import Handler, TokenGuard
from adapter.cli.console.views import PageQuery, Show, View, Views, replay_variables
from rules.causes import explanation_text
from rules.errors import UnreadableError
from rules.hpa import replay_report
from rules.hpa.replay_report import Replay
from rules.quoting import escaped

FOLDER = Path(__file__).parent
_SUFFIX = r"(?:\.(?:html|json|txt))?"
_SUFFIXES = (".html", ".json", ".txt")
_MAX_KEY = 400
"""Characters of a namespace and a name."""
_PARAMETERS = ("search", "namespace", "since", "target")


def application(
    views: Views, guard: TokenGuard, prefix: str, *, cluster: str = ""
) -> web.Application:
    """Return the application that serves the views below `prefix`, which is empty or a path.

    Each page shows the title of the `cluster`.
    """
    pages = _Pages(views, prefix, cluster)
    app = web.Application(middlewares=[guard.check])
    add = app.router.add_get
    if prefix:
        add(prefix, pages.home)
    add(f"{prefix}/", pages.home)
    app.router.add_static(f"{prefix}/static", FOLDER / "static")
    for address, show in views.by_address.items():
        add(f"{prefix}/{address}{{suffix:{_SUFFIX}}}", pages.handler(show))
    return app


def replay_file(replayed: Replay) -> str:
    """Return a replay as a page that needs no other file."""
    style = (FOLDER / "static" / "console.css").read_text(encoding="utf-8")
    return (
        environment()
        .get_template("replay_file.html")
        .render(
            style=markupsafe.Markup(style),  # noqa: S704 - it is ours, no text to escape
            **replay_report.document(replayed),
            **replay_variables(replayed),
        )
    )


def environment() -> jinja2.Environment:
    """Return the templates. Whatever a cluster has is shown as text: markup has no effect."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


class _Pages:
    """Renders views."""

    def __init__(self, views: Views, prefix: str, cluster: str) -> None:
        self._prefix = prefix
        self._templates = environment()
        navigation = [each for each in views.by_address if each.isalpha()]
        self._templates.globals.update(address=self.address, navigation=navigation, cluster=cluster)
        self._templates.globals.update(readable=explanation_text.readable)

    def address(self, *parts: str) -> str:
        """Return the address of a view. A name that ends like a twin gets a suffix."""
        suffix = ".html" if parts[-1].endswith(_SUFFIXES) else ""
        return f"{self._prefix}/{'/'.join(quote(each, safe='') for each in parts)}{suffix}"

    async def home(self, _: web.Request) -> web.Response:
        """Lead to the first view."""
        return web.Response(status=303, headers={"Location": self.address("autoscalers")})

    def handler(self, show: Show) -> Handler:
        """Return the handler of a view whose further arguments are parts of the address."""

        async def handle(request: web.Request) -> web.Response:
            parts = {name: text for name, text in request.match_info.items() if name != "suffix"}
            query = PageQuery(
                **{each: request.query.get(each, "")[:_MAX_KEY] for each in _PARAMETERS},
                visible=_visible(request),
            )
            try:
                view, status = await show(query, **parts), 200
            except UnreadableError as error:
                view = _problem(str(error))
                status = error.status if error.status in {400, 404} else 502
            except Exception as error:  # noqa: BLE001 - one answer that is odd ends no other view
                view, status = _problem(f"the console failed: {error!r}. Report this line"), 500
            return self._respond(request, view, status)

        return handle

    def _respond(self, request: web.Request, view: View, status: int) -> web.Response:
        match request.match_info["suffix"]:
            case ".json":
                text, media_type = json.dumps(view.document, indent=2), "application/json"
            case ".txt":
                text = "".join(f"{escaped(line)}\n" for line in view.lines)
                media_type = "text/plain"
            case _:
                text, media_type = self._html(request, view), "text/html"
        tag = f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return web.Response(
            status=status, text=text, content_type=media_type, headers={"ETag": tag}
        )

    def _html(self, request: web.Request, view: View) -> str:
        path = request.rel_url.raw_path
        twin = path.removesuffix(request.match_info["suffix"])
        return self._templates.get_template(view.template).render(
            title=view.title,
            path=path,
            twin=twin,
            query=f"?{request.rel_url.raw_query_string}" if request.query else "",
            prefix=self._prefix,
            **view.document,
            **view.more,
        )


def _printable(value: Any) -> Any:
    r"""Return what a template shows, with control characters as `\x1b`."""
    if isinstance(value, str) and not isinstance(value, markupsafe.Markup):
        return escaped(value, keep="\n")
    return value


def _visible(request: web.Request) -> tuple[str, ...]:
    """Return the keys of rows that the page says are on the screen."""
    keys = request.headers.get("X-Visible", "").split()
    return tuple(key for key in keys[: autoscalers.MAX_SHOWN] if len(key) <= _MAX_KEY)


def _problem(text: str) -> View:
    return View(
        title="Nothing to show",
        template="problem.html",
        document={"error": text},
        lines=[text],
    )
