"""What the chart renders: public values, the keys of the original, defects of the original."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

import pytest
import yaml

from adapter import __version__
from rules import presets, ruleset
from tools import chart_values, helm
from tools.helm import CHART, template, warnings

pytestmark = pytest.mark.usefixtures("real_servers")

FOLDER = Path(__file__).parent
RELEASES = sorted(file.stem for file in (FOLDER / "releases").glob("*.yaml"))
"""Values of public releases in our own words, each with what chart 5.3.0 of the original renders of
them: its objects, and for some of them what an upgrade must keep."""

DEFAULT_RULES = 6
REPLACED = {
    f"{kind} {old}": f"{kind} prometheus-adapter-resource-reader"
    for kind, old in (
        ("ClusterRole", "prometheus-adapter-metrics"),
        ("ClusterRoleBinding", "prometheus-adapter-hpa-controller-metrics"),
    )
}
"""Objects of the original that another one stands for: it may read pods and nodes, too."""
WARNED = {
    "copy-of-all-defaults": ["image.repository", "psp"],
    "leftovers-of-older-charts": ["image.repository", "psp", "runAsUser"],
}
"""Release -> keys whose effect is another one."""

PEM = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n".format
FILES = {"enable": True, "certificate": PEM("CERTIFICATE"), "key": PEM("PRIVATE KEY")}


def one(documents, kind):
    (found,) = (each for each in documents if each["kind"] == kind)
    return found


def pod(documents):
    return one(documents, "Deployment")["spec"]["template"]["spec"]


def container(documents):
    return pod(documents)["containers"][0]


def api_services(documents):
    return {
        each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "APIService"
    }


def names(documents):
    return {" ".join(filter(None, helm.key(each))): each for each in documents}


def read(name):
    """Return a public release."""
    return yaml.safe_load((FOLDER / "releases" / f"{name}.yaml").read_text())


@pytest.fixture(scope="module", params=RELEASES)
def release(request):
    return request.param, read(request.param)


@functools.cache
def rendered(name):
    found = read(name)
    return template(found["values"], release=found["release"], namespace=found["namespace"])


@pytest.mark.parametrize("is_given", [True, False])
def test_commands_in_the_pod_find_prometheus(is_given):
    own = {"name": "PROMETHEUS_URL", "value": "http://own:9090"}
    values = {"prometheus": {"url": "http://p"}, "env": [own] if is_given else []}

    env = [each for each in container(template(values))["env"] if each["name"] == own["name"]]

    assert [each["value"] for each in env] == [own["value"] if is_given else "http://p:9090"]


def test_ten_public_releases_are_named_with_their_source(release):
    assert len(RELEASES) == 10
    assert release[1]["source"].keys() == {"repository", "path"}


def test_every_object_of_the_original_has_its_counterpart(release):
    ours = names(rendered(release[0]))
    for name, facts in release[1]["original"].items():
        assert REPLACED.get(name, name) in ours
        if isinstance(facts, str) and name not in REPLACED:
            # A roleRef cannot be changed, so an upgrade would fail.
            reference = ours[name]["roleRef"]
            assert f"{reference['kind']} {reference['name']}" == facts


def test_the_deployment_can_be_patched_and_keeps_its_arguments(release):
    ours = names(rendered(release[0]))
    (name,) = (each for each in release[1]["original"] if each.startswith("Deployment "))
    facts = release[1]["original"][name]
    spec = ours[name]["spec"]
    adapter = spec["template"]["spec"]["containers"][0]
    mounts = {each["name"]: each["mountPath"] for each in adapter["volumeMounts"]}

    assert spec["selector"]["matchLabels"] == facts["selector"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert adapter["name"] == facts["container"]
    # /adapter is the program.
    assert set(facts["args"]) - set(adapter["args"]) == {"/adapter"}
    assert facts["mounts"].items() <= mounts.items()
    assert set(facts["volumes"]) <= {each["name"] for each in spec["template"]["spec"]["volumes"]}


def test_the_service_keeps_selector_and_port(release):
    ours = names(rendered(release[0]))
    (name,) = (each for each in release[1]["original"] if each.startswith("Service "))
    facts = release[1]["original"][name]

    assert ours[name]["spec"]["selector"] == facts["selector"]
    assert ours[name]["spec"]["ports"][0]["port"] == facts["port"]


def test_every_rule_is_kept_and_loads(release):
    documents = rendered(release[0])
    (name,) = (each for each in release[1]["original"] if each.startswith("ConfigMap "))
    text = names(documents)[name]["data"]["config.yaml"]
    config, values = yaml.safe_load(text), release[1]["values"].get("rules", {})
    default = "--preset=prometheus-adapter" in container(documents)["args"]

    assert config["rules"] == values.get("custom", [])
    assert config.get("externalRules", []) == values.get("external", [])
    assert config.get("resourceRules") == values.get("resource")
    counts = {key: len(config[key]) for key in config}
    counts["rules"] += DEFAULT_RULES * default
    assert {key: count for key, count in counts.items() if count} == release[1]["original"][name]
    ruleset.load([("config.yaml", text)])


def test_nothing_is_dropped_silently(release):
    keys = [line.split()[0] for line in warnings(release[1]["values"])]

    assert keys == sorted(WARNED.get(release[0], []), key=lambda key: key == "image.repository")


def test_the_default_rules_are_those_of_the_preset():
    config = yaml.safe_load(presets.text("prometheus-adapter"))

    assert len(config["rules"]) == DEFAULT_RULES


GOLDEN = {
    "default": {},
    "everything": {
        "nameOverride": "gpu",
        "customAnnotations": {"example.com/owner": "gpu-team"},
        "customLabels": {"example.com/shard": 7},
        "prometheus": {
            "embedded": {"enabled": True, "scrapeInterval": "1s", "tokenNamespaces": ["pools"]}
        },
        "presets": ["gpu-dcgm", "inference-vllm"],
        "rules": {"default": False},
        "externalMetrics": {"enabled": True},
        "resourceMetrics": {"enabled": True},
        "certManager": {"enabled": True, "certRevisionHistoryLimit": 2},
        "priorityClassName": "system-cluster-critical",
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "hostNetwork": {"enabled": True},
        "podDisruptionBudget": {"minAvailable": "50%"},
        "service": {"port": 8443, "ipDualStack": {"enabled": True, "ipFamilies": ["IPv4"]}},
        "rbac": {"useAuthReaderClusterRole": True},
        "serviceAccount": {"name": "metrics", "annotations": {"example.com/role": "reader"}},
        "monitoring": {"serviceAccounts": [{"name": "prometheus", "namespace": "monitoring"}]},
        "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
        "podMonitor": {
            "enabled": True,
            "authorization": {"credentials": {"name": "scrape", "key": "token"}},
        },
        "prometheusRule": {"enabled": True},
        "networkPolicy": {"enabled": True, "from": [{"ipBlock": {"cidr": "192.0.2.0/28"}}]},
    },
}
"""Name of a file in `golden` -> values."""


def golden(values):
    """Render `values`, without what each object repeats and without the files of the chart."""
    documents = template(values)
    for each in documents:
        if each["kind"] != "Deployment":
            del each["metadata"]["labels"]
        if each["kind"] == "PrometheusRule":
            del each["spec"]
        if configuration := each.get("data", {}).get("prometheus.yml"):
            each["data"]["prometheus.yml"] = configuration.partition("scrape_configs:")[0]
    return documents


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_renderings(name):
    expected = list(yaml.safe_load_all((FOLDER / "golden" / f"{name}.yaml").read_text()))

    assert golden(GOLDEN[name]) == expected, "run `python -m tests.manifests.chart.golden`"


def test_every_object_has_the_labels_of_the_release():
    common = template()[0]["metadata"]["labels"]

    assert {"app.kubernetes.io/instance", "app.kubernetes.io/version"} < common.keys()
    for each in template(GOLDEN["everything"] | {"nameOverride": "", "customLabels": {}}):
        assert common.items() <= each["metadata"]["labels"].items()


def test_the_versions_are_those_of_the_program():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["version"] == chart["appVersion"] == __version__


def test_helm_finds_no_fault_in_the_chart_and_packages_it(tmp_path):
    assert "0 chart(s) failed" in helm.run("lint", "--strict", CHART)

    helm.run("package", CHART, "--destination", tmp_path)
    packaged = tmp_path / f"prometheus-adapter-{__version__}.tgz"
    assert template(chart=packaged) == template()


def test_a_parent_chart_passes_the_values_below_the_name(tmp_path):
    (tmp_path / "charts").mkdir()
    shutil.copytree(CHART, tmp_path / "charts" / "prometheus-adapter")
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: parent, version: 1.0.0}")

    documents = template(
        {"global": {"x": 1}, "prometheus-adapter": {"replicas": 3}}, release="stack", chart=tmp_path
    )

    deployment = one(documents, "Deployment")
    assert deployment["spec"]["replicas"] == 3
    assert deployment["metadata"]["name"] == "stack-prometheus-adapter"


def test_values_of_every_type_that_the_original_accepts():
    documents = template({"replicas": "3", "logLevel": "6", "prometheus": {"port": "80"}})

    assert one(documents, "Deployment")["spec"]["replicas"] == 3
    assert {"--v=6", "--prometheus-url=http://prometheus.default.svc:80"} <= set(
        container(documents)["args"]
    )


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"rules": {"default": "false"}}, "/rules/default': got string, want boolean"),
        ({"replicas": -1}, "/replicas': minimum: got -1, want 0"),
        ({"externalFallback": {"serviceAccount": "keda/x"}}, "'keda/x' does not match pattern"),
        ({"presets": ["gpu-dcgm", "gpu-x"]}, "/presets/1': value must be one of 'auto', 'accel"),
    ],
)
def test_what_cannot_be_meant_is_refused(values, error):
    with pytest.raises(RuntimeError, match=re.escape(error)):
        template(values)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        # Of two rules with one name the later one is used: that of the original.
        ({}, ["auto", "prometheus-adapter"]),
        ({"presets": []}, ["prometheus-adapter"]),
        ({"presets": ["gpu-dcgm"]}, ["prometheus-adapter", "gpu-dcgm"]),
        ({"rules": {"default": False}}, []),
        ({"rules": {"existing": "own"}}, []),
    ],
)
def test_gpu_metrics_are_served_beside_the_default_rules(values, names):
    args = container(template(values))["args"]
    assert [each for each in args if "--preset" in each] == [f"--preset={each}" for each in names]


def test_scale_targets_are_a_flag_and_rights():
    documents = template({"scaleTargets": ["replicationcontrollers", "sets.a.example.com"]})
    roles = [each for each in documents if each["kind"] == "ClusterRole"]

    assert (
        "--scale-targets=replicationcontrollers,sets.a.example.com" in container(documents)["args"]
    )
    rules = [rule for role in roles for rule in role["rules"] if "/scale" in str(rule)]
    assert rules == [
        {"apiGroups": [""], "resources": ["replicationcontrollers/scale"], "verbs": ["get"]},
        {"apiGroups": ["a.example.com"], "resources": ["sets/scale"], "verbs": ["get"]},
    ]


def test_a_release_with_our_name_has_no_other():
    documents = template(release="gpu-metrics-adapter")

    for each in documents:
        names = (each["metadata"]["name"], *each["metadata"]["labels"].values())
        assert [name for name in names if "prometheus-adapter" in name] == [
            f"prometheus-adapter-{__version__}"
        ]


@pytest.mark.parametrize(
    ("values", "url"),
    [
        ({"port": 0}, "http://prometheus.default.svc"),
        (
            {"url": "http://{{ .Release.Name }}.x", "path": "/p"},
            "http://prometheus-adapter.x:9090/p",
        ),
        ({"url": "prometheus.x", "port": None}, "http://prometheus.x"),
        ({"url": "http://prometheus.x:8080"}, "http://prometheus.x:8080"),
        ({"url": "https://[::1]/tenant"}, "https://[::1]:9090/tenant"),
        ({"url": "http://p?dedup=true"}, "http://p:9090?dedup=true"),
        ({"url": "http://p:80?dedup=true", "path": "/api"}, "http://p:80/api?dedup=true"),
    ],
)
def test_the_url_of_prometheus(values, url):
    assert f"--prometheus-url={url}" in container(template({"prometheus": values}))["args"]


@pytest.mark.parametrize(
    ("image", "used"),
    [
        ({}, f"gpu-metrics-adapter:{__version__}"),
        ({"tag": "v0.12.0"}, f"gpu-metrics-adapter:{__version__}"),
        ({"repository": "quay.io/x/k8s-prometheus-adapter-amd64", "tag": "v0.8.4"}, None),
        ({"repository": "mirror/prometheus-adapter", "registry": "r.example"}, "r.example/"),
        (
            {"repository": "r.example/gpu-metrics-adapter", "tag": "v0.9"},
            "r.example/gpu-metrics-adapter:v0.9",
        ),
        ({"digest": "sha256:00"}, "gpu-metrics-adapter@sha256:00"),
    ],
)
def test_an_image_of_the_original_is_replaced(image, used):
    if used is None or used.endswith("/"):
        used = f"{used or ''}gpu-metrics-adapter:{__version__}"
    assert container(template({"image": image}))["image"] == used


@pytest.mark.parametrize(
    ("budget", "spec"),
    [
        ({}, {"maxUnavailable": 1}),
        ({"minAvailable": 1}, {"minAvailable": 1}),
        ({"minAvailable": "", "maxUnavailable": "50%"}, {"maxUnavailable": "50%"}),
        ({"maxUnavailable": None}, {"maxUnavailable": 1}),
    ],
)
def test_a_disruption_budget_has_one_of_both_keys(budget, spec):
    found = one(template({"podDisruptionBudget": budget}), "PodDisruptionBudget")["spec"]

    assert {key: found[key] for key in ("minAvailable", "maxUnavailable") if key in found} == spec


def test_what_helm_merges_into_a_default_is_valid():
    documents = template(
        {
            "strategy": {"type": "Recreate"},
            "livenessProbe": {"exec": {"command": ["true"]}},
            "startupProbe": None,
        }
    )

    assert one(documents, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert "httpGet" not in container(documents)["livenessProbe"]
    assert "startupProbe" not in container(documents)


def test_labels_and_annotations_of_the_user_never_change_the_selector():
    documents = template(
        {
            "customLabels": {"app.kubernetes.io/name": "x", "y": True},
            "podLabels": {"app.kubernetes.io/instance": "x", "app.kubernetes.io/version": "2"},
            "podAnnotations": {"prometheus.io/scrape": True},
        }
    )
    spec = one(documents, "Deployment")["spec"]
    metadata = spec["template"]["metadata"]

    assert spec["selector"]["matchLabels"].items() <= metadata["labels"].items()
    assert metadata["labels"]["app.kubernetes.io/version"] == "2"
    assert metadata["labels"]["y"] == metadata["annotations"]["prometheus.io/scrape"] == "true"


def test_annotations_do_not_name_a_certificate_that_does_not_exist():
    (first, *_) = (
        each for each in template({"customAnnotations": {"a": "b"}}) if each["kind"] == "APIService"
    )

    assert first["metadata"]["annotations"] == {"a": "b"}


TLS = {
    "comments": ({"enable": True, "ca": "# CA", "certificate": "# Cert", "key": "# Key"}, "own"),
    "files": ({**FILES, "ca": PEM("CERTIFICATE")}, "files"),
    "files without a CA": (FILES, "insecure"),
    "existing Secret": (
        {"enable": True, "existingSecret": "mine", "ca": PEM("CERTIFICATE")},
        "files",
    ),
}


@pytest.mark.parametrize(("tls", "mode"), TLS.values(), ids=TLS.keys())
def test_certificates_from_files(tls, mode):
    documents = template({"tls": tls})
    (secret,) = [each["metadata"]["name"] for each in documents if each["kind"] == "Secret"] or [
        None
    ]
    (spec,) = {
        str(each.get("caBundle") and "CA") + str(each.get("insecureSkipTLSVerify"))
        for each in api_services(documents).values()
    }

    assert secret == {"own": "prometheus-adapter-tls"}.get(
        mode, None if "existingSecret" in tls else "prometheus-adapter"
    )
    assert spec == {"own": "NoneNone", "files": "CANone", "insecure": "NoneTrue"}[mode]
    assert ("--tls-cert-file=/var/run/serving-cert/tls.crt" in container(documents)["args"]) == (
        mode != "own"
    )
    assert bool(warnings({"tls": tls})) == (mode != "files")


def test_cert_manager_keeps_the_names_of_the_original():
    """It wins over `tls`, as there: both name one Secret."""
    documents = template({"certManager": {"enabled": True}, "tls": FILES})

    assert {
        helm.key(each)[::2] for each in documents if each["apiVersion"].startswith("cert-")
    } == {
        ("Issuer", "prometheus-adapter-self-signed-issuer"),
        ("Certificate", "prometheus-adapter-root-cert"),
        ("Issuer", "prometheus-adapter-root-issuer"),
        ("Certificate", "prometheus-adapter-cert"),
    }
    assert not [each for each in documents if each["kind"] in ("Secret", "Role")]
    volumes = {each["name"]: each for each in pod(documents)["volumes"]}
    assert volumes["volume-serving-cert"]["secret"]["secretName"] == "prometheus-adapter"
    assert warnings({"certManager": {"enabled": True}, "tls": FILES}) == [
        "tls.enable has no effect, because certManager.enabled names the same Secret"
    ]


SERVED = {
    "default": ({}, ["v1beta1.custom", "v1beta2.custom"]),
    "none": ({"rules": {"default": False}}, []),
    "existing ConfigMap": ({"rules": {"existing": "x"}}, ["v1beta1.custom", "v1beta2.custom"]),
    "only external": (
        {"rules": {"default": False}, "externalMetrics": {"enabled": True}},
        ["v1beta1.external"],
    ),
    "usage by a preset": (
        {"customMetrics": {"enabled": False}, "resourceMetrics": {"enabled": True}},
        ["v1beta1.", "v1."],
    ),
}


@pytest.mark.parametrize(("values", "served"), SERVED.values(), ids=SERVED.keys())
def test_which_metrics_apis_are_served(values, served):
    documents = template(values)

    assert [re.sub(r"\.?metrics.k8s.io", "", name) for name in api_services(documents)] == [
        each.rstrip(".") for each in served
    ]
    assert [line.partition(":")[0] for line in warnings(values)] == (
        [] if served else ["No metrics API is served"]
    )


def embedded(**values):
    return {"prometheus": {"embedded": {"enabled": True, **values}}}


def test_the_prometheus_in_the_pod_is_the_only_one_without_another_url():
    alone = container(template(embedded(port=9091)))["args"]
    both = container(
        template(embedded() | {"prometheus": {"url": "http://p", **embedded()["prometheus"]}})
    )["args"]

    assert {"--prometheus-url=http://127.0.0.1:9091"} < {*alone}
    assert {"--embedded-prometheus-url=http://127.0.0.1:9091"} < {*alone}
    assert {"--prometheus-url=http://p:9090"} < {*both}
    assert {"--embedded-prometheus-url=http://127.0.0.1:9090"} < {*both}
    assert warnings(embedded() | {"resourceMetrics": {"enabled": True}}) == [
        "The Prometheus in the pod does not scrape cAdvisor: for CPU and memory, set prometheus.url"
    ]


def test_the_prometheus_in_the_pod_trusts_the_namespace_of_the_release():
    values = embedded(trustedNamespaces=["a", "b"], scrapeInterval="30s", sampleLimit=2_000)
    documents = template(values)
    config = names(documents)["ConfigMap monitoring prometheus-adapter-prometheus"]["data"]
    configuration = yaml.safe_load(config["prometheus.yml"])
    devices, *servers = configuration["scrape_configs"]

    assert configuration["global"] == {"scrape_interval": "30s", "scrape_timeout": "10000ms"}
    assert devices["relabel_configs"][0]["regex"] == "monitoring|a|b"
    assert servers[0]["job_name"] == "gpu-metrics-adapter-servers-0"
    assert {each["sample_limit"] for each in servers} == {2_000}
    assert not re.search("TRUSTED|TOKEN|SAMPLE_LIMIT", config["prometheus.yml"])


@pytest.mark.parametrize("namespaces", [[], None, ["pools", "others"]])
def test_the_prometheus_in_the_pod_sends_its_token_only_to_chosen_namespaces(namespaces):
    found = names(template(embedded(tokenNamespaces=namespaces, trustedNamespaces=namespaces)))
    config = found["ConfigMap monitoring prometheus-adapter-prometheus"]["data"]["prometheus.yml"]
    jobs = [each for each in yaml.safe_load(config)["scrape_configs"] if "authorization" in each]

    regexes = ["|".join(namespaces)] if namespaces else []
    assert [each["relabel_configs"][0]["regex"] for each in jobs] == regexes
    assert ("ClusterRole prometheus-adapter-prometheus" in found) is bool(namespaces)


def test_the_prometheus_in_the_pod_needs_sidecars():
    with pytest.raises(RuntimeError, match=r"needs sidecars, which Kubernetes has from 1\.29 on"):
        template(embedded(), "--kube-version=1.28.9")
    assert template(embedded(), "--kube-version=1.29.0-eks-1")


@pytest.mark.parametrize("interval", ["500ms", "0s", "1m", "5"])
def test_the_scrape_interval_has_whole_seconds(interval):
    with pytest.raises(RuntimeError, match="scrapeInterval"):
        template(embedded(scrapeInterval=interval))


def test_the_rules_of_an_existing_configmap_replace_all_others():
    documents = template({"rules": {"existing": "mine"}})

    assert "--preset=prometheus-adapter" not in container(documents)["args"]
    assert not [each for each in documents if each["kind"] == "ConfigMap"]
    assert pod(documents)["volumes"][0]["configMap"]["name"] == "mine"


def test_the_values_may_lack_what_the_original_lacks():
    """`helm upgrade --reuse-values` takes the defaults of the release, not those of this chart."""
    keys = {key.path: key.is_new for key in chart_values.documented()}
    old = {path[:end] for path, is_new in keys.items() if not is_new for end in range(len(path))}
    without = {}
    for path in (each for each, is_new in keys.items() if is_new):
        end = next(end for end in range(1, len(path) + 1) if path[:end] not in old)
        section = without
        for name in path[: end - 1]:
            section = section.setdefault(name, {})
        section[path[end - 1]] = None

    assert without["teamRules"] is without["prometheus"]["embedded"] is None
    assert template(without) == template()


@pytest.mark.parametrize(
    ("strategy", "host", "update"),
    [
        ({}, False, {"maxSurge": 1, "maxUnavailable": 0}),
        ({}, True, {"maxSurge": 0, "maxUnavailable": 1}),
        ({"rollingUpdate": {"maxSurge": 0}}, False, {"maxSurge": 0}),
        ({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}, True, None),
    ],
)
def test_an_update_needs_no_second_port_on_a_node(strategy, host, update):
    documents = template({"strategy": strategy, "hostNetwork": {"enabled": host}})

    assert one(documents, "Deployment")["spec"]["strategy"].get("rollingUpdate") == update


@pytest.mark.parametrize(
    ("service", "namespaces"), [("keda/server", ["keda"]), ("https://keda.x:443", [])]
)
def test_a_network_policy_allows_the_other_server_and_what_values_add(service, namespaces):
    other = {"to": [{"ipBlock": {"cidr": "192.0.2.9/32"}}]}
    values = {"networkPolicy": {"enabled": True, "egress": [other]}}
    fallback = {"externalFallback": {"service": service}}

    *known, last = egress(values | fallback)

    label = "kubernetes.io/metadata.name"
    assert last == other
    assert known[len(egress({"networkPolicy": {"enabled": True}})) :] == [
        {"to": [{"namespaceSelector": {"matchLabels": {label: each}}}]} for each in namespaces
    ]


def egress(values):
    return one(template(values), "NetworkPolicy")["spec"]["egress"]


def test_unknown_keys_are_warnings():
    assert warnings(
        {"loglevel": 6, "prometheus": {"uri": "x"}, "nodeSelector": {"any": "key"}}
    ) == [
        "loglevel has no effect: did you mean logLevel?",
        "prometheus.uri has no effect: this chart has no such key",
    ]


def test_a_template_reads_every_key():
    """A key that none reads would be documented, and dropped silently."""
    templates = "\n".join(file.read_text() for file in (CHART / "templates").iterdir())
    words = set(re.findall(r"\w+", templates))

    assert [key.name for key in chart_values.documented() if key.path[-1] not in words] == []
