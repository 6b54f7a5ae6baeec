"""The rules that `migrate` writes, served by the program from a real Prometheus: KEDA's values."""

from __future__ import annotations

import copy
import http.client
import json
import ssl
import sys
import time
from collections import defaultdict
from dataclasses import dataclass

import pytest
import yaml

from adapter.cli.local_prometheus.process import free_ports
from rules import quantity
from rules.migration import overlay
from tests.migrate import keda
from tests.migrate.golden import run_files
from tools.control_plane.daemon import Daemon
from tools.real import prometheus

PATH = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
CASES = {
    name: case
    for name, case in keda.CASES.items()
    if any(each.get("rules") for each in case["expected"].get("any_of", [case["expected"]]))
}
"""Cases with a rule."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A metric, and the stand-in query that its trigger had."""

    case: str
    stand_in: str
    namespace: str
    metric: str
    ignore_null: bool


def variants(case, number):
    """Return the documents of a case for each stand-in, in namespaces of their own."""
    documents = []
    for text in case["files"].values():
        loaded = list(yaml.safe_load_all(text))
        documents += [item for each in loaded for item in each.get("items", [each])]
    for index, stand_in in enumerate(keda.STAND_INS):
        for document in copy.deepcopy(documents):
            metadata = document["metadata"]
            metadata["namespace"] = f"{metadata['namespace']}-{number}-{index}"
            for trigger in document["spec"].get("triggers", ()):
                if "query" in trigger.get("metadata", {}):
                    trigger["metadata"]["query"] = stand_in["query"]
            yield document


def converted(name, number):
    """Return the rules of a case for all stand-ins, and what to request."""
    documents = list(variants(CASES[name], number))
    done = run_files({"so.yaml": yaml.safe_dump_all(documents)}, "so.yaml")
    assert done.code == 0, done.report
    requests = []
    for hpa in keda.hpas(done):
        namespace = hpa["metadata"]["namespace"]
        stand_in = keda.STAND_INS[int(namespace.rpartition("-")[2])]
        requests += [
            Asked(
                case=name,
                stand_in=stand_in["id"],
                namespace=namespace,
                metric=metric["external"]["metric"]["name"],
                ignore_null=ignores_null(CASES[name]),
            )
            for metric in hpa["spec"]["metrics"]
            if metric["type"] == "External"
        ]
    rules = overlay.rules_file(done.files["values.yaml"][0]).get("externalRules", [])
    return requests, [{k: v for k, v in rule.items() if k != "source"} for rule in rules]


def ignores_null(case):
    """Return whether the rules of a case have 0 for no result; all have the same."""
    outputs = case["expected"].get("any_of", [case["expected"]])
    (missing,) = {e["missing"] for each in outputs for e in each.get("rules", {}).values()}
    return missing == "zero"


@pytest.fixture(scope="module")
def served(real_servers, tmp_path_factory):
    """Requests, and the program with all rules on a Prometheus with the series of the cases."""
    folder = tmp_path_factory.mktemp("values")
    requests, rules = [], []
    for number, name in enumerate(CASES):
        more, written = converted(name, number)
        requests += more
        rules += written
    config, objects = folder / "config.yaml", folder / "objects.yaml"
    config.write_text(yaml.safe_dump({"externalRules": rules}))
    objects.write_text("")
    (port,) = free_ports(1)
    log = folder / "adapter.log"
    with prometheus.run(folder) as source:
        for minutes in range(0, 20, 4):
            source.put(*keda.SERIES, at=time.time() + 60 * minutes)
        daemon = Daemon(
            "adapter",
            [
                *(sys.executable, "-m", "adapter", f"--secure-port={port}"),
                *(f"--config={config}", f"--objects={objects}", f"--prometheus-url={source.url}"),
            ],
            log,
            lambda: log.exists() and "serving on" in log.read_text(),
        )
        try:
            daemon.start()
            yield requests, port
        finally:
            daemon.stop()


def values(port, requests):
    """Yield each request with its status and items, over one connection."""
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=90)
    try:
        for each in requests:
            connection.request("GET", f"{PATH}/{each.namespace}/{each.metric}")
            reply = connection.getresponse()
            body = json.loads(reply.read())
            yield each, reply.status, body.get("items") or []
    finally:
        connection.close()


def test_every_rule_has_kedas_value_for_every_stand_in(served):
    requests, port = served
    stand_ins = {each["id"]: each for each in keda.STAND_INS}
    wrong = []
    seen = defaultdict(set)
    for asked, status, items in values(port, requests):
        seen[asked.case].add(asked.stand_in)
        expected = stand_ins[asked.stand_in]["zero" if asked.ignore_null else "none"]
        found = sum(quantity.milli_value(each["value"]) for each in items)
        if expected == "none":
            right = not items or asked.stand_in.startswith("several")
        else:
            right = bool(items) and abs(found - quantity.milli_value(expected)) <= 1
        if not right:
            wrong.append((asked, status, found, expected))

    assert wrong == []
    assert len(seen) == 70
    assert all(len(each) == len(stand_ins) for each in seen.values())


def test_several_elements_have_no_value_as_in_keda(served):
    requests, port = served
    several = [each for each in requests if each.stand_in == "several"]

    assert {len(items) for _, _, items in values(port, several)} == {0}
