"""The worked examples in docs/backends.md: the chart and the program accept them as they are."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
import yaml

from adapter import settings
from tools import helm
from tools.docs import ROOT

PAGE = (ROOT / "docs/backends.md").read_text()
SECTIONS = PAGE.split("## How do I set it up for my backend?")[1].split("\n### ")
EXAMPLES = {
    f"{section.splitlines()[0]} {number}": yaml.safe_load(text.split("```")[0])
    for section in SECTIONS[1:]
    for number, text in enumerate(section.split("```yaml")[1:])
}
URLS = (
    "https://aps-workspaces.eu-central-1.amazonaws.com:443/workspaces/ws-00000000",
    "https://monitoring.googleapis.com:443/v1/projects/PROJECT/location/global/prometheus",
    "https://WORKSPACE-abcd.westeurope.prometheus.monitor.azure.com:443",
    "https://prometheus-prod-01-eu-west-0.grafana.net:443/api/prom",
    "http://mimir-gateway.mimir.svc:80/prometheus",
    "http://thanos-query.monitoring.svc:9090?partial_response=false",
    "https://thanos-querier.openshift-monitoring.svc:9091",
    "https://vmauth.monitoring.svc:8427/select/0/prometheus?nocache=1",
)


def test_each_backend_has_an_example():
    assert len(EXAMPLES) == len(URLS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "url"), tuple(zip(EXAMPLES, URLS, strict=True)), ids=EXAMPLES)
def test_the_arguments_are_valid_and_the_files_are_mounted(name, url):
    values = EXAMPLES[name]
    documents = helm.template(values)
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    parsed = settings.parse(container["args"])

    assert parsed.prometheus.url.startswith(url)
    assert [each for each in parsed.notices if "prometheus" in each] == []
    connection = parsed.prometheus
    files = [
        value
        for field in connection.__slots__
        if field.endswith("_file") and (value := getattr(connection, field))
    ]
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert [each for each in files if str(PurePosixPath(each).parent) not in mounts] == []
    assert helm.warnings(values) == helm.warnings()
