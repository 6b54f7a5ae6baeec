"""`check --prometheus-url` with a real Prometheus."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import prometheus_client
import pytest
from prometheus_client.core import Metric

from tools.real import prometheus
from tools.real.prometheus import Prometheus

EXPOSED = "queued_jobs"
"""A gauge whose name does not tell that it is one."""
COUNTED = "ticks"
"""A counter whose name does not tell that it is one."""
PODS = "{overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


class Ticks:
    def collect(self) -> Iterator[Metric]:
        ticks = Metric(COUNTED, "help", "counter")
        ticks.add_sample(COUNTED, {"namespace": "default", "pod": "a"}, 7)
        yield ticks


@pytest.fixture(scope="module")
def server(real_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    registry = prometheus_client.CollectorRegistry()
    gauge = prometheus_client.Gauge(EXPOSED, "help", ["namespace", "pod"], registry=registry)
    gauge.labels("default", "a").set(1)
    registry.register(Ticks())
    exporter, _ = prometheus_client.start_http_server(0, addr="127.0.0.1", registry=registry)
    config = (
        "scrape_configs: [{job_name: x, scrape_interval: 1s, scrape_timeout: 1s, static_configs: "
        f"[{{targets: ['127.0.0.1:{exporter.server_port}']}}], metric_relabel_configs: "
        "[{action: drop}]}]"
    )
    with prometheus.run(tmp_path_factory.mktemp("prometheus"), config) as running:
        running.put(
            f'{EXPOSED}{{namespace="default",pod="a"}} 1',
            'gpu_util{namespace="default",pod="a",gpu="0"} 10',
            'gpu_util{namespace="default",pod="a",gpu="1"} 30',
            'gpu_util{namespace="default",pod="b",gpu="0"} 50',
            'gpu_util{namespace="other",pod="c",gpu="0"} 50',
            'gpu_busy_percent{namespace="default",pod="a"} 10',
            'share_percent{namespace="default",pod="a"} 0.45',
            'requests_total{namespace="default",pod="a"} 1',
            'requests_total_sum{namespace="default",pod="a"} 1',
            'queue_depth{queue="x"} 7',
            'queue_depth{queue="y"} 8',
            *(
                f'used{{ns="{namespace}",pod="{pod}",container="{container}",cpu="{cpu}"}} 1'
                for namespace, pod in (("a", "x"), ("a", "y"), ("b", "x"))
                for container in ("main", "side")
                for cpu in (0, 1)
            ),
            'used{node="n1"} 7',
        )
        now = time.time()
        for seconds in range(-20, 600, 20):  # also ten minutes for the tests
            running.put(f'{COUNTED}{{namespace="default",pod="a"}} 7', at=now + seconds)
        # Of the exporter, Prometheus keeps the types only: a scrape that fails ends no series.
        prometheus.wait_for(
            lambda: running.get("/api/v1/metadata", metric=EXPOSED), "the exporter is scraped"
        )
        yield running
    exporter.shutdown()
    exporter.server_close()


@pytest.fixture
def check_file(server, tmp_path, cli):
    """Check a file of rules; return the exit code, the lines about the rules, and the warnings."""

    def run(text):
        (tmp_path / "f.yaml").write_text(text)
        ended = cli("check", "f.yaml", f"--prometheus-url={server.url}")
        *lines, _ = ended.lines
        warnings = [each for each in lines if "warning: " in each]
        others = [each for each in lines if "warning: " not in each and "note: " not in each]
        return ended.code, others, warnings

    return run


@pytest.fixture
def check(check_file):
    """Check one rule, and `more` rules."""

    def run(section="rules", more="", **keys):
        keys = {"seriesQuery": "gpu_util", "resources": PODS, "metricsQuery": f"'{QUERY}'"} | keys
        rule = ", ".join(f"{key}: {value}" for key, value in keys.items())
        return check_file(f"{section}:\n- {{{rule}}}\n{more}")

    return run


def test_what_a_rule_takes_and_answers_is_printed(check):
    code, (taken, answered), warnings = check(name="{as: utilization}")

    assert (code, warnings) == (0, [])
    assert taken == "rules[0] (f.yaml:2): 1 name of series, 1 metric: utilization"
    assert re.fullmatch(
        r"  utilization of pods in namespace default: 2 values for 2 objects, \d+ ms", answered
    )


def test_an_external_rule_is_tried(check):
    _, (_, answered), warnings = check(
        "externalRules",
        seriesQuery="queue_depth",
        resources="{namespaced: false}",
        metricsQuery="'<<.Series>>{<<.LabelMatchers>>}'",
    )

    assert warnings == []
    assert re.fullmatch(r"  queue_depth: 2 values, 15 in all, \d+ ms", answered)


NAMELESS = "'{__name__=~\"requests.*\"}'"


@pytest.mark.parametrize(
    ("keys", "warning"),
    [
        (
            {"seriesQuery": "nothing"},
            "rules[0].seriesQuery: Prometheus has no such series: the rule takes nothing",
        ),
        (
            {"seriesQuery": "requests_total_max"},
            "rules[0].seriesQuery: Prometheus has no such series: the rule takes nothing. There",
        ),
        (
            {"seriesQuery": '\'{pod=~"a", pod=~"("}\''},
            "rules[0].seriesQuery: cannot be listed: GET http://127.0.0.1:",
        ),
        (
            {"seriesQuery": NAMELESS, "name": "{matches: ^nothing$}"},
            "rules[0].name.matches: rejects all series of seriesQuery (requests_total and 1 more",
        ),
        (
            {"seriesQuery": NAMELESS, "name": "{matches: requests_total, as: rps}"},
            "rules[0].name: requests_total, requests_total_sum all become rps: only the last one",
        ),
        (
            {"resources": PODS.replace("pod:", "node: {resource: node}, pod:")},
            "rules[0].resources.overrides.node: no series has the label node: there is no metric",
        ),
        (
            {"metricsQuery": "'<<.Series>>{<<.LabelMatchers>>}'"},
            "rules[0].metricsQuery: returns up to 2 samples for one object of gpu_util of pods,",
        ),
        (
            {"metricsQuery": "'<<.Series>>{<<.LabelMatchers>>} > 1000'"},
            "rules[0].metricsQuery: returns no value of gpu_util of pods for 2 objects in",
        ),
        (
            {"metricsQuery": "'sum(nope(<<.Series>>{<<.LabelMatchers>>})) by (<<.GroupBy>>)'"},
            "rules[0].metricsQuery: fails for gpu_util of pods: GET http://127.0.0.1:",
        ),
        (
            {
                "seriesQuery": EXPOSED,
                "metricsQuery": "'sum(rate(<<.Series>>{<<.LabelMatchers>>}[9m])) by (pod)'",
            },
            f"rules[0].metricsQuery: computes a rate of {EXPOSED}, which is a gauge",
        ),
    ],
)
def test_what_only_prometheus_knows_gives_a_warning(check, keys, warning):
    code, _, warnings = check(**keys)

    assert code == 0
    assert any(warning in each for each in warnings), warnings


def test_a_rule_whose_metric_another_one_serves_gives_a_warning(check):
    other = f"- {{seriesQuery: gpu_util, name: {{as: x}}, resources: {PODS}, metricsQuery: x}}\n"

    _, _, warnings = check(name="{as: x}", more=other)

    assert any("rules[0].name: x is served by rules[1] (f.yaml:3) instead" in e for e in warnings)


RATE = "'sum(rate(<<.Series>>{<<.LabelMatchers>>}[9m])) by (<<.GroupBy>>)'"


@pytest.mark.parametrize(
    ("series", "name", "gauge"),
    [
        ('\'{__name__=~"queue.*",pod!=""}\'', "{}", EXPOSED),
        ('\'{__name__=~"gpu.*",pod!=""}\'', "{}", "gpu_busy_percent"),
        ('\'{__name__=~".+",pod!=""}\'', "{matches: ^(.*)_total$}", None),
    ],
)
def test_a_rate_is_judged_by_the_series_that_the_rule_takes(check, series, name, gauge):
    _, _, warnings = check(seriesQuery=series, name=name, metricsQuery=RATE)

    rates = [each.partition("computes a rate of ")[2] for each in warnings if "a rate" in each]
    assert [each.partition(",")[0] for each in rates] == ([gauge] if gauge else [])


def test_several_samples_are_no_warning_if_the_rule_says_how_to_aggregate(check):
    _, _, warnings = check(metricsQuery="'<<.Series>>{<<.LabelMatchers>>}'", aggregate="max")

    assert warnings == []


def test_the_several_labels_of_one_resource_are_no_warning(check):
    labels = PODS.replace("pod:", "exported_pod: {resource: pod}, pod:")

    assert check(resources=labels)[2] == []


def test_a_rule_is_tried_on_its_source(check, tmp_path):
    with prometheus.run(tmp_path) as other:
        other.put('gpu_util{namespace="default",pod="only-here"} 1')
        more = f"sources: {{other: {{url: '{other.url}'}}}}\n"
        _, (taken, answered), warnings = check(more=more, source="other", maxSampleAge="1h")
        _, (_, default), _ = check(more=more)

    assert warnings == []
    assert taken == "rules[0] (f.yaml:2): 1 name of series, 1 metric: gpu_util"
    assert "gpu_util of pods in namespace default: 1 value for 1 object" in answered
    assert "2 values for 2 objects" in default


AWAY = "http://127.0.0.1:9"
OF_SOURCE = f"sources: {{o: {{url: '{AWAY}'}}}}\nrules: [{{seriesQuery: up, source: o}}]\n"


@pytest.mark.parametrize("rules", ["rules: []\n", OF_SOURCE])
def test_an_unreachable_prometheus_is_one_error(server, tmp_path, cli, rules):
    (tmp_path / "f.yaml").write_text(rules)
    url = server.url if rules is OF_SOURCE else AWAY

    code, _, error = cli("check", "f.yaml", f"--prometheus-url={url}")

    assert (code, f"Prometheus cannot be queried: GET {AWAY}/" in error) == (1, True)


@pytest.mark.parametrize("series", [COUNTED, '\'{__name__=~"tick.*",pod!=""}\''])
def test_a_counter_is_known_by_its_type(check, series):
    _, _, warnings = check(seriesQuery=series)

    assert len(warnings) == 1
    assert f"takes the value of {COUNTED}, by its name or type a counter" in warnings[0]
    matched = "<<.Series>>{<<.LabelMatchers>>}"
    rate = QUERY.replace(matched, f"rate({matched}[1m])")
    assert check(seriesQuery=series, metricsQuery=f"'{rate}'")[2] == []


def test_the_cause_of_an_external_metric_without_a_value_is_given(check):
    query = "'sum(<<.Series>>{<<.LabelMatchers>>} > 100)'"

    _, _, warnings = check("externalRules", resources="{namespaced: false}", metricsQuery=query)

    assert "returns no value of gpu_util: gpu_util has 4 series, but the query has" in warnings[0]


def test_a_percentage_that_is_a_share_of_one_gives_a_warning(check):
    (warning,) = check(seriesQuery="share_percent")[2]

    assert "returns at most 0.45 of share_percent of pods, less than 1 %. If the" in warning


USED = QUERY.replace("<<.Series>>", "used")


@pytest.fixture
def check_usage(check_file):
    """Check `resourceRules`, of which one has `query` for containers."""

    def run(query=USED):
        labels = (
            "{overrides: {ns: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}}"
        )
        rest = f"nodeQuery: '{USED}', resources: {labels}, containerLabel: container"
        return check_file(
            "resourceRules:\n"
            f"  cpu: {{containerQuery: '{query}', {rest}}}\n"
            f"  memory: {{containerQuery: '{USED}', {rest}}}\n"
            "  window: 1m\n"
        )

    return run


def test_each_query_of_usage_tells_how_many_objects_it_returns(check_usage):
    code, lines, warnings = check_usage()

    assert (code, warnings) == (0, [])
    assert [re.sub(r"\d+ ms$", "T ms", line) for line in lines] == [
        f"resourceRules.{resource}.{key} (f.yaml:{line}): {counts}, T ms"
        for line, resource in ((2, "cpu"), (3, "memory"))
        for key, counts in (("containerQuery", "6 containers of 3 pods"), ("nodeQuery", "1 node"))
    ]


@pytest.mark.parametrize(
    ("query", "warning"),
    [
        (QUERY.replace("<<.Series>>", "none"), "returns nothing: Prometheus has no such series"),
        ("used{<<.LabelMatchers>>}", "returns up to 2 samples for one container, whose average"),
        ("sum(used{<<.LabelMatchers>>}) by (ns)", "returns 2 samples, none of which has the label"),
        (USED.replace("used", "nofunction(used") + ")", "fails: "),
    ],
)
def test_a_query_of_usage_that_cannot_answer_is_a_warning(check_usage, query, warning):
    _, _, warnings = check_usage(query)

    assert any(
        ": warning: resourceRules.cpu.containerQuery: " + warning in each for each in warnings
    )
