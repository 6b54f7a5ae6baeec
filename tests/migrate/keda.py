"""Cases of ScaledObjects, and what differs between the output of `migrate` and the right one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rules import promql, quantity, syntax
from rules.template import execution, parser
from tests.migrate.golden import Run, run_files

DOCUMENT = yaml.load((Path(__file__).parent / "keda-cases.yaml").read_bytes(), yaml.CSafeLoader)
CASES: Mapping[str, Mapping[str, Any]] = {each["id"]: each for each in DOCUMENT["cases"]}
STAND_INS: Sequence[Mapping[str, str]] = DOCUMENT["stand_ins"]
SERIES: Sequence[str] = DOCUMENT["series"]
DEFAULT = DOCUMENT["prometheus"]
SERVER = "http://prometheus.monitoring:9090"
_KEYS = {
    "AverageValue": "averageValue",
    "Value": "value",
    "Utilization": "averageUtilization",
}
_LINE = re.compile(
    r"(?P<file>[^:]+):(?P<line>\d+): (?P<verdict>same|differs|left out): (?P<text>.*)"
)


def scaled(name: str = "web", *, triggers: Sequence[Any] = (), **spec: Any) -> dict[str, Any]:
    """Return a ScaledObject in the namespace shop, with one trigger unless others are given."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": 1,
            "triggers": [*triggers] or [trigger()],
            **spec,
        },
    }


def trigger(**metadata: str) -> dict[str, Any]:
    """Return a trigger of Prometheus."""
    first = {"serverAddress": SERVER, "query": "sum(x)", "threshold": "5"}
    return {"type": "prometheus", "metadata": first | metadata}


def migrated(case: Mapping[str, Any]) -> Run:
    """Run the command on the folder of a case."""
    return run_files(case["files"])


def problems(case: Mapping[str, Any], done: Run) -> list[str]:
    """Return what is wrong with the output; nothing if it is right."""
    expected = case["expected"]
    if expected.get("exit") == "nonzero":
        named = any(file in line for line in done.report for file in case["files"])
        return [] if done.code and not done.files and named else ["does not fail, naming a file"]
    found = [] if done.code == 0 else [f"exit code {done.code}: {done.report}"]
    outputs = [list(_of_output(each, done)) for each in expected.get("any_of", [expected])]
    found += min(outputs, key=len)
    for line in expected.get("lines", ()):
        if not any(_is_said(line, case, each) for each in done.report):
            found.append(f"no line {line}")
    return found


def hpas(done: Run) -> list[dict[str, Any]]:
    """Return the HPAs of an output."""
    return done.files.get("hpas.yaml", [])


def rules(done: Run) -> dict[str, dict[str, Any]]:
    """Return the external rules of an output, by the name of the metric in lower case."""
    listed = done.files["values.yaml"][0]["rules"].get("external", [])
    found = {each["name"]["as"].lower(): each for each in listed}
    assert len(found) == len(listed), "two rules have one name"
    return found


def rendered(rule: Mapping[str, Any]) -> str:
    """Return the query that Prometheus gets."""
    return execution.render(parser.parse(rule["metricsQuery"], "query"), {})


def server_of(rule: Mapping[str, Any], done: Run) -> tuple[str, dict[str, str]]:
    """Return the URL with its parameters, and the headers, of a rule's server."""
    (values,) = done.files["values.yaml"]
    if "source" in rule:
        source = values["rules"]["sources"][rule["source"]]
        return source["url"], source.get("headers", {})
    flags = (each.partition("=")[2] for each in values.get("extraArguments", ()))
    return values["prometheus"]["url"], dict(each.split("=", 1) for each in flags)


def _of_output(expected: Mapping[str, Any], done: Run) -> Iterator[str]:
    left = list(hpas(done))
    for wanted in expected["hpas"]:
        metadata = wanted["namespace"], wanted["target"]
        match = [
            e for e in left if (e["metadata"]["namespace"], e["spec"]["scaleTargetRef"]) == metadata
        ]
        if not match:
            yield f"no HPA for {metadata}"
            continue
        left.remove(match[0])
        yield from _of_hpa(wanted, match[0], expected.get("rules", {}), done)
    yield from (f"another HPA: {each}" for each in left)
    names = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in hpas(done)]
    if len(set(names)) < len(names):
        yield "two HPAs have one name"


def _of_hpa(
    wanted: Mapping[str, Any], found: Mapping[str, Any], rules_of: Mapping[str, Any], done: Run
) -> Iterator[str]:
    spec, metadata = found["spec"], found["metadata"]
    if wanted["name"] and metadata["name"] != wanted["name"]:
        yield f"name {metadata['name']}"
    least = wanted["min"] if isinstance(wanted["min"], list) else [wanted["min"]]
    if spec["minReplicas"] not in least or spec["maxReplicas"] != wanted["max"]:
        yield f"limits {spec['minReplicas']}, {spec['maxReplicas']}"
    if spec.get("behavior") != wanted.get("behavior"):
        yield f"behavior {spec.get('behavior')}"
    if "labels" in wanted and metadata.get("labels") != wanted["labels"]:
        yield f"labels {metadata.get('labels')}"
    if len(spec["metrics"]) != len(wanted["metrics"]):
        yield f"metrics {spec['metrics']}"
        return
    order = sorted(wanted["metrics"], key=lambda each: each["type"])
    for each, metric in zip(order, spec["metrics"], strict=True):
        yield from _of_metric(each, metric, rules_of, done)


def _of_metric(
    wanted: Mapping[str, Any], found: Mapping[str, Any], rules_of: Mapping[str, Any], done: Run
) -> Iterator[str]:
    source = found[wanted["type"][0].lower() + wanted["type"][1:]]
    target = source["target"]
    kind = wanted["target"]["type"]
    number = str(target.get(_KEYS[kind], "0"))
    same = quantity.milli_value(number) == quantity.milli_value(wanted["target"]["value"])
    if target["type"] != kind or len(target) != 2 or not same:
        yield f"target {target}"
    if wanted["type"] != "External":
        if source["name"] != wanted["name"] or source.get("container") != wanted.get("container"):
            yield f"resource {source}"
        return
    rule = rules(done).get(source["metric"]["name"].lower())
    if rule is None:
        yield f"no rule for {source['metric']['name']}"
    elif wanted["rule"] in rules_of:
        yield from _of_rule(rules_of[wanted["rule"]], rule, done)


def _of_rule(wanted: Mapping[str, Any], rule: Mapping[str, Any], done: Run) -> Iterator[str]:
    if promql.parse(wanted["query"]) not in syntax.walk(promql.parse(rendered(rule))):
        yield f"query {rendered(rule)}"
    url, headers = server_of(rule, done)
    parameters = "&".join(f"{k}={v}" for k, v in wanted.get("parameters", {}).items())
    server = wanted.get("server", DEFAULT) + (f"?{parameters}" if parameters else "")
    if (url, headers) != (server, wanted.get("headers", {})):
        yield f"server {url} {headers}"


def _is_said(wanted: Mapping[str, Any], case: Mapping[str, Any], line: str) -> bool:
    match = _LINE.fullmatch(line)
    if match is None:
        return False
    verdicts = wanted["verdict"] if isinstance(wanted["verdict"], list) else [wanted["verdict"]]
    file, text = next(iter(case["files"].items()))
    return (
        match["file"].endswith(file)
        and match["verdict"] in verdicts
        and int(match["line"]) in _lines(text, wanted.get("document", 0), wanted["at"])
        and re.search(wanted["about"], match["text"], re.IGNORECASE) is not None
    )


def _lines(text: str, document: int, path: Sequence[str | int]) -> set[int]:
    """Return the lines of the key at a path and of the keys above it."""
    node = list(yaml.compose_all(text))[document]
    found = {node.start_mark.line + 1}
    for each in path:
        if isinstance(node, yaml.MappingNode):
            entries = {key.value: (key, value) for key, value in node.value}
            if each not in entries:
                break
            key, node = entries[each]
            found.add(key.start_mark.line + 1)
        else:
            node = node.value[each]
            found.add(node.start_mark.line + 1)
    return found
