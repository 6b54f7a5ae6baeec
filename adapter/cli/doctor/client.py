"""Requests to the API server with the rights of the caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from adapter import errors
from adapter.clients import kubectl
from adapter.clients.kubernetes import Kube
from adapter.settings.kubectl import KubectlSettings
from rules import metrics_apis, rbac
from rules.causes import explanation_text, warning_header
from rules.errors import UnreadableError
from rules.hpa import judgement, reaction, reading
from rules.hpa.reading import ApiReply, ApiRequest, Observation, Steps, T
from rules.metrics_apis import CUSTOM, EXTERNAL

_QPS, _BURST, _TIMEOUT = 50.0, 100, 20.0
_METRIC_TIMEOUT = 4.0
"""Seconds to wait for the metrics of one HPA together."""
_MIN_TIMEOUT = 0.5
"""Seconds to wait for a metric after another one was not answered in time."""
NO_ANSWER = f"no answer within {_METRIC_TIMEOUT:g} s"
"""Error of a metric that was not answered in time."""
EXTERNAL_RESOURCE = "external"
"""What stands for the kind of objects of an external metric."""


async def run(steps: Steps[T], reply: Callable[[ApiRequest], Awaitable[ApiReply]]) -> T:
    """Await the reply to each request that `steps` yields, and return its result."""
    try:
        request = next(steps)
        while True:
            request = steps.send(await reply(request))
    except StopIteration as stop:
        result: T = stop.value
        return result


@contextlib.asynccontextmanager
async def connected(cluster: KubectlSettings) -> AsyncIterator[ApiClient]:
    """Yield a client of the cluster that kubectl would use. Raises UnreadableError."""
    with _selecting():
        kube = await Kube.connect(cluster, qps=_QPS, burst=_BURST, timeout=_TIMEOUT)
    try:
        yield ApiClient(kube)
    finally:
        await kube.close()


def default_namespace(cluster: KubectlSettings) -> str:
    """Return the namespace of the context that kubectl would use. Raises UnreadableError."""
    with _selecting():
        return kubectl.select(cluster).namespace or "default"


@contextlib.contextmanager
def _selecting() -> Iterator[None]:
    try:
        yield
    except errors.BackendError as error:
        raise UnreadableError(f"{str(error).rstrip('.')}. Set --kubeconfig or --context") from error


class ApiClient:
    """Client of one API server."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    async def run(self, steps: Steps[T]) -> T:
        """Send the requests that `steps` yields, and return its result."""
        seconds = _METRIC_TIMEOUT

        async def reply(request: ApiRequest) -> ApiReply:
            nonlocal seconds
            found = await self.reply(request, seconds)
            if found.message == NO_ANSWER:
                seconds = _MIN_TIMEOUT
            return found

        return await run(steps, reply)

    async def explanation(self, request: ApiRequest) -> Mapping[str, Any]:
        """Return the Explanation of a request for a metric. Raises UnreadableError."""
        params = {**request.params, "explain": "true"}
        reply = await self.reply(ApiRequest(path=request.path, params=params))
        group = request.path.split("/")[2]
        if reply.failed:
            raise UnreadableError(_problem(reply.status, reply.message, group))
        if reply.document.get("kind") != explanation_text.KIND:
            raise UnreadableError(
                f"{group} is served by a program that does not explain: another adapter, or an "
                f"older gpu-metrics-adapter. {reading.DOCTOR}"
            )
        return reply.document

    async def with_queries(self, observed: Observation, *, notes: bool = False) -> Observation:
        """Return `observed` with the queries of sums that only their queries can judge.

        With `notes`, also with what is remarkable about each value, and how old it may be.
        """
        proposals = list(observed.proposals)
        for index, (each, request) in enumerate(zip(proposals, observed.requests, strict=True)):
            if request is None or not request.is_explained:
                continue
            if (notes and each.replicas is not None) or judgement.needs_query(each):
                with contextlib.suppress(UnreadableError):
                    explained = await self.explanation(request)
                    queries = explained.get("queries") or [{}]
                    query, found = str(queries[0].get("promql", "")), queries[0].get("notes")
                    proposals[index] = replace(
                        each,
                        query=query,
                        note="; ".join(found or ()),
                        reaction=reaction.of_explanation(explained),
                        ahead=(explained.get("ahead") or {}).get("sentence", ""),
                    )
        return replace(observed, proposals=tuple(proposals))

    async def version(self) -> str:
        """Return the version of the custom metrics API. Raises UnreadableError."""
        try:
            return await self.run(reading.version())
        except UnreadableError as error:
            raise UnreadableError(_problem(error.status, str(error), CUSTOM.name)) from error

    async def metrics(self) -> dict[str, dict[str, bool]]:
        """Return metric -> kind of objects -> whether it is namespaced, as the APIs list them.

        The kind of an external metric is EXTERNAL_RESOURCE. Raises UnreadableError.
        """
        found: dict[str, dict[str, bool]] = {}
        problems = []
        for api, resource in ((CUSTOM, ""), (EXTERNAL, EXTERNAL_RESOURCE)):
            try:
                version = await self.version() if api is CUSTOM else ""
                listed = await self.kube.get(api.path(version))
            except (UnreadableError, errors.BackendError) as error:
                problems.append(str(error))
                continue
            for each in listed.get("resources") or ():
                kind, _, metric = each["name"].rpartition("/")
                found.setdefault(metric, {})[kind or resource] = bool(each["namespaced"])
        if not found:
            raise UnreadableError(problems[0] if problems else "no metric is listed")
        return found

    async def request(
        self, parts: Sequence[str], metric: str, *, selector: str = "", metric_selector: str = ""
    ) -> ApiRequest:
        """Return the request for a metric. Raises UnreadableError.

        `parts` are namespace, resource and name; resource and name at cluster scope; or the
        namespace of an external metric, of whose series either selector is one.
        """
        if len(parts) == 1:
            path = metrics_apis.external_metric(metric, parts[0])
            params = {"labelSelector": metric_selector or selector}
        else:
            *within, resource, name = parts
            path = metrics_apis.custom_metric(
                metric, resource, name, namespace="".join(within), version=await self.version()
            )
            params = {"labelSelector": selector, "metricLabelSelector": metric_selector}
        return ApiRequest(path=path, params={key: each for key, each in params.items() if each})

    async def reply(self, request: ApiRequest, seconds: float = _METRIC_TIMEOUT) -> ApiReply:
        """Return the reply; to a request for a metric, wait for `seconds`."""
        # An explanation says earlier than a metric that Prometheus does not answer.
        waits = request.is_explained and "explain" not in request.params
        try:
            async with asyncio.timeout(seconds if waits else None):
                return await send(self.kube, request)
        except TimeoutError:
            return ApiReply(status=0, message=NO_ANSWER)


async def send(kube: Kube, request: ApiRequest) -> ApiReply:
    """Return the reply of an API server, with the first cause that the adapter gives."""
    try:
        response = await kube.fetch(request.path, request.params)
    except errors.BackendError as error:
        return ApiReply(status=error.status, message=error.refusal or str(error))
    try:
        document = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        text = response.body[:200].decode(errors="replace")
        if response.status == 200:
            return ApiReply(status=0, message=f"the response is not a JSON object: {text}")
        return ApiReply(status=response.status, message=text)
    if response.status == 200:
        warning = response.headers.get(warning_header.NAME, "")
        return ApiReply(document=document, cause=warning_header.parse(warning))
    causes = (document.get("details") or {}).get("causes") or ()
    found = next((each for each in causes if each.get("reason")), None)
    return ApiReply(
        status=response.status,
        message=str(document.get("message", "")),
        cause=f"{found['reason']}: {found.get('message', '')}" if found else "",
    )


def _problem(status: int, message: str, group: str) -> str:
    if status in rbac.STATUSES:
        return rbac.lacking(status, message)
    message = " ".join(message.split()).rstrip(".")
    if status == 404:
        return (
            f"the cluster has no APIService for {group}: the adapter, or this part of its "
            f"manifests, is not installed. {reading.DOCTOR}"
        )
    if status == 503:
        return f"the APIService for {group} is not available: {message}. {reading.DOCTOR}"
    if status == 429:
        return "the adapter explains only two requests at a time. Try again in a few seconds"
    return f"{message}. {reading.DOCTOR}"
