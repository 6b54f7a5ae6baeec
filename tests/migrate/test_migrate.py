"""`migrate` on public releases and ScaledObjects, and what it says about each key."""

from __future__ import annotations

import json

import pytest
import yaml

from adapter import __main__ as program
from rules.hpa.reading import Failure
from rules.migration import chart, cluster
from tests.manifests.chart import helm
from tests.migrate.golden import FOLDER, RELEASES, SCALED, SOURCES, inputs, run

INPUTS = inputs()
VALUES = {
    "prometheus": {"url": "http://p", "port": 80},
    "rules": {"default": False, "custom": [{"seriesQuery": "up", "metricsQuery": "up"}]},
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "prometheus-adapter", "namespace": "monitoring"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "adapter"}},
        "paused": True,
        "template": {
            "metadata": {"labels": {"app": "adapter"}},
            "spec": {
                "serviceAccountName": "prometheus-adapter",
                "nodeSelector": {"role": "infra"},
                "shareProcessNamespace": True,
                "securityContext": {},
                "containers": [
                    {
                        "name": "adapter",
                        "image": "registry.k8s.io/prometheus-adapter/prometheus-adapter:v0.12.0",
                        "args": [
                            "/adapter",
                            "--prometheus-url=https://prometheus.example/prefix",
                            "--metrics-relist-interval=30s",
                            "--logtostderr=true",
                            "--v",
                            "6",
                            "--config=/etc/adapter/config.yaml",
                            "--cert-dir=/tmp",
                            "--prometheus-ca-file=/etc/ca/ca.crt",
                            "--metrics-max-age=5m",
                        ],
                        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
                        "volumeMounts": [{"name": "config", "mountPath": "/etc/adapter"}],
                    },
                    {"name": "proxy", "image": "proxy"},
                ],
                "volumes": [
                    {"name": "config", "configMap": {"name": "rules"}},
                    {"name": "ca", "secret": {"secretName": "ca"}},
                ],
            },
        },
    },
}
RULES = {
    "rules": [{"seriesQuery": "up", "metricsQuery": "sum(up) by (<<.GroupBy>>) / 2"}],
    "externalRules": [
        {
            "seriesQuery": "queue",
            "resources": {"namespaced": False},
            "name": {"as": "Queue"},
            "metricsQuery": "max(queue)",
        }
    ],
}
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "rules", "namespace": "monitoring"},
    "data": {"config.yaml": yaml.safe_dump(RULES)},
}


def _flux():
    return {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": "adapter"},
        "spec": {"values": VALUES},
    }


def migrated(*documents, flags=()):
    return run(yaml.safe_dump_all(documents), *flags)


def says(report, verdict, subject):
    """Return the messages of the lines with this verdict about this subject."""
    wanted = f": {verdict}: {subject}"
    return [line.partition(wanted)[2].lstrip(": ") for line in report if wanted in line]


def scaled(*triggers, **spec):
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"name": "web"}, "triggers": triggers, **spec},
    }


def prometheus(query="sum(up)", threshold="5", **metadata):
    metadata = {"serverAddress": "http://p:80", "query": query, "threshold": threshold, **metadata}
    return {"type": "prometheus", "metadata": metadata}


def hpa(done):
    (document,) = done.files["hpas.yaml"]
    return document


@pytest.mark.parametrize("name", INPUTS)
def test_output_for_public_files(name):
    done = run(INPUTS[name])

    assert done.code == 0
    assert done.text() == (FOLDER / "golden" / f"{name}.txt").read_text()


def test_ten_releases_and_five_scaled_objects_have_a_public_source():
    assert len(list(RELEASES.glob("*.yaml"))) == 10
    assert {each.stem for each in SCALED.glob("*.yaml")} == SOURCES.keys()
    assert len(SOURCES) == 5
    assert all(each.keys() == {"repository", "path"} for each in SOURCES.values())


def test_the_keys_are_those_of_the_chart():
    def leaves(known, path=""):
        for key, below in known.items():
            inner = f"{path}{key}"
            yield from [inner] if below is True else leaves(below, f"{inner}.")

    known = json.loads((helm.CHART / "files" / "keys.json").read_text())
    reasons = yaml.safe_load((helm.CHART / "files" / "reasons.yaml").read_text())

    assert set(leaves(known)) == chart.KEYS
    assert reasons == chart.REASONS


@pytest.mark.parametrize(
    "document",
    [
        {"prometheus-adapter": VALUES, "grafana": {"enabled": True}},
        _flux(),
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": "adapter"},
            "spec": {"source": {"helm": {"values": yaml.safe_dump(VALUES)}}},
        },
    ],
    ids=["umbrella", "Flux", "Argo CD"],
)
def test_values_are_found_wherever_charts_are_deployed_from(document):
    assert migrated(document).files == {"values.yaml": [VALUES]}


def test_a_deployment_becomes_values_and_every_field_has_a_line():
    done = migrated(DEPLOYMENT, CONFIG_MAP)

    assert done.files["values.yaml"] == [
        {
            "replicas": 3,
            "nodeSelector": {"role": "infra"},
            "podLabels": {"app": "adapter"},
            "prometheus": {"url": "https://prometheus.example/prefix", "port": "", "path": ""},
            "metricsRelistInterval": "30s",
            "logLevel": 6,
            "rules": {
                "default": False,
                "custom": RULES["rules"],
                "external": RULES["externalRules"],
            },
            "extraArguments": [
                "--prometheus-ca-file=/etc/ca/ca.crt",
                "--metrics-max-age=5m",
            ],
        }
    ]
    for left_out in (
        "spec.paused",
        "spec.template.spec.shareProcessNamespace",
        "spec.template.spec.containers.lifecycle",
        "volume ca",
        "container proxy",
        "--logtostderr=true",
        "--cert-dir=/tmp",
    ):
        assert len(says(done.report, "left out", left_out)) == 1
    assert says(done.report, "left out", "volume config") == []
    assert "mount the file" in says(done.report, "differs", "--prometheus-ca-file")[0]
    assert "difference 3 " in says(done.report, "differs", "rules[0]")[0]
    assert "difference 7 " in says(done.report, "differs", "externalRules[0]")[0]


def test_a_config_map_that_is_not_among_the_files_stays_in_use():
    (values,) = migrated(DEPLOYMENT).files["values.yaml"]

    assert values["rules"] == {"default": False, "existing": "rules"}


@pytest.mark.parametrize("text", [yaml.safe_dump(RULES), yaml.safe_dump(CONFIG_MAP)])
def test_rules_alone_need_a_url(text):
    done = run(text)

    assert done.files["values.yaml"][0]["rules"]["custom"] == RULES["rules"]
    assert any("set prometheus.url" in line for line in done.report)


def test_rules_of_scaled_objects_beside_a_config_map_that_is_not_among_the_files_are_named():
    done = migrated(
        DEPLOYMENT, scaled(prometheus(serverAddress="https://prometheus.example/prefix"))
    )

    assert done.files["values.yaml"][0]["rules"]["existing"] == "rules"
    (message,) = says(done.report, "left out", "rules of ScaledObjects")
    assert message.endswith("add them to ConfigMap rules")


def test_an_overlay_has_the_rules_flags_and_fields_and_names_the_rest():
    values = {
        **VALUES,
        "replicas": 3,
        "metricsRelistInterval": "2m",
        "tolerations": [{"key": "gpu"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "service": {"port": 8443},
    }
    values["rules"] = {**VALUES["rules"], "external": RULES["externalRules"]}
    done = migrated(values, flags=["--format=kustomize", "--manifests=../../ours"])

    kustomization, deployment = (
        done.files[f"{name}.yaml"][0] for name in ("kustomization", "deployment")
    )
    assert done.files["config.yaml"] == [
        {"rules": VALUES["rules"]["custom"], "externalRules": RULES["externalRules"]}
    ]
    assert kustomization["resources"] == ["../../ours/base"]
    assert kustomization["components"] == ["../../ours/components/external-metrics"]
    assert kustomization["configMapGenerator"][0]["literals"] == ["PROMETHEUS_URL=http://p:80"]
    pod = deployment["spec"]["template"]["spec"]
    assert (deployment["spec"]["replicas"], pod["tolerations"]) == (3, [{"key": "gpu"}])
    assert pod["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert "--metrics-relist-interval=2m" in pod["containers"][0]["args"]
    assert not [each for each in pod["containers"][0]["args"] if each.startswith("--preset")]
    assert len(says(done.report, "left out", "service")) == 1


def test_rules_of_scaled_objects_join_those_of_the_installation():
    done = migrated(_flux(), scaled(prometheus(), prometheus("up"), minReplicaCount=2))

    (values,) = done.files["values.yaml"]
    assert [each["seriesQuery"] for each in values["rules"]["custom"]] == [
        "up",
        'up{namespace!="",pod!=""}',
    ]
    assert [each["metricsQuery"] for each in values["rules"]["external"]] == [
        "(sum(up)) or vector(0)"
    ]
    assert [each["type"] for each in hpa(done)["spec"]["metrics"]] == ["External", "Pods"]


@pytest.mark.parametrize(
    ("query", "template"),
    [
        ("up", "sum(up{<<.LabelMatchers>>}) by (<<.GroupBy>>)"),
        ('up{a="b",}', 'sum(up{a="b",<<.LabelMatchers>>}) by (<<.GroupBy>>)'),
        ("rate(up[2m])", "sum(rate(up{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"),
        (
            'rate(up{a="}"}[2m])',
            'sum(rate(up{a="}",<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)',
        ),
    ],
)
def test_one_series_for_each_pod_becomes_a_pods_metric(query, template):
    (values,) = migrated(scaled(prometheus(query))).files["values.yaml"]

    assert [each["metricsQuery"] for each in values["rules"]["custom"]] == [template]


@pytest.mark.parametrize(
    ("query", "several"),
    [
        ("sum(up)", False),
        ("sum(up) / count(up)", False),
        ("histogram_quantile(0.9, sum(rate(x_bucket[1m])) by (le))", False),
        ("sum(up) by (pod)", True),
        ("up * 2", True),
        ("topk(1, up)", True),
        ("up offset 5m", True),
    ],
)
def test_queries_that_may_return_several_series_are_named(query, several):
    done = migrated(scaled(prometheus(query)))

    (message,) = says(done.report, "differs", "triggers[0].query")
    assert ("several series" in message) == several


@pytest.mark.parametrize(
    ("trigger", "subject", "words"),
    [
        ({"type": "kafka", "metadata": {}}, "triggers[0]", "reads Prometheus, not kafka"),
        (prometheus("sum("), "triggers[0].query", ""),
        (prometheus(threshold="many"), "triggers[0].threshold", ""),
        (prometheus(threshold="0"), "triggers[0].threshold", "cannot be 0"),
        (prometheus("vector(1)"), "triggers[0].query", "names no series"),
        ({"type": "prometheus", "metadata": {"serverAddress": "x"}}, "triggers[0].query", ""),
        ({"type": "cpu", "metadata": {"value": "0"}}, "triggers[0]", "no target"),
    ],
)
def test_triggers_without_an_equal_are_named_and_no_hpa_is_written(trigger, subject, words):
    done = migrated(scaled(trigger))

    (message, *_) = says(done.report, "left out", subject)
    assert words in message
    assert "hpas.yaml" not in done.files
    assert "no trigger has an equal" in says(done.report, "left out", "ScaledObject")[0]


def test_a_trigger_of_another_prometheus_is_left_out():
    done = migrated(_flux(), scaled(prometheus(serverAddress="http://other")))

    (message,) = says(done.report, "left out", "triggers[0]")
    assert message.startswith("http://other is not the adapter's Prometheus, http://p:80")


def test_a_formula_of_triggers_has_no_hpa():
    modifiers = {"scalingModifiers": {"formula": "a + b", "target": "5"}}
    done = migrated(scaled(prometheus(), advanced=modifiers))

    assert "hpas.yaml" not in done.files
    assert says(done.report, "left out", "advanced.scalingModifiers")


def test_resource_triggers_labels_and_names_are_kept():
    document = scaled(
        {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}},
        {"type": "memory", "metadata": {"type": "AverageValue", "value": "1Gi"}},
        {"type": "cpu", "metadata": {"value": "50", "containerName": "main"}},
        advanced={"horizontalPodAutoscalerConfig": {"name": "custom"}},
        minReplicaCount=2,
    )
    document["metadata"]["labels"] = {"team": "a"}
    document["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    done = migrated(document)

    assert hpa(done)["metadata"] == {"name": "custom", "namespace": "shop", "labels": {"team": "a"}}
    assert [each["type"] for each in hpa(done)["spec"]["metrics"]] == [
        "Resource",
        "Resource",
        "ContainerResource",
    ]
    assert says(done.report, "left out", "annotation autoscaling.keda.sh/paused")


def test_a_template_delimiter_in_a_query_is_escaped():
    done = migrated(scaled(prometheus('sum(up{a="<<b"})')))

    (rule,) = done.files["values.yaml"][0]["rules"]["external"]
    assert '<<"<<">>b' in rule["metricsQuery"]
    assert done.code == 0


def test_other_objects_are_named():
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"},
    }
    done = migrated(_flux(), service, autoscaler)

    assert len(says(done.report, "left out", "Service s")) == 1
    assert len(says(done.report, "same", "HorizontalPodAutoscaler h")) == 1


def test_several_installations_and_none_are_refused():
    several, none = (
        migrated(_flux(), DEPLOYMENT, CONFIG_MAP),
        migrated({"kind": "A", "apiVersion": "v1"}),
    )

    assert (several.code, none.code, several.files, none.files) == (1, 1, {}, {})
    assert "several installations: Helm values in input.yaml" in several.report[0]
    assert "contains neither" in none.report[0]


def test_rules_that_do_not_load_fail():
    done = migrated(
        VALUES | {"rules": {"custom": [{"seriesQuery": "up", "metricsQuery": "<<.No>>"}]}}
    )

    assert (done.code, done.files) == (1, {})
    assert any(": error: rules[0].metricsQuery" in line for line in done.report)


@pytest.mark.parametrize(
    "line", ["migrate", "migrate f.yaml --cluster", "migrate f --format=x", "migrate --compare"]
)
def test_an_invalid_command_line(line, capsys):
    assert program.main(line.split()) == 2
    assert "gpu-metrics-adapter migrate --help" in capsys.readouterr().err


def test_a_cluster_is_read_with_the_config_maps_of_the_adapters():
    ours = json.loads(json.dumps(DEPLOYMENT))
    ours["spec"]["template"]["spec"]["containers"][0]["image"] = "gpu-metrics-adapter:0.1.0"
    other = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": {}}}
    replies = {
        "/apis/apps/v1/deployments": {"items": [DEPLOYMENT, ours, other]},
        "/api/v1/namespaces/monitoring/configmaps/rules": CONFIG_MAP,
        "/apis/keda.sh/v1alpha1/scaledobjects": Failure(status=404, message="none"),
    }
    steps = cluster.documents()
    asked = [next(steps)]
    try:
        while True:
            asked.append(steps.send(replies[asked[-1].path]))
    except StopIteration as stop:
        found = stop.value

    assert [each.path for each in asked] == list(replies)
    assert found == [DEPLOYMENT, CONFIG_MAP]
