"""What one case has made so far: names and their values, and its clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from tests.conformance.scenario.paths import read
from tests.conformance.scenario.places import Place

ENVELOPE, RESULT = "env", "result"
"""Names that are bound where a case gives none."""


class StandingClock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 25, 10, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Return the present."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)


@dataclass
class World:
    """The bound names of one case."""

    names: dict[str, Any] = field(default_factory=dict)
    clock: StandingClock = field(default_factory=StandingClock)

    @cached_property
    def place(self) -> Place:
        """The folder of a case about workspaces, made when it is first needed."""
        return Place()

    def close(self) -> None:
        """Undo what the case has done beyond its names."""
        if "place" in self.__dict__:
            self.place.close()

    def bind(self, step: Mapping[str, Any], default: str, value: Any) -> None:
        """Bind a value to the default name and to the one that the step gives."""
        self.names[step.get("as", default)] = value
        if default == RESULT:
            self.names[RESULT] = value

    def resolved(self, value: Any) -> Any:
        """Return a copy of a literal with ``{"$ref": path}`` replaced by what stands there."""
        if isinstance(value, Mapping):
            if value.keys() == {"$ref"}:
                return read(self.names, value["$ref"])
            return {key: self.resolved(item) for key, item in value.items()}
        return [self.resolved(item) for item in value] if isinstance(value, list) else value
