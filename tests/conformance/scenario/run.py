"""Carrying out one case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.conformance.compare import Difference
from tests.conformance.scenario.matchers import meets, on_disk, plain
from tests.conformance.scenario.operations import ERRORS, OPERATIONS
from tests.conformance.scenario.paths import read
from tests.conformance.scenario.places import IS_FOLDER
from tests.conformance.scenario.world import World

RAISES = "$raises"
"""The key of `expect` that wants the last step to fail."""


def unknown_operations(data: Mapping[str, Any]) -> list[str]:
    """Return the operations of a case that this runner does not know yet."""
    return sorted({step["op"] for step in (*data["setup"], data["action"])} - OPERATIONS.keys())


def differences(data: Mapping[str, Any]) -> list[Difference]:
    """Run one case and return what is not as expected."""
    unknown = unknown_operations(data)
    if unknown:
        return [Difference("operations", "known ones", f"this runner does not know yet: {', '.join(unknown)}")]
    world = World()
    try:
        for step in data["setup"]:
            OPERATIONS[step["op"]](world, step)
        expect = dict(data["expect"])
        return [*_act(world, data["action"], expect.pop(RAISES, None)), *_compare(world, expect)]
    finally:
        world.close()


def _act(world: World, action: Mapping[str, Any], failure: Mapping[str, str] | None) -> Iterator[Difference]:
    if failure is None:
        OPERATIONS[action["op"]](world, action)
        return
    try:
        OPERATIONS[action["op"]](world, action)
    except tuple(ERRORS.values()) as error:
        wanted = ERRORS.get(failure["type"])
        if wanted is None or not isinstance(error, wanted) or failure.get("contains", "") not in str(error):
            yield Difference(RAISES, failure, f"{type(error).__name__}: {error}")
    else:
        yield Difference(RAISES, failure, "no error")


def _compare(world: World, expect: Mapping[str, Any]) -> Iterator[Difference]:
    for path, expected, got in _observed(world, expect):
        if not meets(world, expected, got):
            yield Difference(path, expected, plain(got))


def _observed(world: World, expect: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Give what is expected and what is there: at paths through names, or on the disk of the case."""
    for key, expected in expect.items():
        what, _, name = key.partition(":")
        if key == "fs":
            for path, content in expected.items():
                yield f"fs:{path}", on_disk(content), world.place.found(path)
        elif what == "dir_entries":
            yield key, expected, len(list((world.place.root / name).iterdir()))
        elif what == "path_exists":
            yield key, expected, Path(read(world.names, name)).exists()
        elif key == "tmp_dir_exists":
            yield key, IS_FOLDER, world.place.found(world.place.filled(f"{{tmp}}/{expected}", world.names))
        elif key.split(".")[0] in {"close_order", "last_resource"}:
            yield key, expected, read(vars(world.place), key)
        else:
            yield key, expected, read(world.names, key)
