"""What each version of each group looks like; the types are those of k8s.io/metrics.

https://github.com/kubernetes/metrics/tree/master/pkg/apis
"""

from __future__ import annotations

from collections.abc import Mapping

from adapter.api.openapi.described import (
    Api,
    Operation,
    Parameter,
    Schema,
    record,
    reference,
    several,
    strings,
    text,
    texts_by_name,
    whole,
)

_PACKAGE = "io.k8s.metrics.pkg.apis"

_NAMESPACE = Parameter(name="namespace", description="The namespace in which the metric is asked.")
_PRETTY = Parameter(name="pretty", description="Whether the answer is indented: true or false.")

_KIND: dict[str, Schema] = {
    "apiVersion": text("The group and the version of this object."),
    "kind": text("The kind of this object."),
    "metadata": {
        "description": "Empty: a list of values is made for the one who asks, and never stored.",
        "type": "object",
    },
}
_TIMESTAMP = text("When the value was measured.", format="date-time")
_VALUE = text(
    "The value as a Kubernetes quantity, in thousandths where it is no whole number: `22`, `1500m`."
)

_OBJECT_REFERENCE = record(
    "The object of the cluster that a value describes.",
    (),
    kind=text("The kind of the object, such as `Pod`."),
    namespace=text("The namespace of the object, if it lives in one."),
    name=text("The name of the object."),
    uid=text("The UID of the object; not set here."),
    apiVersion=text("The group and the version of the kind; `/v1` for the core group."),
    resourceVersion=text("The version of the object; not set here."),
    fieldPath=text("The part of the object that is meant; not set here."),
)
_LABEL_SELECTOR = record(
    "Labels that series must have to be counted. All requirements must hold.",
    (),
    matchLabels=texts_by_name("Labels that must have exactly these values."),
    matchExpressions=several("LabelSelectorRequirement", "Further requirements."),
)
_LABEL_SELECTOR_REQUIREMENT = record(
    "What one label must be like.",
    ("key", "operator"),
    key=text("The name of the label."),
    operator=text("How the label and the values relate: In, NotIn, Exists or DoesNotExist."),
    values=strings("The values; none with Exists and DoesNotExist."),
)
_SELECTOR = reference("LabelSelector", "Which series were counted; null where all of them were.")
_DESCRIBED = reference("ObjectReference", "The object that the value describes.")

_CUSTOM_V1BETA1: dict[str, Schema] = {
    "MetricValueList": record(
        "Values of one metric, one for each object that has one.",
        ("items",),
        **_KIND,
        items=several("MetricValue", "The values, in the order in which the objects are listed."),
    ),
    "MetricValue": record(
        "The value of a metric of one object.",
        ("describedObject", "metricName", "timestamp", "value"),
        describedObject=_DESCRIBED,
        metricName=text("The name of the metric."),
        timestamp=_TIMESTAMP,
        window=whole("Seconds over which the value was measured; not set here."),
        value=_VALUE,
        selector=_SELECTOR,
    ),
    "ObjectReference": _OBJECT_REFERENCE,
    "LabelSelector": _LABEL_SELECTOR,
    "LabelSelectorRequirement": _LABEL_SELECTOR_REQUIREMENT,
}
_CUSTOM_V1BETA2: dict[str, Schema] = {
    **_CUSTOM_V1BETA1,
    "MetricValue": record(
        "The value of a metric of one object.",
        ("describedObject", "metric", "timestamp", "value"),
        describedObject=_DESCRIBED,
        metric=reference("MetricIdentifier", "The metric."),
        timestamp=_TIMESTAMP,
        windowSeconds=whole("Seconds over which the value was measured; not set here."),
        value=_VALUE,
    ),
    "MetricIdentifier": record(
        "What identifies a metric.",
        ("name",),
        name=text("The name of the metric."),
        selector=_SELECTOR,
    ),
}
_CUSTOM_OPERATIONS = (
    Operation(
        path="{resource}/{name}/{metric}",
        name="ClusterScopedMetric",
        description="Values of a metric of objects that live in no namespace.",
    ),
    Operation(
        path="namespaces/{namespace}/metrics/{metric}",
        name="NamespaceMetric",
        description="The value of a metric of a namespace itself.",
    ),
    Operation(
        path="namespaces/{namespace}/{resource}/{name}/{metric}",
        name="NamespacedMetric",
        description="Values of a metric of objects in a namespace.",
    ),
)
_CUSTOM_PATH = (
    Parameter(
        name="namespace", description="The namespace of the objects, or that which is described."
    ),
    Parameter(
        name="resource",
        description="The plural of the objects' kind, with its group: `pods`, `deployments.apps`.",
    ),
    Parameter(
        name="name",
        description="The name of the object, or `*` for all that labelSelector selects.",
    ),
    Parameter(name="metric", description="The name of the metric."),
)
_CUSTOM_QUERY = (
    Parameter(name="labelSelector", description="Which objects are asked about, by their labels."),
    Parameter(name="metricLabelSelector", description="Which series count, by their labels."),
    _PRETTY,
)


def _custom(version: str, definitions: Mapping[str, Schema]) -> Api:
    return Api(
        label=f"customMetrics{version.capitalize()}",
        kind="MetricValueList",
        package=f"{_PACKAGE}.custom_metrics.{version}",
        definitions=definitions,
        operations=_CUSTOM_OPERATIONS,
        path=_CUSTOM_PATH,
        query=_CUSTOM_QUERY,
    )


_EXTERNAL_V1BETA1: dict[str, Schema] = {
    "ExternalMetricValueList": record(
        "Values of one metric that describes no object of the cluster.",
        ("items",),
        **_KIND,
        items=several("ExternalMetricValue", "The values, one for each set of labels."),
    ),
    "ExternalMetricValue": record(
        "The value that a metric has under one set of labels.",
        ("metricName", "metricLabels", "timestamp", "value"),
        metricName=text("The name of the metric."),
        metricLabels=texts_by_name("The labels; null where the query has none to give."),
        timestamp=_TIMESTAMP,
        window=whole("Seconds over which the value was measured; not set here."),
        value=_VALUE,
    ),
}

APIS: Mapping[tuple[str, str], Api] = {
    ("custom.metrics.k8s.io", "v1beta1"): _custom("v1beta1", _CUSTOM_V1BETA1),
    ("custom.metrics.k8s.io", "v1beta2"): _custom("v1beta2", _CUSTOM_V1BETA2),
    ("external.metrics.k8s.io", "v1beta1"): Api(
        label="externalMetricsV1beta1",
        kind="ExternalMetricValueList",
        package=f"{_PACKAGE}.external_metrics.v1beta1",
        definitions=_EXTERNAL_V1BETA1,
        operations=(
            Operation(
                path="namespaces/{namespace}/{metric}",
                name="NamespacedMetric",
                description="Values of a metric as one namespace sees it.",
            ),
        ),
        path=(_NAMESPACE, Parameter(name="metric", description="The name of the metric.")),
        query=(
            Parameter(name="labelSelector", description="Which series count, by their labels."),
            _PRETTY,
        ),
    ),
}
"""By group and version."""
