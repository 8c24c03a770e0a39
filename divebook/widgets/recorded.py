"""A recording put together again: the state after each of its events, as `positions` has it of a log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from divebook.replay.stops import MODEL_CALLS
from divebook.widgets.conversations import said_up_to
from divebook.widgets.protocol.conversations import ConversationPart
from divebook.widgets.protocol.recording import Recording
from divebook.widgets.protocol.replay import EventBlock, StateView
from divebook.widgets.protocol.run import Welcome
from divebook.widgets.protocol.spans import DetailEvent

Cell: TypeAlias = tuple[str, str]
"""A part of a state, and a name in it: ``("variables", "n")``; parts that are whole have the name ``""``."""
Change: TypeAlias = list[Any]
"""A part, a name and the value that is there now; without a value the cell is gone."""
TABLES = ("inputs", "outputs", "variables")


def applied(cells: Mapping[Cell, Any], changes: Iterable[Iterable[Change]]) -> dict[Cell, Any]:
    """Return cells once some events have changed them."""
    present = dict(cells)
    for change in (change for event in changes for change in event):
        part, name, *value = change
        if value:
            present[part, name] = value[0]
        else:
            present.pop((part, name), None)
    return present


def merged(changes: Iterable[Iterable[Change]]) -> list[Change]:
    """Return as one what several events changed, in an order that leaves the same cells in the same order."""
    latest: dict[Cell, list[Change]] = {}
    for change in (change for event in changes for change in event):
        part, name, *value = change
        if value:
            gone = [known for known in latest.get((part, name), ()) if len(known) < len(change)]
            latest[part, name] = [*gone, change]
        else:
            latest.pop((part, name), None)
            latest[part, name] = [change]
    return [change for changed in latest.values() for change in changed]


def view_of_cells(sequence: int, cells: Mapping[Cell, Any]) -> StateView:
    """Return the state that cells make."""
    tables = {table: {name: value for (part, name), value in cells.items() if part == table} for table in TABLES}
    return StateView(
        sequence=sequence,
        status=cells["status", ""],
        inputs=tables["inputs"],
        outputs=tables["outputs"],
        variables=tables["variables"],
        paths=[value for (part, _), value in cells.items() if part == "paths"],
        usage=cells["usage", ""],
        pending=[value for (part, _), value in cells.items() if part == "pending"],
        error=cells["error", ""],
    )


class RecordedPositions:
    """Answers what was so at each position of a recording, as `divebook.widgets.positions.SteppedLog` does of a log."""

    def __init__(self, recording: Recording, store: str = "") -> None:
        self._recording, self._store = recording, store
        self._changes, self._sequences = recording["changes"], recording["events"]["sequence"]
        self._base = _taken_apart(recording["base"])

    @property
    def total(self) -> int:
        """Sequence number of the last event that is here."""
        return self._sequences[-1] if self._sequences else 0

    def event_at(self, sequence: int) -> DetailEvent:
        """Return one event. Raises `IndexError`."""
        row, block = self._row(sequence), self._recording["events"]
        return DetailEvent(
            sequence=sequence,
            event_type=block["names"][block["type"][row]],
            recorded_us=block["origin_us"] + block["time"][row],
            data=self._recording["data"][row],
        )

    def block(self, after: int = 0, stop: int | None = None) -> EventBlock:
        """Return the events that follow `after`, up to and with `stop`, as far as they are here."""
        block, last = self._recording["events"], self.total if stop is None else stop
        rows = slice(bisect_right(self._sequences, after), bisect_right(self._sequences, last))
        return EventBlock(
            first=after + 1,
            sequence=self._sequences[rows],
            origin_us=block["origin_us"],
            names=block["names"],
            time=block["time"][rows],
            type=block["type"][rows],
            path=block["path"][rows],
            step=block["step"][rows],
            text=block["text"][rows],
        )

    def said_at(self, sequence: int) -> tuple[int, list[ConversationPart]]:
        """Return what the model asked last was sent and had answered by then, after the event that asked it.

        Raises `IndexError` where the notebook does not hold it.
        """
        spans, until = self._recording["spans"], self.state_at(sequence)["sequence"]
        kinds = [spans["names"][place] for place in spans["type"]]
        begun = [row for row, kind in enumerate(kinds) if kind in MODEL_CALLS and spans["sequence"][row] <= until]
        if not begun:
            return 0, []
        row = max(begun, key=lambda row: spans["sequence"][row])
        asked, request = spans["sequence"][row], spans["id"][row]
        said = next(
            (one for one in self._recording["conversations"] if any(r["id"] == request for r in one["requests"])), None
        )
        if said is None:
            raise IndexError(f"what was said with event {asked:,} is not among what the notebook holds of this run")
        ended = [number for number in self._recording["members"][row][1:] if number <= sequence]
        return asked, said_up_to(said, request, is_answered=bool(ended))

    def welcome(self, view: str) -> Welcome:
        """Return what the timeline and the graph beside a replay show of it."""
        recording = self._recording
        return Welcome(
            type="welcome",
            view=view,
            since=0,
            last=self.total,
            origin_us=recording["events"]["origin_us"],
            total=recording["total"],
            spans=recording["spans"],
            header=recording["header"],
            failures=recording["failures"],
            questions=recording["questions"],
            graph=recording["graph"],
            streamed=[],
        )

    def _row(self, sequence: int) -> int:
        row = bisect_left(self._sequences, sequence)
        if row < len(self._sequences) and self._sequences[row] == sequence:
            return row
        where = f"; its log was in {self._store}" if self._store else ""
        held = f"{len(self._sequences):,} events of this run that the notebook holds"
        raise IndexError(f"event {sequence:,} is none of the {held}{where}")

    def state_at(self, sequence: int) -> StateView:
        """Return the state after an event that is here, or before the first one. Raises `IndexError`."""
        is_before = bool(self._sequences) and sequence == self._sequences[0] - 1
        count = 0 if is_before else self._row(sequence) + 1
        return view_of_cells(sequence, applied(self._base, self._changes[:count]))


def _taken_apart(view: StateView) -> dict[Cell, Any]:
    cells: dict[Cell, Any] = {
        ("status", ""): view["status"],
        ("error", ""): view["error"],
        ("usage", ""): view["usage"],
    }
    tables = {"inputs": view["inputs"], "outputs": view["outputs"], "variables": view["variables"]}
    cells |= {(table, name): value for table, values in tables.items() for name, value in values.items()}
    cells |= {("paths", path["id"]): path for path in view["paths"]}
    return cells | {("pending", asked["interrupt_id"]): asked for asked in view["pending"]}
