"""Implementation of `divebook.map`: calls of a function, workflow or agent for each row of a frame.

The calls belong to an execution, so that they can be resumed. A map is an execution with a start key made from its
name, so that the same call finds it again. Each call of `MappedRows.retry_failed` starts a further execution (a
*round*) with the failed rows only; the frame of the results contains the latest result of each row. Example: ``map``
over 3 rows, of which row 1 failed, has the rounds ``map NAME`` (rows 0, 1, 2) and ``1 after map NAME`` (row 1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypedDict

from divebook.agents import Agent
from divebook.agents.agent import digest_of
from divebook.definitions.answer_types import named_answer
from divebook.definitions.definition import InputDefinition, Workflow, names
from divebook.definitions.functions import step_of
from divebook.definitions.step import KEEP, Each, Retry, Step
from divebook.environments.environment import Environment
from divebook.errors import LeaseHeldError, SetupError
from divebook.events import catalog
from divebook.events.arrow.tally import ColumnTally
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, WAITING
from divebook.events.codec import short_hash, storable
from divebook.events.recorded import opened
from divebook.projections.activity import Distribution, result_of, spreads_of
from divebook.questions.bounds import Bounds
from divebook.runtime.compute.dask import is_address
from divebook.runtime.forks import recorded_opening
from divebook.runtime.run import Run
from divebook.steps.actions import REGISTERED, Action, action
from divebook.steps.row_calls import RowResult, arguments_of
from divebook.text.arguments import DurationLike
from divebook.text.format import plural
from divebook.text.redaction import one_line, shared
from divebook.text.user_warning import warn_user

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PARALLEL", "AnyFrame", "MapOptions", "MappedRows", "SupportsToPandas", "mapped"]


class SupportsToPandas(Protocol):
    """Protocol of frames of other libraries, such as DataFrames of polars and Arrow tables."""

    def to_pandas(self) -> Any:
        """Return the frame as a DataFrame of pandas."""


AnyFrame: TypeAlias = "pd.DataFrame | SupportsToPandas | Sequence[Mapping[str, Any]]"
"""Rows with named columns: a DataFrame of pandas or polars, an Arrow table, or a list of mappings."""


class MapOptions(TypedDict, total=False):
    """Options of `divebook.map` for rows of all kinds. All options are optional."""

    store: str | None
    """Name under which the results are stored and found again."""
    parallel: int
    """Number of concurrent calls."""
    idempotent: bool
    """True if a call may be repeated after its process died during it."""
    retry: Retry | int | None
    """Policy for repeating the failed call of a row."""
    timeout: DurationLike | None
    """Time limit of the call for one row."""
    parameters: Mapping[str, Any] | None
    """Further arguments, which are the same for all calls."""
    bounds: Bounds | Mapping[str, Any] | None
    """Budget of all rows together."""
    again: bool
    """True to start again. The old results are kept in addition to the new results."""
    environment: Environment | None
    """Environment that runs and stores the map; by default the environment of the session."""


# --- inputs and start key of a map ---


FRAME = "frame"
ITEMS = "items"
GIVEN = "given"
ASKED = "asked"
"""Names of the inputs of a map's workflow."""
STEP = "rows"
"""Name of the only step of a map's workflow."""


def key_of(name: str, number: int) -> str:
    """Return the start key for the execution of a map, made from the map's name. `number` is 1 for the first start of
    the map, and increases by one with each start with ``again=True``.
    """
    return f"map {name}" if number == 1 else f"map#{number} {name}"


def inputs_of(workflow: Workflow, frame: Any, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs of the execution that makes the calls of a map: the frame and the parameters. If no step reads
    the frame itself, its rows are added as a list.
    """
    (step,) = workflow.steps
    if step.action:
        return {FRAME: frame, GIVEN: dict(parameters or {})}
    # A batch reads the frame itself, like an action. Only the items of a plain `Each` need the rows as a list.
    if step.each is not None and step.each.rows is not None:
        return {FRAME: frame, ITEMS: [], GIVEN: dict(parameters or {})}
    from divebook.events.arrow.rows import records_of

    return {FRAME: frame, ITEMS: records_of(frame), GIVEN: dict(parameters or {})}


def known_by(environment: Environment, key: str) -> Run | None:
    """Return the execution that was started with a start key; None if no execution was."""
    records = environment.store.records(key=key)
    return environment.run_of(records[0].execution_id) if records else None


# --- results of a map ---


MOST_WORDS = 120
"""Maximum number of characters for the distributions in the repr of `MappedRows`."""


class MappedRows:
    """Results of a map: the calls of a function, workflow or agent for each row of a frame.

    Attributes
    ----------
    run
        Run of the latest round. Its view shows the progress.
    environment, key, workflow
        Environment and workflow of all rounds, and the start key of the first one.
    """

    def __init__(self, environment: Environment, run: Run, key: str, workflow: Workflow) -> None:
        self.run = run
        self.environment = environment
        self.key = key
        self.workflow = workflow

    def wait(self, timeout: DurationLike | None = None) -> MappedRows:
        """Wait until the calls for all rows have been made, and return this object.

        If the remaining rows wait for an answer, this method returns with a warning. It raises the errors of `Run.wait`
        with `check`.
        """
        self.run.wait(timeout)
        return self._looked_at()

    def __await__(self) -> Generator[Any, None, MappedRows]:
        """Wait until the calls for all rows have been made, like `wait`, without blocking the event loop."""
        yield from self.run.__await__()
        return self._looked_at()

    def _looked_at(self) -> MappedRows:
        """Raise the error of the map's execution if it has failed. Warn if the execution waits for an answer. Return
        this object, without waiting.
        """
        if self.run.internals.checked().state.status == WAITING:
            warn_user(f"{self!r}. Answer the question; wait() then continues")
        return self

    def _ipython_display_(self) -> None:
        """Show the progress of the calls in a notebook; the view is updated while calls are made."""
        from divebook.notebook.session_functions import display_rows

        display_rows(self)

    @property
    def frame(self) -> pd.DataFrame:
        """Frame that was passed to the map, with the columns of the results added. The column ``error`` has the reason
        if a row failed.

        Rows without a call have no values. For a row that was called several times, the latest call counts.
        """
        from divebook.events.arrow.rows import joined

        return joined(self._given, self._outcome())

    @property
    def failed(self) -> pd.DataFrame:
        """Rows of `frame` whose call failed."""
        rows = self.frame
        return rows[rows["error"].notna()]

    @property
    def done(self) -> int:
        """Number of rows whose call has ended."""
        return len(self._outcome())

    @property
    def spread(self) -> tuple[Distribution, ...]:
        """Distributions of the values in the first result columns: the most frequent values, or bins of numbers, each
        with its count.

        Only columns of numbers, and columns with few different values, are included. The attribute ``words`` of a
        distribution describes it in one line.
        """
        return _spread_of(self._outcome())

    def retry_failed(self, *, unknown: bool = False) -> MappedRows:
        """Call the function again for the rows that failed, with its current code. Other rows keep their results.

        If the execution itself failed before all rows were called, it is resumed instead.

        Parameters
        ----------
        unknown
            True to call rows with an unknown outcome, too. Their calls were interrupted by the end of a process, and a
            person decided not to repeat them.

        Raises
        ------
        SetupError
            Not all rows have ended.
        """
        from divebook.events.arrow.rows import certainly_failed_in, failed_in, part_of

        rounds = self._rounds()
        # A failed row does not fail its round. A failed round has rows that were never called.
        if rounds[-1].status == FAILED:  # the calls themselves broke off, and rows are left
            return self.resumed()
        # The end of a live round is not in the store yet.
        if not all(each.state.is_over and not each.is_live for each in rounds):
            raise SetupError(f"{self.workflow.name} has not ended: wait for it, then retry the failed rows")
        outcome = self._outcome()
        positions = failed_in(outcome) if unknown else certainly_failed_in(outcome)
        if positions:
            # Parameters and bounds come from the first round: those of the code may have changed since.
            first_opening = recorded_opening(rounds[0].id, self.environment.store)
            inputs = inputs_of(self.workflow, part_of(self._given, positions), first_opening.inputs.get(GIVEN))
            key = self._round_key(len(rounds))
            self.run = self.environment.start(self.workflow, inputs, key=key, bounds=first_opening.bounds)
        return self

    def resumed(self) -> MappedRows:
        """Resume the calls of the remaining rows after an error or the end of a process, and return this object. If the
        calls cannot be resumed, issue a warning.
        """
        self.run = self._rounds()[-1]
        called_action = REGISTERED.get(self.workflow.steps[0].action or "")
        status = self.run.status
        # A person may have said of calls that may not be made twice that they failed.
        if status == CANCELLED or (status == FAILED and called_action is not None and not called_action.is_repeatable):
            advice = f"environment.run_of({self.run.id!r}).resume() continues it, again=True starts it again"
            warn_user(f"{self.workflow.name} has ended with status {status}: {advice}")
        # Also after the end of a process: the log is not over, and no process drives it.
        elif (status == FAILED or not self.run.state.is_over) and not self.run.is_live:
            with suppress(LeaseHeldError):  # another process makes them
                self.run = self.run.resume()
        return self

    def __len__(self) -> int:
        return len(self._given)

    def __repr__(self) -> str:
        from divebook.events.arrow.rows import certainly_failed_in, failed_in

        outcome = self._outcome()
        failed = len(failed_in(outcome))
        settled = len(certainly_failed_in(outcome))
        details = f", {failed:,} of which failed" if failed else ""
        details += ": .retry_failed() calls the failed rows again" if settled else ""
        if failed > settled:
            details += f" ({failed - settled:,} with an unknown outcome only if you set unknown=True)"
        details += "" if self.run.status == COMPLETED else f"; {self.run.internals.standing}"
        spreads = "".join(f"; {shared().text(spread.words)}" for spread in _spread_of(outcome))
        return f"<{self.workflow.name}: {len(outcome):,} of {len(self):,} rows{details}{one_line(spreads, MOST_WORDS)}>"

    @property
    def _given(self) -> Any:
        return opened(self._rounds()[0].state.inputs[FRAME])

    def _rounds(self) -> list[Run]:
        """Return the executions of this map, oldest first: the first one, and one for each later retry of the rows that
        failed.
        """
        rounds: list[Run] = []
        while (execution := known_by(self.environment, self._round_key(len(rounds)))) is not None:
            rounds.append(execution)
        return rounds

    def _round_key(self, number: int) -> str:
        return f"{number} after {self.key}" if number else self.key

    def _outcome(self) -> pd.DataFrame:
        from divebook.events.arrow.rows import outcome_of

        rounds = [(len(opened(each.state.inputs[FRAME])), _parts(each)) for each in self._rounds()]
        return outcome_of(len(self), rounds)


def _spread_of(outcome: pd.DataFrame) -> tuple[Distribution, ...]:
    from divebook.events.arrow.rows import count_frame

    tallies: dict[str, ColumnTally] = {}
    count_frame(outcome, tallies)
    return spreads_of(tallies)


def _parts(execution: Run) -> list[Any]:
    """Return the results that one execution has recorded for rows, in parts. Calls of a function are recorded in
    batches, and each batch is one part; all items of `Each` are a single part.
    """
    facts = [event.data for event in execution.history()]
    # {row: (row, result, error)}; the last event of a row counts, as a resumption may run a failed row again.
    ended: dict[int, RowResult] = {}
    for fact in facts:
        if isinstance(fact, catalog.IterationCompleted):
            ended[fact.iteration_index] = fact.iteration_index, opened(result_of(fact.result)), None
        elif isinstance(fact, catalog.IterationFailed):
            ended[fact.iteration_index] = fact.iteration_index, None, fact.error
    parts = [fact.result for fact in facts if isinstance(fact, catalog.RowsCompleted)]
    return [*parts, *([_ItemsPart([*ended.values()])] if ended else [])]


class _ItemsPart(NamedTuple):
    """Results of those rows that were processed as items of `Each`."""

    ended: list[RowResult]

    def to_python(self) -> Any:
        """Convert the recorded results of these rows to a DataFrame."""
        from divebook.events.arrow.rows import frame_of

        return frame_of(self.ended)


PARALLEL = 8
"""Default for the number of rows that are processed in parallel."""
_OWN: set[str] = set()
"""Names of the actions that maps have registered. The options of such an action are those of one map."""


def mapped(
    environment: Environment,
    frame: AnyFrame,
    function: Callable[..., Any] | Workflow | Agent,
    *,
    store: str | None = None,
    parallel: int = PARALLEL,
    idempotent: bool = True,
    retry: Retry | int | None = None,
    timeout: DurationLike | None = None,
    executor: object = None,
    parameters: Mapping[str, Any] | None = None,
    prompt: str | None = None,
    output: Any = None,
    batch: bool = False,
    bounds: Bounds | Mapping[str, Any] | None = None,
    again: bool = False,
) -> MappedRows:
    """Start or resume a map: the calls of a function for each row of a frame; see `divebook.map`.

    1. Build a workflow with one step: an action for a function, a prompt or workflow step otherwise.
    2. Find the latest execution of the name, which may have been started again several times.
    3. Start one if there is none, or if `again` is set. Otherwise check that frame and parameters are the same, and
       resume it.
    """
    from divebook.events.arrow.rows import columns_of, part_of

    # A log contains a tuple as a tuple, which is not a frame.
    if isinstance(frame, tuple):
        frame = [*frame]
    if not isinstance(function, Agent) and (prompt is not None or output is not None):
        raise SetupError(
            "prompt and output are for agents: a function or a workflow receives the columns of each row as arguments"
        )
    if batch and not isinstance(function, Agent):
        raise SetupError("batch=True is only for agents, whose providers offer batches at half the price; remove it")
    # A workflow with one step is built: for a workflow or agent, a step that runs for each row.
    if isinstance(function, Workflow | Agent):
        if executor is not None:
            raise SetupError(f"executor is only for functions, and {function.name!r} is not a function; remove it")
        name = str(store or f"{function.name} of rows")
        # Zero rows are enough to check the frame and to get its column names.
        columns = columns_of(part_of(frame, []))
        each = Each(f"$(inputs.{ITEMS})", as_="row", parallel=parallel, on_item_error=KEEP)
        each = Each(rows=f"$(inputs.{FRAME})") if batch else each
        shared: dict[str, Any] = {"each": each, "retry": retry, "timeout": timeout, "store": STEP}
        if isinstance(function, Agent):
            step = _agent_step(environment, function, prompt, output, shared)
        else:
            step = _workflow_step(environment, function, [*columns], parameters or {}, shared)
        # The hash of the called definition is recorded with the start, as the default of an input. A later call
        # compares it.
        definition_input = InputDefinition(ASKED, default=_asked(environment, function))
        workflow = Workflow(name, [step], inputs=[*map(InputDefinition, (FRAME, ITEMS, GIVEN)), definition_input])
    else:
        # For a function, a step that calls an action with the columns of each row.
        name = str(store or getattr(function, "__name__", ""))
        executor_name = _executor_named(environment, name, executor)
        mapped_action = _action_of(name, function, {"idempotent": idempotent, "retry": retry, "timeout": timeout})
        arguments_of(mapped_action, columns_of(part_of(frame, [])), parameters or {}, 0)  # raises for what does not fit
        each = Each(rows=f"$(inputs.{FRAME})", parallel=parallel)
        step = Step(
            STEP,
            action=mapped_action.name,
            parameters=_references(parameters),
            each=each,
            executor=executor_name,
            store=STEP,
        )
        workflow = Workflow(name, [step], inputs=[InputDefinition(FRAME), InputDefinition(GIVEN)])
    # The execution of this name is found, or started. With `again` a name has several: "map NAME", "map#2 NAME", "map#3
    # NAME" ... The last one counts.
    number = 1
    while known_by(environment, key_of(name, number + 1)) is not None:
        number += 1
    existing = known_by(environment, key_of(name, number))
    if existing is None or again:
        key = key_of(name, number if existing is None else number + 1)
        execution = environment.start(workflow, inputs_of(workflow, frame, parameters), key=key, bounds=bounds)
        return MappedRows(environment, execution, key, workflow)
    _require_same(environment, workflow, frame, existing, parameters)
    return MappedRows(environment, existing, key_of(name, number), workflow).resumed()


def _agent_step(
    environment: Environment, agent: Agent, prompt: str | None, output: Any, shared: Mapping[str, Any]
) -> Step:
    """Return the workflow step that calls an agent for each row of a map's frame."""
    if prompt is None:
        raise SetupError(f"agent {agent.name!r} needs a prompt; write prompt='Is this praise? ${{state.row.text}}'")
    # An unchanged agent may be registered again. Another agent of the same name may replace it only if no execution
    # needs it.
    if _asked(environment, environment.definitions.agents.get(agent.name, agent)) != _asked(environment, agent):
        _require_unneeded(environment, "agent", agent.name)
    if environment.definitions.agents.get(agent.name) is not agent:
        environment.add_agent(agent, replace=True)
    return Step(STEP, agent=agent.name, prompt=prompt, output=named_answer(output), **shared)


def _workflow_step(
    environment: Environment,
    flow: Workflow,
    columns: Sequence[str],
    parameters: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> Step:
    """Return the workflow step that runs another workflow for each row of a map's frame."""
    declared = {one.name: one for one in flow.inputs}
    missing = [name for name, one in declared.items() if name not in (*columns, *parameters) and not one.has_default]
    unknown = [name for name in parameters if name not in declared]
    if missing or unknown:
        wrong = f"takes {', '.join(missing)}" if missing else f"does not take {', '.join(unknown)}"
        column_names = ", ".join(columns) or "none"
        raise SetupError(
            f"workflow {flow.name!r} {wrong}; the frame has the columns {column_names}: give the inputs of the "
            "workflow these names"
        )
    if environment.definitions.workflows.get(flow.name, flow) != flow:
        _require_unneeded(environment, "workflow", flow.name)
    if environment.definitions.workflows.get(flow.name) != flow:
        environment.add_workflow(flow, replace=True)
    # Columns that the workflow does not declare as inputs are left out. Parameters replace columns of the same name.
    inputs = {name: f"$(state.row[{name!r}])" for name in columns if name in declared}
    inputs |= _references(parameters)
    return Step(STEP, workflow=flow.name, inputs=inputs, **shared)


def _asked(environment: Environment, definition: Agent | Workflow) -> str:
    """Return a hash of the definition of the agent or workflow that a map calls, and of the code of its functions. A
    different hash shows later that the definition has changed.
    """
    if isinstance(definition, Workflow):
        return short_hash([definition.fingerprint, environment.internals.registry.code_of(definition)])
    return digest_of(definition)


def _require_unneeded(environment: Environment, kind: str, name: str) -> None:
    """Raise `SetupError` if the registered agent or workflow of this name may not be replaced, because an execution
    that has not ended still needs it.
    """
    for run in (environment.run_of(record.execution_id) for record in environment.store.unended()):
        if run.internals.was_driven and names(run.workflow, kind, name, environment.definitions.workflows):
            raise SetupError(
                f"execution {run.id} of {run.workflow.name!r} has not ended and uses a different {kind} with the "
                f"same name {name!r}: wait for that execution, cancel it, or give this {kind} another name"
            )


def _frame_in_words(frame: Any) -> str:
    # A list of mappings is recorded as it is, a DataFrame or a table as a frame with a summary.
    return plural(len(frame), "row") if isinstance(frame, list | tuple) else str(frame.summary())


def _references(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return expressions that read the parameters of a map from the inputs of its execution, by name of the parameter.
    If a step contained the values themselves, a text with ``${...}`` would be rendered as a template.
    """
    return {name: f"$(inputs.{GIVEN}[{name!r}])" for name in parameters or {}}


def _executor_named(environment: Environment, name: str, executor: object) -> str | None:
    """Return the name of the executor that runs the calls of a map; None for the default. An executor object is first
    registered under the name "executor of" the map.
    """
    if executor is None or (isinstance(executor, str) and not is_address(executor)):
        return executor
    executor_name = executor if isinstance(executor, str) else f"executor of {name}"
    environment.add_executor(executor_name, executor, replace=True)
    return executor_name


def _action_of(name: str, function: Any, options: Mapping[str, Any]) -> Action:
    """Return the action that was registered for a function. If there is none, register the function under a name made
    from the map's name.

    The function behind a ``@step`` is used, since its wrapper can record calls only inside a workflow function.
    """
    step = step_of(function)
    function = function if step is None else step.function
    if not callable(function):
        raise SetupError(f"map takes a function, a Workflow or an Agent, not {function!r}")
    if name in ("", "<lambda>"):
        what = "lambda" if name else type(function).__name__
        raise SetupError(
            f"a {what} has no name under which its results can be found: give it a name with store=, "
            "or define it with def"
        )
    if not name.isprintable() or not name.strip("<> "):
        raise SetupError(f"store={name!r} is not a valid name: use letters")
    # An action that the user registered keeps its own options. Actions of earlier maps do not count: they have the
    # options of those maps (test_what_one_map_said_of_a_function_holds_for_no_other).
    registered = (each for action_name, each in REGISTERED.items() if action_name not in _OWN)
    declared = next((each for each in registered if each.function is function), None)
    if declared is not None:
        return declared
    action_name = f"{name}.{getattr(function, '__name__', 'call').strip('<>')}"
    action(action_name, **options)(function)
    _OWN.add(action_name)
    return REGISTERED[action_name]


def _require_same(
    environment: Environment, workflow: Workflow, frame: Any, execution: Run, parameters: Mapping[str, Any] | None
) -> None:
    """Raise `SetupError` if the existing execution of a map has another frame or other parameters. Warn if the
    function, agent or workflow has changed since.
    """
    opening = recorded_opening(execution.id, environment.store)
    name = workflow.name
    if storable(frame, FRAME) != opening.inputs[FRAME]:
        rows = _frame_in_words(opening.inputs[FRAME])
        raise SetupError(
            f"{name} was started with another frame ({rows}); start it again with again=True, or keep both results "
            "with another store="
        )
    if storable(dict(parameters or {}), GIVEN) != opening.inputs.get(GIVEN, {}):
        raise SetupError(
            f"{name} was started with other parameters; start it again with again=True, or keep both results with "
            "another store="
        )
    before = execution.workflow.steps[0]
    is_other = opening.code is not None and dict(opening.code) != environment.internals.registry.code_of(workflow)
    # Maps of functions have no such input. Both sides are then None, and only the code of the function is compared.
    digest = {one.name: one.default for one in workflow.inputs}.get(ASKED)
    is_other = is_other or opening.inputs.get(ASKED, digest) != digest
    if is_other or (before.prompt, before.output) != (workflow.steps[0].prompt, workflow.steps[0].output):
        warn_user(
            f"{name} was started with another version of its function, prompt, agent or workflow, and keeps those "
            "results. .retry_failed() calls the failed rows with the new version, again=True calls all rows",
        )
