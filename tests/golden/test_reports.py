"""The right answers to the cases from public reports, so that lines.txt holds no wrong sentence.

Each case has words that its section must have, and words that it must not have.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tools.golden import lines
from tools.golden.cases import CASES

GOLDEN = lines.sections(lines.FILE.read_text())
_NO_PRESET = "no preset reads these series. Write rules for them, and load them with --config"
_AVERAGED = "With target type AverageValue, an HPA asks for value / target replicas"
_QUOTIENTS = "averages the quotients of series, so that each series counts the same"
_UNSELECTED = (
    "does not use <<.LabelMatchers>>: the metric selector is ignored. Write <<.Series>>{<<"
)

RIGHT: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "01-double-scrape": (
        (
            "v-0: 5\n",
            "v-0: 8\n",
            "v-0: 100\n",
            "proposes 1 replica",
            "2 targets for one port of a pod",
        ),
        ("v-0: 10\n", "v-0: 16\n", "v-0: 200\n"),
    ),
    "01-ranks-on-two-ports": (
        ("r-0: 7\n", "2 targets for one port of a pod", "series of one pod come from 2 ports"),
        ("r-0: 14\n", "r-0: 4\n"),
    ),
    "01-own-rule-adds-two-scrapes": (
        ("t-0: 2\n", "but 2 targets for t-0 at 10.0.0.1:8002 (job llm/pods, triton) report the"),
        ("Nothing to do",),
    ),
    "01-service-is-what-is-counted": (("has the value 5 for lb-0", "Nothing to do"), ("targets",)),
    "03-llm-d-picker-both-names": (
        ("}: 17\n", "}: 4\n", "}: 60\n", "}: 5\n", "}: 80\n"),
        ("404", "}: 34\n", "}: 10\n"),
    ),
    "03-llm-d-picker-new-names": (
        ("}: 17\n", "}: 4\n", "}: 60\n", "}: 5\n", "}: 80\n"),
        ("404", "is loaded"),
    ),
    "03-llm-d-picker-old-names": (
        (
            "}: 17\n",
            "}: 4\n",
            "}: 60\n",
            "}: 5\n",
            "no inference_pool_saturation_*: llm-d's router",
        ),
        ("404",),
    ),
    "03-llm-d-picker-two-pools": (
        (
            "{'inference_pool': 'a'}: 17\n",
            "{'inference_pool': 'b'}: 0\n",
            "{'name': 'a'}: 4\n",
            "{'name': 'b'}: 9\n",
            "{'inference_pool': 'a'}: 130\n",
            "{'inference_pool': 'b'}: 40\n",
            "_current is 17 of 5",
        ),
        ("404", "adds up to", "missing"),
    ),
    "03-llm-d-picker-pool-at-zero": (
        ("{'inference_pool': 'p'}: 6\n", "has 1 series, but the query has no result", "exit 1"),
        ("'p'}: 1", "'name': 'p'", "is scraped"),
    ),
    "03-llm-d-picker-stale": (("{'name': 's'}: 4\n",), ("'inference_pool': 's'}: ",)),
    "04-keda-paused": (("KEDA is paused", "no such file"), (": same: ",)),
    "06-gke-tpu": (
        ("tpu-vllm-0: 50\n", "tpu-vllm-0: 85\n", "--preset=accelerator-tpu\nexit 0"),
        ("--preset=gpu-gke-plugin", "uses no GPU"),
    ),
    "06-gke-gpus-and-tpus": (
        ("g-0: 40\n", "t-0: 64\n", "--preset=gpu-gke-plugin --preset=accelerator-tpu\nexit 0"),
        ("uses no GPU",),
    ),
    "06-gke-tpu-nodes-alone": (
        ("no pod uses a device now", "--preset=accelerator-tpu\nexit 0"),
        ("--preset=gpu-gke-plugin", "uses no GPU"),
    ),
    "06-gke-tpus-beside-dcgm": (
        (
            "g-0: 60\n",
            "GKE's device plugin for TPUs (make=cloud-tpu)",
            "in this order:\n  --preset=gpu-dcgm --preset=accelerator-tpu\nexit 0",
        ),
        ("--preset=gpu-gke-plugin", "no exporter is detected"),
    ),
    "08-external-sum-of-percentiles": (
        (
            "without a selector adds up to 0.7",
            "by its name a percentile, and a sum of percentiles is not a percentile",
            "There are other series dynamo_frontend_*, such as dynamo_frontend_time_to_first_token",
        ),
        ("values.yaml:8:21: warning: rules.external[0].metricsQuery: is", "is scraped"),
    ),
    "08-external-sum-of-means": (("and a sum of means is not a mean",), ()),
    "10-ratio-as-average-value": (
        (
            (
                "out/values.yaml:8:19: warning: rules.external[0].metricsQuery: is a mean, and the "
                "target of HorizontalPodAutoscaler llm/web-ratio (out/hpas.yaml:13) has type Av"
            ),
            "ignoreNullValues (default): ",
            *(
                f"variants.yaml:{line}:{column}: warning: externalRules[{line - 2}].metricsQuery: "
                f"{found}. {_AVERAGED}"
                for line, column, found in (
                    (2, 96, "averages all series into one value"),
                    (3, 98, "is a mean"),
                    (4, 100, "is a mean"),
                    (5, 92, "is a ratio"),
                    (6, 101, "is a percentile"),
                    (8, 94, "is a mean"),
                    (9, 94, "is a mean"),
                    (10, 97, "averages all series into one value"),
                )
            ),
        ),
        ("externalRules[5].metricsQuery: is", "externalRules[5].metricsQuery: averages"),
    ),
    "10-mean-of-keda": (
        (
            "triggers[0].metadata.query: as in KEDA, the HPA divides this mean by the replicas",
            "spec.triggers[1].metadata.query\n",
            "rules.external[0].metricsQuery: is a mean, and the target of HorizontalPodAutoscaler",
            "0 errors, 1 warning\n",
        ),
        ("rules.external[1]",),
    ),
    "10-ratio-beside-its-hpas": (
        (
            (
                "externalRules[0].metricsQuery: is a ratio, and the target of "
                "HorizontalPodAutoscaler llm/spread (hpas.yaml:9) has type AverageValue. So "
                "the HPA asks for value / target replicas"
            ),
            "0 errors, 1 warning\n",
        ),
        ("warning: rules[0]",),
    ),
    "10-percentile-of-keda": (
        (
            "triggers[0].metadata.query: as in KEDA, the HPA divides this percentile by",
            "spec.triggers[1].metadata.query: a division by 0 counts as 0",
            "spec.triggers[2].metadata.query\n",
            "rules.external[0].metricsQuery: is a percentile, and the target of Horizontal",
            "0 errors, 1 warning\n",
        ),
        ("rules.external[1]", "rules.external[2]", "divides this ratio"),
    ),
    "12-selector-without-label-matchers": (
        (
            "{}: 55\n",
            "the selector `team=a` has no effect, because metricsQuery of externalRules[0] (rules.",
            f"WARNING: rules.yaml:5:19: externalRules[0].metricsQuery: {_UNSELECTED}",
            f"config.yaml:5:19: warning: externalRules[0].metricsQuery: {_UNSELECTED}",
        ),
        ("Nothing to do", "sum here"),
    ),
    "12-selector-of-an-hpa": (
        (
            "the selector of all_load has no effect",
            f"externalRules[0].metricsQuery: {_UNSELECTED}",
            "has the value 3 for web",
            "all_load is 3 of 2. all_load: the selector `zone=b` has no effect",
        ),
        ("Nothing to do",),
    ),
    "12-selector-that-works": (
        (
            "zone%3Db\n{}: 9\n",
            "zone%3Dc\n404 NotFound: ",
            "in namespace llm has the value 9 (oldest sample: ",
            "Nothing to do",
            'none with zone="c". Correct the metric selector, unless that means 0',
            "busy is 7 of 5. busy: the selector `zone=b` has no effect",
        ),
        ("queue: the selector", "externalRules[0] (rules.yaml:7) does not use"),
    ),
    "14-mean-of-ratios": (
        ("tr-0: 90k\n", "tr-0: 90\n", _QUOTIENTS, "adds 1 to the divisor"),
        ("warning: rules[2]", "preset inference-triton:"),
    ),
    "14-mean-of-percentiles": (
        (
            "averages percentiles",
            "externalRules[1].metricsQuery: adds up the quotients of series. With target type",
            "externalRules[2].metricsQuery: is a ratio",
            "externalRules[3].metricsQuery: is a mean",
            "adds 1 to the divisor, so that every value is too small. Drop the 1.",
        ),
        ("externalRules[4].metricsQuery: is", "sum here"),
    ),
    "14-ratios-that-are-right": (
        (
            f"rules[0].metricsQuery: {_QUOTIENTS}",
            "rules[1].metricsQuery: adds 1 to the divisor",
            "0 errors, 2 warnings\n",
        ),
        tuple(f"warning: rules[{each}]" for each in range(2, 7)),
    ),
    "16-native-histogram-result": (
        (
            "v-0: 1850m\n",
            "v-1: 3900m\n",
            "its query returned 2 native histograms for pods v-0, v-1",
            "externalRules[0] (rules.yaml:32): its query returned 1 native histogram",
            "llm_request_latency_seconds is a native histogram in Prometheus",
            "rules[5].seriesQuery: llm_request_latency_seconds is a native histogram in Prom",
        ),
        ("the query has no result", "X-Scope-OrgID"),
    ),
    "16-native-histogram-of-latency": (
        ("wait_seconds is a native histogram", "returned 1 native histogram"),
        ("Check that the exporter is scraped",),
    ),
    "16-native-histogram-of-a-service": (
        (
            "v-0: 1333m\n",
            "v-0: 0\n",
            "turn_seconds is a native histogram in Prometheus",
            "has the value 1.33 for v-0",
        ),
        ("is scraped", "turn_seconds_bucket` 0s ago"),
    ),
    "18-model-server-not-scraped": (("for pod v-1 in namespace llm: it is not scraped",), ("GPU",)),
    "18-series-of-an-ingress": (
        ("the series are of ha-0 in namespace ingress", "`type: Object`"),
        ("GPU",),
    ),
    "18-label-nearly-the-name": (
        ("the label pod is llm/v-0, which is not exactly the name v-0",),
        ("GPU", "honorLabels"),
    ),
    "18-workers-of-a-broker": (
        (
            "404 NotFound: ",
            "rabbit-0: 240\n",
            "for pods w-0, w-1 in namespace work: the series are of rabbit-0 in namespace mq",
            "`type: Object`",
            "work/w keeps 2 replicas",
        ),
        ("GPU", "honorLabels"),
    ),
    "20-dra-without-pod-labels": (
        ("KUBERNETES_ENABLE_DRA=true", "kubernetesDRA.enabled", "read access to resourceslices"),
        ("honorLabels", "A container without"),
    ),
    "20-some-nodes-with-claims": (("v-0: 60\n", "none is for pod v-1"), ("honorLabels",)),
    "20-claims-and-an-own-rule": (
        (
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE has only the exporter's own pods",
            "KUBERNETES_ENABLE_DRA=true, read access to resourceslices and, from Kubernetes 1.34",
        ),
        ("honorLabels", "uses no GPU", "v-0: 0"),
    ),
    "22-not-requested-but-it-is": (
        ("s-0: 2500m\n", "NotScraped: ", "none is for pod s-1"),
        ("not requested", "uses no GPU"),
    ),
    "22-sibling-without-series": (
        ("b-0: 4\n", "none is for pod b-1", "the series are of b-0 in namespace jobs"),
        ("not requested", "uses no GPU"),
    ),
    "22-services-of-a-template": (
        (
            "web: 40\n",
            "has the value 40 for web (oldest sample: ",
            "Nothing to do",
            "for services api in namespace shop, but not with the matchers of `open_sessions{",
        ),
        ("not requested", "uses no GPU", "api: 3", "api: 40"),
    ),
    "24-ray-serve": (
        (
            "rs-worker-0: 6\n",
            "rs-worker-0: 24\n",
            "rs-worker-0: 71\n",
            "}: 4\n",
            "--preset=inference-ray --preset=gateway-ray-serve",
        ),
        ("rs-head-0: ", _NO_PRESET),
    ),
    "24-dynamo": (
        (
            "vw-0: 8\n",
            "tw-0: 5\n",
            "{'model': 'q'}: 7\n",
            "{'model': 'q'}: 13\n",
            "--preset=inference-vllm --preset=inference-dynamo --preset=gateway-dynamo",
        ),
        (_NO_PRESET,),
    ),
    "24-kserve": (
        ("KServe's model server or agent", "Knative's queue-proxy", "No preset matches."),
        ("NIM", "MindIE", "Check that one is deployed"),
    ),
    "24-mindie": (("MindIE", _NO_PRESET), ("NIM",)),
    "24-gateway-repeats-engines": (("n-0: 3\n", "AIBrix's gateway"), ("n-0: 6\n", "honor_labels")),
    "26-amd": (("rocm-vllm-0: 82\n", "--preset=gpu-amd\n"), ("NotFound",)),
    "26-gaudi": (("gaudi-vllm-0: 71\n", "--preset=accelerator-gaudi\n"), ("NotFound",)),
    "26-intel": (("arc-vllm-0: 58\n", "--preset=gpu-intel-xpum\n"), ("NotFound",)),
    "26-neuron": (("trn-vllm-0: 62\n", "--preset=accelerator-neuron\n"), ("NotFound",)),
    "26-ascend": (("--preset=gpu-dcgm --preset=accelerator-ascend\n",), ()),
    "26-amd-and-cambricon": (
        ("r-0: 82\n", "--preset=gpu-amd --preset=accelerator-cambricon\n"),
        ("uses no GPU", "NotFound"),
    ),
    "26-exporters-without-a-preset": (
        ("MetaX's mx-exporter", _NO_PRESET, "them: mtgpu_utilization. Find out", "exit 1"),
        ("Check that one is deployed", "mtgpu_memory"),
    ),
    "28-or-zero-hides-short-range": (
        (
            "the range 15s is shorter than two scrapes: there is one sample each 15 s",
            "{}: 0\n",
            "has the value 0 (oldest sample: ",
            "ext_load: the value is only that of `or vector(...)`",
            "that is 1,000,000 times the mean number of requests at once",
        ),
        ("Nothing to do",),
    ),
    "28-default-inside": (
        (
            "the value is only that of `or vector(...)`",
            '`sum(rate(jobs_total{namespace="llm"}[20s]))` is 2, so its comparison `> 1000` fails',
            "steady in namespace llm has the value 4",
        ),
        (),
    ),
    "28-zero-that-is-true": (
        (
            "llm/spare\n{}: 3\n",
            "external metric idle in namespace llm has the value 0 (oldest sample: ",
            "Nothing to do",
            'has 1 series, but none with status="error". Correct the query, unless that means 0',
            "metricsQuery of externalRules[2] (rules.yaml:10). done_total has 1 series, but",
            "the range 10s is shorter than two scrapes",
        ),
        ("or vector(...)` in metricsQuery of externalRules[0]", "the range 2m is shorter"),
    ),
    "30-shapes-of-hpas": (
        (
            "error: HorizontalPodAutoscaler serve/b-v2beta1: autoscaling/v2beta1 is not served",
            "4 errors, 3 warnings\nexit 1",
            "c-selector-string: metrics[0]: selector is the text model=llama",
            "d-pods-value: metrics[0]: type Pods needs averageValue",
            "e-object: metrics[0]: describedObject: Deployment is in apps/v1",
            "e-object: behavior.scaleDown.tolerance must be a quantity of 0 or more",
            (
                "f-colon: no rule in these files and presets produces vllm:num_requests_waiting; "
                "that is the name of a series. Load --preset=inference-triton or "
                "--preset=inference-vllm, and request requests_waiting_current with type Pods"
            ),
            (
                "produces prometheus.googleapis.com|vllm:num_requests_running|gauge; Google's "
                "adapter has this name for vllm:num_requests_running; that is the name of a series."
            ),
        ),
        ("a-type-utilization", "note: "),
    ),
    "30-more-shapes": (
        (
            (
                "a-v2beta2: autoscaling/v2beta2 is not served since Kubernetes 1.26, so the API "
                "server refuses it. Write autoscaling/v2, which has the same keys"
            ),
            "b-group: scaleTargetRef: Deployment is in apps/v1, not in extensions/v1beta1",
            "minReplicas 4 is above maxReplicas 3",
            "c-utilization: metrics[0]: type Pods needs averageValue",
            "queue_depth, but externalRules[0] (rules.yaml:2) makes an external metric",
            "produces queue_depht; did you mean queue_depth?",
        ),
        (),
    ),
    "30-targets-of-hpas": (
        (
            "a-external-utilization: metrics[0]: type External needs value or averageValue",
            (
                "b-as-external: no external rule in these files and presets produces queue_length, "
                "but rules[0] (rules.yaml:2) makes a metric of objects of this name. Use type Pods"
            ),
            "c-quantity: '5 requests' is not a quantity",
        ),
        ("z-good",),
    ),
    "06-gke-tpu-own-rule": (("t-0: 50", "the pod uses no TPU"), ("no GPU",)),
    "06-gke-tpu-honor-labels": (
        ('no series `memory_used{make="nvidia"}`', "use --preset=accelerator-tpu instead"),
        ("no series memory_used,",),
    ),
    "16-native-histogram-sum-and-count": (
        ("so it has no series turn_seconds_count", "histogram_sum(", "[2m])))"),
        ("write histogram_avg",),
    ),
    "18-service-behind-an-ingress": (
        (
            "v: 24999m",
            "the label service of nginx_ingress_controller_requests is that of the scrape target",
            "Map exported_service",
        ),
        ("KUBERNETES_ENABLE_DRA", "exporter's own pod"),
    ),
    "20-honor-labels-and-a-claim": (
        ("v-0: 60", "1 of 2 series names no pod but the exporter's own", "KUBERNETES_ENABLE_DRA"),
        (),
    ),
}
"""Case -> words that its section has, and words that it does not have."""
_ELSEWHERE = {"08-external-below-zero"}
"""Cases whose sentences tests/rules/hpa holds."""


def test_each_case_from_a_report_has_its_right_words():
    assert {f"report: {each}" for each in {*RIGHT, *_ELSEWHERE}} == {
        each for each in CASES if each.startswith("report: ")
    }


@pytest.mark.parametrize("case", RIGHT)
def test_a_case_from_a_report_is_answered_rightly(case):
    present, absent = RIGHT[case]
    section = GOLDEN[f"report: {case}"]
    text = " ".join(section.split())

    assert [each for each in present if each not in section and each not in text] == []
    assert [each for each in absent if each in section or each in text] == []
