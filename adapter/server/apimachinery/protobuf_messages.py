"""Protobuf messages of the API objects that are served, after their published `.proto` files.

Data only; `protobuf` makes descriptors of it. A field is written `NUMBER NAME TYPE`; without a
type it is a string. `?` marks a field that Go keeps in a pointer, `*` one that is repeated, and
`map` one from strings to values of the type.

https://github.com/kubernetes/apimachinery/blob/master/pkg/apis/meta/v1/generated.proto
https://github.com/kubernetes/api/blob/master/apidiscovery/v2/generated.proto
https://github.com/kubernetes/metrics/tree/master/pkg/apis
"""

from __future__ import annotations

from collections.abc import Mapping

KINDS: Mapping[tuple[str, str], str] = {
    ("v1", "Status"): "Status",
    ("", "APIGroupList"): "APIGroupList",
    ("v1", "APIGroup"): "APIGroup",
    ("v1", "APIResourceList"): "APIResourceList",
    ("apidiscovery.k8s.io/v2", "APIGroupDiscoveryList"): "APIGroupDiscoveryList",
    ("apidiscovery.k8s.io/v2beta1", "APIGroupDiscoveryList"): "APIGroupDiscoveryList",
    ("custom.metrics.k8s.io/v1beta1", "MetricValueList"): "v1beta1.MetricValueList",
    ("custom.metrics.k8s.io/v1beta2", "MetricValueList"): "v1beta2.MetricValueList",
    ("external.metrics.k8s.io/v1beta1", "ExternalMetricValueList"): "ExternalMetricValueList",
    ("metrics.k8s.io/v1beta1", "NodeMetrics"): "NodeMetrics",
    ("metrics.k8s.io/v1beta1", "NodeMetricsList"): "NodeMetricsList",
    ("metrics.k8s.io/v1beta1", "PodMetrics"): "PodMetrics",
    ("metrics.k8s.io/v1beta1", "PodMetricsList"): "PodMetricsList",
    ("metrics.k8s.io/v1", "NodeMetrics"): "NodeMetrics",
    ("metrics.k8s.io/v1", "NodeMetricsList"): "NodeMetricsList",
    ("metrics.k8s.io/v1", "PodMetrics"): "PodMetrics",
    ("metrics.k8s.io/v1", "PodMetricsList"): "PodMetricsList",
    ("meta.k8s.io/v1", "PartialObjectMetadata"): "PartialObjectMetadata",
    ("meta.k8s.io/v1", "PartialObjectMetadataList"): "PartialObjectMetadataList",
    ("meta.k8s.io/v1beta1", "PartialObjectMetadata"): "PartialObjectMetadata",
    ("meta.k8s.io/v1beta1", "PartialObjectMetadataList"): "v1beta1.PartialObjectMetadataList",
}
"""The message of each kind, by apiVersion and kind."""

MESSAGES: Mapping[str, str] = {
    # The envelope of every object
    "Unknown": "1 typeMeta TypeMeta, 2 raw bytes, 3 contentEncoding, 4 contentType",
    "TypeMeta": "1 apiVersion, 2 kind",
    # k8s.io/apimachinery/pkg/apis/meta
    "Time": "1 seconds int64?, 2 nanos int32?",
    "Duration": "1 duration int64",
    "Quantity": "1 string",
    "ListMeta": "1 selfLink, 2 resourceVersion, 3 continue",
    "ObjectMeta": "1 name, 2 generateName, 3 namespace, 4 selfLink, 5 uid, 6 resourceVersion, "
    "7 generation int64, 8 creationTimestamp Time, 11 labels map, 12 annotations map",
    "LabelSelector": "1 matchLabels map, 2 matchExpressions LabelSelectorRequirement*",
    "LabelSelectorRequirement": "1 key, 2 operator, 3 values *",
    "Status": "1 metadata ListMeta, 2 status, 3 message, 4 reason, 5 details StatusDetails?, "
    "6 code int32",
    "StatusDetails": "1 name, 2 group, 3 kind, 4 causes StatusCause*, 5 retryAfterSeconds int32, "
    "6 uid",
    "StatusCause": "1 reason, 2 message, 3 field",
    "PartialObjectMetadata": "1 metadata ObjectMeta",
    "PartialObjectMetadataList": "1 metadata ListMeta, 2 items PartialObjectMetadata*",
    "v1beta1.PartialObjectMetadataList": "1 items PartialObjectMetadata*, 2 metadata ListMeta",
    "APIGroupList": "1 groups APIGroup*",
    "APIGroup": "1 name, 2 versions GroupVersion*, 3 preferredVersion GroupVersion, "
    "4 serverAddressByClientCIDRs ServerAddress*",
    "GroupVersion": "1 groupVersion, 2 version",
    "ServerAddress": "1 clientCIDR, 2 serverAddress",
    "APIResourceList": "1 groupVersion, 2 resources APIResource*",
    "APIResource": "1 name, 2 namespaced bool, 3 kind, 4 verbs Verbs?, 5 shortNames *, "
    "6 singularName, 7 categories *, 8 group, 9 version, 10 storageVersionHash",
    "Verbs": "1 items *",
    "GroupVersionKind": "1 group, 2 version, 3 kind",
    # k8s.io/api
    "ObjectReference": "1 kind, 2 namespace, 3 name, 4 uid, 5 apiVersion, 6 resourceVersion, "
    "7 fieldPath",
    "APIGroupDiscoveryList": "1 metadata ListMeta, 2 items APIGroupDiscovery*",
    "APIGroupDiscovery": "1 metadata ObjectMeta, 2 versions APIVersionDiscovery*",
    "APIVersionDiscovery": "1 version, 2 resources APIResourceDiscovery*, 3 freshness",
    "APIResourceDiscovery": "1 resource, 2 responseKind GroupVersionKind?, 3 scope, "
    "4 singularResource, 5 verbs *, 6 shortNames *, 7 categories *, "
    "8 subresources APISubresourceDiscovery*",
    "APISubresourceDiscovery": "1 subresource, 2 responseKind GroupVersionKind?, "
    "3 acceptedTypes GroupVersionKind*, 4 verbs *",
    # k8s.io/metrics
    "v1beta1.MetricValueList": "1 metadata ListMeta, 2 items v1beta1.MetricValue*",
    "v1beta1.MetricValue": "1 describedObject ObjectReference, 2 metricName, 3 timestamp Time, "
    "4 window int64?, 5 value Quantity, 6 selector LabelSelector?",
    "v1beta2.MetricValueList": "1 metadata ListMeta, 2 items v1beta2.MetricValue*",
    "v1beta2.MetricValue": "1 describedObject ObjectReference, 2 metric MetricIdentifier, "
    "3 timestamp Time, 4 windowSeconds int64?, 5 value Quantity",
    "MetricIdentifier": "1 name, 2 selector LabelSelector?",
    "ExternalMetricValueList": "1 metadata ListMeta, 2 items ExternalMetricValue*",
    "ExternalMetricValue": "1 metricName, 2 metricLabels map, 3 timestamp Time, 4 window int64?, "
    "5 value Quantity",
    "NodeMetricsList": "1 metadata ListMeta, 2 items NodeMetrics*",
    "NodeMetrics": "1 metadata ObjectMeta, 2 timestamp Time, 3 window Duration, "
    "4 usage map Quantity",
    "PodMetricsList": "1 metadata ListMeta, 2 items PodMetrics*",
    "PodMetrics": "1 metadata ObjectMeta, 2 timestamp Time, 3 window Duration, "
    "4 containers ContainerMetrics*",
    "ContainerMetrics": "1 name, 2 usage map Quantity",
}
"""The fields of each message."""
