"""What a value came from, all the way back: read off an index of its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from divebook.events import Event, catalog
from divebook.replay.origin import INPUT, ValueOrigin
from divebook.store.past import History


class Traced:
    """A value with everything that it came from.

    Parameters
    ----------
    root
        The value that was asked about.
    known
        All values and choices of the log, by number.
    log
        The events, from the first on; they are looked at when something is shown.
    at
        The event at which it was asked.
    """

    def __init__(self, root: ValueOrigin, known: Sequence[ValueOrigin], log: Sequence[Event], at: int) -> None:
        self.root, self.at = root, at
        self._known, self._log = known, log
        self._events: dict[int, Event] = {}
        self.depths = self._reached()
        """Numbers of all that it came from, itself first, with how many steps back that is."""

    def _reached(self) -> dict[int, int]:
        root, known = self.root, self._known
        depths = {root.number: 0}
        waiting = list(root.causes)
        depth = 0
        while waiting:
            depth += 1
            following: list[int] = []
            for number in waiting:
                if number not in depths:
                    depths[number] = depth
                    origin = known[number]
                    following += origin.reads
                    following += origin.because
            waiting = following
        return depths

    @property
    def name(self) -> str:
        """The variable; ``inputs.NAME``; ``state``."""
        return self.root.name

    def origin(self, number: int) -> ValueOrigin:
        """Return a value or choice that it came from."""
        return self.root if number == self.root.number else self._known[number]

    @property
    def origins(self) -> list[ValueOrigin]:
        """Everything that it came from, itself first, then what that came from, and so on."""
        return [self.origin(number) for number in self.depths]

    @property
    def inputs(self) -> list[str]:
        """The inputs that it depends on."""
        return sorted({origin.name.partition(".")[2] for origin in self.origins if origin.kind == "input"})

    @property
    def variables(self) -> list[str]:
        """The other variables that it depends on."""
        found = {origin.name for origin in self.origins if origin.kind in ("set", "deleted", "kept")}
        return sorted(found - {self.name})

    @property
    def steps(self) -> list[str]:
        """The steps that had a part in it, the latest first."""
        told = sorted(self.origins, key=lambda origin: -origin.sequence)
        return list(dict.fromkeys(origin.step for origin in told if origin.step))

    def value(self, origin: ValueOrigin) -> Any:
        """Return the recorded value of an origin; None where it has none."""
        data = self.event(origin.sequence).data if origin.kind in ("set", "input", "output") else None
        match data:
            case catalog.StateMutated():
                return next((made.value for made in data.mutations if made.key == origin.name.partition("[")[0]), None)
            case catalog.IterationCompleted() | catalog.IterationFailed():
                result = data.result or {}
                value: Any = result.get("value", result.get("text"))
                return value if origin.column is None else value[origin.column]
            case catalog.ExecutionStarted():
                given = data.inputs if origin.kind == "input" else data.state or {}
                return given.get(origin.name.removeprefix(INPUT))
            case catalog.ExecutionForked():
                change = data.change or {}
                part = change.get("inputs" if origin.kind == "input" else "variables", {})
                return part.get(origin.name.removeprefix(INPUT))
            case catalog.ExecutionCompleted():
                return data.outputs.get(origin.name)
        return None

    def event(self, sequence: int) -> Event:
        """Return an event of its log."""
        if sequence not in self._events:
            self._events[sequence] = _event(self._log, sequence)
        return self._events[sequence]


def _event(log: Sequence[Event], sequence: int) -> Event:
    """Return one event; of a store's log it is read alone, and not with the page that it stands in."""
    if isinstance(log, History):
        return log.store.read(log.execution_id, sequence - 1, 1)[0]
    return log[sequence - 1]
