"""Enumerated paths: what a request reads is what its access review names.

Every path goes through the parser, the routing of its API group, the authorizer attributes and the
group's answer, over a catalog with values for everything. Sockets and the guard are left out;
`test_fuzz_access` has them.
"""

from __future__ import annotations

import itertools
import math

import hypothesis
import pytest

from adapter.errors import ApiError
from adapter.server.api import discovery, groups
from adapter.server.api.encoded_answers import EncodedAnswers
from adapter.server.api.groups import custom, external
from adapter.server.api.groups.backend import Backend
from adapter.server.api.groups.group import answer
from adapter.server.api.openapi import OpenApi
from adapter.server.apimachinery import request_info
from adapter.server.auth.attributes import authorizer_attributes
from adapter.server.auth.user import User
from adapter.server.evaluation.evaluation import Evaluated
from rules.kinds import Kinds
from rules.query.aggregate import ExternalValue, Value
from tests.adapter import wired

RULES = """
rules:
- seriesQuery: 'requests'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
      node: {resource: node}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'memory'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
      node: {resource: node}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: 'requests'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: 'pods'
  resources: {namespaced: false}
  metricsQuery: '<<.Series>>'
"""
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
PREFIXES = (
    "/apis/external.metrics.k8s.io/v1beta1",
    "/apis/custom.metrics.k8s.io/v1beta1",
    "/apis/custom.metrics.k8s.io/v1beta3",
    "/apis/custom.metrics%2Ek8s.io/v1beta2",
    "//apis/external.metrics.k8s.io/v1beta1",
    "/apis/custom.metrics.k8s.io//v1beta2",
    "https://adapter:6443/apis/custom.metrics.k8s.io/v1beta2",
)
REQUESTS = (("GET", ""), ("GET", "watch=1"), ("GET", "fieldSelector=metadata.name%3Dweb-2"))
SEGMENTS = (
    ("namespaces", "%6eamespaces", "watch", "proxy", "nodes", "", "*", "."),
    (
        *("team", "other", "te%61m", "", "*", "%2A", "namespaces", "pods", "metrics", ".."),
        *("team%2Fpods", "watch", "n1", "Team"),
    ),
    (
        *("pods", "Pods", "pod.", "metrics", "%6detrics", "nodes", "namespaces", "status"),
        *("finalize", "", "*", "watch", "queue", "requests", "memory", "pods%2Fweb-1"),
    ),
    (
        *("web-1", "web%2D1", "web-2", "*", "%2a", "", "n1", "team", "requests", "metrics"),
        *("..", "web-1%2Frequests", "status", "queue"),
    ),
    (
        *("requests", "%72equests", "memory", "*", "", "queue", "status", "..", "requests%2F"),
        *("web-1", "pods", "metrics"),
    ),
)
TAILS = ("", "/", "/memory")
QUICK = 20_000
"""Number of paths without the profile `ci`, spread over all."""
OBJECTS = ("web-1", "web-2", "n1", "team", "other")
JANE = User(name="jane")


class Reads:
    """Backend with a value for every object and metric; records what is read."""

    def __init__(self):
        self.read = set()
        self.kinds = Kinds.builtin()
        labels = ("namespace", "pod", "node")
        self.catalog = wired.catalog(RULES, "requests", "memory", labels=labels)
        self.backend = Backend(
            generation=wired.generation(self.catalog),
            kinds=self.kinds,
            objects=self,
            evaluation=self,
            collector=wired.CauseCollector(),
        )

    async def names(self, resource, *, namespace, selector):
        self.read.add(("objects", resource, namespace))
        return OBJECTS

    async def live(self, resource, *, namespace, name):
        return True

    async def refresh(self):
        return self.kinds

    def repeats(self, *_):
        return False

    async def values(self, plan, **more):
        self.read.add(("values", plan.resource, plan.namespace, plan.names, plan.metric))
        value = Value(milli=1000, time=100.5, samples=1)
        return Evaluated(values=dict.fromkeys(plan.names, value))

    async def rows(self, plan, *, deadline=None):
        self.read.add(("rows", plan.namespace, plan.metric.lower()))
        value = Value(milli=1000, time=100.5, samples=1)
        return Evaluated(values=[ExternalValue(labels={}, value=value)])

    def of(self, group, info):
        """Return what `group` reads to answer `info`; no coroutine here ever waits."""
        self.read = set()
        try:
            answer(group, info, self.backend, deadline=0.0).send(None)
        except (StopIteration, ApiError):
            return self.read
        raise AssertionError("the answer waits")


def reviewed(attributes, kinds):
    """Return what a caller with these rights may read, as docs/security.md says it."""
    if attributes.group == external.API.name:
        # Names that differ in case are one metric, because the HPA controller asks in lower case.
        return {("rows", attributes.namespace, attributes.resource.lower())}
    resource, namespace, name = attributes.resource, attributes.namespace, attributes.name
    metric = attributes.subresource
    if namespace and resource == "metrics" and not metric:
        resource, namespace, name, metric = "namespaces", "", namespace, name
    group_resource = kinds.resolve(*resource.partition(".")[::2]).group_resource
    if name in {"", "*"}:
        listed = ("objects", group_resource, namespace)
        return {listed, ("values", group_resource, namespace, OBJECTS, metric)}
    return {("values", group_resource, namespace, (name,), metric)}


def targets():
    """Return the number of targets and a function that returns the one at an index."""
    paths = [each for n in range(5) for each in itertools.product(*SEGMENTS[:n])]
    short = len(paths) * len(PREFIXES) * len(REQUESTS)
    sizes = [len(TAILS), *map(len, SEGMENTS)]

    def at(index):
        if index < short:
            index, number = divmod(index, len(paths))
            number_of_request, number_of_prefix = divmod(index, len(PREFIXES))
            path = "/".join((PREFIXES[number_of_prefix], *paths[number]))
            return path, *REQUESTS[number_of_request]
        index -= short
        chosen = []
        for choices in (TAILS, *SEGMENTS):
            index, number = divmod(index, len(choices))
            chosen.append(choices[number])
        tail, *segments = chosen
        return "/".join((CUSTOM, *segments)) + tail, "GET", ""

    return short + math.prod(sizes), at


@pytest.mark.slow
def test_what_is_read_is_what_was_reviewed():
    total, at = targets()
    assert total > 1_000_000
    everything = hypothesis.settings.default.max_examples >= 300
    step = 1 if everything else total // QUICK
    while math.gcd(step, total) > 1:  # otherwise the sample would leave out some segments
        step -= 1
    reads = Reads()
    served = discovery.Documents(groups.GROUPS, reads.catalog, port=6443, encoded=EncodedAnswers())
    documents = {*served.paths, *OpenApi.paths}
    enumerated = answered = 0
    for index in range(0, total, step):
        path, method, query = at(index)
        info = request_info.parse(path, query, method)
        enumerated += 1
        group = groups.of_path(reads.backend.generation, info.path)
        if group is None or info.path in documents:
            assert not info.is_resource_request or info.path not in documents, path
            continue
        info = custom.to_object_scope(info, reads.kinds)
        if info.version not in group.API.versions or not group.routes(info.below_version):
            continue
        attributes = authorizer_attributes(JANE, info)
        read = reads.of(group, info)
        if read:
            answered += 1
            assert attributes.is_resource_request, path
            assert attributes.group == group.API.name, path
            assert read <= reviewed(attributes, reads.kinds), (path, query, attributes)
    assert enumerated >= (1_000_000 if everything else QUICK)
    assert answered > enumerated / 1000  # the others name no metric or no route
