"""Tests that README.md and the pages in docs/, .github/ and the chart are true."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from adapter import settings
from adapter.cli.commands import SUMMARIES
from adapter.cli.program import main
from rules import presets, ruleset
from rules.causes.reasons import Reason
from rules.document import config, sources
from tools import docs
from tools.control_plane.build import VERSION
from tools.presets.table import METRICS, SERVER_METRICS

ROOT = docs.ROOT
PAGES = tuple(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", ".github/*.md", "manifests/chart/*.md")
    for page in sorted(ROOT.glob(pattern))
)
FOLDERS = "adapter|certs|docs|manifests|rules|tests|tools"

FOREIGN_FLAGS = {
    "--enable-metrics",  # SGLang
    "--max-num-queued-reqs",  # vLLM
    "--endpoint",  # thanos query
    "--endpoint-group-strict",  # thanos query
    "--endpoint-strict",  # thanos query
    "--help",
    "--horizontal-pod-autoscaler-tolerance",  # kube-controller-manager
    "--kubernetes-gpu-id-type",  # dcgm-exporter
    "--max-num-seqs",  # vLLM
    "--metric-labels-allowlist",  # kube-state-metrics
    "--metrics",  # llama.cpp
    "--metrics-config",  # Triton
    "--query",  # thanos query: --query.replica-label
    "--raw",  # kubectl
    "--served-model-name",  # vLLM
    "--use-old-namespace",  # dcgm-exporter
    "--use-service-account-credentials",  # kube-controller-manager
    "--reset-then-reuse-values",  # helm
    "--set",  # helm
    "--version",  # helm
}
UNUSUAL_KEYS = {"on_nan": "onNaN", "is_": "is", "as_": "as", "window_ns": "window"}
"""Field -> key, where the key is not the field in camel case."""


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, *languages: str) -> Iterator[str]:
    """Yield the code blocks of these languages."""
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL):
        if language in languages:
            yield body


def prose(page: str) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL)


def code(page: str) -> str:
    """Return all code of a page: blocks and spans, one per line."""
    return "\n".join((*blocks(page, "sh", "console"), *re.findall(r"`([^`\n]+)`", prose(page))))


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", each) is not None for each in found)
        found.add(f"{slug}-{number}" if number else slug)
    return found


def own_commands(page: str) -> Iterator[list[str]]:
    """Yield the words of each command line of this program in a page."""
    for body in blocks(page, "sh", "console"):
        for line in body.replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ").partition("#")[0]
            if match := re.match(r"(?:\.venv/bin/)?gpu-metrics-adapter (.*)", command):
                yield re.split(r" [&|>]", match[1])[0].split()


def test_readme_is_at_most_10_kb() -> None:
    assert (ROOT / "README.md").stat().st_size <= 10_000


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_a_title_and_pages_in_docs_with_the_question_they_answer(
    page: str,
) -> None:
    first, *rest = filter(None, read(page).splitlines())

    assert first.startswith("# ")
    if page.startswith("docs/"):
        assert re.fullmatch(r"\*.+\?\*", rest[0])


@pytest.mark.parametrize("document", [*docs.PARTS, *docs.FILES])
def test_generated_parts_are_up_to_date(document: str) -> None:
    assert docs.generate(document) == read(document), "run `make fix`"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            if not re.fullmatch(r"https?://[\w.-]+(/[\w./#?=%-]*)?", target):
                dead.append(target)
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.exists() or (
            anchor and anchor not in anchors(str(file.resolve().relative_to(ROOT)))
        ):
            dead.append(target)

    assert dead == []


def test_every_page_is_linked_from_readme() -> None:
    readme = read("README.md")

    assert [page for page in PAGES if page.startswith("docs/") and f"({page})" not in readme] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page: str) -> None:
    """A word in capitals in a path stands for any name."""
    named = re.findall(rf"(?<![\w./-])(?:{FOLDERS})/[\w./-]*\w", code(page))
    patterns = {name: re.sub(r"\b[A-Z]{2,}\b", "*", name) for name in named}

    assert [name for name, pattern in patterns.items() if not list(ROOT.glob(pattern))] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_is_named_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.MULTILINE))

    assert set(re.findall(r"^(?:\$ )?make ([a-z0-9-]+)", code(page), re.MULTILINE)) <= targets


@pytest.mark.parametrize(("load", "with_tools"), [("3", False), ("gpu", True)])
def test_make_run_installs_only_what_it_needs(load: str, with_tools: bool) -> None:
    command = ["make", "--dry-run", "--always-make", "run", f"LOAD={load}"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "manifests/requirements.lock" in output
    assert ("tests/requirements.lock" in output) is with_tools


@pytest.mark.parametrize("page", PAGES)
def test_yaml_is_valid_and_rules_load_without_a_warning(page: str) -> None:
    for body in blocks(page, "yaml"):
        documents = list(yaml.safe_load_all(body.replace("<<", "__").replace(">>", "__")))
        if set(documents[0]) <= {"rules", "externalRules"}:
            assert ruleset.load([(page, body)]).problems == ()


def test_the_first_hpas_use_metrics_of_presets() -> None:
    hpas = [
        document
        for block in blocks("docs/hpa-recipes.md", "yaml")
        if "kind: HorizontalPodAutoscaler" in block
        for document in yaml.safe_load_all(block)
    ]
    used = [each["pods"]["metric"]["name"] for hpa in hpas for each in hpa["spec"]["metrics"]]

    assert used == ["requests_waiting_current", "duty_cycle_current"]
    assert set(used) <= {*METRICS, *SERVER_METRICS}


def test_every_flag_is_documented() -> None:
    """`--audit-*` stands for all flags with this beginning."""
    flags = set(re.findall(r"--[a-z][\w-]+", settings.usage()))
    page = read("docs/flags.md")
    families = tuple(re.findall(r"`(--[a-z][\w-]+-)\*`", page))

    assert {
        each for each in flags if f"{each}`" not in page and not each.startswith(families)
    } == set()


def test_every_command_is_named_beside_the_flags() -> None:
    page = read("docs/flags.md")

    assert {name for name in SUMMARIES if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_link_with_the_name_of_a_page_leads_to_it(page: str) -> None:
    names = {Path(each).stem.lower() for each in PAGES}
    links = re.findall(r"\[([^\]]+)\]\(([^)#]+)[^)]*\)", read(page))

    assert {
        (label, target)
        for label, target in links
        if label.lower() in names and Path(target).stem.lower() != label.lower()
    } == set()


@pytest.fixture(scope="module")
def help_texts() -> str:
    """The help of all commands."""
    commands = (
        *([], ["serve"], ["demo"], ["check"], ["doctor"], ["explain"], ["migrate"], ["console"]),
        *(["replay"], ["advise"], ["conformance"]),
        *(["presets", "detect"], ["presets", "scrape"], ["certs", "issue"]),
    )
    output = io.StringIO()
    for command in commands:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            main([*command, "--help"])
    return output.getvalue()


@pytest.mark.parametrize("page", PAGES)
def test_every_flag_that_is_named_exists(page: str, help_texts: str) -> None:
    """`--prometheus-*` stands for all flags with this beginning."""
    known = set(re.findall(r"--[a-z][\w-]+", help_texts)) | FOREIGN_FLAGS
    words = [word for command in own_commands(page) for word in command]
    words += re.findall(r"`(--[a-z][\w-]+\*?)", prose(page))
    named = {match[0] for word in words if (match := re.match(r"--[a-z][\w-]*\*?", word))}

    unknown = {
        flag
        for flag in named - known
        if not (flag.endswith("*") and any(each.startswith(flag[:-1]) for each in known))
    }
    assert unknown == set()


def test_every_command_that_is_named_exists() -> None:
    named = {command[0] for page in PAGES for command in own_commands(page) if command}

    assert {name for name in named if not name.startswith("-")} <= SUMMARIES.keys()


def test_every_preset_is_documented_and_every_preset_that_is_named_exists() -> None:
    assert set(presets.names()) <= set(re.findall(r"`([\w-]+)`", read("docs/presets.md")))
    for page in PAGES:
        named = set(re.findall(r"--preset[= ]([a-z][\w-]*)", read(page)))
        assert named <= {*presets.names(), "auto"}, page


def test_every_field_of_a_rule_has_a_row_and_a_section() -> None:
    rules = read("docs/rules.md")
    rows = re.findall(r"^\| \[`(\w+)`\]", rules, re.MULTILINE)
    sections = re.findall(r"^### `(\w+)`$", rules, re.MULTILINE)

    assert rows == sections == [_key(field.name) for field in _fields(config.Rule)]


def test_every_other_key_of_a_rules_file_is_documented() -> None:
    records = (
        config.Config,
        config.SeriesFilter,
        config.ResourceMapping,
        config.Override,
        config.NameMapping,
        config.OnMissing,
        config.ResourceRules,
        config.ResourceRule,
    )
    keys = {_key(field.name) for record in records for field in _fields(record)}

    words = set(re.findall(r"\w+", "\n".join(re.findall(r"`[^`\n]+`", read("docs/rules.md")))))

    assert keys - words == set()


def test_every_key_of_a_source_is_documented() -> None:
    section = read("docs/backends.md").split("## How do I query several Prometheus?")[1]
    rows = re.findall(r"^\| (`[^|]+) \|", section.split("## ")[0], re.MULTILINE)
    keys = {_key(field.name) for field in _fields(sources.PrometheusSource)} - {"name"}

    assert set(re.findall(r"\w+", " ".join(rows))) == keys


def _fields(record: type) -> list[dataclasses.Field[object]]:
    internal = {"where", "label"}
    return [field for field in dataclasses.fields(record) if field.name not in internal]


def _key(name: str) -> str:
    camel_case = re.sub(r"_(\w)", lambda match: match[1].upper(), name)
    return UNUSUAL_KEYS.get(name, camel_case)


def test_every_reason_has_a_row_in_the_order_of_the_diagnosis() -> None:
    rows = re.findall(r"^\| `([A-Z]\w+)` \|", read("docs/troubleshooting.md"), re.MULTILINE)
    reasons = [reason.value for reason in Reason]

    assert [row for row in rows if row in reasons] == reasons


def test_every_health_check_is_documented() -> None:
    sources = "\n".join(
        file.read_text(encoding="utf-8") for file in (ROOT / "adapter").rglob("*.py")
    )
    names = set(re.findall(r'(?:\bCheck\(\s*name=|\.check\()"([\w-]+)"', sources))

    assert names > {"ping", "shutdown"}
    assert {name for name in names if f"`{name}`" not in read("docs/operations.md")} == set()


def test_own_metrics_that_are_named_exist() -> None:
    suffixes = "(?:_bucket|_count|_sum)?"
    exposed = set(re.findall(r"`(\w+)`", docs.own_metrics()))
    for page in PAGES:
        named = re.findall(rf"\b(gpu_metrics_adapter_\w+?){suffixes}\b", read(page))
        assert set(named) <= exposed, page


def test_the_supported_versions_of_kubernetes_are_those_that_ci_tests() -> None:
    """Each change is tested with VERSION, the others in the nightly workflow."""
    section = read("docs/install.md").split("of Kubernetes are supported?")[1].split("## ")[0]
    rows = [
        re.findall(r"1\.\d+\.\d+", row) for row in re.findall(r"^\| 1.*$", section, re.MULTILINE)
    ]
    nightly = yaml.safe_load(read(".github/workflows/nightly.yaml"))["jobs"]["kubernetes"]
    modules = ROOT / "tools" / "control_plane" / "go"

    assert rows == [[VERSION], nightly["strategy"]["matrix"]["kubernetes"]]
    assert {*rows[0], *rows[1]} == {folder.name for folder in modules.iterdir()}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_whom_owner_stands_for(page: str) -> None:
    assert "OWNER" not in read(page) or re.search(r"OWNER is the owner|`?REGISTRY=", read(page))


def test_documents_stay_within_their_size() -> None:
    """A page is read at one sitting; 24 kB, because generated tables are looked up, not read."""
    sizes = {page: Path(ROOT / page).stat().st_size for page in PAGES if page.startswith("docs/")}

    assert {page: size for page, size in sizes.items() if not 4_000 <= size <= 24_000} == {}
    assert len(sizes) <= 15
    assert sum(sizes.values()) <= 210 * 1024
