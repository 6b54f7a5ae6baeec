"""Where exporters, model servers and gateways have their metrics: section `scrape` of a preset.

`rules.scrape` makes scrape configurations of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TRUSTED = ("gpu-operator",)
"""Namespaces in which exporters are scraped by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """Containers that serve the page; what is set must all match. Patterns match as a whole."""

    image: str = ""
    """Pattern of the last parts of the image's path, without registry and tag."""
    label: str = ""
    """Key of a label that the pod has."""
    value: str = ".+"
    """Pattern of that label's value."""
    container: str = ""
    """Pattern of the container's name."""
    port_name: str = ""
    """Pattern of the name of a declared port, which is scraped, whatever its number."""
    port_number: int = 0
    """Number of a declared port, which is scraped."""
    port: int = 0
    """Port to scrape, declared or not; 0 for that of the target."""
    path: str = ""
    """Path to scrape; empty for that of the target."""
    service: bool = False
    """Whether the value of `label` is the name of the Service."""

    def match(self, image: str, labels: Mapping[str, str], container: str) -> bool:
        """Return whether a container may serve the page; its ports are not compared."""
        return (
            (not self.image or bool(re.fullmatch(self.image_pattern, image)))
            and (not self.label or bool(re.fullmatch(self.value, labels.get(self.label, ""))))
            and (not self.container or bool(re.fullmatch(self.container, container)))
        )

    def match_port(self, name: str, number: int) -> bool:
        """Return whether a declared port is the one that is scraped."""
        return (not self.port_name or bool(re.fullmatch(self.port_name, name))) and (
            not self.port_number or self.port_number == number
        )

    @property
    def image_pattern(self) -> str:
        """Return the pattern of a whole reference to the image."""
        return f"(?:.*/)?(?:{self.image})(?:[:@].*)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The usual page of an exporter, model server or gateway, and the pods that serve it."""

    port: int = 0
    """0 if it is not known."""
    path: str = "/metrics"
    pods: tuple[Containers, ...] = ()
    """Alternatives, of which the first that matches decides."""
    same_as: str = ""
    """Name of the generation whose target this is; the rest is then empty."""
    token: bool = False
    """Whether the page is usually behind a bearer token of a ServiceAccount."""


def read(section: Mapping[str, Any]) -> Target:
    """Return what a section `scrape` describes. Its keys are those of the classes, in camelCase."""
    pods = tuple(Containers(**fields(each)) for each in section.get("pods", ()))
    return Target(**{**fields(section), "pods": pods})


def fields(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry of the YAML with the names of fields for its keys."""
    return {re.sub("[A-Z]", r"_\g<0>", key).lower(): each for key, each in entry.items()}
