"""Reads what `check` gets: rules files, presets, manifests and Helm values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from adapter import settings
from adapter.files import MANIFESTS, read_file
from adapter.settings import rule_files
from rules import presets, quantity
from rules.document import config, manifests
from rules.document.found import Arguments, Found, HpaTarget
from rules.errors import ConfigError, QuantityError
from rules.findings import Finding, State, in_file
from rules.hpa import judgement
from rules.lint import check_hpas
from rules.quoting import counted

_STANDARD_INPUT = Path("/dev/stdin")
_SUFFIXES = frozenset((".yaml", ".yml", ".json"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All rules, in order, and what was found around them."""

    parsed: tuple[tuple[str, config.Parsed], ...]
    """Name of the file, and its rules."""
    problems: tuple[Finding, ...]
    """Those that are not about rules."""
    targets: tuple[HpaTarget, ...] = ()
    """Targets of HPAs whose metrics the rules should produce."""
    notes: tuple[str, ...]
    """What was read from manifests and Helm values."""


def read(sources: Sequence[settings.RulesSource], inside: Found | None = None) -> Inputs:
    """Read all sources, after what is `inside` manifests that are no files.

    Raises ConfigError for files that cannot be read, and unknown presets.
    """
    found: list[Found] = [inside] if inside else []
    parsed = [(part.file, part.parsed) for each in found for part in each.rules]
    unreadable: list[Finding] = []
    notes: list[str] = []
    skipped = 0
    for source in sources:
        if source.kind == "preset":
            parsed.append(_preset(source.name))
            continue
        if source == settings.AUTO:
            notes.append("preset auto: `presets detect --prometheus-url=URL` prints which it means")
            continue
        name = source.name
        try:
            for path in paths(Path(source.name)):
                name = str(path)
                content = read_file(path, MANIFESTS, pipes=True)
                if path == _STANDARD_INPUT:
                    name = "stdin"
                inside = manifests.find(content, file=name)
                if inside is None and not _is_read(path, Path(source.name), content):
                    skipped += 1
                elif inside is None:
                    parsed.append((name, config.parse(content, file=name)))
                else:
                    found.append(inside)
                    parsed += [(part.file, part.parsed) for part in inside.rules]
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            unreadable.append(in_file(State.FAILURE, message, file=name))
    if unreadable:
        raise ConfigError(unreadable)
    if skipped:
        notes.append(f"skipped {counted(skipped, 'file')} without rules in folders")
    problems = [problem for each in found for problem in each.problems]
    targets = [target for each in found for target in each.targets]
    problems += itertools.chain.from_iterable(map(_doubt, targets))
    hpas = [each for part in found for each in part.manifests if each.kind == check_hpas.KIND]
    problems += itertools.chain.from_iterable(map(check_hpas.shape, hpas))
    notes += [f"{part.file}:{part.line}: {part.title}" for each in found for part in each.rules]
    if not parsed and not targets and not any(each.arguments for each in found):
        message = "contains no rules: no ConfigMap with rules, and no workload of an adapter"
        problems += [
            in_file(State.WARNING, message, file=source.name)
            for source in sources
            if source.kind == "config"
        ]
    before: list[tuple[str, config.Parsed]] = []
    keys = dict(itertools.chain.from_iterable(each.config_maps for each in found))
    with_rules = {part.config_map for each in found for part in each.rules if part.config_map}
    for arguments in itertools.chain.from_iterable(each.arguments for each in found):
        settings_of, invalid = flags(arguments)
        unread = ", ".join(_unread(arguments, settings_of, keys)) if settings_of else ""
        rest = f"; not among the files: {unread}" if unread else ""
        notes.append(f"{arguments.file}:{arguments.line}: {arguments.title}{rest}")
        problems += invalid
        if settings_of is None:
            continue
        problems += _unmounted(arguments, settings_of, keys)
        problems += _unused(arguments, settings_of, with_rules)
        configured = False
        for source in settings_of.rules.sources:
            configured |= source.kind == "config"
            if source.kind == "preset":
                (parsed if configured else before).append(_preset(source.name))
    rules = (*before, *parsed)
    whole = bool(rules) and settings.AUTO not in sources
    return Inputs(
        parsed=rules,
        problems=tuple(problems),
        targets=tuple(targets) if whole else (),
        notes=tuple(notes),
    )


def paths(path: Path) -> Sequence[Path]:
    """Return the file itself, standard input for `-`, or the files in a folder and those below.

    In a folder, only files of YAML and JSON that are not hidden count. Raises ConfigError if there
    are none.
    """
    if str(path) == "-":
        return (_STANDARD_INPUT,)
    if not path.is_dir():
        return (path,)
    found = [
        each
        for each in sorted(path.rglob("*"))
        if each.suffix in _SUFFIXES
        and each.is_file()
        and not any(part.startswith(".") for part in each.relative_to(path).parts)
    ]
    if not found:
        message = "contains no file of YAML or JSON"
        raise ConfigError([in_file(State.FAILURE, message, file=str(path))])
    return found


def _is_read(path: Path, source: Path, content: bytes) -> bool:
    """Return whether a file without manifests must be a rules file: the server reads it, or rules.

    The server reads the files of YAML in a folder, but not those of the folders below.
    """
    named = path in {source, _STANDARD_INPUT} or path in rule_files.files(source)
    return named or manifests.has_section(content)


def _doubt(target: HpaTarget) -> Iterator[Finding]:
    """Yield an error if the target is no quantity, and warnings about its unit and type."""
    if target.averaged and target.type == "Value":
        yield target.warning(
            f"the target of {target.metric} has type Value, and the controller takes its "
            "averageValue. Write type: AverageValue"
        )
    if not target.value:
        return  # `check_hpas` reports it
    try:
        value = quantity.milli_value(target.value)
    except QuantityError as error:
        yield target.problem(State.FAILURE, str(error))
        return
    if doubt := judgement.doubt_of_target(target.metric, value, external=target.external):
        yield target.warning(doubt.sentence)


def _preset(name: str) -> tuple[str, config.Parsed]:
    file = f"{presets.FILE}{name}"
    return file, config.parse(presets.text(name), file=file)


def flags(arguments: Arguments) -> tuple[settings.Settings | None, list[Finding]]:
    """Return the settings, or None and what is wrong with the flags.

    Values that come from elsewhere, such as `$(POD_IP)`, are not checked.
    """
    texts = [each.text for each in arguments.arguments if each.text != "serve"]
    try:
        try:
            return settings.parse(texts), []
        except settings.UsageError as error:
            if problems := [each for each in error.problems if "$(" not in each.subject]:
                return None, [arguments.problem(each.subject, each.fact) for each in problems]
            return settings.parse(each for each in texts if "$(" not in each), []
    except (settings.UsageError, settings.HelpRequested):
        return None, []


def _unread(
    arguments: Arguments, flags: settings.Settings, keys: dict[str, frozenset[str]]
) -> Iterator[str]:
    """Yield each rules file whose ConfigMap is not known, so that it is not checked."""
    for source in flags.rules.sources:
        mounted = arguments.key_of(source.name)
        if source.kind == "config" and (mounted is None or mounted[0] not in keys):
            yield f"ConfigMap {mounted[0]}" if mounted else source.name


def _unmounted(
    arguments: Arguments, flags: settings.Settings, keys: dict[str, frozenset[str]]
) -> Iterator[Finding]:
    """Yield an error for each --config whose ConfigMap is known and does not have the key."""
    for source in flags.rules.sources:
        mounted = arguments.key_of(source.name) if source.kind == "config" else None
        if mounted is None:
            continue
        config_map, key = mounted
        if config_map in keys and key not in keys[config_map]:
            known = ", ".join(sorted(keys[config_map])) or "none"
            message = f"ConfigMap {config_map} has no key {key}, so the file does not exist"
            yield arguments.problem(f"--config={source.name}", f"{message}; its keys: {known}")


def _unused(
    arguments: Arguments, flags: settings.Settings, with_rules: set[str]
) -> Iterator[Finding]:
    """Yield a warning for each mounted ConfigMap with rules that no flag names."""
    if any(source.kind == "config" for source in flags.rules.sources):
        return
    for directory, (config_map, _) in arguments.mounts.items():
        if config_map in with_rules:
            yield in_file(
                State.WARNING,
                f"has no --config, so the rules in ConfigMap {config_map}, which is mounted"
                f" at {directory}, are not read. Add --config={directory}/FILE",
                file=arguments.file,
                line=arguments.line,
            )
