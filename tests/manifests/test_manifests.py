"""The manifests agree with the program: flags, names and permissions.

What they share with the chart is held by its golden renderings and `chart/test_same_facts.py`.
"""

from __future__ import annotations

import ipaddress
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from adapter import settings
from adapter.clients.own_rights import AUTHENTICATION_CONFIG as CLIENT_CAS
from certs import secret
from certs.renew import CertificatePolicy
from rules import presets
from rules.kinds import SCALE_TARGETS
from rules.metrics_apis import APIS, CUSTOM, EXTERNAL, USAGE

MANIFESTS = Path(__file__).parents[2] / "manifests"
FOLDERS = ("base", *sorted(f"overlays/{each.name}" for each in (MANIFESTS / "overlays").iterdir()))
NAME = NAMESPACE = "gpu-metrics-adapter"
SECRET = secret.name_of(NAME)


class Built:
    """Documents that kustomize builds from a folder, by kind and name."""

    def __init__(self, kubectl, folder, *, account_namespace=NAMESPACE):
        self.account = {"kind": "ServiceAccount", "name": NAME, "namespace": account_namespace}
        done = subprocess.run(
            [kubectl, "kustomize", folder], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        self.documents = list(yaml.safe_load_all(done.stdout))
        self.by_name = {(each["kind"], each["metadata"]["name"]): each for each in self.documents}
        assert len(self.by_name) == len(self.documents)

    def of(self, kind):
        return [each for each in self.documents if each["kind"] == kind]

    def one(self, kind):
        (document,) = self.of(kind)
        return document

    @property
    def pod(self):
        return self.one("Deployment")["spec"]["template"]["spec"]

    @property
    def container(self):
        (container,) = self.pod["containers"]
        return container

    @property
    def grants(self):
        """Yield the RBAC rules of the account, each with its namespace or None for all."""
        for binding in (*self.of("ClusterRoleBinding"), *self.of("RoleBinding")):
            reference = binding["roleRef"]
            role = self.by_name.get((reference["kind"], reference["name"]))
            if self.account in binding["subjects"] and role is not None:
                for rule in role["rules"]:
                    yield binding["metadata"].get("namespace"), rule

    def allows(self, verb, group, resource, *, namespace=None, name=None):
        return any(
            verb in rule["verbs"]
            and group in rule.get("apiGroups", ())
            and resource in rule["resources"]
            and granted in (None, namespace)
            and ("resourceNames" not in rule or name in rule["resourceNames"])
            for granted, rule in self.grants
        )


@pytest.fixture(scope="module")
def base(programs):
    return Built(programs.kubectl, MANIFESTS / "base")


@pytest.fixture(scope="module")
def cert_manager(programs):
    return Built(programs.kubectl, MANIFESTS / "overlays" / "cert-manager")


@pytest.fixture(scope="module")
def external_metrics(programs):
    return Built(programs.kubectl, MANIFESTS / "overlays" / "external-metrics")


@pytest.fixture(scope="module")
def resource_metrics(programs):
    return Built(programs.kubectl, MANIFESTS / "overlays" / "resource-metrics")


@pytest.fixture(scope="module")
def network_policy(programs):
    return Built(programs.kubectl, MANIFESTS / "overlays" / "network-policy")


@pytest.fixture(
    params=["base", "cert_manager", "external_metrics", "network_policy", "resource_metrics"]
)
def built(real_servers, request):
    return request.getfixturevalue(request.param)


def documented(key):
    """Return the YAML block in docs/install.md that has `key` at the top level."""
    install = (MANIFESTS.parent / "docs" / "install.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", install, re.MULTILINE | re.DOTALL)
    (block,) = (each for each in map(yaml.safe_load, blocks) if key in each)
    return block


def write_overlay(folder, overlay, *, mycluster="base"):
    """Write the kustomization of a documented overlay, with the real paths; return `folder`."""

    def real(path):
        below = mycluster if path == "../mycluster" else path.removeprefix("../manifests/")
        return os.path.relpath(MANIFESTS / below, folder)  # kustomize accepts no absolute path

    paths = {key: list(map(real, overlay.get(key, ()))) for key in ("resources", "components")}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay | paths), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=FOLDERS)
def elsewhere(programs, request, tmp_path_factory):
    """The overlay in docs/install.md that changes the namespace, on top of each folder."""
    overlay = documented("namespace")
    if request.param == "overlays/cert-manager":
        overlay |= documented("replacements")
    folder = write_overlay(tmp_path_factory.mktemp("overlay"), overlay, mycluster=request.param)
    return Built(programs.kubectl, folder, account_namespace="monitoring")


def arguments(built):
    """Return the command line as the kubelet expands it."""
    config = built.one("ConfigMap")
    env = {}
    for each in built.container["env"]:
        source = each["valueFrom"]
        if key := source.get("configMapKeyRef"):
            assert key["name"] == config["metadata"]["name"]
            env[each["name"]] = config["data"][key["key"]]
    argv = list(built.container["args"])
    for name, value in env.items():
        argv = [each.replace(f"$({name})", value) for each in argv]
    assert not any("$(" in each for each in argv)
    return argv


def test_every_flag_on_the_command_line_is_valid_and_has_an_effect(built):
    parsed = settings.parse(arguments(built))

    assert parsed.notices == ()
    assert ipaddress.ip_address(parsed.serving.bind_address).is_unspecified
    (port,) = built.container["ports"]
    assert parsed.serving.port == port["containerPort"]
    assert {each.name for each in parsed.rules.sources if each.kind == "preset"} <= set(
        presets.names()
    )


def test_the_rules_file_is_mounted_where_it_is_read(base):
    (path,) = [each for each in arguments(base) if each.startswith("--config=")]
    folder, _, name = path.removeprefix("--config=").rpartition("/")

    mounted = {each["name"]: each["mountPath"] for each in base.container["volumeMounts"]}
    (volume,) = [each for each in base.pod["volumes"] if each["name"] == "config"]
    assert mounted["config"] == folder
    assert volume["configMap"]["name"] == base.one("ConfigMap")["metadata"]["name"]
    assert [each["path"] for each in volume["configMap"]["items"]] == [name]
    assert name in base.one("ConfigMap")["data"]


def test_the_grace_period_covers_the_shutdown_delay_and_a_request(base):
    (delay,) = [each for each in base.container["args"] if each.startswith("--shutdown-delay=")]

    seconds = int(delay.removeprefix("--shutdown-delay=").removesuffix("s"))
    # A request may take 60 s.
    assert base.pod["terminationGracePeriodSeconds"] > seconds + 60


def test_the_service_and_the_disruption_budget_select_the_pods(base):
    labels = base.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    (port,) = base.one("Service")["spec"]["ports"]

    assert base.one("Service")["spec"]["selector"].items() <= labels.items()
    assert port["targetPort"] == base.container["ports"][0]["name"]
    budget = base.one("PodDisruptionBudget")["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()


def test_every_served_version_has_an_apiservice(base, external_metrics, resource_metrics):
    def registered(built):
        return {each["metadata"]["name"] for each in built.of("APIService")}

    custom_metrics = set(CUSTOM.apiservices)

    # The base must not replace metrics-server, or another server for external metrics.
    assert registered(base) == custom_metrics
    assert registered(external_metrics) == {*custom_metrics, *EXTERNAL.apiservices}
    assert registered(resource_metrics) == {*custom_metrics, *USAGE.apiservices}


def test_users_who_may_view_pods_may_view_their_usage(resource_metrics):
    role = resource_metrics.by_name["ClusterRole", "gpu-metrics-adapter:usage-reader"]

    assert set(role["metadata"]["labels"]) >= {
        f"rbac.authorization.k8s.io/aggregate-to-{each}" for each in ("admin", "edit", "view")
    }
    (rule,) = role["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["metrics.k8s.io"], ["nodes", "pods"])


def test_every_reference_has_a_target(built):
    for each in built.documents:
        assert each["metadata"].get("namespace") in (None, NAMESPACE)
    assert built.pod["serviceAccountName"] == built.one("ServiceAccount")["metadata"]["name"]
    for binding in (*built.of("ClusterRoleBinding"), *built.of("RoleBinding")):
        name = binding["roleRef"]["name"]
        upstream = name == "system:auth-delegator"
        assert upstream or (binding["roleRef"]["kind"], name) in built.by_name


def test_the_account_has_no_unused_permission(built):
    granted = {
        (verb, f"{group}/{resource}".lstrip("/"), name)
        for _, rule in built.grants
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [None])
        if verb not in ("list", "watch")
    }

    served = [name for api in APIS for name in api.apiservices]
    registered = [each["metadata"]["name"] for each in built.of("APIService")]
    secrets = [] if built.of("Certificate") else [SECRET]
    assert granted == {
        ("get", "configmaps", CLIENT_CAS.name),
        *((verb, "events", None) for verb in ("create", "get", "update")),
        *(("get", f"{each.group}/{each.resource}/scale", None) for each in SCALE_TARGETS),
        *((verb, "secrets", name) for verb in ("get", "update") for name in secrets),
        *(("get", "apiregistration.k8s.io/apiservices", name) for name in served),
        # Not those of another server.
        *(("patch", "apiregistration.k8s.io/apiservices", name) for name in registered),
    }


def test_the_settings_of_authentication_may_be_followed(built):
    for verb in ("get", "list", "watch"):
        what = (verb, "", "configmaps")
        assert built.allows(*what, namespace=CLIENT_CAS.namespace, name=CLIENT_CAS.name)
        assert not built.allows(*what, namespace=CLIENT_CAS.namespace, name="coredns")


def test_the_autoscaler_may_read_every_metric(base):
    role = base.by_name["ClusterRole", "gpu-metrics-adapter:metrics-reader"]
    binding = base.by_name["ClusterRoleBinding", "gpu-metrics-adapter:metrics-reader"]

    # Kubernetes itself lets it read metrics.k8s.io.
    assert [each["apiGroups"] for each in role["rules"]] == [[CUSTOM.name, EXTERNAL.name]]
    assert role["rules"][0]["resources"] == ["*"]
    assert {"get", "list"} <= set(role["rules"][0]["verbs"])
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == ("horizontal-pod-autoscaler", "kube-system")


def test_with_cert_manager_the_certificate_comes_from_its_secret(cert_manager):
    argv = arguments(cert_manager)
    (certificate,) = [
        each
        for each in cert_manager.of("Certificate")
        if each["metadata"]["name"] == "gpu-metrics-adapter"
    ]
    mounts = {each["name"]: each["mountPath"] for each in cert_manager.container["volumeMounts"]}
    volumes = {each["name"]: each for each in cert_manager.pod["volumes"]}

    assert f"--tls-cert-file={mounts['certificates']}/tls.crt" in argv
    assert f"--tls-private-key-file={mounts['certificates']}/tls.key" in argv
    spec = certificate["spec"]
    assert volumes["certificates"]["secret"]["secretName"] == spec["secretName"]
    assert spec["secretName"] != SECRET
    assert tuple(spec["dnsNames"]) == CertificatePolicy.of_service(NAME, NAMESPACE).hosts
    for each in cert_manager.of("APIService"):
        injected = each["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        assert injected == f"{NAMESPACE}/{certificate['metadata']['name']}"


@pytest.mark.parametrize("folder", ["base", "external_metrics"])
def test_the_secret_has_only_a_name(real_servers, request, folder):
    """What a manifest contains, `kubectl apply` resets."""
    document = request.getfixturevalue(folder).one("Secret")

    assert document.keys() == {"apiVersion", "kind", "metadata"}
    assert (document["metadata"]["name"], document["metadata"]["namespace"]) == (SECRET, NAMESPACE)


def test_another_namespace_leaves_no_right_behind(elsewhere):
    for verb in ("get", "list", "watch"):
        what = (verb, "", "configmaps")
        assert elsewhere.allows(*what, namespace=CLIENT_CAS.namespace, name=CLIENT_CAS.name)
    assert elsewhere.allows("list", "", "pods", namespace="team-a")
    reader = elsewhere.by_name["ClusterRoleBinding", "gpu-metrics-adapter:metrics-reader"]
    assert [each["namespace"] for each in reader["subjects"]] == ["kube-system"]
    bindings = [*elsewhere.of("ClusterRoleBinding"), *elsewhere.of("RoleBinding")]
    given = [subject for each in bindings if each is not reader for subject in each["subjects"]]
    assert {each["namespace"] for each in given} == {elsewhere.account["namespace"]}
    assert {each["name"] for each in given} <= {NAME, f"{NAME}-external-fallback"}
    assert elsewhere.account in given


def test_another_namespace_is_named_everywhere_and_stays_as_it_is(elsewhere):
    for each in elsewhere.documents:
        assert each["metadata"].get("namespace") in (None, "monitoring")
        assert f"namespace: {NAMESPACE}\n" not in yaml.safe_dump(each)
    for each in elsewhere.of("APIService"):
        assert each["spec"]["service"]["namespace"] == "monitoring"
    # Its labels would restrict the other pods in it, and `kubectl delete -k` would delete it.
    assert elsewhere.of("Namespace") == []


@pytest.mark.parametrize("elsewhere", ["overlays/cert-manager"], indirect=True)
def test_another_namespace_gets_certificates_of_cert_manager(elsewhere):
    certificate = elsewhere.by_name["Certificate", NAME]

    hosts = CertificatePolicy.of_service(NAME, "monitoring").hosts
    assert tuple(certificate["spec"]["dnsNames"]) == hosts
    for each in elsewhere.of("APIService"):
        injected = each["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        assert injected == f"monitoring/{NAME}"


def policy_of(built):
    return built.one("NetworkPolicy")["spec"]


def test_the_network_policy_lets_requests_reach_the_serving_port_only(network_policy):
    policy = policy_of(network_policy)
    labels = network_policy.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    (port,) = network_policy.container["ports"]

    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["ingress"] == [{"ports": [{"port": port["name"], "protocol": "TCP"}]}]


def test_the_documented_overlay_restricts_the_network_policy(programs, tmp_path):
    policy = policy_of(Built(programs.kubectl, write_overlay(tmp_path, documented("components"))))

    (ingress,), (prometheus, dns, api_server) = policy["ingress"], policy["egress"]
    assert all(each["to"] and each["ports"] for each in (prometheus, dns, api_server))
    assert {"ipBlock", "namespaceSelector"} == {key for each in ingress["from"] for key in each}
    assert [each.keys() for each in api_server["to"]] == [{"ipBlock"}]


EXAMPLES = sorted((MANIFESTS / "examples").glob("*.yaml"))


def test_the_examples_have_different_names():
    names = [yaml.safe_load(path.read_text(encoding="utf-8"))["metadata"] for path in EXAMPLES]

    assert len(EXAMPLES) == 6
    assert len({(each["namespace"], each["name"]) for each in names}) == 6
