"""Each case of a ScaledObject: what is written, what is said, and whether the command fails."""

import copy

import pytest
import yaml

from adapter.cli.commands import migrate
from rules.migration import lines
from tests.migrate import keda
from tests.migrate.golden import run, run_files
from tests.migrate.keda import SERVER, scaled, trigger

EVERYTHING = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: web
  namespace: shop
  labels: {team: a, scaledobject.keda.sh/name: web}
  annotations:
    autoscaling.keda.sh/paused: "false"
    autoscaling.keda.sh/paused-scale-in: "true"
    autoscaling.keda.sh/paused-scale-out: "false"
    autoscaling.keda.sh/force-activation: "false"
    scaledobject.keda.sh/hpa-excluded-labels: chart
    scaledobject.keda.sh/transfer-hpa-ownership: "true"
    kubectl.kubernetes.io/last-applied-configuration: "{}"
  ownerReferences: [{apiVersion: a/v1, kind: App, name: web, uid: "1"}]
  uid: "2"
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web, envSourceContainerName: a}
  pollingInterval: 30
  cooldownPeriod: 300
  initialCooldownPeriod: 1
  idleReplicaCount: 0
  minReplicaCount: 2
  maxReplicaCount: 9
  fallback: {failureThreshold: 3, replicas: 4, behavior: static}
  advanced:
    restoreToOriginalReplicaCount: false
    scalingModifiers: {}
    horizontalPodAutoscalerConfig:
      name: web-scaler
      behavior:
        scaleDown: {stabilizationWindowSeconds: 60, selectPolicy: Min, tolerance: "0.1"}
        scaleUp: {policies: [{type: Pods, value: 1, periodSeconds: 60}]}
  triggers:
  - type: prometheus
    name: requests
    metricType: Value
    useCachedMetrics: true
    authenticationRef: {name: a}
    metadata:
      serverAddress: http://prometheus:9090
      query: sum(x)
      threshold: "5"
      activationThreshold: "1"
      ignoreNullValues: "true"
      namespace: a
      queryParameters: b=c
      customHeaders: D=e
      unsafeSsl: "true"
      timeout: 5s
      authModes: bearer
      awsRegion: a
      identityOwner: operator
      azureManagedPrometheusResourceURL: a
      cortexOrgID: a
      metricName: a
      apiKey: a
      method: header
      keyParamName: a
  - type: memory
    metricType: AverageValue
    metadata: {value: 1Gi, containerName: app}
  - {type: cron, metadata: {timezone: UTC, start: 0 8 * * *, end: 0 9 * * *, desiredReplicas: "4"}}
status: {hpaName: keda-hpa-web}
"""


def autoscaler(name="other", target="web", **metadata):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop", **metadata},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 2},
    }


def migrated(*documents):
    return run(yaml.safe_dump_all(documents))


def said(done, text):
    """Return the only line that contains a text."""
    (line,) = [each for each in done.report if text in each]
    return line


@pytest.mark.parametrize("name", keda.CASES)
def test_a_case_is_converted_as_keda_would(name):
    case = keda.CASES[name]

    assert keda.problems(case, keda.migrated(case)) == []


def test_every_key_that_keda_reads_has_a_line_of_its_own_or_of_its_parent():
    done = run(EVERYTHING)

    assert not any("no such key" in each for each in done.report)
    document = yaml.safe_load(EVERYTHING)
    (trigger_, *_) = document["spec"]["triggers"]
    keys = [f"metadata.{key}: " for key in trigger_["metadata"]]
    keys += [f"spec.{key}" for key in document["spec"] if key not in ("advanced", "triggers")]
    assert [key for key in keys if not any(key in f"{line}: " for line in done.report)] == []
    assert keda.hpas(done)[0]["spec"]["behavior"] == {
        "scaleDown": {
            "stabilizationWindowSeconds": 60,
            "selectPolicy": "Disabled",
            "tolerance": "0.1",
        },
        "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
    }


def places(document, path=()):
    """Yield the path of each mapping whose keys have a meaning."""
    if isinstance(document, dict):
        pattern = tuple(0 if isinstance(each, int) else each for each in path)
        if pattern in lines.LEVELS:
            yield path
        for key, value in document.items():
            yield from places(value, (*path, key))
    if isinstance(document, list):
        for index, value in enumerate(document[:1]):
            yield from places(value, (*path, index))


@pytest.mark.parametrize("path", [*places(yaml.safe_load(EVERYTHING))], ids=str)
def test_a_key_that_keda_does_not_read_has_a_line_wherever_it_stands(path):
    document = yaml.safe_load(EVERYTHING)
    node = document
    for each in path:
        node = node[each]
    node["Surprise"] = "x"

    line = said(migrated(document), "Surprise")

    assert ": left out: " in line
    assert ("KEDA ignores it" in line) == (path != ("metadata", "annotations"))


def test_an_object_whose_target_has_an_autoscaler_has_none():
    done = migrated(autoscaler(), scaled())

    assert keda.hpas(done) == []
    assert "HorizontalPodAutoscaler shop/other already scales" in said(done, "scaleTargetRef")


def test_kedas_own_autoscaler_is_left_out():
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "1"}
    done = migrated(autoscaler("keda-hpa-web", ownerReferences=[owner]), scaled())

    assert len(keda.hpas(done)) == 1
    assert "it is deleted with its ScaledObject" in said(done, "keda-hpa-web")


def test_no_two_autoscalers_have_one_name():
    config = {"horizontalPodAutoscalerConfig": {"name": "web"}}
    done = migrated(scaled("api", advanced=config), scaled(), autoscaler("db", "x"), scaled("db"))

    names = [each["metadata"]["name"] for each in keda.hpas(done)]
    assert sorted(names) == ["keda-hpa-db", "keda-hpa-web", "web"]


def test_of_two_objects_with_one_name_of_an_autoscaler_keda_refuses_the_second():
    config = {"horizontalPodAutoscalerConfig": {"name": "keda-hpa-web"}}
    done = migrated(scaled(), scaled("api", advanced=config))

    assert len(keda.hpas(done)) == 1
    assert "is the name of the HPA of ScaledObject shop/web" in said(done, "Config.name")


def test_servers_differ_by_address_parameters_and_headers():
    triggers = [
        trigger(),
        trigger(),
        trigger(serverAddress=f"{SERVER}/"),
        trigger(namespace="a"),
        trigger(queryParameters="k=v"),
        trigger(customHeaders="X-Scope-OrgID=a"),
        trigger(customHeaders="X-Scope-OrgID=b"),
        trigger(serverAddress="http://other"),
        trigger(serverAddress="http://OTHER"),
    ]
    done = migrated(scaled(triggers=triggers))

    assert [rule.get("source") for rule in keda.rules(done).values()] == [
        None,
        None,
        None,
        "prometheus-monitoring-a",
        "prometheus-monitoring-v",
        "prometheus-monitoring-a-2",
        "prometheus-monitoring-b",
        "other",
        "other-2",
    ]
    sources = done.files["values.yaml"][0]["rules"]["sources"]
    assert sources["prometheus-monitoring-a"] == {"url": f"{SERVER}?namespace=a"}
    assert sources["prometheus-monitoring-b"] == {"url": SERVER, "headers": {"X-Scope-OrgID": "b"}}


def test_secrets_are_not_written():
    address = "http://user:secret@prometheus:9090"
    secret = trigger(serverAddress=address, customHeaders="Authorization=secret,A=b")
    done = migrated(scaled(triggers=[secret]))

    assert "secret" not in str(done.files)
    assert ": left out: " in said(done, "user and password")
    assert ": left out: " in said(done, "secret headers")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("serverAddress", "http://prometheus/api/v1", "base URL"),
        ("serverAddress", "http://prometheus?a=b", "query string"),
        ("serverAddress", "prometheus:9090", "http or https URL"),
        ("customHeaders", "X Scope=a", "is not the name of a header"),
        ("customHeaders", "=a", "is not the name of a header"),
    ],
)
def test_a_server_of_which_keda_gets_no_value_is_left_out(key, value, words):
    done = migrated(scaled(triggers=[trigger(**{key: value}), trigger()]))

    assert words in said(done, f"triggers[0].metadata.{key}")
    assert len(keda.rules(done)) == 1


CPU = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60", "query": "up"}}


@pytest.mark.parametrize(
    ("document", "subject", "words"),
    [
        (scaled(maxReplicacount=3), "maxReplicacount", "did you mean maxReplicaCount?"),
        (scaled(triggers=[trigger(containerName="a")]), "containerName", "does not use it"),
        (scaled(triggers=[CPU]), "metadata.query", "does not use it"),
        (scaled() | {"metadata": {"name": "web"}}, "metadata.namespace", ": differs: "),
        (scaled(), "ScaledObjects: ", "KEDA 2.20.2"),
        (scaled() | {"apiVersion": "example.com/v1"}, "apiVersion", "is not keda.sh/v1alpha1"),
    ],
)
def test_a_line_says_what_is_odd(document, subject, words):
    assert words in said(migrated(document), subject)


def test_a_query_that_cannot_be_parsed_is_named_and_sent():
    done = migrated(scaled(triggers=[trigger(query="sum(x) keep_metric_names")]))

    assert "cannot be checked" in said(done, "metadata.query")
    assert "sum(x) keep_metric_names" in str(keda.rules(done))


def test_integers_in_quotes_are_read_and_named():
    done = migrated(scaled(maxReplicaCount="7"))

    assert keda.hpas(done)[0]["spec"]["maxReplicas"] == 7
    assert "refuses it in quotes; read as 7" in "\n".join(done.report)


def test_a_target_that_keda_left_at_zero_is_said_to_stay_there():
    without = scaled()
    del without["spec"]["minReplicaCount"]
    done = migrated(without)
    paused = copy.deepcopy(without)
    paused["metadata"]["annotations"] = {"autoscaling.keda.sh/paused-scale-in": "true"}

    assert "no HPA wakes a target" in said(done, "minReplicaCount")
    assert "KEDA goes to zero" in said(done, "minReplicaCount")
    assert "KEDA goes to zero" not in said(migrated(paused), "minReplicaCount")


def test_autoscalers_of_an_earlier_run_do_not_stay(tmp_path, capsys):
    source, output = tmp_path / "so.yaml", tmp_path / "out"
    source.write_text(yaml.safe_dump(scaled()))
    assert migrate.main([str(source), f"--output={output}"]) == 0
    paused = scaled()
    paused["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    source.write_text(yaml.safe_dump(paused))

    assert migrate.main([str(source), f"--output={output}"]) == 1
    assert "out/hpas.yaml: error: is of an earlier run" in capsys.readouterr().out


def test_the_same_object_in_two_files_fails():
    text = yaml.safe_dump(scaled())
    done = run_files({"a.yaml": text, "b.yaml": text})

    assert (done.code, done.files) == (1, {})
    assert (
        "files/b.yaml:1: error: ScaledObject shop/web is also in files/a.yaml:1" in done.report[0]
    )
