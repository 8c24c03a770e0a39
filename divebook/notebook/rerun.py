"""Repeated execution of a cell: find the run that the cell started before, so that Run All repeats no completed call.

When a cell starts an execution, the log records the identity of the cell (``identity.cell``, `CellPlace`): the notebook
and the cell id as far as the front end provides them, a digest of the cell's text, and a number, because a loop can
start several runs in one cell. If the same cell runs again with the same workflow and inputs, `earlier_run` finds this
execution. Then there are five cases:

- It has completed: the cell shows it.
- It has not completed: the cell resumes it.
- It has ended, and the definition or the inputs have changed: a new run starts. For a changed definition,
  `ChangedDefinition` offers to reuse the calls that the new definition makes too.
- It has not ended, and the definition or the inputs have changed: a person must decide (`changed_error`).
- Functions that it called have changed: `ChangedFunctions` offers to run again from the first call that is affected, or
  to keep the execution.

Front ends that run notebooks for programs provide neither the notebook nor the cell id. The earlier run is then used
only if definition, inputs and functions are equal. The note about the run contains the name of its notebook
(`tests/notebook/test_edits.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from IPython.core.error import UsageError

from divebook.definitions.definition import Workflow
from divebook.definitions.functions import BoundInputs
from divebook.engine.lifecycle import INTERRUPTED, TERMINAL
from divebook.environments.environment import Environment
from divebook.environments.starts import CELL, StartOptions
from divebook.environments.variants import Edits
from divebook.errors import CodeChangedError, DivebookError, ExecutionError, StoreError
from divebook.events.catalog import CANCELLED, CHILD, COMPLETED, FAILED, ExecutionStarted
from divebook.events.codec import canonical_hash
from divebook.notebook.shell_state import FrontEnd
from divebook.report.hints import advised, show_advice
from divebook.runtime.forks import ForkSource, calls_in, point_before, recorded_opening
from divebook.steps.function import ChangedFunction
from divebook.stores import ExecutionRecord
from divebook.text.format import plural

if TYPE_CHECKING:
    from divebook.config.answers import Answers
    from divebook.replay.resume_changed import ResumePlan
    from divebook.runtime.run import Run


MAX_CANDIDATES = 200
"""Number of the newest executions of a workflow that are searched for the earlier run of a cell."""


@dataclass(frozen=True, slots=True)
class CellPlace:
    """Identity of a run within a notebook. It consists of the cell that starts the run and a number. The number is
    needed because one execution of a cell, for example a loop, can start several runs of the same workflow.
    """

    cell: Mapping[str, str]
    """The keys ``cell``, ``notebook``, ``kernel`` and ``source`` (`divebook.notebook.shell_state.FrontEnd.cell`)."""
    ordinal: int

    def to_dict(self) -> dict[str, Any]:
        """Return the identity of the run as plain data, which its log records."""
        return {**self.cell, "ordinal": self.ordinal}

    @property
    def shared(self) -> dict[str, Any]:
        """The identity of the run without the id of the kernel. Two kernels that execute the same cell compute the same
        value.
        """
        # The kernel's id would make the start keys of two kernels differ, and both would start a run.
        return {name: value for name, value in self.to_dict().items() if name != "kernel"}

    @property
    def name(self) -> str:
        """Name of the run in texts for people: the id of its cell and the number of the run in the cell, such as
        ``a1b2/1``. For a cell without an id, the digest of the cell's text is used.
        """
        # A notebook without cell ids still has texts. The digest changes with each edit of the cell.
        return f"{self.cell.get('cell') or self.cell['source']}/{self.ordinal}"

    @property
    def start_options(self) -> StartOptions:
        """Options of `Environment.start` that record in the log which cell has started the run, and as which of its
        runs. Run All finds the run again by that.
        """
        return {"identity": {CELL: self.to_dict()}, "cell": self.name, "notebook": self.cell["notebook"] or None}

    def matches(self, recorded: Mapping[str, Any]) -> bool:
        """Return whether this cell may have started an earlier run. `recorded` is the identity (cell and number) that
        the log of the earlier run contains.

        Cells are compared by id, or by text if one of both has no id. Values that a front end does not provide are
        ignored.
        """
        # The third run of a loop continues the third run of the earlier loop, and no other.
        if recorded.get("ordinal") != self.ordinal:
            return False
        old_notebook = recorded.get("notebook")
        new_notebook = self.cell["notebook"]
        # Only two known and different paths prove that the notebooks differ.
        differ = bool(old_notebook and new_notebook) and old_notebook != new_notebook
        if differ and not self._was_renamed_since(recorded):
            return False
        old_cell = recorded.get("cell")
        new_cell = self.cell["cell"]
        # The id stays the same when the text of the cell is edited, so it decides if both have one.
        if old_cell and new_cell:
            return bool(old_cell == new_cell)
        return bool(recorded.get("source") == self.cell["source"])

    def is_same_notebook(self, recorded: Mapping[str, Any]) -> bool:
        """Return whether an earlier run was certainly started in this notebook, judging by the identity (cell and
        notebook) that its log records.

        The path of the notebook or the id of the kernel is equal, or the notebook was renamed.
        """
        # A front end that provides no path still provides the kernel, which runs one notebook.
        for key in ("notebook", "kernel"):
            if recorded.get(key) and recorded[key] == self.cell.get(key):
                return True
        return self._was_renamed_since(recorded)

    def _was_renamed_since(self, recorded: Mapping[str, Any]) -> bool:
        """Return whether this notebook was renamed after it had started an earlier run.

        Then the file of the earlier run no longer exists, and the id of the cell is equal. A copy of a notebook has
        equal ids too, but the file of the original still exists.
        """
        old = str(recorded.get("notebook") or "")
        cell = recorded.get("cell")
        # An absolute path only: a relative one says nothing without the folder to which it was relative.
        return bool(cell) and cell == self.cell["cell"] and Path(old).is_absolute() and not Path(old).exists()


class Ordinals:
    """Counters of the runs that the current execution of a cell has started, one counter for each workflow. A cell can
    start several runs, for example in a loop.
    """

    def __init__(self) -> None:
        self._count = -1
        self._runs = dict[str, int]()

    def next(self, front_end: FrontEnd, workflow: str) -> CellPlace | None:
        """Count a run that the current cell starts now, and return its identity; None if the front end provides no
        cell.
        """
        if front_end.cell is None:
            return None
        # A new execution count means that the cell runs again, and its runs are counted from 1.
        if front_end.count != self._count:
            self._count = front_end.count
            self._runs = {}
        self._runs[workflow] = self._runs.get(workflow, 0) + 1
        return CellPlace(front_end.cell, self._runs[workflow])


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """The earlier run of a cell, with the differences between its definition and inputs and those of the cell now."""

    record: ExecutionRecord
    changed: tuple[str, ...]
    """The changed parts: ``definition``, ``inputs``."""
    notebook: str | None = None
    """Path of the notebook that started the run, if it may be a different notebook; empty if unknown. None for this
    notebook.
    """
    is_rolled_back: bool = False
    """True if the side effects of the run were rolled back. It cannot be resumed then."""

    @property
    def is_over(self) -> bool:
        """True if the earlier run has ended."""
        return self.record.status in TERMINAL

    @property
    def is_superseded(self) -> bool:
        """True if the cell must start a new run and cannot continue the earlier one. This is the case if the side
        effects of the earlier run were rolled back, or if it has ended and the cell has changed.
        """
        return self.is_rolled_back or (bool(self.changed) and self.is_over)


def earlier_run(
    environment: Environment, workflow: Workflow, inputs: BoundInputs, place: CellPlace
) -> PreviousRun | None:
    """Return the newest run of a workflow that an earlier execution of this cell started; None if there is none.

    If it is not certain that the notebook is the same, definition, inputs and functions must be equal.
    """
    # The newest run first. The limit bounds the search: each candidate costs one read of its opening events.
    for record in environment.store.records(workflow=workflow.name, limit=MAX_CANDIDATES):
        opening = _opening(environment, record)
        if opening is None:
            continue
        recorded = (opening.identity or {}).get(CELL)
        # Runs that were not started by a cell have no such identity.
        if not isinstance(recorded, Mapping) or not place.matches(recorded):
            continue
        changed = _changes(opening, workflow, inputs)
        # The state is read only for these statuses, because it needs the whole log.
        has_failed = record.status in (FAILED, CANCELLED)
        is_rolled_back = has_failed and environment.run_of(record.execution_id).state.is_final
        # In the same notebook a changed run is returned too, with the changes, because the caller has to react to them.
        if place.is_same_notebook(recorded):
            return PreviousRun(record, changed, is_rolled_back=is_rolled_back)
        # An equal cell in another notebook may use the run only if nothing differs, including the code of functions.
        if not changed and dict(opening.code or {}) == environment.internals.registry.code_of(workflow):
            return PreviousRun(record, changed, str(recorded.get("notebook") or ""), is_rolled_back)
    return None


def start_key(
    environment: Environment,
    workflow: Workflow,
    inputs: BoundInputs,
    place: CellPlace,
    earlier: PreviousRun | None,
) -> str:
    """Return the key by which a store recognizes the next run of a cell. If two kernels or two clicks start a run with
    the same key, only one run starts.

    The key contains the id of the earlier run, so that a cell can start one run after another.
    """
    parts = {
        "place": place.shared,
        "workflow": workflow.name,
        "definition": workflow.fingerprint,
        "after": None if earlier is None else earlier.record.execution_id,
        "code": environment.internals.registry.code_of(workflow),
        # With default values, so that ``n=1`` equals the default 1.
        "inputs": dict(inputs),
    }
    return f"cell {canonical_hash(parts, 'start key')}"


def _opening(environment: Environment, record: ExecutionRecord) -> ExecutionStarted | None:
    try:
        return recorded_opening(record.execution_id, environment.store)
    except StoreError:  # a damaged log cannot be continued
        return None


def _changes(opening: ExecutionStarted, workflow: Workflow, inputs: BoundInputs) -> tuple[str, ...]:
    """Compare the workflow and the inputs of a cell with those that its earlier run recorded at its start. Return the
    names of those that differ: ``definition``, ``inputs``, both or none.
    """
    changed = [] if opening.fingerprint == workflow.fingerprint else ["definition"]
    # The log contains the form in which inputs are stored (`storable`), so that a DataFrame and its recorded form are
    # equal.
    if canonical_hash(dict(opening.inputs), "inputs") != inputs.digest:
        changed.append("inputs")
    return tuple(changed)


def note_of(execution: Run, earlier: PreviousRun) -> str:
    """Return the note that a cell prints when it shows its completed earlier run instead of running the
    workflow again.
    """
    from divebook.text.format import local_time

    ended = f" at {local_time(execution.ended_at)}" if execution.ended_at else ""
    run = "this cell's run" if earlier.notebook is None else run_label(earlier)
    return f"{run} has completed{ended} and was not run again; --new starts a new run"


def run_label(earlier: PreviousRun) -> str:
    """Return the text that names the earlier run of a cell in notes for people.

    The name is "this cell's run", or it describes the run of an equal cell in another notebook.
    """
    if earlier.notebook is None:
        return f"this cell's run {earlier.record.execution_id}"
    notebook = earlier.notebook or "another notebook (its name is unknown)"
    return f"run {earlier.record.execution_id} of the same cell in {notebook}, with the same inputs and code,"


def elsewhere_note(execution_id: str) -> str:
    """Return the note that a cell prints instead of resuming its earlier run, because another process is already
    driving this run.
    """
    return (
        f"this cell's run {execution_id} is running in another process, so it was not started again: "
        f"{show_advice(execution_id)}"
    )


def interrupted_note(environment: Environment, workflow: Workflow, inputs: Mapping[str, Any]) -> str:
    """Return the note that a front end without cells prints before it starts a run: the newest run of the same workflow
    with equal inputs that no process continues although it can, such as an interrupted one, and the command that
    continues it. Empty if there is none.
    """
    bound_inputs = BoundInputs.of(workflow, inputs)
    for record in environment.queues.recoverable():
        # A child continues with its parent.
        is_own = record.workflow_name == workflow.name and record.origin != CHILD
        opening = _opening(environment, record) if is_own else None
        if opening is not None and not _changes(opening, workflow, bound_inputs):
            status = environment.run_of(record.execution_id).status
            standing = "was interrupted" if status == INTERRUPTED else f"is {status} and can continue"
            return (
                f"the earlier run {record.execution_id} with the same inputs {standing}. Earlier runs are continued "
                "automatically only in a notebook, so a new run was started. To continue the earlier run without "
                f"repeating its completed calls: {advised(f'resume {record.execution_id}')}"
            )
    return ""


def changed_error(earlier: PreviousRun) -> ExecutionError:
    """Return the error that a cell raises if its definition or inputs have changed while its earlier run has not ended
    yet. It names the commands that continue this run or start a new one.
    """
    execution_id = earlier.record.execution_id
    changed = " and ".join(earlier.changed)
    # `--definition new` keeps the inputs of the run, so that it does not help with changed inputs.
    with_new = ""
    if changed == "definition":
        with_new = f"To continue it with the new definition: {advised(f'resume {execution_id} --definition new')}. "
    return ExecutionError(
        f"the last run of this cell, {execution_id}, is {earlier.record.status}, but the {changed} of this cell "
        f"changed since it started. To continue that run with the old {changed}: {advised(f'resume {execution_id}')}. "
        f"{with_new}To start a new run: add --new"
    )


# --- functions that were edited since a cell's run -------------------------------------------------------------------
#
# A run that called a changed function is not shown as the result of the cell. It is forked before the first call that
# the change can affect, and the fork continues from there. The old run stays unchanged. Example: a run has called
# first(), inc() and after(), and inc() is edited. The fork shares the events of first(), and calls inc() and after().


EditPolicy: TypeAlias = Literal["ask", "again", "keep", "reuse"]
"""Reaction to an edit: ``ask`` a person, run ``again`` from the first affected call, ``keep`` the old run, or ``reuse``
all calls that an edited definition makes too.
"""
AGAIN: Final = "again"
KEEP: Final = "keep"
REUSE: Final = "reuse"
CHOICES = (AGAIN, KEEP, REUSE)


@dataclass(frozen=True, slots=True)
class ChangedFunctions:
    """Result of comparing a run's Python functions with their current code: the functions that were edited since the
    run, and how many of its calls can be reused.
    """

    execution_id: str
    functions: tuple[ChangedFunction, ...]
    until: int
    """Number of events before the first affected call, which a fork can share; 0 if no call completed in these
    events.
    """
    calls: int
    """Number of calls that completed in the first `until` events."""
    completed_calls: int
    """Number of calls that completed in the whole run."""
    has_completed: bool
    """True if the run has completed and cannot be resumed."""

    def error(self, begin: Callable[[str], Run]) -> CodeChangedError:
        """Return the error whose choices the cell shows as buttons: start a new run with the edited functions, or keep
        the earlier run.

        `begin` is called with the name of a choice and returns the run of this choice.
        """
        # Completed calls that the new run repeats.
        repeated = plural(self.completed_calls - self.calls, "completed call")
        if self.until:
            start = f"from the first call that the change can affect, and reuses {plural(self.calls, 'call')}"
        else:
            start = "from its start"
        if self.has_completed:
            keep = "shows the old run unchanged"
        else:
            keep = f"continues the old run, with its {plural(self.completed_calls, 'completed call')}"
        message = (
            f"{self._changes} since run {self.execution_id} of this cell, so that run is not shown as the result of "
            "the cell."
        )
        choices = {
            AGAIN: f"runs the workflow {start}; {repeated} repeated",
            KEEP: f"{keep}, and does not ask again until the next edit",
        }
        return CodeChangedError(message, choices, begin)

    def replacement_note(self, new_id: str) -> str:
        """Return the note that a cell prints after it has replaced its earlier run by a new run with the edited
        functions. `new_id` is the id of the new run.
        """
        if self.until:
            relation = f"reuses the first {plural(self.calls, 'call')} of that run and continues with the current code"
        else:
            relation = "is a new run"
        return (
            f"{self._changes} since run {self.execution_id} of this cell; the new run {new_id} {relation}. "
            f"To see the old run: {show_advice(self.execution_id)}; to keep it as the result of this cell: "
            "--changed keep"
        )

    @property
    def _changes(self) -> str:
        return ", ".join(f"{function.label} {_CHANGE_TEXTS[function.change]}" for function in self.functions)


_CHANGE_TEXTS = {"changed": "changed", "new": "was added", "gone": "was removed"}


def edit_policy(word: str | None) -> EditPolicy | None:
    """Check the value of the option ``--changed``, which determines what a cell does if its code was edited. Return the
    value; None without the option. Raise `UsageError` for an unknown value.
    """
    if word is not None and word not in CHOICES:
        raise UsageError(f"--changed must be one of {', '.join(CHOICES)}, not {word!r}")
    return cast("EditPolicy | None", word)


def changed_functions(environment: Environment, execution: Run) -> ChangedFunctions | None:
    """Return which Python functions were edited since a run, and which of its calls can be reused. Return None if the
    edits affect no recorded call.
    """
    events = execution.history()
    edits = Edits(environment.definitions, execution.state.workflow_name, events)
    completed_calls = calls_in(events)
    has_completed = execution.status == COMPLETED
    if edits.affects_every_call:
        return ChangedFunctions(execution.id, edits.functions, 0, 0, completed_calls, has_completed)
    # The fork shares everything before the start of the first affected call.
    if edits.first_call is None:
        # Edits of functions that the run has not called, or whose calls it repeats anyway, do not matter.
        return None
    until = point_before(ForkSource(environment.store, execution.id), edits.first_call - 1)
    calls = calls_in(events[:until])
    # Without a completed call in the shared part, a fork saves nothing, and a plain new run is clearer.
    return ChangedFunctions(execution.id, edits.functions, until if calls else 0, calls, completed_calls, has_completed)


# --- a definition that was edited since a cell's run -----------------------------------------------------------------
#
# The default is a new run, and the cell does not wait long for a choice, so that Run All reaches its end. Where nothing
# would be saved, there is no question (`tests/notebook/test_redefined.py`).


@dataclass(frozen=True, slots=True)
class ChangedDefinition:
    """Plan for the new run of a cell whose workflow definition was edited. The new run reuses calls of the cell's
    earlier run.
    """

    plan: ResumePlan
    has_ended: bool
    """True if the earlier run has ended. A run that has not ended is not replaced without a person's choice."""

    def error(self, begin: Callable[[str], Run]) -> CodeChangedError:
        """Return the error whose choices the cell shows as buttons: start a new run that reuses calls of the earlier
        run, or one that makes all calls again. The latter is the default.

        `begin` is called with the name of a choice and returns the run of this choice. A run that has not ended has no
        default.
        """
        message = f"The definition of {self.plan.workflow!r} changed since run {self.plan.source} of this cell."
        choices = {REUSE: self.plan.summary, AGAIN: "runs everything again in a new run"}
        return CodeChangedError(message, choices, begin, AGAIN if self.has_ended else None)

    @property
    def advice(self) -> str:
        """The note that a cell with an edited definition prints when it starts a new run from the beginning. It names
        the option with which the new run would have reused calls of the earlier run.
        """
        return (
            f"the definition changed since run {self.plan.source} of this cell, so a new run was started. "
            f"To continue the earlier run instead, add --changed {REUSE}: {self.plan.summary}"
        )

    def run_again(self, environment: Environment, answers: Answers | None, options: StartOptions) -> Run:
        """Start a run with the edited definition. It reuses the calls of the earlier run up to the first call that the
        new definition makes differently.
        """
        run = environment.run_of(self.plan.source).run_again(**options)
        run.internals.options.answers = answers
        run.internals.options.remark = self.replacement_note(run.id)
        return run

    def replacement_note(self, new_id: str) -> str:
        """Return the note that a cell prints after it has replaced its earlier run by a new run with the edited
        definition. `new_id` is the id of the new run.
        """
        return (
            f"the definition changed since run {self.plan.source} of this cell; the new run {new_id} continues that "
            f"run from event {self.plan.at}: {self.plan.summary}. To run everything again: --new"
        )


def changed_definition(
    environment: Environment, workflow: Workflow, earlier: PreviousRun | None
) -> ChangedDefinition | None:
    """Return the plan by which the new run of a cell with an edited workflow definition reuses calls of the earlier
    run.

    None if more than the definition has changed, or if nothing would be saved.
    """
    if earlier is None or earlier.changed != ("definition",):
        return None
    defined = environment.definitions.workflows.get(workflow.name)
    # `run_again` uses the registered definition. A workflow object that is not registered in the environment cannot be
    # planned.
    if defined is None or defined.fingerprint != workflow.fingerprint:
        return None
    try:
        # The plan rehearses the new definition with recorded results, without a call.
        plan = environment.run_of(earlier.record.execution_id).run_again(plan=True)
    except DivebookError:  # another process runs it, it is damaged, or it needs something that is not defined here
        return None
    return ChangedDefinition(plan, earlier.is_over) if plan.saves else None
