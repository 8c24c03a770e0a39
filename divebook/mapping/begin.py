"""Begins to map a function, a workflow or an agent over the rows of a frame, or goes on with what has begun."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from divebook.agents import Agent
from divebook.agents.digest import digest_of
from divebook.bounds import Bounds
from divebook.environment import Environment
from divebook.errors import SetupError
from divebook.events.codec import short_hash, storable
from divebook.execution.dask_cluster import is_address
from divebook.execution.definitions import recorded_opening
from divebook.execution.execution import Execution
from divebook.mapping.mapped_rows import MappedRows
from divebook.mapping.rounds import ASKED, FRAME, GIVEN, ITEMS, STEP, inputs_of, key_of, known_by
from divebook.steps.actions import REGISTERED, Action, action
from divebook.steps.rows import arguments_of
from divebook.workflow.answer_types import named_answer
from divebook.workflow.definition import Each, InputDefinition, Step, Workflow
from divebook.workflow.functions import step_of
from divebook.workflow.needs import names
from divebook.workflow.policies import Retry
from divebook.workflow.step import KEEP

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
