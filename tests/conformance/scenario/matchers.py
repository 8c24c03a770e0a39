"""Holding what stands at a path against a value or a matcher, which is a mapping whose keys begin with ``$``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.conformance.compare import same
from tests.conformance.scenario.paths import MISSING, read
from tests.conformance.scenario.places import IS_FOLDER
from tests.conformance.scenario.world import World

TOLERANCE = "tolerance"
"""The key of a matcher that says how many seconds `$approx_now_plus` may be off."""

Matcher = Callable[[World, Any, Any, Mapping[str, Any]], bool]
"""From world, what is there, the matcher's value, and the whole matcher."""


def meets(world: World, expected: Any, got: Any) -> bool:
    """Whether what is there is the expected value, or meets every part of a matcher."""
    if got is MISSING:
        return bool(expected == {"$missing": True})
    if not _is_matcher(expected):
        return same(_filled(world, expected), plain(got))
    asked = {key: value for key, value in expected.items() if key != TOLERANCE}
    return all(key in MATCHERS and MATCHERS[key](world, got, value, expected) for key, value in asked.items())


def plain(value: Any) -> Any:
    """Return a value whose records are mappings, for comparing."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def on_disk(expected: Any) -> Any:
    """Return what a file is to hold, as bytes; a matcher as it is."""
    if isinstance(expected, str):
        return expected.encode()
    return bytes.fromhex(expected["hex"]) if "hex" in expected else expected


def _filled(world: World, expected: Any) -> Any:
    """Return an expected value with the paths of the case's folder in its texts."""
    if isinstance(expected, str) and "{" in expected:
        return world.place.filled(expected, world.names)
    return expected


def _matches(world: World, got: Any, pattern: str, _whole: Mapping[str, Any]) -> bool:
    wanted = world.place.filled(pattern, world.names, is_pattern=True) if "{" in pattern else pattern
    return isinstance(got, str) and re.search(wanted, got) is not None


def _has_all(_world: World, got: Any, members: list[Any], _whole: Mapping[str, Any]) -> bool:
    there = plain(_members(got))
    return len(there) == len(members) and all(there.count(each) == members.count(each) for each in members)


def _is_same_object(world: World, got: Any, path: str, _whole: Mapping[str, Any]) -> bool:
    return got is read(world.names, path)


def _has_pair(_world: World, got: Any, pair: list[Any], _whole: Mapping[str, Any]) -> bool:
    key, value = pair
    return isinstance(got, Mapping) and key in got and same(value, plain(got[key]))


def _is_matcher(expected: Any) -> bool:
    return isinstance(expected, Mapping) and any(key.startswith("$") for key in expected)


def _instant(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _keys(got: Any) -> set[str]:
    return set(got) if isinstance(got, Mapping) else set()


def _equals_other(world: World, got: Any, path: str) -> bool:
    other = read(world.names, path)
    return other is not MISSING and same(plain(other), plain(got))


def _near_now(world: World, got: Any, seconds: float, whole: Mapping[str, Any]) -> bool:
    moment = _instant(got)
    if moment is None or moment.tzinfo is None:
        return False
    distance = abs(moment - (world.clock() + timedelta(seconds=seconds)))
    return distance <= timedelta(seconds=whole.get(TOLERANCE, 0))


def _members(got: Any) -> list[Any]:
    return list(got) if isinstance(got, Iterable) else []


MATCHERS: Mapping[str, Matcher] = {
    "$re": _matches,
    "$len": lambda _world, got, length, _whole: hasattr(got, "__len__") and len(got) == length,
    "$contains": lambda _world, got, part, _whole: (
        part in got if isinstance(got, str) else part in plain(_members(got))
    ),
    "$falsy": lambda _world, got, wanted, _whole: (not got) is wanted,
    "$not_none": lambda _world, got, wanted, _whole: (got is not None) is wanted,
    "$ne": lambda _world, got, other, _whole: not same(other, plain(got)),
    "$eq_ref": lambda world, got, path, _whole: _equals_other(world, got, path),
    "$ne_ref": lambda world, got, path, _whole: not _equals_other(world, got, path),
    "$keys_exact": lambda _world, got, keys, _whole: isinstance(got, Mapping) and _keys(got) == set(keys),
    "$keys_superset": lambda _world, got, keys, _whole: _keys(got) >= set(keys),
    "$missing_key": lambda _world, got, key, _whole: isinstance(got, Mapping) and key not in got,
    "$superset": lambda _world, got, members, _whole: all(member in _members(got) for member in members),
    "$approx_now_plus": _near_now,
    "$hex": lambda _world, got, hexed, _whole: got == bytes.fromhex(hexed),
    "$unordered": _has_all,
    "$gte": lambda _world, got, least, _whole: isinstance(got, int | float) and got >= least,
    "$lte": lambda _world, got, most, _whole: isinstance(got, int | float) and got <= most,
    "$missing": lambda _world, _got, wanted, _whole: wanted is False,
    "$dir": lambda _world, got, wanted, _whole: (got is IS_FOLDER) is wanted,
    "$same_object": _is_same_object,
    "$key_value": _has_pair,
    "$same_instant": lambda _world, got, moment, _whole: _instant(got) == _instant(moment),
}
