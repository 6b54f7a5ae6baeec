"""The HTTP side of the console: addresses, and each view as HTML, JSON and text."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import markupsafe
from aiohttp import web

from adapter import errors, yaml_encoding
from adapter.cache import LRUCache
from adapter.cli.console import autoscalers
from adapter.cli.console.api_server import LOST
from adapter.cli.console.chart import Chart
from adapter.cli.console.guard import Handler, TokenGuard
from adapter.cli.console.views import (
    PageQuery,
    Show,
    View,
    Views,
    advise_variables,
    replay_variables,
)
from rules.causes import explanation_text
from rules.errors import UnreadableError
from rules.hpa import advice_report, replay_report
from rules.hpa.advice_report import Advice
from rules.hpa.replay_report import Replay
from rules.quoting import escaped

FOLDER = Path(__file__).parent
_SUFFIX = r"(?:\.(?:html|json|txt))?"
_SUFFIXES = (".html", ".json", ".txt")
_MAX_KEY = 400
"""Characters of a namespace and a name."""
_PARAMETERS = tuple(
    each.name for each in dataclasses.fields(PageQuery) if each.name not in {"page", "visible"}
)
_NODE = ("name", "accelerators", "kubelet", "runtime")
_POD = ("name", "node", "phase", "accelerators")
_CONDITION = ("time", "type", "status", "reason", "message")
_EVENT = ("time", "type", "reason", "object", "count", "message")
"""Columns of the tables of the evidence."""
_MAX_VIEWS = 50
"""Views that are kept for the time in which the API server does not respond."""


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
    add(f"{prefix}/{{nothing:.*?}}{{suffix:{_SUFFIX}}}", pages.handler(_nothing))
    return app


def replay_file(replayed: Replay) -> str:
    """Return a replay as a page that needs no other file."""
    variables = {**replay_report.document(replayed), **replay_variables(replayed)}
    return _file("past_file.html", {**variables, "command": "replay", "body": "replay_body.html"})


def advise_file(advised: Advice) -> str:
    """Return advice as a page that needs no other file."""
    variables = {**advice_report.document(advised), **advise_variables(advised)}
    return _file("past_file.html", {**variables, "command": "advise", "body": "advise_body.html"})


def evidence_file(title: str, evidence: Mapping[str, Any], charts: Sequence[Chart]) -> str:
    """Return the evidence of `conformance` as a page that needs no other file."""
    state = {"passed": "ok", "rehearsal": "warning"}.get(evidence["outcome"], "failure")
    tables = [
        ("Nodes with accelerators", evidence["nodes"], _NODE),
        ("Pods while the load was high", evidence["pods"], _POD),
        ("Conditions of the HPA", evidence["conditions"], _CONDITION),
        ("Events", evidence["events"], _EVENT),
    ]
    manifests = "---\n".join(yaml_encoding.encode(each).decode() for each in evidence["manifests"])
    variables = {"title": title, "state": state, "charts": charts, "tables": tables}
    return _file("evidence_file.html", {**evidence, **variables, "yaml": manifests})


def _file(template: str, variables: Mapping[str, Any]) -> str:
    style = (FOLDER / "static" / "console.css").read_text(encoding="utf-8")
    return (
        environment()
        .get_template(template)
        .render(
            style=markupsafe.Markup(style),  # noqa: S704 - it is ours, no text to escape
            **variables,
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
        self._api_server = views.reader.api_server
        self._kept: LRUCache[str, tuple[View, float]] = LRUCache(_MAX_VIEWS)
        """Last view of each address, and its time."""
        self._templates = environment()
        navigation = [each for each in views.by_address if each.isalpha()]
        self._templates.globals.update(address=self.address, navigation=navigation, cluster=cluster)
        self._templates.globals.update(readable=explanation_text.readable)
        self._templates.globals.update(graph=views.reader.graph)

    def address(self, *parts: str) -> str:
        """Return the address of a view. A name that ends like a twin gets a suffix."""
        suffix = ".html" if parts[-1].endswith(_SUFFIXES) else ""
        return f"{self._prefix}/{'/'.join(quote(each, safe='') for each in parts)}{suffix}"

    async def home(self, _: web.Request) -> web.Response:
        """Lead to the first view."""
        return web.Response(status=303, headers={"Location": self.address("autoscalers")})

    def handler(self, show: Show) -> Handler:
        """Return the handler of a view whose further arguments are parts of the address."""

        async def handle(request: web.Request) -> web.StreamResponse:
            parts = {name: text for name, text in request.match_info.items() if name != "suffix"}
            first = "" if request.match_info["suffix"] in {".json", ".txt"} else "1"
            query = PageQuery(
                **{each: request.query.get(each, "")[:_MAX_KEY] for each in _PARAMETERS},
                page=request.query.get("page", first),
                visible=_visible(request),
            )
            key, at = str(request.rel_url), 0.0
            try:
                view = await self._api_server.unless_lost(show(query, **parts))
                status = 200
                if not self._api_server.lost:
                    self._kept.set(key, (view, time.time()))
            except (UnreadableError, errors.TimedOut) as error:
                given = error.status
                view, status = _problem(_told(error)), given if given in {400, 404} else 502
                if not given:
                    await self._api_server.probe()
                if self._api_server.lost and (kept := self._kept.get(key)):
                    (view, at), status = kept, 200
            except Exception as error:  # noqa: BLE001 - one answer that is odd ends no other view
                view, status = _problem(f"the console failed: {error!r}. Report this line"), 500
            age = round(time.time() - (at or self._api_server.responded))
            return self._respond(request, view, status, age if self._api_server.lost else None)

        return handle

    def _respond(
        self, request: web.Request, view: View, status: int, age: int | None
    ) -> web.Response:
        """Return a response; `age` is that of the view while the API server does not respond."""
        banner = "" if age is None else f"{LOST}. This page shows the state of {age} s ago."
        match request.match_info["suffix"]:
            case ".json":
                document = {**view.document, **({"warning": banner} if banner else {})}
                text, media_type = json.dumps(document, indent=2), "application/json"
            case ".txt":
                lines = [banner, *view.lines] if banner else view.lines
                text = "".join(f"{escaped(line)}\n" for line in lines)
                media_type = "text/plain"
            case _:
                text, media_type = self._html(request, view, banner, age), "text/html"
        tag = f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return web.Response(
            status=status, text=text, content_type=media_type, headers={"ETag": tag}
        )

    def _html(self, request: web.Request, view: View, banner: str, age: int | None) -> str:
        path = request.rel_url.raw_path
        twin = path.removesuffix(request.match_info["suffix"])
        return self._templates.get_template(view.template).render(
            title=view.title,
            path=path,
            twin=twin,
            query=f"?{request.rel_url.raw_query_string}" if request.query else "",
            prefix=self._prefix,
            banner=banner,
            stale=age,
            verdict_state=view.state,
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


def _told(error: Exception) -> str:
    """Return an error with what to do about it."""
    return ". ".join(filter(None, (str(error), getattr(error, "cure", ""))))


async def _nothing(_query: PageQuery, nothing: str) -> View:
    raise UnreadableError(f"there is no page {nothing}; choose one of those above", status=404)


def _problem(text: str) -> View:
    return View(
        title="Nothing to show",
        template="problem.html",
        document={"error": text},
        lines=[text],
        state="warning",
    )
