"""Print the scope of every rule in presets, documents and the configurations of others.

Usage: python -m tests.rules.lint.scope_table
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rules import presets, ruleset
from rules.errors import ConfigError
from rules.kinds import Kinds
from rules.lint import check_sharing
from rules.query.scope import Sharing
from rules.ruleset import RuleSet
from tests.rules.lint import configurations as public

_BLOCK = re.compile(r"^ *```(?:yaml|text)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^(?:rules|externalRules|resourceRules):", re.MULTILINE)
ROOT = Path(__file__).parents[3]


def configurations() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each rules file."""
    for name in presets.names():
        yield f"preset {name}", presets.text(name)
    for file in sorted((ROOT / "docs").glob("*.md")):
        for number, block in enumerate(_BLOCK.findall(file.read_text()), 1):
            if "seriesQuery" in block:
                text = block if _SECTION.search(block) else f"rules:\n{block}"
                yield f"docs/{file.name} block {number}", text
    cases = json.loads((ROOT / "tests/vectors/data/queries.json").read_text())["cases"]
    for case in cases:
        if case["kind"] == "custom" and case["name"].startswith("real"):
            rule = "\n".join(f"  {line}" for line in case["rule"].splitlines())
            yield f"vectors {case['name']}", f"rules:\n-\n{rule}\n"
    cases = json.loads((ROOT / "tests/vectors/data/configs.json").read_text())["cases"]
    for case in cases:
        if case["name"].startswith("sample"):
            yield f"vectors {case['name']}", case["yaml"]
    yield "parity", (ROOT / "tests/parity/config.yaml").read_text()


def rulesets() -> Iterator[tuple[str, RuleSet]]:
    """Yield the name and the rules of each configuration with which a server starts."""
    for name, text in configurations():
        with contextlib.suppress(ConfigError):  # an example of an error
            yield name, ruleset.load([(name, text)])
    for name in public.SOURCES["public"]:
        if (rules := public.checked(name).rules) is not None:
            yield f"public {name}", rules


def rows() -> Iterator[tuple[str, str, Sharing]]:
    """Yield the place of each rule, its resource, and its scope."""
    kinds = Kinds.builtin()
    seen = set()
    for name, loaded in rulesets():
        for rule in loaded.rules:
            key = (
                rule.config.metrics_query,
                str(rule.config.resources.overrides),
                rule.pinned_series,
            )
            if not rule.query.source or (name.startswith("vectors") and key in seen):
                continue
            seen.add(key)
            for resource, sharing in check_sharing.sharings(rule, kinds).items():
                yield f"{name} {rule.config.where.path}", str(resource), sharing


def main() -> None:
    count: Counter[str] = Counter()
    for place, resource, sharing in rows():
        count[sharing.scope] += 1
        print(f"{sharing.scope:9} {resource:12} {place}: {sharing.obstacle}".rstrip(": "))
    print(", ".join(f"{number} {scope}" for scope, number in count.most_common()))


if __name__ == "__main__":
    main()
