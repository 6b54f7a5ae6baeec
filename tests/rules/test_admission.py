"""Which ConfigMaps of teams the limits admit, whatever the order in which they were seen."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from rules import admission, limits
from rules.admission import Admission, Size
from rules.limits import Claim, Key

SMALL = limits.DEFAULT.with_values(
    {
        "team-config-maps": 4,
        "team-config-maps-all": 10,
        "team-text-all": 600,
        "team-rules": 5,
        "team-rules-all": 12,
        "team-pattern-memory": 50,
        "team-pattern-memory-all": 120,
    }
)


def claim(name: str, namespace: str = "a", created: int = 0) -> Claim:
    return Claim(namespace=namespace, name=name, created=f"2026-01-01T00:00:{created:02}Z")


def size(rules: int, pattern_memory: int = 0, characters: int = 1) -> Size:
    return Size(characters=characters, rules=rules, pattern_memory=pattern_memory)


def read(*claims: Claim) -> Admission:
    return admission.to_read(claims, SMALL)


def used(claims: Iterable[Claim], sizes: dict[str, Size]) -> Admission:
    by_key = {each.key: sizes[each.name] for each in claims if each.name in sizes}
    return admission.to_use(claims, by_key, SMALL)


def names(keys: Iterable[Key]) -> str:
    return " ".join(name for _, name in keys)


def test_the_oldest_config_maps_of_a_namespace_are_read():
    found = read(*(claim(f"c{each}", created=9 - each) for each in range(6)))

    assert names(found.admitted) == "c5 c4 c3 c2"
    assert names(sorted(found.refused)) == "c0 c1"
    assert found.refused["a", "c0"] == (
        "the namespace has more than 4 ConfigMaps with rules, and older ConfigMaps use them: "
        "remove some, or start the adapter with --limit=team-config-maps=NUMBER"
    )


def test_many_config_maps_of_one_namespace_leave_the_others_theirs():
    many = [claim(f"m{number}", "many") for number in range(2_000)]
    others = [claim(f"o{number}", f"n{number}", created=9) for number in range(6)]

    found = read(*many, *others)

    assert {("n0", "o0"), ("n5", "o5")} <= {*found.admitted}
    assert len(found.admitted) == 10
    assert {namespace for namespace, _ in found.refused} == {"many"}


def test_texts_beyond_the_limit_of_all_are_refused_by_shares():
    old = [claim(f"o{each}", "old") for each in range(6)]
    young = claim("young", "young", created=9)

    found = used([*old, young], {each.name: size(0, characters=150) for each in (*old, young)})

    assert names(found.admitted) == "o0 o1 o2 young"
    assert "more than 600 characters of rules" in found.refused["old", "o3"]
    assert "--limit=team-text-all=NUMBER" in found.refused["old", "o3"]


def test_rules_beyond_the_limit_are_refused_as_a_whole_and_leave_room_for_fewer():
    maps = [claim(name, created=place) for place, name in enumerate(("old", "big", "small"))]

    found = used(maps, {"old": size(3), "big": size(3), "small": size(2)})

    assert names(found.admitted) == "old small"
    assert "more than 5 rules" in found.refused["a", "big"]
    assert "--limit=team-rules=NUMBER" in found.refused["a", "big"]


def test_rules_refused_for_their_patterns_take_nothing_of_the_rules():
    maps = [claim(name, created=place) for place, name in enumerate(("old", "big", "small"))]

    found = used(maps, {"old": size(1, 30), "big": size(4, 30), "small": size(4, 20)})

    assert names(found.admitted) == "old small"
    assert "bytes of compiled regular expressions" in found.refused["a", "big"]


def test_config_maps_that_do_not_load_are_neither_admitted_nor_refused_by_limits():
    maps = [claim("good"), claim("bad")]

    found = used(maps, {"good": size(5)})

    assert names(found.admitted) == "good"
    assert not found.refused


@pytest.mark.slow
def test_what_is_admitted_does_not_depend_on_the_order():
    """2 000 sets of ConfigMaps, each in three orders."""
    generator = random.Random(41)
    for _ in range(2_000):
        maps = [
            claim(f"c{number}", generator.choice("abcd"), created=generator.randrange(3))
            for number in range(generator.randrange(25))
        ]
        sizes = {
            each.name: size(
                generator.randrange(1, 7), generator.randrange(60), generator.randrange(100)
            )
            for each in maps
            if generator.random() < 0.8
        }

        def decided(maps: list[Claim], sizes: dict[str, Size]) -> tuple[Admission, Admission]:
            reading = read(*maps)
            admitted = {*reading.admitted}
            return reading, used([each for each in maps if each.key in admitted], sizes)

        expected = decided(maps, sizes)
        for _ in range(2):
            generator.shuffle(maps)
            assert decided(maps, sizes) == expected
        by_namespace: dict[str, int] = {}
        for namespace, name in expected[1].admitted:
            by_namespace[namespace] = by_namespace.get(namespace, 0) + sizes[name].rules
        assert all(each <= 5 for each in by_namespace.values())
        assert sum(by_namespace.values()) <= 12
