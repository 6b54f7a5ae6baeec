"""Reads installations and ScaledObjects for `migrate`, and writes values and HPAs."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adapter import yaml_encoding
from adapter.cli.commands import check_inputs, deployments
from adapter.cli.commands.migrate import Options
from adapter.cli.doctor import comparison
from adapter.cli.doctor.client import connected
from adapter.files import MANIFESTS, read_file
from adapter.settings.kubectl import KubectlSettings
from adapter.settings.settings import IGNORED
from rules import ruleset
from rules.document import config, manifests, nodes
from rules.document import yaml as documents
from rules.document.found import Arguments, Found, HelmValues, RulesPart, merged
from rules.document.yaml import MappingNode
from rules.errors import ConfigError, UnreadableError
from rules.findings import Finding, State, in_file
from rules.hpa import reading
from rules.hpa.reading import Steps
from rules.migration import chart, keda, overlay, scaled_objects, workload
from rules.migration.notes import Verdict, note, render
from rules.quoting import counted, escaped

_KEDA = frozenset(("ScaledObject", *scaled_objects.OTHER_KINDS))
_SCALED = "/apis/keda.sh/v1alpha1/scaledobjects"
_HPAS = "hpas.yaml"
_VERDICTS: tuple[Verdict, ...] = ("same", "differs", "left out")


def run(options: Options, cluster: KubectlSettings) -> int:
    """Print the report, and write the output; return 0 if it can be used, else 1."""
    try:
        if options.compare:
            return asyncio.run(_compare(options, cluster))
        return _migrate(options, cluster)
    except (ConfigError, UnreadableError, OSError) as error:
        print(escaped(str(error), keep="\n"))
        return 1


def _migrate(options: Options, cluster: KubectlSettings) -> int:
    found = _of_cluster(cluster) if options.cluster else _of_files(options.files)
    values, hpas, said = convert(found)
    files, more = _files(values, hpas, options)
    problems = _problems(overlay.rules_file(values))
    report = (*sorted(said, key=lambda x: (x.where.file, x.where.line)), *more)
    for each in report:
        print(render(each))
    for problem in problems:
        print(problem)
    if any(each.kind == "ScaledObject" for each in found.manifests):
        print(f"ScaledObjects: as KEDA {keda.VERSION} reads them, see docs/migration.md")
    count = Counter(each.reason for each in report)
    print(", ".join(f"{count[each]} {each}" for each in _VERDICTS))
    if any(each.state is State.FAILURE for each in problems):
        return 1
    if options.output:
        _write(Path(options.output), files)
    return 0


async def _compare(options: Options, cluster: KubectlSettings) -> int:
    found = _of_files(options.files).manifests if options.files else ()
    hpas = [_hpa(each.node) for each in found if each.kind == "HorizontalPodAutoscaler"]
    if options.files and not hpas:
        raise _error("contains no HorizontalPodAutoscaler of autoscaling/v2")
    async with (
        connected(cluster) as api,
        comparison.server(options.original, api, options.token_file) as original,
        comparison.server(options.ours, api, options.token_file) as ours,
    ):
        compared = await comparison.compare(api, original, ours, hpas)
    for each in compared:
        print(escaped(comparison.line(each)))
    return 0 if all(each.state in {State.OK, State.WARNING} for each in compared) else 1


def _hpa(node: MappingNode) -> dict[str, Any]:
    """Return an HPA as kubectl would create it: in the namespace `default` if it names none."""
    metadata = {"namespace": "default", **nodes.plain(nodes.mapping(node, "metadata"))}
    return {**nodes.plain(node), "metadata": metadata}


def convert(found: Found) -> tuple[dict[str, Any], list[dict[str, Any]], list[Finding]]:
    """Return values, HPAs and notes. Raises ConfigError without an installation, or with two."""
    adapters = [each for each in found.arguments if each.container.entries]
    unusable = {each.name.replace("_", "-"): f"has no effect: {each.ignored}" for each in IGNORED}
    for each in found.arguments:
        unusable |= _refused_flags(each)
    parts = [each for each in found.rules if each.node.entries or each.config_map]
    installations = [chart.convert(each, unusable) for each in found.values]
    installations += [workload.convert(each, found, unusable) for each in adapters]
    if not installations:
        installations = [workload.of_config_map(each) for each in parts]
    if len(installations) > 1:
        every: tuple[HelmValues | Arguments | RulesPart, ...]
        every = (*found.values, *adapters) or tuple(parts)
        titles = [f"{each.title} in {each.file}" for each in every]
        raise _error(f"there are several installations: {', '.join(titles)}. Migrate one by one")
    if not installations and not any(each.kind in _KEDA for each in found.manifests):
        raise _error("contains neither an installation of prometheus-adapter nor a ScaledObject")
    values, notes = installations[0] if installations else ({"rules": {"default": False}}, [])
    converted = scaled_objects.convert(found.manifests, values, is_installed=bool(installations))
    rules = values.setdefault("rules", {})
    if converted.rules:
        rules["external"] = [*(rules.get("external") or ()), *converted.rules]
        notes += _without_effect(found, rules.get("existing"))
    return values, converted.hpas, [*notes, *converted.notes, *_others(found)]


def _without_effect(found: Found, existing: str | None) -> Iterable[Finding]:
    """Yield a note if the rules of ScaledObjects stand beside a ConfigMap that replaces them."""
    scaled = [each for each in found.manifests if each.kind == "ScaledObject"]
    if existing:
        yield note(
            "left out",
            "rules of ScaledObjects",
            f"have no effect beside rules.existing: add them to ConfigMap {existing}",
            file=scaled[0].file,
            line=scaled[0].node.line,
        )


def _refused_flags(arguments: Arguments) -> dict[str, str]:
    """Return why the server would not start with these flags, by their names."""
    problems = check_inputs.flags(arguments)[1]
    return {each.where.path.lstrip("-").partition("=")[0]: each.fact for each in problems}


def _others(found: Found) -> Iterable[Finding]:
    """Yield a note about each object of which nothing is converted."""
    read = {id(each.workload) for each in found.arguments if each.container.entries}
    maps = {each.config_map for each in found.rules}
    for each in found.manifests:
        name = nodes.text(nodes.mapping(each.node, "metadata"), "name")
        handled = each.kind in {"ScaledObject", "HelmRelease", "Application"}
        if handled or id(each.node) in read or (each.kind == "ConfigMap" and name in maps):
            continue
        message = scaled_objects.OTHER_KINDS.get(
            each.kind, "is not part of a migration: the chart has its own objects"
        )
        is_hpa = each.kind == "HorizontalPodAutoscaler"
        if is_hpa and scaled_objects.is_of_keda(each):
            is_hpa, message = False, "is KEDA's: it is deleted with its ScaledObject"
        kind = each.node.entries.get("kind")
        yield note(
            "same" if is_hpa else "left out",
            each.title,
            "" if is_hpa else message,
            file=each.file,
            line=kind.key.line if kind else each.node.line,
        )


def _of_files(names: Sequence[str]) -> Found:
    """Read files, and folders with the folders below. Raises ConfigError with all their errors."""
    found: list[Found] = []
    problems: list[Finding] = []
    for path in itertools.chain.from_iterable(check_inputs.paths(Path(name)) for name in names):
        try:
            found.append(_read(read_file(path, MANIFESTS, pipes=True), str(path)))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return merged(found)


def _read(content: bytes, file: str) -> Found:
    """Return what a file contains. Raises ConfigError if a part of it cannot be read."""
    found = manifests.find(content, file=file)
    if found is None:
        loaded, problems = documents.load_all(content, file=file)
        if problems:
            raise ConfigError(problems)
        node = next(iter(loaded), None)
        if not isinstance(node, MappingNode):
            raise _error("contains neither manifests, nor Helm values, nor rules", file)
        parsed = config.parse_node(node, file=file)
        found = Found(rules=(RulesPart(title=file, file=file, line=1, parsed=parsed, node=node),))
    of_rules = (problem for part in found.rules for problem in part.parsed[1])
    if errors := [each for each in (*found.problems, *of_rules) if each.state is State.FAILURE]:
        raise ConfigError(errors)
    return found


def _of_cluster(cluster: KubectlSettings) -> Found:
    async def read() -> Found:
        async with connected(cluster) as client:
            listed = await client.run(documents_of_cluster())
        return merged(_read(json.dumps(each).encode(), "cluster") for each in listed)

    return asyncio.run(read())


def documents_of_cluster() -> Steps[list[Mapping[str, Any]]]:
    """Return Deployments of prometheus-adapter, their ConfigMaps, and all ScaledObjects.

    Raises UnreadableError.
    """
    found = yield from deployments.read(ours=False)
    try:
        scaled = (yield from reading.get(_SCALED))["items"] or ()
    except UnreadableError as error:
        if error.status != 404:
            raise
        scaled = ()  # KEDA is not installed
    kind = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
    return [*found, *({**kind, **item} for item in scaled)]


def _files(
    values: dict[str, Any], hpas: Sequence[Mapping[str, Any]], options: Options
) -> tuple[dict[str, list[Mapping[str, Any]]], list[Finding]]:
    files: dict[str, list[Mapping[str, Any]]] = {}
    notes: list[Finding] = []
    if options.format == "kustomize":
        built, notes = overlay.build(values, options.manifests)
        files = {name: [document] for name, document in built.items()}
    else:
        files["values.yaml"] = [values]
    if hpas:
        files[_HPAS] = list(hpas)
    elif options.output and (left := Path(options.output, _HPAS)).exists():
        raise _error("is of an earlier run, and no HPA is written now: remove it", str(left))
    return files, notes


def _problems(rules: Mapping[str, Any]) -> Sequence[Finding]:
    """Return what is wrong with the rules of the output."""
    parsed = config.parse(yaml_encoding.encode(rules), file="output")
    try:
        return ruleset.compile([("output", parsed)]).problems
    except ConfigError as error:
        return error.problems


def _write(folder: Path, files: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, contents in files.items():
        (folder / name).write_bytes(b"---\n".join(map(yaml_encoding.encode, contents)))
    print(f"wrote {counted(len(files), 'file')} to {folder}: {', '.join(files)}")


def _error(message: str, file: str = "") -> ConfigError:
    return ConfigError([in_file(State.FAILURE, message, file=file)])
