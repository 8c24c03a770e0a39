"""Run All after a restart: the same cell finds the execution it began, and nothing that is done is done again.

An execution that a cell begins keeps which cell that was (``identity.cell``): notebook and cell as far as the front end
names them, a digest of the cell's text, and which of the runs of that cell it is. The same cell with the same workflow
and inputs gets it back: shown if it has completed, resumed if it has not. Where the definition or the inputs have
changed, one that has ended is left alone and a new one begins; for one that has not, a person must say what to do.
Where functions have changed, `divebook.notebook.reattach` says what follows.

Front ends that run notebooks for programs name neither notebook nor cell. A run is then taken for the cell's own only
if definition, inputs and functions are the same, and the note says whose it is (`tests/notebook/test_edits.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from IPython.core.error import UsageError

from divebook.engine.lifecycle import TERMINAL
from divebook.environment.environment import Environment
from divebook.environment.settings import CELL, StartOptions
from divebook.errors import CodeChangedError, DivebookError, ExecutionError, StoreError
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, ExecutionStarted
from divebook.events.codec import canonical_hash, storable
from divebook.notebook.frontend import FrontEnd
from divebook.runtime.forks import calls_in, epochs_of, first_reached, recorded_opening
from divebook.steps.changed_functions import ChangedFunction, changed_since
from divebook.store import ExecutionRecord
from divebook.text.format import plural
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import bind_inputs

if TYPE_CHECKING:
    from divebook.config.answers import Answers
    from divebook.notebook.run import Run
    from divebook.replay.resume_changed import ResumePlan
    from divebook.runtime.execution import Execution


MOST_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class CellPlace:
    """A run in a cell: the cell, and which of the runs that it makes of one workflow this is."""

    cell: Mapping[str, str]
    ordinal: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as the log keeps it."""
        return {**self.cell, "ordinal": self.ordinal}

    @property
    def shared(self) -> dict[str, Any]:
        """What is the same in all kernels that run this cell."""
        return {name: value for name, value in self.to_dict().items() if name != "kernel"}

    @property
    def name(self) -> str:
        """The cell, by its id or else by its text, and which of its runs this is."""
        return f"{self.cell.get('cell') or self.cell['source']}/{self.ordinal}"

    @property
    def said(self) -> StartOptions:
        """What a run that begins here says of that, as options of `Environment.start`."""
        return {"identity": {CELL: self.to_dict()}, "cell": self.name, "notebook": self.cell["notebook"] or None}

    def is_that_of(self, kept: Mapping[str, Any]) -> bool:
        """Return whether an earlier run was begun here; what a front end does not name is not compared."""
        if kept.get("ordinal") != self.ordinal:
            return False
        if not _agree(kept.get("notebook"), self.cell["notebook"]) and not self._was_renamed_since(kept):
            return False
        names = kept.get("cell"), self.cell["cell"]
        return names[0] == names[1] if all(names) else bool(kept.get("source") == self.cell["source"])

    def is_surely_that_of(self, kept: Mapping[str, Any]) -> bool:
        """Return whether the notebook is known to be the same: by its name, or since one kernel runs one notebook."""
        is_named = any(kept.get(key) and kept[key] == self.cell.get(key) for key in ("notebook", "kernel"))
        return is_named or self._was_renamed_since(kept)

    def _was_renamed_since(self, kept: Mapping[str, Any]) -> bool:
        """Whether the notebook of an earlier run is no more where it was, and this cell bears the id of its cell.

        A copy bears it as well, but of a copy the first one is still there.
        """
        old = str(kept.get("notebook") or "")
        cell = kept.get("cell")
        return bool(cell) and cell == self.cell["cell"] and Path(old).is_absolute() and not Path(old).exists()


def _agree(one: str | None, other: str | None) -> bool:
    return not (one and other) or one == other


class Ordinals:
    """Counts the runs of one workflow within one execution of a cell, so that a loop makes several."""

    def __init__(self) -> None:
        self._count = -1
        self._runs = dict[str, int]()

    def next(self, front_end: FrontEnd, workflow: str) -> CellPlace | None:
        """Return the place of a run that begins now; None where the front end names no cell."""
        if front_end.cell is None:
            return None
        if front_end.count != self._count:
            self._count = front_end.count
            self._runs = {}
        self._runs[workflow] = self._runs.get(workflow, 0) + 1
        return CellPlace(front_end.cell, self._runs[workflow])


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """The run that a cell began before."""

    record: ExecutionRecord
    changed: tuple[str, ...]
    """What differs now: ``definition``, ``inputs``."""
    begun_by: str | None = None
    """The notebook that began it, where that need not be this one; empty if it is not known."""
    is_rolled_back: bool = False
    """Whether what it had done is undone, so that it cannot go on."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.record.status in TERMINAL

    @property
    def is_done_with(self) -> bool:
        """Whether its cell begins another one."""
        return self.is_rolled_back or (bool(self.changed) and self.is_over)


def earlier_run(
    environment: Environment, workflow: Workflow, inputs: Mapping[str, Any], place: CellPlace
) -> PreviousRun | None:
    """Return the newest execution of the workflow that was begun at a place."""
    for record in environment.executions(workflow=workflow.name, limit=MOST_LOOKED_AT):
        opening = _opening(environment, record)
        kept = (opening.identity or {}).get(CELL) if opening is not None else None
        if opening is None or not isinstance(kept, Mapping) or not place.is_that_of(kept):
            continue
        changed = _changes(opening, workflow, inputs)
        undone = record.status in (FAILED, CANCELLED) and environment.execution(record.execution_id).state.is_final
        if place.is_surely_that_of(kept):
            return PreviousRun(record, changed, is_rolled_back=undone)
        if not changed and dict(opening.code or {}) == environment.code_of(workflow):
            return PreviousRun(record, changed, str(kept.get("notebook") or ""), undone)
    return None


def start_key(
    environment: Environment,
    workflow: Workflow,
    inputs: Mapping[str, Any],
    place: CellPlace,
    earlier: PreviousRun | None,
) -> str:
    """Return what is unique to the next run that a cell begins: two kernels, or two clicks, that begin it are one.

    The run before it belongs to it, so that a cell can begin one after another.
    """
    bound = storable(bind_inputs(workflow, inputs), "inputs")
    after = None if earlier is None else earlier.record.execution_id
    told = {"place": place.shared, "workflow": workflow.name, "definition": workflow.fingerprint, "after": after}
    told |= {"code": environment.code_of(workflow), "inputs": dict(bound)}
    return f"cell {canonical_hash(told, 'start key')}"


def _opening(environment: Environment, record: ExecutionRecord) -> ExecutionStarted | None:
    try:
        return recorded_opening(record.execution_id, environment.store)
    except StoreError:  # a damaged log is none to go on with
        return None


def _changes(opening: ExecutionStarted, workflow: Workflow, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    bound = storable(bind_inputs(workflow, inputs), "inputs")
    changed = [] if opening.fingerprint == workflow.fingerprint else ["definition"]
    if canonical_hash(dict(opening.inputs), "inputs") != canonical_hash(dict(bound), "inputs"):
        changed.append("inputs")
    return tuple(changed)


def note_of(execution: Execution, earlier: PreviousRun) -> str:
    """Return what is said beside a run that is shown and was not run again."""
    from divebook.text.format import local_time

    ended = f" at {local_time(execution.ended_at)}" if execution.ended_at else ""
    run = "this cell's run" if earlier.begun_by is None else whose(earlier)
    return f"{run} had completed{ended}, and was not run again; --new runs it anew"


def whose(earlier: PreviousRun) -> str:
    """Return what a run is called in a note: the cell's own, or that of an equal cell, perhaps of another notebook."""
    if earlier.begun_by is None:
        return f"this cell's run {earlier.record.execution_id}"
    notebook = earlier.begun_by or "a notebook that this front end does not name"
    return f"the run {earlier.record.execution_id} of an equal cell, with equal inputs and code, in {notebook},"


def elsewhere_note(execution_id: str) -> str:
    """Return what is said beside a run that another process drives."""
    return f"this cell's run {execution_id} goes on in another process, and is not run twice: %dive show {execution_id}"


def changed_meanwhile(earlier: PreviousRun) -> ExecutionError:
    """Return what is wrong where the run that a cell began has not ended, and is not what the cell says any more."""
    execution_id = earlier.record.execution_id
    changed = " and ".join(earlier.changed)
    mended = f"%dive resume {execution_id} --definition new goes on with the new one; " * (changed == "definition")
    return ExecutionError(
        f"this cell's last run {execution_id} is {earlier.record.status}, and its {changed} changed since. "
        f"%dive resume {execution_id} goes on with it as it was; {mended}--new starts a new run"
    )


# Functions that were edited since a cell's run: what of the run is still what they would do, and what to offer.
#
# A run that called what has changed is not shown as the result of the cell. It is forked before the first call that the
# change can reach, and goes on from there as a run of its own; the old one stays as it is.


WhenEdited: TypeAlias = Literal["ask", "again", "keep", "reuse"]
"""What to do about it: let a person say, run again from the first call that it reaches, keep the old run, or,
where the definition was edited, reuse all that it would do as before."""
AGAIN: Final = "again"
KEEP: Final = "keep"
REUSE: Final = "reuse"
CHOICES = (AGAIN, KEEP, REUSE)


@dataclass(frozen=True, slots=True)
class ChangedFunctions:
    """What was edited of a run's functions, and what of the run that reaches."""

    execution_id: str
    functions: tuple[ChangedFunction, ...]
    until: int
    """How many events of the run hold for the functions of now; 0 if it is not worth while to fork it."""
    calls: int
    """How many calls have completed in them."""
    done: int
    """How many calls have completed in all."""
    has_completed: bool
    """Whether there is nothing to go on with."""

    def offer(self, begin: Callable[[str], Run]) -> CodeChangedError:
        """Return what is wrong where a person must choose."""
        anew = plural(self.done - self.calls, "completed call")
        part = f"from the first call that this can reach, and reuses {self._calls}" if self.until else "from its start"
        kept = plural(self.done, "completed call")
        keeping = "shows the old one as it is" if self.has_completed else f"goes on with the old one, with its {kept}"
        told = f"{self._changed} since this cell's run {self.execution_id}, which is not shown as its result."
        ways = {AGAIN: f"runs it {part}; {anew} made anew", KEEP: f"{keeping}, and asks no more until the next edit"}
        return CodeChangedError(told, ways, begin)

    def note(self, new: str) -> str:
        """Return what is said beside the run that takes its place."""
        reused = f"reuses its first {self._calls}, and goes on with the present code" if self.until else "is a new run"
        return (
            f"{self._changed} since this cell's run {self.execution_id}; {new} {reused}. To see the old one: "
            f"%dive show {self.execution_id}; to keep it as the result of this cell: --changed keep"
        )

    @property
    def _calls(self) -> str:
        return plural(self.calls, "call")

    @property
    def _changed(self) -> str:
        return ", ".join(f"{found.label} {_BECAME[found.change]}" for found in self.functions)


def said_of_edits(word: str | None) -> WhenEdited | None:
    """Return what ``--changed`` says; UsageError if that is nothing that can be done."""
    if word is not None and word not in CHOICES:
        raise UsageError(f"--changed cannot be {word!r}; one of {', '.join(CHOICES)}")
    return cast("WhenEdited | None", word)


_BECAME = {"changed": "changed", "new": "is new", "gone": "is gone"}


def edit_of(environment: Environment, execution: Execution) -> ChangedFunctions | None:
    """Return what was edited since a run and reaches what it has done; None if nothing does."""
    events = execution.history()
    name = execution.state.workflow_name
    changed = {epoch.begins: changed_since(epoch.code, name, environment) for epoch in epochs_of(events)}
    functions = tuple({found.label: found for functions in changed.values() for found in functions}.values())
    done = calls_in(events)
    has_completed = execution.status == COMPLETED
    if any(found.by_workflow for found in [*changed.values()][-1]):
        return ChangedFunctions(execution.id, functions, 0, 0, done, has_completed)
    reached = first_reached(events, lambda epoch: {to for found in changed[epoch.begins] for to in found.reaches})
    if reached is None:
        return None
    until = reached - 1
    calls = calls_in(events[:until])
    return ChangedFunctions(execution.id, functions, until if calls else 0, calls, done, has_completed)


# A definition that was edited since a cell's run: what of that run it would do again, and what is offered.
#
# A new run stays what comes without a choice, and the cell waits for nobody long: Run All comes to its end. Where
# nothing would be saved, nothing is asked (`tests/notebook/test_redefined.py`).


@dataclass(frozen=True, slots=True)
class ChangedDefinition:
    """What a cell's run and its edited definition have in common."""

    plan: ResumePlan
    has_ended: bool
    """Whether that run has; one that has not is not cancelled without being asked for."""

    def offer(self, begin: Callable[[str], Run]) -> CodeChangedError:
        """Return what a person may choose; without a choice all of it is run."""
        told = f"The definition of {self.plan.workflow!r} changed since this cell's run {self.plan.source}."
        ways = {REUSE: str(self.plan), AGAIN: "runs all of it, as a new run"}
        return CodeChangedError(told, ways, begin, AGAIN if self.has_ended else None)

    @property
    def advice(self) -> str:
        """What is said beside a new run."""
        return (
            f"the definition changed since this cell's run {self.plan.source}, so that this is a new run; "
            f"--changed {REUSE} would have gone on with it: {self.plan}"
        )

    def run_again(self, environment: Environment, answers: Answers | None, options: StartOptions) -> Run:
        """Begin a run that goes on with what still holds."""
        from divebook.notebook.run import Run

        run = Run(environment.run_again(self.plan.source, **options), environment, answers)
        run.remark = self.note(run.id)
        return run

    def note(self, new: str) -> str:
        """Return what is said beside the run that takes its place."""
        return (
            f"the definition changed since this cell's run {self.plan.source}; {new} goes on from event {self.plan.at} "
            f"of it: {self.plan}. To run all of it: --new"
        )


def redefined(environment: Environment, workflow: Workflow, earlier: PreviousRun | None) -> ChangedDefinition | None:
    """Return what is to be offered; None where the inputs changed as well, or nothing would be saved."""
    now = environment.workflows.get(workflow.name)
    if earlier is None or earlier.changed != ("definition",) or now is None or now.fingerprint != workflow.fingerprint:
        return None
    try:
        plan = environment.run_again(earlier.record.execution_id, plan=True)
    except DivebookError:  # it is driven elsewhere, damaged, or needs what is not here: no run to go on with
        return None
    return ChangedDefinition(plan, earlier.is_over) if plan.saves else None
