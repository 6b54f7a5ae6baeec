"""ScaledObjects as KEDA reads them: frozen values, and everything that it refuses.

What KEDA, or the API server for its CRD or its HPA, refuses has no HPA in KEDA. `scaled_objects`
converts the values. Follows `apis/keda/v1alpha1` and `pkg/scalers` of KEDA 2.20.2.
"""

from __future__ import annotations

import difflib
import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

from rules import names, quantity
from rules.document import behavior, nodes
from rules.document.yaml import MappingNode, Node, Scalar, SequenceNode, is_null
from rules.errors import DurationError, QuantityError
from rules.migration.notes import Line, Path, left_out

VERSION = "2.20.2"

_GROUP = "keda.sh/"
FIRST_GROUP = "keda.k8s.io/"
"""Group of KEDA 1."""
PAUSED = "autoscaling.keda.sh/paused"
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
PAUSED_SCALE_IN = "autoscaling.keda.sh/paused-scale-in"
PAUSED_SCALE_OUT = "autoscaling.keda.sh/paused-scale-out"
FORCE_ACTIVATION = "autoscaling.keda.sh/force-activation"
EXCLUDED_LABELS = "scaledobject.keda.sh/hpa-excluded-labels"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
CONFIG: Path = ("spec", "advanced", "horizontalPodAutoscalerConfig")
BEHAVIOR: Path = (*CONFIG, "behavior")
ANNOTATIONS: Path = ("metadata", "annotations")
INTEGERS = {
    "pollingInterval": 1,
    "initialCooldownPeriod": 0,
    "cooldownPeriod": 0,
    "idleReplicaCount": 0,
    "minReplicaCount": 0,
    "maxReplicaCount": 1,
}
"""Key of `spec` -> its minimum."""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_MODES = ("apiKey", "basic", "tls", "bearer", "custom", "oauth")
_ONE_OF_MODES = frozenset(("bearer", "basic", "oauth"))
_SCALABLE = ("Deployment", "ReplicaSet", "StatefulSet")
_CHECKED = frozenset(("Deployment", "StatefulSet"))
"""Kinds of targets whose cpu and memory triggers the webhook checks."""
_FALLBACKS = (
    "static",
    "currentReplicas",
    "currentReplicasIfHigher",
    "currentReplicasIfLower",
    "scalingModifiers",
)
_NOT_CACHED = frozenset(("cpu", "memory", "cron"))
_RESOURCES = frozenset(("cpu", "memory"))
_MAX_INTEGER = 2**31 - 1
_MAX_TARGET = 2**63 // 1000
"""Quantities have 64 bits; the HPA controller computes in thousandths."""
_ALL_TYPES = """
    activemq apache-kafka arangodb artemis-queue aws-cloudwatch aws-dynamodb aws-dynamodb-streams
    aws-kinesis-stream aws-sqs-queue azure-app-insights azure-blob azure-data-explorer
    azure-eventhub azure-log-analytics azure-monitor azure-pipelines azure-queue azure-servicebus
    beanstalkd cassandra clickhouse couchdb cpu cron datadog dynatrace elastic-forecast
    elasticsearch etcd external external-mock external-push forgejo-runner gcp-cloudtasks
    gcp-pubsub gcp-spanner gcp-stackdriver gcp-storage github-runner graphite huawei-cloudeye ibmmq
    influxdb kafka kubernetes-resource kubernetes-workload liiklus loki memory metrics-api mongodb
    mssql mysql nats-jetstream new-relic nsq opensearch openstack-metric openstack-swift postgresql
    predictkube prometheus pulsar rabbitmq redis redis-cluster redis-cluster-streams redis-sentinel
    redis-sentinel-streams redis-streams selenium-grid solace-direct-messaging solace-event-queue
    solarwinds solr splunk splunk-observability sumologic temporal
"""
_TYPES = frozenset(_ALL_TYPES.split())
"""Of triggers: pkg/scaling/scalers_builder.go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryServer:
    """Where, and with which parameters and headers, queries are sent."""

    url: str
    parameters: str = ""
    """Query string of each request, besides the query."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sorted."""

    @property
    def address(self) -> str:
        """The URL with the parameters."""
        return f"{self.url}?{self.parameters}" if self.parameters else self.url


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusTrigger:
    """A trigger of type prometheus."""

    server: QueryServer
    query: str
    type: str
    """AverageValue or Value."""
    target: int
    """Thousandths."""
    activation: float
    ignore_null: bool
    """Whether no result, NaN and infinite values are 0; else they are errors."""
    is_unsafe: bool
    """Whether certificates are not verified."""
    is_cached: bool
    """Whether values are as old as pollingInterval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTrigger:
    """A trigger of type cpu or memory."""

    resource: str
    container: str
    """Empty for all containers."""
    target: Mapping[str, Any]
    """As in an HPA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A trigger whose values do not come from Prometheus."""

    type: str


Trigger = PrometheusTrigger | ResourceTrigger | Other


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledObject:
    """A ScaledObject that KEDA accepts, with KEDA's defaults."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    """Those that KEDA copies to its HPA."""
    annotations: Mapping[str, str]
    target: Mapping[str, str]
    """`scaleTargetRef` of the HPA."""
    minimum: int
    """May be 0."""
    maximum: int
    idle: int | None
    hpa_name: str
    """Empty for KEDA's own."""
    behavior: Mapping[str, Any]
    has_formula: bool
    triggers: Sequence[Trigger]

    @property
    def name_in_keda(self) -> str:
        """The name of KEDA's HPA."""
        return self.hpa_name or f"keda-hpa-{self.name}"

    def is_annotated(self, key: str) -> bool:
        """Return whether an annotation is set to anything but a false boolean."""
        return key in self.annotations and self.annotations[key] not in _FALSE


def read(document: MappingNode) -> tuple[ScaledObject | None, list[Line]]:
    """Return the object, or None and a line for each reason why KEDA has no HPA for it."""
    reader = _Reader(document)
    found = _scaled_object(reader)
    return (None if reader.refusals else found), reader.refusals


def identity(document: MappingNode) -> tuple[str, str]:
    """Return namespace and name of a manifest."""
    metadata = nodes.mapping(document, "metadata")
    return nodes.text(metadata, "namespace") or "default", nodes.text(metadata, "name")


@dataclass(frozen=True, slots=True)
class _Reader:
    """A mapping; what is refused below it is collected."""

    node: MappingNode
    path: Path = ()
    refusals: list[Line] = field(default_factory=list)

    def refuse(self, key: str, message: str) -> None:
        """Refuse the value of a key; without a key, the mapping."""
        path = (*self.path, key) if key else self.path
        self.refusals.append(left_out(path, message))

    def has(self, key: str) -> bool:
        """Return whether a key has a value."""
        return self._value(key) is not None

    def below(self, key: str) -> _Reader:
        """Return the mapping at a key; an empty one if there is none."""
        value = self._value(key)
        if value is not None and not isinstance(value, MappingNode):
            self.refuse(key, "must be a mapping")
        node = value if isinstance(value, MappingNode) else nodes.EMPTY
        return _Reader(node, (*self.path, key), self.refusals)

    def items(self, key: str) -> Iterator[_Reader]:
        """Yield the mappings in the list at a key."""
        value = self._value(key)
        listed = value.items if isinstance(value, SequenceNode) else ()
        if value is not None and not isinstance(value, SequenceNode):
            self.refuse(key, "must be a list")
        for index, item in enumerate(listed):
            path = (*self.path, key, index)
            if isinstance(item, MappingNode):
                yield _Reader(item, path, self.refusals)
            else:
                self.refusals.append(left_out(path, "must be a mapping"))

    def text(self, key: str) -> str:
        """Return the text at a key; empty if there is none."""
        value = self._value(key)
        if value is not None and not isinstance(value, Scalar):
            self.refuse(key, "must be text")
        return value.text if isinstance(value, Scalar) else ""

    def texts(self) -> dict[str, str]:
        """Return the text at each key."""
        return {key: self.text(key) for key in self.node.entries}

    def choice(self, key: str, known: Sequence[str]) -> str:
        """Return the text at a key, which must be empty or one of `known`."""
        text = self.text(key)
        if text and text not in known:
            self.refuse(key, f"{text} is none of {', '.join(known)}")
        return text

    def integer(self, key: str, minimum: int, maximum: int = _MAX_INTEGER) -> int | None:
        """Return the integer at a key, also if it is in quotes; None if there is none."""
        text = self.text(key).strip()
        if not text:
            return None
        number = int(text) if re.fullmatch(r"-?[0-9]{1,10}", text) else None
        if number is None or not minimum <= number <= maximum:
            self.refuse(key, f"{text} must be an integer from {minimum} to {maximum}")
        return number

    def boolean(self, key: str, default: bool) -> bool:
        """Return the boolean at a key of metadata, which Go's ParseBool reads."""
        text = self.text(key).strip()
        if text and text not in _TRUE | _FALSE:
            self.refuse(key, f"{text} must be true or false")
        return text in _TRUE if text else default

    def number(self, key: str, default: float = math.nan) -> float:
        """Return the number at a key of metadata, which must be one of JSON."""
        text = self.text(key).strip()
        if not text:
            return default
        number = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not math.isfinite(number):
            self.refuse(key, f"{text} is not a JSON number, as KEDA requires since 2.15")
        return number

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """Return the pairs of `k=v,k=v` at a key of metadata."""
        text = self.text(key).strip()
        parts = [[each.strip() for each in part.split("=")] for part in text.split(",")]
        if text and any(len(part) != 2 for part in parts):
            self.refuse(key, "must be KEY=VALUE,KEY=VALUE, with one = in each")
            return ()
        return tuple(dict(parts).items()) if text else ()

    def require(self, key: str) -> str:
        """Return the text at a key of metadata, which must not be empty."""
        text = self.text(key).strip()
        if not text:
            near = difflib.get_close_matches(key, self.node.entries, n=1, cutoff=0.8)
            hint = f"; {near[0]} is another key" if near and near[0] != key else ""
            self.refusals.append(left_out(self.path[:-1], f"{key} is missing{hint}"))
        return text

    def _value(self, key: str) -> Node | None:
        entry = self.node.entries.get(key)
        return None if entry is None or is_null(entry.value) else entry.value


def _scaled_object(top: _Reader) -> ScaledObject:
    if not top.text("apiVersion").startswith((_GROUP, FIRST_GROUP)):
        top.refuse("apiVersion", f"is not {_GROUP}v1alpha1")
    metadata, spec = top.below("metadata"), top.below("spec")
    annotations = metadata.below("annotations").texts()
    namespace, name = identity(top.node)
    if not names.is_namespace(namespace):
        metadata.refuse("namespace", "must be a DNS label")
    _check_name(metadata, name, 63)  # it is the value of a label
    numbers = {key: spec.integer(key, least) for key, least in INTEGERS.items()}
    minimum, maximum = numbers["minReplicaCount"], numbers["maxReplicaCount"] or 100
    idle = numbers["idleReplicaCount"]
    if minimum is not None and max(minimum, 1) > maximum:
        spec.refuse("minReplicaCount", f"{minimum} is greater than maxReplicaCount, {maximum}")
    if idle is not None and idle >= (0 if minimum is None else max(minimum, 1)):
        least = "0, its default" if minimum is None else max(minimum, 1)
        spec.refuse("idleReplicaCount", f"{idle} must be less than minReplicaCount, {least}")
    triggers = list(spec.items("triggers"))
    _check_names(spec, triggers)
    advanced = spec.below("advanced")
    config = advanced.below("horizontalPodAutoscalerConfig")
    parsed = [_trigger(each) for each in triggers]
    has_formula = bool(advanced.below("scalingModifiers").node.entries)
    target = _target(top, spec.below("scaleTargetRef"))
    only_resources = bool(parsed) and all(isinstance(each, ResourceTrigger) for each in parsed)
    if only_resources and not minimum and target["kind"] in _CHECKED:
        message = "cpu and memory alone do not scale to zero: it must be 1 or more"
        spec.refuse("minReplicaCount", message)
    _check_fallback(spec, only_resources=only_resources and not has_formula)
    hpa_name = config.text("name")
    if hpa_name:
        _check_name(config, hpa_name)
    return ScaledObject(
        namespace=namespace,
        name=name,
        labels=_labels(metadata.below("labels"), annotations),
        annotations=annotations,
        target=target,
        minimum=minimum or 0,
        maximum=maximum,
        idle=idle,
        hpa_name=hpa_name,
        behavior=_behavior(config.below("behavior")),
        has_formula=has_formula,
        triggers=parsed,
    )


def _check_name(reader: _Reader, name: str, limit: int = 253) -> None:
    if not names.is_subdomain(name) or len(name) > limit:
        reader.refuse("name", f"must be a DNS subdomain of at most {limit} characters")


def _labels(found: _Reader, annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of the HPA, without those of KEDA itself."""
    texts = found.texts()
    for key, value in texts.items():
        if problem := names.key_problem(key) or names.value_problem(value):
            found.refuse(key, problem)
    excluded = annotations.get(EXCLUDED_LABELS, "").split(",")
    return {
        key: value
        for key, value in texts.items()
        if key not in excluded and not key.startswith("scaledobject.keda.sh/")
    }


def _target(top: _Reader, found: _Reader) -> dict[str, str]:
    is_first = top.text("apiVersion").startswith(FIRST_GROUP)
    name = found.text("name") or (found.text("deploymentName") if is_first else "")
    version = found.text("apiVersion") or "apps/v1"
    kind = found.text("kind") or "Deployment"
    if not name:
        found.refuse("", "name is missing")
    for key, text in (("name", name), ("kind", kind), ("apiVersion", version.partition("/")[2])):
        if not names.is_path_segment(text):
            found.refuse(key, "must not contain / or %")
    if version.startswith("apps/") and kind not in _SCALABLE:
        message = f"{version} has no {kind} that can be scaled: write the apiVersion of {kind}"
        found.refuse("kind", message)
    return {"apiVersion": version, "kind": kind, "name": name}


def _behavior(found: _Reader) -> dict[str, Any]:
    """Return what is known of `behavior`, after the checks of the API server for HPAs."""
    values = nodes.plain(found.node)
    for path, _, message, is_unknown in behavior.problems(found.node):
        if is_unknown:
            del functools.reduce(operator.getitem, path[:-1], values)[path[-1]]
        else:
            found.refusals.append(left_out((*found.path, *path), message))
    return {key: value for key, value in values.items() if value}


def _check_names(spec: _Reader, triggers: Sequence[_Reader]) -> None:
    if not triggers:
        spec.refuse("triggers", "has no trigger")
    counts = Counter(filter(None, (each.text("name") for each in triggers)))
    for name in (name for name, count in counts.items() if count > 1):
        spec.refuse("triggers", f"two triggers have the same name, {name}")


def _check_fallback(spec: _Reader, *, only_resources: bool) -> None:
    if not spec.has("fallback"):
        return
    fallback = spec.below("fallback")
    for key in ("failureThreshold", "replicas"):
        if fallback.integer(key, 0) is None:
            fallback.refuse("", f"{key} is missing")
    fallback.choice("behavior", _FALLBACKS)
    if only_resources:
        spec.refuse("fallback", "needs a trigger that is neither cpu nor memory")


def _trigger(found: _Reader) -> Trigger:
    kind = found.text("type")
    if kind not in _TYPES:
        found.refuse("", f"KEDA {VERSION} has no type {kind}" if kind else "type is missing")
    if kind in _NOT_CACHED and found.boolean("useCachedMetrics", default=False):
        found.refuse("useCachedMetrics", f"is not supported for {kind}")
    if found.has("authenticationRef"):
        reference = found.below("authenticationRef")
        reference.choice("kind", ("TriggerAuthentication", "ClusterTriggerAuthentication"))
        if not reference.text("name"):
            reference.refuse("", "name is missing")
    metadata = found.below("metadata")
    if not found.has("metadata"):
        found.refuse("", "metadata is missing")
    elif kind == "prometheus":
        return _prometheus(found, metadata)
    elif kind in _RESOURCES:
        return _resource(found, metadata, kind)
    return Other(type=kind)


def _prometheus(found: _Reader, metadata: _Reader) -> PrometheusTrigger:
    kind = found.text("metricType") or "AverageValue"
    if kind not in ("AverageValue", "Value"):
        message = f"{kind} is not a type of an external metric: write AverageValue or Value"
        found.refuse("metricType", message)
    metadata.require("threshold")
    threshold = metadata.number("threshold")
    if math.isfinite(threshold) and not 0.001 <= round(threshold, 3) < _MAX_TARGET:
        message = f"{metadata.text('threshold')} is not positive in thousandths, or too large"
        metadata.refuse("threshold", f"{message}: the API server refuses the HPA")
    authentication = metadata.text("authModes").strip() or metadata.text("authMode")
    modes = [each.strip() for each in authentication.strip().split(",")]
    if modes != [""] and not set(modes) <= set(_MODES):
        metadata.refuse("authModes", f"must be some of {', '.join(_MODES)}")
    if sum(each in _ONE_OF_MODES for each in modes) > 1:
        metadata.refuse("authModes", "must have only one of bearer, basic and oauth")
    _check_timeout(metadata)
    return PrometheusTrigger(
        server=_server(metadata),
        query=metadata.require("query"),
        type=kind,
        target=int(f"{threshold:.3f}".replace(".", "")) if math.isfinite(threshold) else 0,
        activation=metadata.number("activationThreshold", 0.0),
        ignore_null=metadata.boolean("ignoreNullValues", default=True),
        is_unsafe=metadata.boolean("unsafeSsl", default=False),
        is_cached=found.boolean("useCachedMetrics", default=False),
    )


def _server(metadata: _Reader) -> QueryServer:
    parameters = [f"{quote_plus(k)}={quote_plus(v)}" for k, v in metadata.pairs("queryParameters")]
    if namespace := metadata.text("namespace").strip():
        parameters.insert(0, f"namespace={namespace}")
    return QueryServer(
        url=metadata.require("serverAddress").rstrip("/"),
        parameters="&".join(parameters),
        headers=tuple(sorted(metadata.pairs("customHeaders"))),
    )


def _check_timeout(metadata: _Reader) -> None:
    """Check a duration of Go, or a number of milliseconds."""
    text = metadata.text("timeout").strip()
    try:
        is_valid = not text or text.isdecimal() or quantity.go_duration(text) >= 0
    except DurationError:
        is_valid = False
    if not is_valid:
        metadata.refuse("timeout", f"{text} must be a duration, or milliseconds, of 0 or more")


def _resource(found: _Reader, metadata: _Reader, resource: str) -> ResourceTrigger:
    if metadata.text("type").strip():
        found.refuse("", "metadata.type is refused since 2.18: write metricType beside type")
    value = metadata.require("value")
    kind = found.text("metricType")
    target: dict[str, Any] = {"type": kind}
    if kind == "Utilization":
        target["averageUtilization"] = metadata.integer("value", 1)
    elif kind == "AverageValue":
        target["averageValue"] = value
        if value and (_milli(value) or 0) <= 0:
            metadata.refuse("value", f"{value} must be a quantity of more than 0")
    elif kind or not metadata.text("type").strip():
        found.refuse("metricType" if kind else "", "metricType must be Utilization or AverageValue")
    container = metadata.text("containerName").strip()
    return ResourceTrigger(resource=resource, container=container, target=target)


def _milli(text: str) -> int | None:
    """Return a quantity in thousandths; None for other text."""
    try:
        return quantity.milli_value(text)
    except QuantityError:
        return None
