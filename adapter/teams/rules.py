"""The rules in the ConfigMaps of teams, beside those of the cluster.

Each ConfigMap is loaded on its own. One that cannot be loaded keeps the rules that it had before,
and does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from adapter.cluster.value_index import ValueIndex
from adapter.teams.config_maps import Watched
from rules import teams
from rules.errors import ConfigError
from rules.ruleset import RuleSet
from rules.teams import ConfigMap

log = logging.getLogger(__name__)

_INTERVAL = 1.0
"""Seconds between two looks at what the watch has brought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What became of the ConfigMaps, by namespace and name."""

    refused: Mapping[str, str] = field(default_factory=dict)
    """Why a ConfigMap has no effect."""
    kept: frozenset[str] = frozenset()
    """Refused ones whose rules of before are in use."""


class TeamRules:
    """Rules of the ConfigMaps in `index`, which returns None while they are not known.

    `label` is the label of all series with their namespace.
    """

    def __init__(self, index: Callable[[], ValueIndex[Watched] | None], *, label: str) -> None:
        self._index = index
        self._label = label
        self._present: frozenset[ConfigMap] = frozenset()
        self._good: dict[str, tuple[ConfigMap, RuleSet]] = {}
        """The last version of each ConfigMap that could be loaded."""
        self._refused: dict[str, tuple[ConfigMap, str]] = {}
        """The last version of each ConfigMap that could not, and why."""
        self.loaded = Loaded()

    def present(self) -> frozenset[ConfigMap]:
        """Return the ConfigMaps; those of before while they are not known."""
        if (index := self._index()) is not None:
            self._present = frozenset(each.config_map for each in index.values())
        return self._present

    async def run(self, request: Callable[[], None]) -> NoReturn:
        """Call `request` soon after ConfigMaps have changed, until cancelled."""
        known = self.present()
        while True:
            await asyncio.sleep(_INTERVAL)
            if (present := self.present()) != known:
                known = present
                request()

    def watched(self) -> Iterator[Watched]:
        """Yield the ConfigMaps with what is written about them; none while they are not known."""
        index = self._index()
        return iter(()) if index is None else iter(list(index.values()))

    def beside(self, cluster: RuleSet, config_maps: Iterable[ConfigMap]) -> RuleSet:
        """Return the rules of the cluster with those of these ConfigMaps.

        A new ConfigMap takes a few milliseconds for each of its rules.
        """
        by_name = {str(each): each for each in config_maps}
        self._good = {key: good for key, good in self._good.items() if key in by_name}
        self._refused = {
            key: bad for key, bad in self._refused.items() if by_name.get(key) == bad[0]
        }
        for key, each in by_name.items():
            if key not in self._refused and self._good.get(key, (None,))[0] != each:
                self._load(key, each)
        ruleset, left_out = teams.merge(cluster, dict(self._good.values()))
        refused = {key: problem for key, (_, problem) in self._refused.items()}
        self.loaded = Loaded(
            refused={**left_out, **refused},
            kept=frozenset(refused.keys() & self._good.keys() - left_out.keys()),
        )
        return ruleset

    def _load(self, key: str, config_map: ConfigMap) -> None:
        try:
            self._good[key] = config_map, teams.load(config_map, label=self._label)
        except ConfigError as error:
            self._refused[key] = config_map, str(error)
            log.warning("the ConfigMap %s is refused: %s", key, error)
        else:
            log.info("the rules of the ConfigMap %s are loaded", key)

    def check(self) -> str:
        """Report the ConfigMaps for /readyz. Never raises, and names none."""
        namespaces = {each.namespace for each in self._present}
        return (
            f"{len(self._present)} ConfigMaps of {len(namespaces)} namespaces, "
            f"{len(self.loaded.refused)} refused"
        )
