"""What a sound log looks like, event by event: one beginning, one end, and nothing that ends before it began.

`divebook check` and the simulator hold logs against it. The rules beyond beginning and end are those of logs that this
engine wrote, which carry a definition; logs of other programs may lack what they ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL, may_follow
from divebook.engine.operations import ENCLOSING
from divebook.events import catalog
from divebook.events.event import Event

_PATH_ENDS = (catalog.PathCompleted, catalog.PathFailed, catalog.PathCancelled)


def violations(events: Iterable[Event]) -> Iterator[tuple[int, str]]:
    """Give the sequence number of each event that has no place where it stands, and why."""
    reader = _Reader()
    for event in events:
        for text in reader.take(event):
            yield event.sequence, f"event {event.sequence} ({event.event_type}): {text}"


class _Reader:
    """What has begun and not ended yet."""

    def __init__(self) -> None:
        self.status = catalog.PENDING
        self.is_ours = False
        self.paths: dict[str, bool] = {}
        """Whether each path goes on."""
        self.operations: dict[str, bool] = {}
        """Whether each operation is under way."""
        self.holders: set[str] = set()
        """The operations that hold others."""
        self.begun_at: dict[int, str] = {}
        """The operations by the events with which they began."""
        self.sequence = 0
        self.questions: dict[str, bool] = {}
        """Whether each question is open."""

    def take(self, event: Event) -> Iterator[str]:
        """Take an event in; give what is wrong with it."""
        kind, self.sequence = type(event.data), event.sequence
        if not may_follow(self.status, kind):
            yield f"it may not follow the status {self.status}"
        self.status = STATUS_AFTER.get(kind, self.status)
        if isinstance(event.data, catalog.ExecutionStarted):
            self.is_ours = event.data.definition is not None
        if not self.is_ours:
            return
        if event.path:
            yield from self._on_path(event)
        rule = _RULES.get(kind)
        if rule is not None:
            yield from rule(self, event.data)

    def _on_path(self, event: Event) -> Iterator[str]:
        if isinstance(event.data, catalog.PathStarted):
            self.paths[event.path] = True
        elif event.path not in self.paths:
            yield f"path {event.path} has not begun"
        elif not self.paths[event.path] and self.status not in TERMINAL:
            yield f"path {event.path} has ended"
        if isinstance(event.data, _PATH_ENDS):
            self.paths[event.path] = False

    def branched(self, data: catalog.PathBranched) -> Iterator[str]:
        """Note new paths."""
        for new in data.new_paths:
            if new["id"] in self.paths:
                yield f"path {new['id']} begins a second time"
            self.paths[new["id"]] = True

    def resumed(self, _data: catalog.ExecutionResumed) -> Iterator[str]:
        """Let failed and cancelled paths go on."""
        self.paths = dict.fromkeys(self.paths, True)
        return iter(())

    def forked(self, data: catalog.ExecutionForked) -> Iterator[str]:
        """Drop what was in flight in the source."""
        if self.sequence <= data.at:
            yield f"it claims to come after event {data.at}"
        self.operations = {known: under_way and known in self.holders for known, under_way in self.operations.items()}
        self.questions = dict.fromkeys(self.questions, False)

    def begun(self, data: catalog.OperationStarted) -> Iterator[str]:
        """Note that an operation is under way, perhaps once more."""
        if data.within is not None and not self.operations.get(self.begun_at.get(data.within, "")):
            yield f"call {data.operation_id} begins within that of event {data.within}, which is not under way"
        self.operations[data.operation_id] = True
        if data.operation_type in ENCLOSING:
            self.holders.add(data.operation_id)
        self.begun_at[self.sequence] = data.operation_id

    def ended(self, data: catalog.OperationCompleted | catalog.OperationFailed) -> Iterator[str]:
        """Note that an operation has ended."""
        if not self.operations.get(data.operation_id):
            yield f"call {data.operation_id} ends without having begun"
        # Of a call whose result was lost a person may say later what it was.
        self.operations[data.operation_id] = isinstance(data, catalog.OperationFailed) and data.lost is not None

    def asked(self, data: catalog.InterruptRaised) -> Iterator[str]:
        """Note a question."""
        if self.questions.get(data.interrupt_id):
            yield f"question {data.interrupt_id} is open already"
        self.questions[data.interrupt_id] = True

    def settled(self, data: catalog.InterruptResolved | catalog.InterruptExpired) -> Iterator[str]:
        """Note an answer."""
        if not self.questions.get(data.interrupt_id):
            seen = data.interrupt_id in self.questions
            yield f"question {data.interrupt_id} {'is settled already' if seen else 'was never asked'}"
        self.questions[data.interrupt_id] = False

    def joined(self, data: catalog.InterruptJoined) -> Iterator[str]:
        """Make sure that another path's question is there."""
        if data.interrupt_id not in self.questions:
            yield f"question {data.interrupt_id} was never asked"


_RULES: dict[type[catalog.Payload], Callable[[_Reader, Any], Iterator[str]]] = {
    catalog.PathBranched: _Reader.branched,
    catalog.ExecutionForked: _Reader.forked,
    catalog.ExecutionResumed: _Reader.resumed,
    catalog.OperationStarted: _Reader.begun,
    catalog.OperationCompleted: _Reader.ended,
    catalog.OperationFailed: _Reader.ended,
    catalog.InterruptRaised: _Reader.asked,
    catalog.InterruptResolved: _Reader.settled,
    catalog.InterruptExpired: _Reader.settled,
    catalog.InterruptJoined: _Reader.joined,
}
