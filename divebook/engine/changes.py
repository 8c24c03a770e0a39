"""A state on its way over some events, and what the functions that change it share."""

from __future__ import annotations

from collections.abc import Sequence

from immutables import Map

from divebook.engine.checkpoint import moved
from divebook.engine.operations import CHILD_WORKFLOW, ENCLOSING, SIGNAL_WAIT, TIMER, Reserved
from divebook.engine.state import (
    BRANCHED,
    EMPTY,
    ENDED,
    JOINED,
    JOINING,
    NO_PLACES,
    ExecutionState,
    HeldWorkspace,
    Ledger,
    OpenStep,
    OperationRecord,
    PathState,
)
from divebook.errors import CorruptStoreError
from divebook.events import catalog
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, RUNNING, PathCompleted, Payload, StepCompleted
from divebook.events.event import Event, Record

SLEEPS = frozenset({TIMER, SIGNAL_WAIT, CHILD_WORKFLOW})
"""Operations in which nothing happens."""

_ENDS_OF_STEPS = frozenset({StepCompleted, PathCompleted})

_new = object.__new__
_set = object.__setattr__


class _Own(PathState):
    """A path that a draft has copied, and may change."""

    # Both of them: with one alone Python looks for them at each assignment, which takes eight times as long.
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


class Draft(ExecutionState):
    """A state on its way over several events: what was copied for one of them is changed in place by the next.

    Nobody else has it, nor the paths that it has copied, before it is `sealed`
    (test_events_that_are_folded_together_change_the_state_as_one_by_one). A function that changes it asks first for all
    that it needs to know of it, and changes it then.
    """

    __slots__ = ("_facts", "_own", "_present", "moment", "path_id", "step")
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__

    _facts: Sequence[Payload]
    _own: dict[str, PathState]
    """The paths that it has copied, by id."""
    _present: PathState | None
    """The one of them that the present event is on."""
    moment: int
    """When the present event was recorded; `last_us` is when the one before was."""
    path_id: str
    step: str
    """Where the present event is."""

    def __init__(self, state: ExecutionState) -> None:
        self.__dict__ = state.__dict__.copy()
        self._own = {}
        self._present = None
        self.path_id = ""

    def go_to(self, entry: Event | Record, facts: Sequence[Payload]) -> None:
        """Come to facts that were recorded together."""
        self.step = entry.step
        self.moment = entry.recorded_at
        self._facts = facts
        if entry.path != self.path_id:
            self.path_id = entry.path
            self._present = self._own.get(entry.path)

    @property
    def ends_step(self) -> bool:
        """Whether the step that is open is over once the present facts are folded: nobody asks what is in it then."""
        return type(self._facts[-1]) in _ENDS_OF_STEPS

    def path(self, data: Payload) -> PathState:
        """Return the path that the present event is on, to be changed."""
        path = self._present
        if path is None:
            if self.path_id not in self.paths:
                raise CorruptStoreError(f"{self._event(data)} is on path {self.path_id!r}, which never began")
            path = self._present = self.own(self.path_id)
        return path

    def open_step(self, data: Payload) -> tuple[PathState, OpenStep]:
        """Return the path that the present event is on, to be changed, and the open step that it is in."""
        path = self._present or self.path(data)
        opened = path.open
        if opened is None:
            raise CorruptStoreError(f"{self._event(data)} is outside any step of path {self.path_id!r}")
        return path, opened

    def _event(self, data: Payload) -> str:
        return f"event {self.last_sequence} ({data.event_type}) of {self.execution_id}"

    def own(self, path_id: str) -> PathState:
        """Return a path, to be changed; KeyError if there is none."""
        path = self._own.get(path_id)
        if path is None:
            path = self._own[path_id] = _new(_Own)
            path.__dict__ = self.paths[path_id].__dict__.copy()
            self.paths = self.paths.set(path_id, path)
        return path

    def add(self, path: PathState) -> None:
        """Take in a path, in place of the one with its id if there is one."""
        self._own.pop(path.id, None)
        self._present = None
        self.paths = self.paths.set(path.id, path)

    def sealed(self) -> ExecutionState:
        """Return the state it has come to; the draft must not be used any more."""
        for path in self._own.values():
            _set(path, "__class__", PathState)
        state = _new(ExecutionState)
        _set(state, "__dict__", self.__dict__)
        return state


def is_sleeping(path: PathState) -> bool:
    """Return whether a path waits for time to pass, or for a signal."""
    return path.open is not None and sleeps(path.open)


def sleeps(opened: OpenStep) -> bool:
    """Return whether an operation in which nothing happens runs in a step."""
    records = opened.operations.values()
    return any(record.operation_type in SLEEPS and record.status == RUNNING for record in records)


# How paths begin, split up, meet and end.


def path_started(draft: Draft, data: catalog.PathStarted) -> None:
    """Begin a path: the first one, one that another has branched into, or one that undoes what others have done."""
    if draft.path_id not in draft.paths:
        undoes = data.rollback
        number = 0 if undoes is None else draft.branches + len(draft.rollbacks) - undoes + 1
        draft.add(PathState(draft.path_id, number=number, current_step=data.current_step, undoes=undoes))
        draft.active += 1
        draft.undone_from = draft.undone_from if undoes is None else undoes
    path = draft.path(data)
    path.status = RUNNING
    path.started_us = draft.moment


def path_branched(draft: Draft, data: catalog.PathBranched) -> None:
    """Split a path up; its children know what it has been through."""
    parent = draft.path(data)
    entered = Map({step: parent.entries(step) for step in {*parent.visits, *parent.before}})
    for number, new_path in enumerate(data.new_paths, draft.branches + 1):
        child = PathState(
            new_path["id"],
            number=number,
            current_step=new_path["current_step"],
            parent=parent.id,
            came_from=parent.current_step,
            before=entered,
            repeats=parent.repeats,
        )
        draft.add(child)
    count = len(data.new_paths)
    parent.phase = BRANCHED
    parent.children = parent.children + count
    draft.branches = draft.branches + count
    draft.active = draft.active + count


def path_waiting(draft: Draft, data: catalog.PathWaiting) -> None:
    """Let a path wait at a join."""
    path = draft.path(data)
    path.phase = JOINING
    path.current_step = data.join_step
    path.routing = ()
    draft.joining += 1


def path_joined(draft: Draft, data: catalog.PathJoined) -> None:
    """Let a path go on with what those that it waited for put out."""
    path = draft.path(data)
    outputs = path.step_outputs
    places = path.outputs_at
    for other in map(draft.paths.__getitem__, data.joined):
        outputs = outputs.update(other.step_outputs)
        places = moved(places, other.outputs_at, other.step_outputs)
    path.phase = JOINED
    path.step_outputs = outputs
    path.outputs_at = places
    path.variables = draft.variables
    path.variables_at = draft.variables_at
    draft.joining -= 1


def _end(draft: Draft, data: Payload, status: str, error: str | None = None) -> PathState:
    """End a path, and return it."""
    path = draft.path(data)
    draft.ledger = _without(draft, path, error or status)
    draft.active -= 1
    draft.joining -= path.phase == JOINING
    draft.sleeping -= is_sleeping(path)
    draft.asking -= path.asking > 0
    path.left = path.phase
    path.phase = ENDED
    path.status = status
    path.error = error
    path.ended_us = draft.moment
    path.hop = None
    path.open = _letting_go(path.open)
    return path


def _without(draft: Draft, path: PathState, why: str) -> Ledger:
    """Return the ledger once a path has ended: it holds nothing back any more, and is in no agent step."""
    ledger = draft.ledger
    if path.hop is not None:
        ledger = ledger.with_hop(path.hop, status="error", error=why, ended_us=draft.moment)
    for record in path.open.operations.values() if path.open is not None else ():
        ledger = ledger.holding(record.reserved, -1)
    return ledger


def let_calls_go(draft: Draft, path: PathState) -> None:
    """Release what the model calls of an open step have reserved, since none of them is under way.

    The process that made them has ended, or their step has, whose code had cancelled them: they have no end in the log
    (test_a_call_that_was_cut_off_gives_its_reservation_back).
    """
    ledger = draft.ledger
    if path.open is None or not (ledger.reserved_tokens or ledger.reserved_cost):
        return
    for record in filter(_lets_go, path.open.operations.values()):
        ledger = ledger.holding(record.reserved, -1)
    draft.ledger, path.open = ledger, _letting_go(path.open)


def held_by_children(state: ExecutionState) -> Reserved:
    """Return what the executions hold that an execution has started: all that is held while it calls no model."""
    opened = [path.open for path in state.paths.values() if path.open is not None and path.phase != ENDED]
    held = Reserved()
    for record in (record for step in opened for record in step.operations.values()):
        held = held.plus(_handed_on(record))
    return held


def _letting_go(opened: OpenStep | None) -> OpenStep | None:
    """Return a step whose calls hold nothing of the bounds any more, but for children, which may go on with it."""
    if opened is None or not any(map(_lets_go, opened.operations.values())):
        return opened
    records = {key: record._replace(reserved=None) for key, record in opened.operations.items() if _lets_go(record)}
    return opened._replace(operations=opened.operations.update(records))


def _lets_go(record: OperationRecord) -> bool:
    return record.reserved is not None and not _handed_on(record)


def _handed_on(record: OperationRecord) -> Reserved | None:
    """Return what an execution holds that this one started, or one that was under way as that one ended."""
    return record.reserved if record.operation_type == CHILD_WORKFLOW else None


def with_handed_on(path: PathState, ledger: Ledger) -> Ledger:
    """Return the ledger of a path that had ended with what its children hold: what they spent is not counted yet."""
    records = path.open.operations.values() if path.phase == ENDED and path.open is not None else ()
    for record in records:
        ledger = ledger.holding(_handed_on(record))
    return ledger


def held_by(state: ExecutionState) -> Reserved:
    """Return what an execution that has ended holds if it is resumed."""
    ledger = state.ledger
    for path in state.paths.values():
        ledger = with_handed_on(path, ledger)
    return Reserved(ledger.reserved_tokens, ledger.reserved_cost, calls=ledger.reserved_calls)


def path_completed(draft: Draft, data: catalog.PathCompleted) -> None:
    """End a path in good order."""
    path = _end(draft, data, COMPLETED)
    path.current_step = data.final_step
    path.open = None
    path.variables = EMPTY
    path.variables_at = NO_PLACES


def path_failed(draft: Draft, data: catalog.PathFailed) -> None:
    """End a path that has failed; the first one is remembered."""
    path = _end(draft, data, FAILED, data.error)
    path.reason = data.reason
    if path.undoes is None:
        draft.failed_path = draft.failed_path or path.id


def path_cancelled(draft: Draft, data: catalog.PathCancelled) -> None:
    """End a path that was stopped."""
    _end(draft, data, CANCELLED, data.reason or None)


# How what happens to the files of workspaces changes the state.


def workspace_opened(draft: Draft, data: catalog.WorkspaceOpened) -> None:
    """Note where a workspace is, and the files that it has at first.

    A fork that makes a place of its own goes on from the files of its source: what it has changed is counted from
    where that began.
    """
    known = draft.workspaces.get(data.workspace)
    first = data.tree if known is None else known.first
    at = draft.last_sequence if data.files is not None or known is None else known.at
    held = HeldWorkspace(data.kind, data.reference, data.source, first, data.tree, at, is_own=bool(data.reference))
    draft.workspaces = draft.workspaces.set(data.workspace, held)


def files_changed(draft: Draft, data: catalog.FilesChanged) -> None:
    """Note which files a workspace has now."""
    known = draft.workspaces.get(data.workspace)
    if known is not None:
        draft.workspaces = draft.workspaces.set(data.workspace, known._replace(tree=data.after, at=draft.last_sequence))


def of_the_source(workspaces: Map[str, HeldWorkspace]) -> Map[str, HeldWorkspace]:
    """Return the workspaces of a source as its fork has them: their files, and no place of its own."""
    for name, held in workspaces.items():
        workspaces = workspaces.set(name, held._replace(is_own=False))
    return workspaces


# Operations that others hold: a turn of an agent holds its requests and calls, and lets go of them when it completes.
#
# Replay takes the result of a turn that has completed and asks for nothing inside it, so that a state need not keep
# that, nor would the log be ahead of the code for ever because of it.


def held_of(
    opened: OpenStep, record: OperationRecord, data: catalog.OperationStarted
) -> tuple[OperationRecord, OpenStep]:
    """Return an operation that begins with what its event says of its place among others, and the step around it."""
    earlier = opened.operations.get(record.operation_id)
    if record.operation_type in ENCLOSING:
        opened = _holding(opened, record, earlier)
    outer = opened.operations.get(opened.holders.get(data.within, "")) if data.within is not None else None
    record = record._replace(
        setting_hash=data.setting_hash,
        within=None if outer is None else outer.operation_id,
        holds=() if earlier is None else earlier.holds,
    )
    if outer is not None and earlier is None:
        opened = opened.with_operation(outer._replace(holds=(*outer.holds, record.operation_id)))
    return record, opened


def _holding(opened: OpenStep, record: OperationRecord, earlier: OperationRecord | None) -> OpenStep:
    """Return a step in which others may begin within an operation, which perhaps begins once more."""
    holders = opened.holders if earlier is None else opened.holders.delete(earlier.started_sequence)
    return opened._replace(holders=holders.set(record.started_sequence, record.operation_id))


def without_held(opened: OpenStep, outer: OperationRecord) -> OpenStep:
    """Return a step without what an operation has held; what of it is still under way stays until it has ended."""
    operations = opened.operations
    holders = opened.holders.delete(outer.started_sequence)
    left = list(outer.holds)
    while left:
        record = operations.get(left.pop())
        if record is not None and record.status != RUNNING:
            left += record.holds
            operations = operations.delete(record.operation_id)
            if record.started_sequence in holders:
                holders = holders.delete(record.started_sequence)
    return opened._replace(operations=operations, holders=holders)
