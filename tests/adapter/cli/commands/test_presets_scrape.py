"""`presets scrape`: its documents are those in the folder `scrape`, which the commands write."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("scrape")
COMMANDS = {
    "prometheus.yaml": "gpu-dcgm gateway-inference-pool --token-namespaces=pools",
    "minimal.yaml": "inference-vllm --minimal",
    "podmonitor.yaml": "gpu-hami gateway-vllm-router --format=podmonitor --limit=scrape-body=1024",
    "scrapeconfig.yaml": (
        "gateway-inference-pool --format=scrapeconfig --minimal --token-namespaces=pools"
    ),
}
"""File -> the arguments that print it."""


@pytest.mark.parametrize("file", COMMANDS)
def test_the_documents_are_those_of_the_folder(file, cli):
    assert cli("presets", "scrape", *COMMANDS[file].split()) == (0, (FOLDER / file).read_text(), "")


def test_without_names_all_pages_are_scraped(cli):
    code, text, _ = cli("presets", "scrape")

    assert code == 0
    for page in (
        "gpu-dcgm;9400;/metrics",
        "inference-nim;8000;/v1/metrics",
        "gateway-litellm;4000;",
    ):
        assert page in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("inference-vlm", "did you mean inference-vllm?"),
        ("resource-metrics", "preset 'resource-metrics': the page of its series is not known"),
        ("gpu-dcgm --trusted-namespaces=", "exporters need a namespace in --trusted-namespaces"),
    ],
)
def test_what_cannot_be_scraped_is_an_error(arguments, problem, cli):
    code, text, error = cli("presets", "scrape", *arguments.split())

    assert (code, text) == (1, "")
    assert problem in error
