"""Check of `doctor`: the metrics of all autoscalers, requested as the HPA controller does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from adapter import errors
from adapter.api.groups import custom, external
from adapter.background import gather_or_cancel
from adapter.clients.kubernetes import Kube, Reply
from adapter.commands.doctor_cluster import Installed
from adapter.commands.doctor_report import Finding, failure, ok, skipped, warning

_PATH = "/apis/autoscaling/v2/horizontalpodautoscalers"
_MAX_HPAS = 50
_CUSTOM = f"/apis/{custom.NAME}/{custom.VERSIONS[-1]}"
_EXTERNAL = f"/apis/{external.NAME}/{external.VERSIONS[-1]}"
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_TYPES = frozenset({"Pods", "Object", "External"})
_SEE = "docs/troubleshooting.md#what-do-the-reasons-mean explains the reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    subject: str
    """`default/bert: duty_cycle of pods`."""
    path: str
    params: Mapping[str, str]


async def metrics(installed: Installed) -> Iterable[Finding]:
    """Return which metrics of autoscalers have no value, and why the adapter says so."""
    listed = await installed.api.get(_PATH, {"limit": str(_MAX_HPAS)})
    hpas = listed.get("items") or ()
    scales = _Scales(installed.api)
    found = await gather_or_cancel(_requests(each, scales) for each in hpas)
    requests = [request for each in found for request in each]
    findings = [
        finding
        for finding in await gather_or_cancel(_check(installed.api, each) for each in requests)
        if finding is not None
    ]
    more = " (of more)" if (listed.get("metadata") or {}).get("continue") else ""
    fact = f"{len(hpas)} autoscalers{more} use {len(requests)} custom and external metrics"
    valued = len(requests) - len(findings)
    return [ok("autoscalers", f"{fact}, of which {valued} have values"), *findings]


async def _check(api: Kube, request: _Request) -> Finding | None:
    try:
        return _judge(request, await api.fetch(request.path, request.params))
    except errors.BackendError as error:
        return failure(f"autoscaler {request.subject}", str(error), cure="see apiservices")


def _judge(request: _Request, reply: Reply) -> Finding | None:
    """Return why a metric has no value, or not for all objects; None if it has."""
    name = f"autoscaler {request.subject}"
    cause = _cause(reply)
    if reply.status == 200:
        if orjson.loads(reply.body).get("items"):
            return warning(name, cause, cure=_SEE) if cause else None
        return failure(name, f"no value. {cause}", cure="" if cause else _SEE)
    if reply.status == 403:
        return skipped(name, "this account may not read the metric")
    return failure(name, cause or f"status {reply.status}: {_message(reply)}", cure="")


def _cause(reply: Reply) -> str:
    """Return the first cause of an answer: `NotFinite: ...`."""
    details = _document(reply).get("details") or {}
    for each in details.get("causes") or ():
        if each.get("reason"):
            return f"{each['reason']}: {each.get('message', '')}"
    found = _WARNING.search(reply.headers.get("Warning", ""))
    return re.sub(r"\\(.)", r"\1", found[1]) if found else ""


def _message(reply: Reply) -> str:
    message = _document(reply).get("message") or reply.body[:200].decode(errors="replace")
    return " ".join(str(message).split())


def _document(reply: Reply) -> Mapping[str, Any]:
    try:
        document = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


async def _requests(hpa: Mapping[str, Any], scales: _Scales) -> Sequence[_Request]:
    """Return the requests of the HPA controller for the metrics of one autoscaler."""
    namespace, name = hpa["metadata"]["namespace"], hpa["metadata"]["name"]
    spec = hpa.get("spec") or {}
    wanted = [each for each in spec.get("metrics") or () if each.get("type") in _TYPES]
    selector = ""
    if any(each["type"] == "Pods" for each in wanted):
        selector = await scales.selector(namespace, spec.get("scaleTargetRef") or {})
    requests = []
    for each in wanted:
        source = each[each["type"].lower()]
        metric = source["metric"]["name"]
        labels = _selector((source["metric"].get("selector")) or {})
        if each["type"] == "Pods" and not selector:
            continue  # the scale target does not exist, as kubectl describe hpa says
        if each["type"] == "External":
            path, params = _external(namespace, metric), {"labelSelector": labels}
        elif each["type"] == "Object":
            path = _object(namespace, metric, source["describedObject"])
            params = {"metricLabelSelector": labels}
        else:
            path = f"{_CUSTOM}/namespaces/{namespace}/pods/*/{_escaped(metric)}"
            params = {"labelSelector": selector, "metricLabelSelector": labels}
        requests.append(
            _Request(
                subject=f"{namespace}/{name}: {metric}",
                path=path,
                params={key: value for key, value in params.items() if value},
            )
        )
    return requests


def _object(namespace: str, metric: str, described: Mapping[str, Any]) -> str:
    group = described.get("apiVersion", "").rpartition("/")[0]
    resource = described["kind"].lower() + (f".{group}" if group else "")
    name = _escaped(described["name"])
    if resource == "namespace":
        return f"{_CUSTOM}/namespaces/{name}/metrics/{_escaped(metric)}"
    return f"{_CUSTOM}/namespaces/{namespace}/{resource}/{name}/{_escaped(metric)}"


def _external(namespace: str, metric: str) -> str:
    return f"{_EXTERNAL}/namespaces/{namespace}/{_escaped(metric)}"


def _escaped(segment: str) -> str:
    return quote(segment, safe="")


def _selector(selector: Mapping[str, Any]) -> str:
    """Return a LabelSelector as text."""
    return ",".join(_requirements(selector))


def _requirements(selector: Mapping[str, Any]) -> Iterator[str]:
    for key, value in (selector.get("matchLabels") or {}).items():
        yield f"{key}={value}"
    for each in selector.get("matchExpressions") or ():
        key, values = each["key"], ",".join(each.get("values") or ())
        yield {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }[each["operator"]]


class _Scales:
    """Selectors of scale targets, whose kinds are discovered once."""

    def __init__(self, api: Kube) -> None:
        self._api = api
        self._resources: dict[str, Mapping[str, str]] = {}

    async def selector(self, namespace: str, target: Mapping[str, Any]) -> str:
        """Return the label selector of the pods of a scale target; empty if there is none."""
        version = target.get("apiVersion") or "v1"
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            if root not in self._resources:
                listed = (await self._api.get(root)).get("resources") or ()
                self._resources[root] = {
                    each["kind"]: each["name"] for each in listed if "/" not in each["name"]
                }
            resource = self._resources[root].get(target.get("kind", ""), "")
            path = f"{root}/namespaces/{namespace}/{resource}/{target.get('name')}/scale"
            return str(((await self._api.get(path)).get("status") or {}).get("selector") or "")
        except errors.Refused as error:
            if error.status != 404:
                raise
            return ""
