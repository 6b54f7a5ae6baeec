"""`explain`: how the value of a metric, or the decision of an HPA, comes about, step by step."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from urllib.parse import quote

from adapter.diagnosis import hpa
from adapter.diagnosis.client import CannotTellError, Client, connected
from rules.diagnosis import explanation_document
from rules.hpa.reading import CUSTOM, EXTERNAL, Request

_VALUES, _NO_VALUE, _CANNOT_TELL = 0, 1, 2
_OUTCOMES = {"values": _VALUES, "noValue": _NO_VALUE}
_HPA = "hpa"

_DESCRIPTION = """\
Print how the value of a metric comes about: the rule that provides it, its series and labels, the
PromQL, the answer of Prometheus, the objects and the values. The last line is the verdict. With
`hpa`, print what the HorizontalPodAutoscaler controller computes now. All requests go to the API
server, with your rights: those to read the metric, and the discovery document of its group."""

_EPILOG = """\
examples:
  gpu-metrics-adapter explain 'default/pods/*' duty_cycle_current -l app=bert
  gpu-metrics-adapter explain default/deployments.apps/cuda-test cuda_test_gpu_avg
  gpu-metrics-adapter explain nodes/gpu-node-0 temperature_celsius_current
  gpu-metrics-adapter explain default queue_length          (an external metric)
  gpu-metrics-adapter explain hpa default/bert

exit code: 0 if the metric, or each metric of the HPA, has a value; 1 if not; 2 if that cannot be
told, and for an invalid command line"""


def main(argv: Sequence[str]) -> int:
    """Return 0 if there are values, 1 if not, 2 if that is unknown; exit with 2 for bad usage."""
    parser = _parser()
    options = parser.parse_args(argv)
    parts = options.where.split("/")
    if options.where == _HPA:
        parts = options.metric.split("/")
    if not all(parts) or not (len(parts) == 2 if options.where == _HPA else len(parts) <= 3):
        wanted = "NAMESPACE/NAME" if options.where == _HPA else "NAMESPACE/RESOURCE/NAME"
        parser.error(f"{'/'.join(parts)}: expected {wanted}; see --help")
    try:
        return asyncio.run(_run(options, parts))
    except CannotTellError as error:
        print(explanation_document.last_line(f"cannot tell: {error}"))
        return _CANNOT_TELL


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-metrics-adapter explain",
        usage="%(prog)s NAMESPACE/RESOURCE/NAME METRIC [FLAGS]\n"
        "       %(prog)s RESOURCE/NAME METRIC [FLAGS]\n"
        "       %(prog)s NAMESPACE METRIC [FLAGS]\n"
        "       %(prog)s hpa NAMESPACE/NAME [FLAGS]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "where",
        metavar="WHERE",
        help="the objects: NAMESPACE/RESOURCE/NAME, or RESOURCE/NAME at cluster scope; NAME may be "
        "*; or the NAMESPACE of an external metric; or hpa",
    )
    parser.add_argument("metric", metavar="METRIC", help="the metric, or NAMESPACE/NAME of the HPA")
    parser.add_argument(
        "-l", "--selector", default="", help="label selector of the objects, with the name *"
    )
    parser.add_argument(
        "--metric-selector", default="", metavar="SELECTOR", help="label selector of the series"
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="default: $KUBECONFIG, ~/.kube/config, or the cluster of the pod",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser


async def _run(options: argparse.Namespace, parts: Sequence[str]) -> int:
    as_json = options.output == "json"
    async with connected(options.kubeconfig) as client:
        if options.where == _HPA:
            namespace, name = parts
            complete = await hpa.explain(client, namespace, name, as_json=as_json)
            return _VALUES if complete else _NO_VALUE
        document = await client.explanation(await _request(client, options, parts))
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        for line in explanation_document.lines(document):
            print(line)
    return _OUTCOMES.get(document["outcome"], _CANNOT_TELL)


async def _request(client: Client, options: argparse.Namespace, parts: Sequence[str]) -> Request:
    *below, last = (quote(each, safe="*") for each in (*parts, options.metric))
    if len(parts) == 1:
        path = f"/apis/{EXTERNAL}/v1beta1/namespaces/{below[0]}/{last}"
        selector = options.metric_selector or options.selector
        return Request(path=path, params={"labelSelector": selector} if selector else {})
    root = f"/apis/{CUSTOM}/{await client.version()}"
    if parts[0] == "namespaces":
        path = f"{root}/namespaces/{below[1]}/metrics/{last}"
    else:
        path = "/".join([root, *(["namespaces"] if len(parts) == 3 else []), *below, last])
    params = {
        "labelSelector": options.selector,
        "metricLabelSelector": options.metric_selector,
    }
    return Request(path=path, params={key: each for key, each in params.items() if each})
