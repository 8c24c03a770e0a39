"""Begins to map a function, a workflow or an agent over the rows of a frame, or goes on with what has begun."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from divebook.agents import Agent
from divebook.agents.agent import digest_of
from divebook.environment.environment import Environment
from divebook.errors import LeaseHeldError, SetupError
from divebook.events import catalog
from divebook.events.arrow.tally import ColumnTally
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, WAITING
from divebook.events.codec import short_hash, storable
from divebook.events.recorded import opened
from divebook.projections.progress import Distribution, given_by, spreads_of
from divebook.questions.bounds import Bounds
from divebook.runtime.compute.dask import is_address
from divebook.runtime.execution import Execution
from divebook.runtime.forks import recorded_opening
from divebook.steps.actions import REGISTERED, Action, action
from divebook.steps.row_calls import RowResult, arguments_of
from divebook.text.redaction import one_line, shared
from divebook.workflow.answer_types import named_answer
from divebook.workflow.definition import InputDefinition, Workflow, names
from divebook.workflow.functions import step_of
from divebook.workflow.step import KEEP, Each, Retry, Step

__all__ = ["PARALLEL", "MappedRows", "mapped"]

# The executions of a map: what each is given, and the key under which it is found again.


FRAME, STEP, ITEMS, GIVEN, ASKED = "frame", "rows", "items", "given", "asked"
"""Names of inputs, and of the one step."""


def key_of(name: str, number: int) -> str:
    """Return the start key of what is kept under a name; `number` counts how often it was begun anew."""
    return f"map {name}" if number == 1 else f"map#{number} {name}"


def inputs_of(workflow: Workflow, frame: Any, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs of a map: the frame, and where its rows are items of a step these as well."""
    (step,) = workflow.steps
    if step.action:
        return {FRAME: frame, GIVEN: dict(given or {})}
    if step.each is not None and step.each.rows is not None:
        return {FRAME: frame, ITEMS: [], GIVEN: dict(given or {})}
    from divebook.events.arrow.rows import records_of

    return {FRAME: frame, ITEMS: records_of(frame), GIVEN: dict(given or {})}


def known_by(environment: Environment, key: str) -> Execution | None:
    """Return the execution of a start key, if there is one."""
    found = environment.store.records(key=key)
    return environment.execution(found[0].execution_id) if found else None


# What a map has given so far, as a frame, and how what failed is called again.


MOST_WORDS = 120
"""Characters in which a repr says what the rows gave."""


class MappedRows:
    """What a function gave for the rows of a frame.

    Attributes
    ----------
    execution
        The execution that makes the calls, or has made them; of those that were called again the latest one.
    environment, key, workflow
        Where it runs, the start key of the first one, and what all of them run.
    """

    def __init__(self, environment: Environment, execution: Execution, key: str, workflow: Workflow) -> None:
        self.execution = execution
        self.environment = environment
        self.key = key
        self.workflow = workflow

    def wait(self, timeout: float | None = None) -> MappedRows:
        """Wait until all calls have been made, and return itself.

        Where rows are left that wait for an answer, and nothing else can happen, a warning says so. Raises as
        `Execution.wait` with `check` does.
        """
        self.execution.wait(timeout)
        return self._looked_at()

    def __await__(self) -> Generator[Any, None, MappedRows]:
        """Do what `wait` does, without holding up the loop."""
        yield from self.execution.__await__()
        return self._looked_at()

    def _looked_at(self) -> MappedRows:
        """Say what has become of it, or what it waits for; waits for nothing, on whatever loop."""
        if self.execution.checked().status == WAITING:
            warnings.warn(f"{self!r}. Answer that; wait() then goes on waiting", stacklevel=3)
        return self

    @property
    def frame(self) -> Any:
        """The frame with the columns of the results beside it, by its index; ``error`` says why a row failed.

        Rows that have not been called yet have nothing. The calls of those that had failed and were called again hold.
        """
        from divebook.events.arrow.rows import joined

        return joined(self._given, self._outcome())

    @property
    def failed(self) -> Any:
        """The rows of `frame` that failed."""
        found = self.frame
        return found[found["error"].notna()]

    @property
    def done(self) -> int:
        """How many rows have ended."""
        return len(self._outcome())

    @property
    def spread(self) -> tuple[Distribution, ...]:
        """What the first columns of the results hold: the most frequent values, or bins of numbers, with their counts.

        Of those columns that have few different values, or numbers; ``words`` is a line for one of them.
        """
        return _spread_of(self._outcome())

    def retry_failed(self, *, unknown: bool = False) -> MappedRows:
        """Call the function again for the rows that failed, with its code of now; the others keep what they have.

        Where the calls broke off, so that rows are left which no call was made for, they go on.

        Parameters
        ----------
        unknown
            Also for rows of which nobody knows what they gave, since a person said that their calls, which a process
            had left, are not to be made again.

        Raises
        ------
        SetupError
            Not all rows have ended.
        """
        from divebook.events.arrow.rows import failed_in, part_of, settled_in

        rounds = self._rounds()
        if rounds[-1].status == FAILED:  # the calls themselves broke off, and rows are left
            return self.resumed()
        if not all(each.state.is_over for each in rounds):
            raise SetupError(f"{self.workflow.name} has not ended: wait for it, and then call what failed again")
        outcome = self._outcome()
        positions = failed_in(outcome) if unknown else settled_in(outcome)
        if positions:
            begun = recorded_opening(rounds[0].id, self.environment.store)
            inputs = inputs_of(self.workflow, part_of(self._given, positions), begun.inputs.get(GIVEN))
            key = self._round_key(len(rounds))
            self.execution = self.environment.start(self.workflow, inputs, key=key, bounds=begun.bounds)
        return self

    def resumed(self) -> MappedRows:
        """Have the calls go on that a process has left, or that broke off with an error, and return it."""
        self.execution = self._rounds()[-1]
        made = REGISTERED.get(self.workflow.steps[0].action or "")
        status = self.execution.status
        # A person may have said of calls that may not be made twice that they failed.
        if status == CANCELLED or (status == FAILED and made is not None and not made.is_repeatable):
            way_on = f"environment.resume({self.execution.id!r}) goes on with it, again=True begins anew"
            warnings.warn(f"{self.workflow.name} has ended as {status}, and stays so: {way_on}", stacklevel=4)
        elif (status == FAILED or not self.execution.state.is_over) and not self.execution.is_live:
            with suppress(LeaseHeldError):  # another process makes them
                self.execution = self.environment.resume(self.execution.id)
        return self

    def __len__(self) -> int:
        return len(self._given)

    def __repr__(self) -> str:
        from divebook.events.arrow.rows import failed_in, settled_in

        outcome = self._outcome()
        failed = len(failed_in(outcome))
        settled = len(settled_in(outcome))
        told = f", {failed:,} of which failed" if failed else ""
        told += ": .retry_failed() calls those again" if settled else ""
        if failed > settled:
            told += f" ({failed - settled:,} of unknown outcome only with unknown=True)"
        told += "" if self.execution.status == COMPLETED else f"; {self.execution.standing}"
        gave = "".join(f"; {shared().text(spread.words)}" for spread in _spread_of(outcome))
        return f"<{self.workflow.name}: {len(outcome):,} of {len(self):,} rows{told}{one_line(gave, MOST_WORDS)}>"

    @property
    def _given(self) -> Any:
        return opened(self._rounds()[0].state.inputs[FRAME])

    def _rounds(self) -> list[Execution]:
        """Return the executions: the first one, and one for each time that what had failed was called again."""
        found: list[Execution] = []
        while (known := known_by(self.environment, self._round_key(len(found)))) is not None:
            found.append(known)
        return found

    def _round_key(self, number: int) -> str:
        return f"{number} after {self.key}" if number else self.key

    def _outcome(self) -> Any:
        from divebook.events.arrow.rows import outcome_of

        rounds = [(len(opened(each.state.inputs[FRAME])), _parts(each)) for each in self._rounds()]
        return outcome_of(len(self), rounds)


def _spread_of(outcome: Any) -> tuple[Distribution, ...]:
    from divebook.events.arrow.rows import count_frame

    tallies: dict[str, ColumnTally] = {}
    count_frame(outcome, tallies)
    return spreads_of(tallies)


def _parts(execution: Execution) -> list[Any]:
    """Return what the rows of an execution have given, in parts: those of a function, or one of all others."""
    facts = [event.data for event in execution.history()]
    ended: dict[int, RowResult] = {}
    for fact in facts:
        if isinstance(fact, catalog.IterationCompleted):
            ended[fact.iteration_index] = fact.iteration_index, opened(given_by(fact.result)), None
        elif isinstance(fact, catalog.IterationFailed):
            ended[fact.iteration_index] = fact.iteration_index, None, fact.error
    parts = [fact.result for fact in facts if isinstance(fact, catalog.RowsCompleted)]
    return [*parts, *([_ItemsPart([*ended.values()])] if ended else [])]


class _ItemsPart(NamedTuple):
    """Rows that were items of a step."""

    ended: list[RowResult]

    def open(self) -> Any:
        """Return what they gave as a frame."""
        from divebook.events.arrow.rows import frame_of

        return frame_of(self.ended)


PARALLEL = 8
"""Calls at a time, unless it is said."""
_OWN: set[str] = set()
"""Names of actions that maps have made: what one said of its function holds for no other."""


def mapped(
    environment: Environment,
    frame: Any,
    function: Callable[..., Any] | Workflow | Agent,
    *,
    store: str | None = None,
    parallel: int = PARALLEL,
    idempotent: bool = True,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    executor: object = None,
    parameters: Mapping[str, Any] | None = None,
    prompt: str | None = None,
    output: Any = None,
    batch: bool = False,
    bounds: Bounds | Mapping[str, Any] | None = None,
    again: bool = False,
) -> MappedRows:
    """Begin to call a function for each row of a frame in an environment, or go on; see `divebook.map`."""
    from divebook.events.arrow.rows import columns_of, part_of

    if not isinstance(function, Agent) and (prompt is not None or output is not None):
        raise SetupError(
            "prompt and output are for agents: a function, or a workflow, is given the columns of each row"
        )
    if batch and not isinstance(function, Agent):
        raise SetupError("batch=True is for agents, whose providers answer batches at half the price; leave it out")
    if isinstance(function, Workflow | Agent):
        if executor is not None:
            raise SetupError(f"executor is where a function runs, and {function.name!r} is none; leave it out")
        name = str(store or f"{function.name} of rows")
        columns = columns_of(part_of(frame, []))
        each = Each(f"$(inputs.{ITEMS})", as_="row", parallel=parallel, on_item_error=KEEP)
        each = Each(rows=f"$(inputs.{FRAME})") if batch else each
        shared: dict[str, Any] = {"each": each, "retry": retry, "timeout": timeout, "store": STEP}
        if isinstance(function, Agent):
            step = _agent_step(environment, function, prompt, output, shared)
        else:
            step = _workflow_step(environment, function, [*columns], parameters or {}, shared)
        asked = InputDefinition(ASKED, default=_asked(environment, function))
        workflow = Workflow(name, [step], inputs=[*map(InputDefinition, (FRAME, ITEMS, GIVEN)), asked])
    else:
        name = str(store or getattr(function, "__name__", ""))
        named = _executor_named(environment, name, executor)
        made = _action_of(name, function, {"idempotent": idempotent, "retry": retry, "timeout": timeout})
        arguments_of(made, columns_of(part_of(frame, [])), parameters or {}, 0)  # what does not fit is said at once
        each = Each(rows=f"$(inputs.{FRAME})", parallel=parallel)
        step = Step(STEP, action=made.name, parameters=_references(parameters), each=each, executor=named, store=STEP)
        workflow = Workflow(name, [step], inputs=[InputDefinition(FRAME), InputDefinition(GIVEN)])
    number = 1
    while known_by(environment, key_of(name, number + 1)) is not None:
        number += 1
    known = known_by(environment, key_of(name, number))
    if known is None or again:
        key = key_of(name, number if known is None else number + 1)
        begun = environment.start(workflow, inputs_of(workflow, frame, parameters), key=key, bounds=bounds)
        return MappedRows(environment, begun, key, workflow)
    _require_same(environment, workflow, frame, known, parameters)
    return MappedRows(environment, known, key_of(name, number), workflow).resumed()


def _agent_step(
    environment: Environment, agent: Agent, prompt: str | None, output: Any, shared: Mapping[str, Any]
) -> Step:
    """Return the step that asks an agent for each row."""
    if prompt is None:
        raise SetupError(f"agent {agent.name!r} needs a prompt; write prompt='Is this praise? ${{state.row.text}}'")
    if _asked(environment, environment.agents.get(agent.name, agent)) != _asked(environment, agent):
        _require_unneeded(environment, "agent", agent.name)
    if environment.agents.get(agent.name) is not agent:
        environment.add_agent(agent, replace=True)
    return Step(STEP, agent=agent.name, prompt=prompt, output=named_answer(output), **shared)


def _workflow_step(
    environment: Environment,
    flow: Workflow,
    columns: Sequence[str],
    given: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> Step:
    """Return the step that runs a workflow for each row."""
    declared = {one.name: one for one in flow.inputs}
    missing = [name for name, one in declared.items() if name not in (*columns, *given) and not one.has_default]
    unknown = [name for name in given if name not in declared]
    if missing or unknown:
        wrong = f"takes {', '.join(missing)}" if missing else f"does not take {', '.join(unknown)}"
        told = ", ".join(columns) or "none"
        raise SetupError(f"workflow {flow.name!r} {wrong}; the frame has the columns {told}: name its inputs so")
    if environment.workflows.get(flow.name, flow) != flow:
        _require_unneeded(environment, "workflow", flow.name)
    if environment.workflows.get(flow.name) != flow:
        environment.add_workflow(flow, replace=True)
    inputs = {name: f"$(state.row[{name!r}])" for name in columns if name in declared}
    inputs |= _references(given)
    return Step(STEP, workflow=flow.name, inputs=inputs, **shared)


def _asked(environment: Environment, asked: Agent | Workflow) -> str:
    """Return a digest of what an agent, or a workflow, does, with the code of its functions."""
    if isinstance(asked, Workflow):
        return short_hash([asked.fingerprint, environment.code_of(asked)])
    return digest_of(asked)


def _require_unneeded(environment: Environment, kind: str, name: str) -> None:
    """Raise where a run that has not ended here needs the agent or workflow of a name, in whose place another comes."""
    for run in (environment.execution(record.execution_id) for record in environment.store.unended()):
        if run.was_driven and names(run.workflow, kind, name, environment.workflows):
            raise SetupError(
                f"execution {run.id} of {run.workflow.name!r} has not ended and needs the other {kind} {name!r}: wait "
                f"for it, cancel it, or give this {kind} another name"
            )


def _references(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return parameters as expressions for what is given: their own texts are no templates."""
    return {name: f"$(inputs.{GIVEN}[{name!r}])" for name in given or {}}


def _executor_named(environment: Environment, name: str, executor: object) -> str | None:
    """Return the name under which the environment has the executor of a map, whatever that was given as."""
    if executor is None or (isinstance(executor, str) and not is_address(executor)):
        return executor
    known = executor if isinstance(executor, str) else f"executor of {name}"
    environment.add_executor(known, executor, replace=True)
    return known


def _action_of(name: str, function: Any, options: Mapping[str, Any]) -> Action:
    """Return a function as an action: the one that it is, or one of the map's own.

    Of a ``@step`` it is the function itself: what records its calls is of this process, and a row is none.
    """
    made = step_of(function)
    function = function if made is None else made.function
    if not callable(function):
        raise SetupError(f"map takes a function and not {function!r}; give it a function, a Workflow or an Agent")
    if name in ("", "<lambda>"):
        what = "lambda" if name else type(function).__name__
        raise SetupError(f"a {what} has no name by which it is found again: name it with store=, or write def")
    if not name.isprintable() or not name.strip("<> "):
        raise SetupError(f"store={name!r} is no name: use letters")
    known = (each for called, each in REGISTERED.items() if called not in _OWN)
    declared = next((each for each in known if each.function is function), None)
    if declared is not None:
        return declared
    called = f"{name}.{getattr(function, '__name__', 'call').strip('<>')}"
    action(called, **options)(function)
    _OWN.add(called)
    return REGISTERED[called]


def _require_same(
    environment: Environment, workflow: Workflow, frame: Any, known: Execution, given: Mapping[str, Any] | None
) -> None:
    """Raise unless a map is of the same frame and parameters; warn where its function has changed since."""
    opening = recorded_opening(known.id, environment.store)
    name = workflow.name
    if storable(frame, FRAME) != opening.inputs[FRAME]:
        raise SetupError(
            f"{name} was begun with another frame ({opening.inputs[FRAME].summary()}); with again=True it begins anew, "
            "with another store= both are kept"
        )
    if storable(dict(given or {}), GIVEN) != opening.inputs.get(GIVEN, {}):
        raise SetupError(
            f"{name} was begun with other parameters; with again=True it begins anew, with another store= both are kept"
        )
    before = known.workflow.steps[0]
    is_other = opening.code is not None and dict(opening.code) != environment.code_of(workflow)
    asked = {one.name: one.default for one in workflow.inputs}.get(ASKED)
    is_other = is_other or opening.inputs.get(ASKED, asked) != asked
    if is_other or (before.prompt, before.output) != (workflow.steps[0].prompt, workflow.steps[0].output):
        warnings.warn(
            f"{name} was begun with other code of its function, or another prompt, agent or workflow, whose results it "
            "keeps: .retry_failed() calls the rows that failed with that of now, again=True calls all of them",
            stacklevel=4,
        )
