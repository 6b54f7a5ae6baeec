"""`explain`: how the value of a metric, or the decision of an HPA, comes about, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapter import settings
from adapter.settings.flag import STRING, FlagGroup, flag
from adapter.settings.kubectl import KubectlSettings, namespace
from adapter.settings.output import output

_VALUES, _NO_VALUE, _CANNOT_TELL = 0, 1, 2
_OUTCOMES = {"values": _VALUES, "noValue": _NO_VALUE}
_HPA = "hpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(FlagGroup):
    """What is explained, and how."""

    TITLE = "Flags"

    selector: str = flag(
        "selector", STRING, "Label selector of the objects, with the name *.", shorthand="l"
    )
    metric_selector: str = flag("metric-selector", STRING, "Label selector of the series.")
    namespace: str = namespace()
    output: str = output()


COMMAND = settings.CommandSpec(
    name="explain",
    help=f"""Usage: gpu-metrics-adapter explain NAMESPACE/RESOURCE/NAME METRIC [FLAGS]
       gpu-metrics-adapter explain RESOURCE/NAME METRIC [FLAGS]
       gpu-metrics-adapter explain NAMESPACE METRIC [FLAGS]
       gpu-metrics-adapter explain hpa [NAMESPACE/]NAME [FLAGS]

Prints how the value of a metric comes about: the rule that provides it, its series and labels, the
PromQL, the answer of Prometheus, the objects and the values. The last line is the verdict. NAME may
be *; RESOURCE/NAME is an object at cluster scope, or with -n in a namespace; NAMESPACE alone is
that of an external metric. With `hpa`, prints what the HorizontalPodAutoscaler controller computes
now. All requests go to the API server, with your rights: those to read the metric, and the
discovery document of its group.

{settings.flag_help(_Options, KubectlSettings)}

Examples:
  gpu-metrics-adapter explain 'default/pods/*' duty_cycle_current -l app=bert
  gpu-metrics-adapter explain default/deployments.apps/cuda-test cuda_test_gpu_avg
  gpu-metrics-adapter explain nodes/gpu-node-0 temperature_celsius_current
  gpu-metrics-adapter explain default queue_length          (an external metric)
  gpu-metrics-adapter explain hpa default/bert

Exit code: 0 if the metric, or each metric of the HPA, has a value; 1 if not; 2 if that cannot be
told, and for an invalid command line.""",
    groups=(_Options, KubectlSettings),
    arguments=("WHERE", "METRIC, or after `hpa` [NAMESPACE/]NAME"),
    words=("hpa",),
)


def main(argv: Sequence[str]) -> int:
    """Return 0 if there are values, 1 if not, 2 if that is unknown. Raises UsageError."""
    line = COMMAND.parse(argv)
    options, cluster = line.groups
    where, metric = line.positional
    text = metric if where == _HPA else where
    parts = text.split("/")
    if options.namespace and len(parts) == (1 if where == _HPA else 2):
        parts = [options.namespace, *parts]
    if not all(parts) or len(parts) > (2 if where == _HPA else 3):
        wanted = "NAMESPACE/NAME" if where == _HPA else "NAMESPACE/RESOURCE/NAME"
        raise COMMAND.error(text, f"expected {wanted}")
    import asyncio

    from rules.causes import explanation_text
    from rules.errors import UnreadableError

    try:
        return asyncio.run(_run(options, cluster, parts, "" if where == _HPA else metric))
    except UnreadableError as error:
        print(explanation_text.last_line(f"cannot tell: {error}"))
        return _CANNOT_TELL


async def _run(
    options: _Options, cluster: KubectlSettings, parts: Sequence[str], metric: str
) -> int:
    """Explain the metric, or the HPA that `parts` name if there is no metric."""
    from adapter.cli.doctor import autoscaler
    from adapter.cli.doctor.client import connected, default_namespace
    from adapter.cli.output import write
    from rules.causes import explanation_text

    as_text = options.output == "text"
    async with connected(cluster) as client:
        if not metric:
            *within, name = parts
            namespace = "".join(within) or default_namespace(cluster)
            explained = await autoscaler.explain(client, namespace, name)
            if not as_text:
                write(explained.document(), options.output)
            else:
                print(*explained.lines(), sep="\n")
            if not explained.permitted:
                return _CANNOT_TELL
            return _VALUES if explained.complete else _NO_VALUE
        request = await client.request(
            parts,
            metric,
            selector=options.selector,
            metric_selector=options.metric_selector,
        )
        document = await client.explanation(request)
    if not as_text:
        write(document, options.output)
    else:
        for line in explanation_text.lines(document):
            print(line)
    return _OUTCOMES.get(document["outcome"], _CANNOT_TELL)
