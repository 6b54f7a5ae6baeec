"""Renders the output of `presets scrape`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from rules.scrape import formats
from rules.scrape.jobs import Job


def text(jobs: Sequence[Job], form: str) -> str:
    """Return the documents as YAML, after comments about what they need."""
    documents: Sequence[formats.Document]
    match form:
        case "podmonitor":
            documents = formats.pod_monitors(jobs)
        case "scrapeconfig":
            documents = formats.scrape_configs(jobs)
        case _:
            documents = [formats.prometheus(jobs)]
    comments = "".join(f"# {line}\n" for line in _comments(jobs, form))
    return comments + "---\n".join(map(_yaml, documents))


def _yaml(document: Any) -> str:
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=2**20)


def _comments(jobs: Sequence[Job], form: str) -> Iterator[str]:
    if form == "prometheus":
        yield "For Prometheus 2.49 or later, which must have the right to list and watch pods."
    else:
        yield "Add the labels by which your Prometheus selects such objects, often `release`."
    if form == "scrapeconfig":
        yield "For Prometheus Operator 0.90 or later."
    for each in jobs:
        if each.namespaces:
            option = "token" if each.kind == "token" else "trusted"
            yield f"{each.name}: only in {', '.join(each.namespaces)} (--{option}-namespaces)."
        if each.kind == "token":
            account = "the ServiceAccount of Prometheus"
            if form != "prometheus":
                account = "its ServiceAccount"
                yield f"{each.name}: put a token into the key token of the Secret {formats.SECRET}."
            yield f"{each.name}: let {account} get the non-resource URL /metrics."
