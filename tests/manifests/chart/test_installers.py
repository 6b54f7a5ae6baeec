"""The documented objects of Argo CD and Flux, and the parent charts that install the original."""

from __future__ import annotations

import shutil

import pytest
import yaml

from tests.manifests.chart.test_chart import api_services, container, one
from tests.test_docs import blocks
from tools import helm
from tools.helm import CHART, template

pytestmark = pytest.mark.usefixtures("real_servers")

PRODUCTION_STACK = {
    "prometheus-adapter": {
        "enabled": True,
        "prometheus": {
            "url": "http://{{ .Release.Name }}-kube-prometheus-stack-prometheus",
            "port": 9090,
        },
        "rules": {
            "custom": [
                {
                    "seriesQuery": '{__name__=~"^vllm:num_requests_waiting$"}',
                    "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
                    "name": {"matches": "", "as": "vllm_num_requests_waiting"},
                    "metricsQuery": "sum by(namespace) (vllm:num_requests_waiting)",
                }
            ]
        },
    }
}
"""Values of vLLM's production-stack 0.1.12 for its dependency."""

KSERVE = (
    "--set=prometheus.url=https://prometheus-kube-prometheus-prometheus.monitoring",
    "--set=prometheus.port=9090",
    "--set=certManager.enabled=true",
    "--set=extraArguments[0]=--prometheus-ca-file=/etc/prometheus-tls/ca.crt",
    "--set=extraVolumes[0].name=prometheus-tls",
    "--set=extraVolumes[0].secret.secretName=prometheus-tls",
    "--set=extraVolumeMounts[0].name=prometheus-tls",
    "--set=extraVolumeMounts[0].mountPath=/etc/prometheus-tls",
    "--set=extraVolumeMounts[0].readOnly=true",
    "--set=rules.external[0].seriesQuery=wva_desired_replicas",
    "--set=rules.external[0].resources.overrides.exported_namespace.resource=namespace",
    "--set=rules.external[0].name.matches=^(.*)",
    "--set=rules.external[0].name.as=${1}",
    "--set=rules.external[0].metricsQuery=<<.Series>>{<<.LabelMatchers>>}",
)
"""Flags of KServe 0.20's llmisvc-autoscaling-hpa-dependency-install.sh."""


def documented(page, key, value):
    """Return the YAML block of a page in which `key` is `value`; any value if that is None."""
    found = [yaml.safe_load(block) for block in blocks(page, "yaml") if "<<" not in block]
    (block,) = (each for each in found if key in each and value in (None, each[key]))
    return block


def application():
    spec = documented("docs/install.md", "kind", "Application")["spec"]
    source = spec["source"]
    ignored = {each["kind"]: set(each["jsonPointers"]) for each in spec["ignoreDifferences"]}
    return source | source["helm"], source["helm"]["valuesObject"], ignored


def helm_release():
    document = documented("docs/install.md", "kind", "HelmRelease")
    spec = document["spec"]
    chart = spec["chart"]["spec"]
    ignored = {
        each["target"]["kind"]: set(each["paths"]) for each in spec["driftDetection"]["ignore"]
    }
    names = {"targetRevision": chart["version"], "releaseName": document["metadata"]["name"]}
    return chart | names, spec["values"], ignored


@pytest.mark.parametrize("installer", [application, helm_release])
def test_argo_cd_and_flux_install_this_chart(installer):
    source, values, ignored = installer()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    documents = template(values, release=source["releaseName"])

    assert (source["chart"], source["targetRevision"]) == (chart["name"], chart["version"])
    assert one(documents, "Secret")["metadata"]["name"] == "gpu-metrics-adapter-tls"
    assert api_services(documents)
    assert ignored == application()[2]


def test_the_dependency_of_vllms_production_stack_is_replaced_by_its_repository(tmp_path):
    (dependency,) = documented("docs/migration.md", "dependencies", None)["dependencies"]
    local = shutil.copytree(CHART, tmp_path / "chart")
    parent = tmp_path / "parent"
    parent.mkdir()
    chart = {"apiVersion": "v2", "name": "vllm-stack", "version": "0.1.12"}
    chart["dependencies"] = [dependency | {"repository": f"file://{local}"}]
    (parent / "Chart.yaml").write_text(yaml.safe_dump(chart))
    helm.run("dependency", "update", parent)

    documents = template(PRODUCTION_STACK, release="vllm", chart=parent)

    assert one(documents, "Deployment")["metadata"]["name"] == "vllm-prometheus-adapter"
    url = "--prometheus-url=http://vllm-kube-prometheus-stack-prometheus:9090"
    assert url in container(documents)["args"]
    rules = yaml.safe_load(one(documents, "ConfigMap")["data"]["config.yaml"])
    assert rules["rules"] == PRODUCTION_STACK["prometheus-adapter"]["rules"]["custom"]
    disabled = PRODUCTION_STACK["prometheus-adapter"] | {"enabled": False}
    assert template({"prometheus-adapter": disabled}, release="vllm", chart=parent) == []


def test_the_flags_of_kserves_script_have_the_same_effect():
    documents = template({}, *KSERVE)

    arguments = container(documents)["args"]
    assert "--prometheus-ca-file=/etc/prometheus-tls/ca.crt" in arguments
    url = "https://prometheus-kube-prometheus-prometheus.monitoring:9090"
    assert f"--prometheus-url={url}" in arguments
    assert "v1beta1.external.metrics.k8s.io" in api_services(documents)
    assert {each["kind"] for each in documents} >= {"Issuer", "Certificate"}
    rules = yaml.safe_load(one(documents, "ConfigMap")["data"]["config.yaml"])
    (external,) = rules["externalRules"]
    assert (external["seriesQuery"], external["name"]["as"]) == ("wva_desired_replicas", "${1}")
