"""Flags about what is answered: the rules, the Prometheus that is asked, the cluster's objects."""

from __future__ import annotations

from functools import partial

from adapter.settings.flag import Flag

_rules = partial(Flag, group="Rules")
_prometheus = partial(Flag, group="Prometheus")
_cluster = partial(Flag, group="Cluster")

FLAGS = (
    _rules(
        name="config",
        type="array",
        default="",
        help="File of rules. Repeatable, and to be combined with --preset: the rules of all are "
        "taken together, in the order of the command line.",
    ),
    _rules(
        name="preset",
        type="array",
        default="",
        help="Name of a ready-made set of rules. Repeatable, and to be combined with --config. "
        "With neither, the adapter looks at Prometheus and takes the presets that fit.",
    ),
    _rules(
        name="metrics-relist-interval",
        type="duration",
        default="10m",
        help="How often Prometheus is asked which series exist.",
    ),
    _rules(
        name="metrics-max-age",
        type="duration",
        default="0s",
        help="How far back a series may lie and still be listed; 0 stands for "
        "--metrics-relist-interval, and it may not be shorter than that.",
    ),
    _prometheus(
        name="prometheus-url",
        type="string",
        default="https://localhost",
        help="URL of Prometheus. A path is kept, a query is ignored.",
    ),
    _prometheus(
        name="prometheus-verb",
        type="string",
        default="GET",
        help="HTTP method of the requests to Prometheus: GET or POST.",
    ),
    _prometheus(
        name="prometheus-header",
        type="array",
        default="",
        help="Header of the requests to Prometheus, as `Name=value`. Repeatable.",
    ),
    _prometheus(
        name="prometheus-timeout",
        type="duration",
        default="30s",
        help="How long an answer of Prometheus may take.",
    ),
    _prometheus(
        name="prometheus-token-file",
        type="string",
        default="",
        help="File with the bearer token for Prometheus, read again every minute. An "
        "Authorization in --prometheus-header, or a user in --prometheus-url, goes before it.",
    ),
    _prometheus(
        name="prometheus-ca-file",
        type="string",
        default="",
        help="File with the CA certificates that Prometheus' certificate must chain to, read again "
        "every minute.",
    ),
    _prometheus(
        name="prometheus-client-tls-cert-file",
        type="string",
        default="",
        help="File with the client certificate that is shown to Prometheus, read again every "
        "minute.",
    ),
    _prometheus(
        name="prometheus-client-tls-key-file",
        type="string",
        default="",
        help="File with the key of that certificate.",
    ),
    _prometheus(
        name="prometheus-auth-incluster",
        type="bool",
        default="false",
        help="Show Prometheus the token of the pod's service account, and believe the cluster's "
        "CA. --prometheus-token-file and --prometheus-ca-file go before these.",
    ),
    _prometheus(
        name="prometheus-auth-config",
        type="string",
        default="",
        help="Kubeconfig whose credentials are shown to Prometheus, and whose CA is believed; the "
        "server that it names does not matter. The flags for a token, a CA and a client "
        "certificate go before it.",
    ),
    _cluster(
        name="lister-kubeconfig",
        type="string",
        default="",
        help="Kubeconfig of the cluster whose objects are listed; without it, the cluster that "
        "the adapter runs in.",
    ),
    _cluster(
        name="objects",
        type="array",
        default="",
        help="File of manifests that stands for the cluster's objects, so that rules can be tried "
        "without a cluster. Repeatable.",
    ),
    _cluster(
        name="discovery-interval",
        type="duration",
        default="0s",
        help="How often the cluster is asked for its kinds of resource; 0 stands for 10m. "
        "A kind that is asked for and not known is looked up at once besides.",
    ),
    _cluster(
        name="client-qps",
        type="float",
        default="5",
        help="Requests per second to the API server; 0 or less stands for 5.",
    ),
    _cluster(
        name="client-burst",
        type="int",
        default="10",
        help="Requests to the API server that need not wait for --client-qps; 0 or less stands "
        "for 10.",
    ),
)
