"""The chart and the kustomize base install the same, with the differences that are named here."""

from __future__ import annotations

import pytest
import yaml

from adapter.settings import settings
from rules.kinds import SCALE_TARGETS
from tests.manifests.test_manifests import MANIFESTS, NAME, NAMESPACE, Built, write_overlay
from tools import helm

pytestmark = pytest.mark.usefixtures("real_servers")

VALUES = {
    "nameOverride": NAME,
    "fullnameOverride": NAME,
    "presets": ["auto"],
    "rules": {"default": False},
    "prometheus": {"url": "http://prometheus-operated.monitoring.svc"},
    "metricsRelistInterval": "10m",
}
"""With these, the chart installs what manifests/base installs."""

OVERLAYS = {
    "base": {},
    "overlays/cert-manager": {"certManager": {"enabled": True}},
    "overlays/embedded-prometheus": {"prometheus": {"embedded": {"enabled": True}}},
    "overlays/external-fallback": {
        "externalFallback": {"service": "keda/keda-operator-metrics-apiserver"}
    },
    "overlays/external-metrics": {"externalMetrics": {"enabled": True}},
    "overlays/network-policy": {"networkPolicy": {"enabled": True}},
    "overlays/resource-metrics": {"resourceMetrics": {"enabled": True}},
    "overlays/team-rules": {"teamRules": {"selector": "gpu-metrics-adapter/rules=team"}},
    "overlays/viewers": {"rbac": {"aggregateToView": True}},
}

PLACES = {
    "/etc/adapter/": "/etc/gpu-metrics-adapter",
    "/var/run/serving-cert": "/etc/certificates",
}
"""Path of the original's chart -> path of the base."""
DEFAULTS = (
    "--metrics-relist-interval=10m",
    "--service-name=gpu-metrics-adapter",
    f"--scale-targets={','.join(map(str, SCALE_TARGETS))}",
)
EMBEDDED_INTERVAL = "--embedded-prometheus-interval=5s"
"""Arguments of the chart that have the default value of the flag, and one more with teams."""
ONLY_CHART = {*DEFAULTS, "--v=4", "--cert-dir=/tmp/cert"}
WITH_TEAMS = "--team-rules-label=namespace"
"""The values 0 to 5 of --v are equal; the original has the other as well."""
AUTH_READER = (None, "", "configmaps", "extension-apiserver-authentication")
"""By a ClusterRole in the base, since an overlay may move a RoleBinding out of kube-system."""
WITHOUT_COMPONENT = {("get", "external.metrics.k8s.io"), ("list", "external.metrics.k8s.io")}
"""The base lets the HPA controller read external metrics also where another server has them."""


class Rendered(Built):
    """What the chart renders, with the methods of `Built`."""

    def __init__(self, values):
        self.account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
        self.documents = helm.template({**VALUES, **values}, release=NAME, namespace=NAMESPACE)
        self.by_name = {(each["kind"], each["metadata"]["name"]): each for each in self.documents}


@pytest.fixture(scope="module", params=OVERLAYS)
def both(programs, request):
    """Yield what kustomize and helm make."""
    return Built(programs.kubectl, MANIFESTS / request.param), Rendered(OVERLAYS[request.param])


def grants(built):
    """Return the rights of the account: scope, API group, resource, name and verb."""
    return {
        (namespace, group, resource, name, verb)
        for namespace, rule in built.grants
        for group in rule.get("apiGroups", [None])
        for resource in rule.get("resources", rule.get("nonResourceURLs"))
        for name in rule.get("resourceNames", [None])
        for verb in rule["verbs"]
    }


def readers(built):
    """Return the verbs and API groups that the HPA controller is granted."""
    return {
        (verb, group)
        for binding in built.of("ClusterRoleBinding")
        if binding["subjects"][0]["name"] == "horizontal-pod-autoscaler"
        for rule in built.by_name["ClusterRole", binding["roleRef"]["name"]]["rules"]
        for group in rule["apiGroups"]
        for verb in rule["verbs"]
    }


def aggregated(built):
    """Return what roles of users are extended by: labels and rules of each ClusterRole."""
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    return [
        (labels, role["rules"])
        for role in built.of("ClusterRole")
        if (
            labels := {
                name for name in role["metadata"].get("labels", ()) if name.startswith(prefix)
            }
        )
    ]


def test_the_rights_are_equal(both):
    base, chart = both
    by_role = {each for each in grants(base) if each[:4] == AUTH_READER}

    assert grants(chart) == grants(base) - by_role
    assert {each[4] for each in by_role} == {"get", "list", "watch"}
    binding = chart.by_name["RoleBinding", f"{NAME}-auth-reader"]
    assert binding["metadata"]["namespace"] == "kube-system"
    assert binding["roleRef"]["name"] == "extension-apiserver-authentication-reader"


def test_the_same_callers_may_read_metrics(both):
    base, chart = both

    assert readers(base) - readers(chart) in (set(), WITHOUT_COMPONENT)
    assert readers(chart) <= readers(base)
    assert aggregated(base) == aggregated(chart)


def test_the_api_services_are_equal(both):
    services = [
        {each["metadata"]["name"]: each["spec"] for each in built.of("APIService")}
        for built in both
    ]

    assert services[0] == services[1]


def test_the_arguments_are_equal(both):
    base, chart = both
    url = "--prometheus-url={}".format
    config = next(each for each in base.of("ConfigMap") if "PROMETHEUS_URL" in each["data"])
    expected = [
        url(config["data"]["PROMETHEUS_URL"]) if each == url("$(PROMETHEUS_URL)") else each
        for each in base.container["args"]
    ]
    args = chart.container["args"]
    for path, other in PLACES.items():
        args = [each.replace(path.rstrip("/"), other) for each in args]

    assert set(args) - ONLY_CHART - {WITH_TEAMS, EMBEDDED_INTERVAL} == set(expected)
    assert set(args) >= ONLY_CHART
    flags = [
        settings.parse([f"--prometheus-url={VALUES['prometheus']['url']}", *more])
        for more in ((), DEFAULTS)
    ]
    assert flags[0] == flags[1]


def container_facts(container):
    """Return what must be equal in the container of both."""
    left_out = ("name", "args", "env", "image", "securityContext", "volumeMounts")
    mounts = {
        PLACES.get(each["mountPath"], each["mountPath"]) for each in container["volumeMounts"]
    }
    own = [each for each in container["env"] if each["name"] != "PROMETHEUS_URL"]
    rest = {key: value for key, value in container.items() if key not in left_out}
    return {**rest, "mounts": mounts, "env": own}


def test_the_containers_are_equal(both):
    base, chart = both

    assert container_facts(chart.container) == container_facts(base.container)
    assert chart.container["image"] == base.container["image"]


def test_the_pods_are_equal(both):
    base, chart = both

    def facts(built):
        pod = built.pod
        security = {**pod["securityContext"], **built.container["securityContext"]}
        # The group of mounted files, which every user may read anyway.
        security.pop("fsGroup", None)
        kept = ("enableServiceLinks", "terminationGracePeriodSeconds", "serviceAccountName")
        (spread,) = pod["topologySpreadConstraints"]
        del spread["labelSelector"]
        (tmp,) = (each for each in pod["volumes"] if each["name"] == "tmp")
        return security, {key: pod[key] for key in kept}, spread, tmp

    assert facts(chart) == facts(base)


def test_the_prometheus_in_the_pod_is_equal(programs):
    base = Built(programs.kubectl, MANIFESTS / "overlays" / "embedded-prometheus")
    chart = Rendered({"prometheus": {"embedded": {"enabled": True}}})

    def facts(built):
        (sidecar,) = built.pod["initContainers"]
        sidecar["securityContext"] = {
            **built.pod["securityContext"],
            **sidecar["securityContext"],
            "fsGroup": None,
        }
        config = built.by_name["ConfigMap", f"{NAME}-prometheus"]["data"]["prometheus.yml"]
        volumes = [each for each in built.pod["volumes"] if each["name"].startswith("prometheus")]
        return sidecar, yaml.safe_load(config), volumes

    assert facts(chart) == facts(base)


def test_the_other_objects_are_equal(both):
    base, chart = both

    def facts(built):
        service, budget = built.one("Service")["spec"], built.one("PodDisruptionBudget")["spec"]
        deployment = built.one("Deployment")["spec"]
        policies = [each["spec"] for each in built.of("NetworkPolicy")]
        for each in policies:
            del each["podSelector"]
        budget = {key: value for key, value in budget.items() if key != "selector"}
        secrets = [each["metadata"]["name"] for each in built.of("Secret")]
        strategy = {"type": "RollingUpdate", **deployment["strategy"]}
        return service["ports"], budget, deployment["replicas"], strategy, policies, secrets

    assert facts(chart) == facts(base)


def test_the_prometheus_in_the_pod_may_scrape_all_pods(programs, tmp_path):
    components = ["network-policy", "embedded-prometheus"]
    folder = write_overlay(
        tmp_path,
        {
            "resources": ["../manifests/base"],
            "components": [f"../manifests/components/{each}" for each in components],
        },
    )
    values = {"networkPolicy": {"enabled": True}, **OVERLAYS["overlays/embedded-prometheus"]}

    base, chart = (
        built.one("NetworkPolicy")["spec"]["egress"]
        for built in (Built(programs.kubectl, folder), Rendered(values))
    )

    assert base == chart
    assert {"to": [{"namespaceSelector": {}}]} in base


def test_the_certificates_of_cert_manager_are_equal(programs):
    base = Built(programs.kubectl, MANIFESTS / "overlays" / "cert-manager")
    chart = Rendered({"certManager": {"enabled": True}})

    def facts(built):
        (injected,) = {
            each["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
            for each in built.of("APIService")
        }
        namespace, _, name = injected.partition("/")
        specs = [each["spec"] for each in built.of("Certificate")]
        same = ("isCA", "dnsNames", "usages", "privateKey")
        source = built.by_name["Certificate", name]["spec"]
        return (
            namespace,
            sorted(({key: each.get(key) for key in same} for each in specs), key=str),
            source.get("isCA"),
        )

    assert facts(chart) == facts(base)
    # The Secret of the CA has the next CA before that issues the certificate.
    assert not facts(base)[-1]
