"""`migrate` on public releases and ScaledObjects, and what it says about each key."""

from __future__ import annotations

import json

import pytest
import yaml

from adapter.cli import program
from adapter.cli.commands import migration
from rules.hpa.reading import ApiReply
from rules.migration import chart
from tests.migrate.golden import FOLDER, RELEASES, SCALED, SOURCES, inputs, run, run_files
from tests.migrate.keda import scaled, trigger

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
                        "volumeMounts": [
                            {"name": "config", "mountPath": "/etc/adapter"},
                            {"name": "ca", "mountPath": "/etc/ca"},
                        ],
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


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_output_for_public_files(name):
    done = run(INPUTS[name])

    assert done.code == 0
    assert done.text() == (FOLDER / "golden" / f"{name}.txt").read_text()


def test_ten_releases_and_ten_scaled_objects_have_a_public_source():
    assert len(list(RELEASES.glob("*.yaml"))) == 10
    assert {each.stem for each in SCALED.glob("*.yaml")} == SOURCES.keys()
    assert len(SOURCES) == 10
    assert all(each.keys() == {"repository", "path"} for each in SOURCES.values())


def test_what_differs_names_keys_of_the_chart():
    assert chart.DIFFERENCES.keys() <= chart.KEYS


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
            "extraArguments": ["--prometheus-ca-file=/etc/ca/ca.crt", "--metrics-max-age=5m"],
            "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
        }
    ]
    for left_out in (
        "spec.paused",
        "spec.template.spec.shareProcessNamespace",
        "spec.template.spec.containers.lifecycle",
        "container proxy",
        "--logtostderr=true",
        "--cert-dir=/tmp",
    ):
        assert len(says(done.report, "left out", left_out)) == 1
    assert says(done.report, "left out", "volume config") == []
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
    first = trigger(serverAddress="https://prometheus.example/prefix")
    done = migrated(DEPLOYMENT, scaled(triggers=[first]))

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
    triggers = [trigger(serverAddress=each) for each in ("http://p:80", "http://b")]
    done = migrated(_flux(), scaled(triggers=triggers))

    (values,) = done.files["values.yaml"]
    assert values["rules"]["custom"] == VALUES["rules"]["custom"]
    assert [each.get("source") for each in values["rules"]["external"]] == [None, "b"]
    assert values["rules"]["sources"] == {"b": {"url": "http://b"}}
    assert values["prometheus"] == VALUES["prometheus"]


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


def test_a_document_without_a_kind_is_named():
    done = migrated(_flux(), CONFIG_MAP, {"foo": "bar"})

    assert done.code == 0
    assert any("is not part of a migration" in line for line in done.report)


def test_an_output_that_cannot_be_written_is_named():
    done = run_files({"input.yaml": yaml.safe_dump(VALUES), "out": ""}, "input.yaml")

    assert done.code == 1
    assert "File exists: 'out'" in done.report[-1]


@pytest.mark.parametrize("mounts", ["x", [1]])
def test_mounts_that_are_none_do_not_end_the_migration(mounts):
    done = migrated(VALUES | {"extraVolumeMounts": mounts, "extraArguments": ["--v=2"]})
    deployment = json.loads(json.dumps(DEPLOYMENT))
    deployment["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = mounts

    assert (done.code, migrated(deployment, CONFIG_MAP).code) == (0, 0)


def test_a_url_of_prometheus_that_is_none_is_named():
    done = migrated(VALUES | {"prometheus": {"url": "http://[fd00::1"}})

    assert done.code == 1
    assert "prometheus.url: http://[fd00::1:9090 is not a URL" in done.report[0]


def test_several_installations_and_none_are_refused():
    several, none = (
        migrated(_flux(), DEPLOYMENT, CONFIG_MAP),
        migrated({"kind": "A", "apiVersion": "v1"}),
    )

    assert (several.code, none.code, several.files, none.files) == (1, 1, {}, {})
    assert "several installations: Helm values in input.yaml" in several.report[0]
    assert "contains neither" in none.report[0]


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--prometheus-token-file=/etc/t/token", "nothing is mounted there"),
        ("--prometheus-auth-config=/etc/t/auth", "nothing is mounted there"),
        ("--no-such-flag=1", "unknown flag"),
        ("--alsologtostderr=true", "has no effect"),
        ("--prometheus-timeout=often", "must be a duration"),
    ],
)
def test_a_flag_that_would_not_work_is_left_out_and_named(flag, reason):
    deployment = json.loads(json.dumps(DEPLOYMENT))
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["args"].append(flag)
    for document in ([deployment, CONFIG_MAP], [VALUES | {"extraArguments": [flag]}]):
        done = migrated(*document)

        (message,) = says(done.report, "left out", flag)
        assert reason in message
        assert flag not in done.files["values.yaml"][0].get("extraArguments", ())


def test_a_flag_whose_file_is_mounted_is_kept():
    flag = "--prometheus-token-file=/etc/t/token"
    mounts = {"extraVolumeMounts": [{"name": "t", "mountPath": "/etc/t"}]}
    done = migrated(VALUES | mounts | {"extraArguments": [flag]})

    assert done.files["values.yaml"][0]["extraArguments"] == [flag]


@pytest.mark.parametrize(
    ("repository", "verdict"),
    [
        ({}, "differs"),
        ({"repository": "registry.k8s.io/prometheus-adapter/prometheus-adapter"}, "differs"),
        ({"repository": "mirror/gpu-metrics-adapter"}, "same"),
    ],
)
def test_a_tag_of_the_original_image_is_left_out(repository, verdict):
    done = migrated({**VALUES, "image": {**repository, "tag": "v0.12.0"}})

    assert len(says(done.report, verdict, "image.tag")) == 1
    (values,) = done.files["values.yaml"]
    assert ("tag" in (values.get("image") or {})) == (verdict == "same")


def test_values_that_the_original_ignores_differ():
    done = migrated(VALUES | {"serviceMonitor": {"enabled": True}, "networkPolicy": {}})

    assert "unlike in the original" in says(done.report, "differs", "serviceMonitor.enabled")[0]


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("rules:\n- seriesQuery: up\n  metricQuery: up\n", "unknown key 'metricQuery'"),
        ("rules:\n- seriesQery: up\n", "has no rules in its key config.yaml"),
        ("rules: [", "expected"),
        ("", "has no rules in its key config.yaml"),
    ],
)
def test_rules_of_a_config_map_that_are_invalid_fail(rules, reason):
    done = migrated(DEPLOYMENT, CONFIG_MAP | {"data": {"config.yaml": rules}})

    assert (done.code, done.files) == (1, {})
    assert any(reason in line and "input.yaml" in line for line in done.report)


def test_the_rules_are_those_of_the_key_that_the_flag_names():
    data = {"a.yaml": yaml.safe_dump({"rules": []}), **CONFIG_MAP["data"]}
    done = migrated(DEPLOYMENT, CONFIG_MAP | {"data": data})

    assert done.files["values.yaml"][0]["rules"]["custom"] == RULES["rules"]


def test_sources_are_kept():
    sources = {"team-b": {"url": "http://b:9090"}}
    data = {"config.yaml": yaml.safe_dump(RULES | {"sources": sources})}
    values = migrated(DEPLOYMENT, CONFIG_MAP | {"data": data})
    overlay = migrated(DEPLOYMENT, CONFIG_MAP | {"data": data}, flags=["--format=kustomize"])

    assert values.files["values.yaml"][0]["rules"]["sources"] == sources
    assert overlay.files["config.yaml"][0]["sources"] == sources


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "hello\n",
        "- a\n",
        "services: {a: {image: b}}\n",
        "\0",
        "a: [\n",
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\n{{- if .Values.x }}\n",
    ],
)
def test_a_file_of_another_kind_fails_and_is_named(text):
    done = run(text)

    assert (done.code, done.files) == (1, {})
    assert "input.yaml" in done.report[0]


def test_the_errors_of_all_files_of_a_folder_are_printed_together():
    done = run_files({"a/one.yaml": "- a\n", "b/two.json": "{", ".git/three.yaml": "- a\n"})

    assert (done.code, done.files) == (1, {})
    assert [name in "".join(done.report) for name in ("one", "two", "three")] == [True, True, False]


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
        "/apis/keda.sh/v1alpha1/scaledobjects": ApiReply(status=404, message="none"),
    }
    steps = migration.documents_of_cluster()
    asked = [next(steps)]
    try:
        while True:
            reply = replies[asked[-1].path]
            reply = reply if isinstance(reply, ApiReply) else ApiReply(document=reply)
            asked.append(steps.send(reply))
    except StopIteration as stop:
        found = stop.value

    assert [each.path for each in asked] == list(replies)
    assert found == [DEPLOYMENT, CONFIG_MAP]
