"""Runs one case through divebook's public API and notes what can be seen of it from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from divebook.agents import Agent
from divebook.definitions import AgentDefinition, read_workflow
from divebook.documents import MemoryDocuments
from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState
from divebook.environments.environment import Environment
from divebook.errors import DivebookError
from divebook.events import Event
from divebook.runtime.run import Run
from divebook.scripting import evaluate_condition, render_template
from divebook.stores import MemoryStore
from tests.conformance.cases import Case
from tests.conformance.compare import OLD_PARAMETERS
from tests.conformance.old_ids import legacy_operation_id
from tests.conformance.outcome import REJECTED, Evaluation, ObservedEvent, Outcome
from tests.conformance.overheard import OverheardModel

TIMEOUT = 60.0
"""Seconds one case may take."""


def observe(case: Case) -> Outcome | Evaluation:
    """Run one case."""
    if case.group == "condition":
        return _evaluate(case.data["given"]["condition"], case.data["given"]["globals"], evaluate_condition)
    if case.group == "template":
        return _evaluate(case.data["given"]["template"], case.data["given"]["globals"], render_template)
    return run_workflow(case.data)


def _evaluate(text: str, names: Mapping[str, Any], evaluate: Any) -> Evaluation:
    try:
        return Evaluation(evaluate(text, names))
    except DivebookError as error:
        return Evaluation(error=str(error))


def run_workflow(data: Mapping[str, Any]) -> Outcome:
    """Run the workflow that a case defines."""
    documents = MemoryDocuments(dict(data.get("documents", {})))
    printed: list[str] = []
    calls: list[Mapping[str, Any]] = []
    agents = [_agent(name, spec, calls) for name, spec in data.get("agents", {}).items()]
    with MemoryStore() as store:
        environment = Environment(
            "conformance", store=store, agents=agents, documents=documents, printer=printed.append
        )
        try:
            workflow = read_workflow(data["definition"], dialect="dive")
            execution = environment.start(workflow, data.get("inputs", {}))
        except DivebookError as error:
            return Outcome(REJECTED, str(error))
        execution.wait(TIMEOUT)
        return replace(
            _outcome(execution),
            agent_calls=calls,
            printed=[text.removesuffix("\n") for text in printed],
            documents={path: documents.get(path).content for path in documents.list()},
            initial_documents=data.get("documents", {}),
        )


def _agent(name: str, spec: Any, calls: list[Mapping[str, Any]]) -> Agent:
    """Make an agent that answers from a script: a list of replies, or a mapping that says more."""
    given = spec if isinstance(spec, Mapping) else {"replies": spec}
    definition = AgentDefinition(name, is_supervisor=given.get("supervisor", False))
    return Agent(definition, model=OverheardModel(name, calls, given))


def _outcome(execution: Run) -> Outcome:
    history = execution.history()
    events = [ObservedEvent(event.event_type, event.path, event.step, event.data.to_data()) for event in history]
    operations = [event for event in events if event.event_type == "operation_started"]
    return Outcome(
        status=execution.status,
        error=execution.error,
        state=execution.variables,
        outputs=execution.outputs,
        inputs=execution.inputs,
        paths={path_id: _path(path) for path_id, path in execution.internals.paths.items()},
        usage=execution.state.own_usage.to_dict(),
        events=events,
        status_sequence=_statuses(execution.id, history),
        operation_ids=[_old_id(event) for event in operations if event.data["operation_type"] in OLD_PARAMETERS],
    )


def _path(path: Any) -> dict[str, Any]:
    outputs = dict(path.step_outputs)
    return {"status": path.status, "current_step": path.current_step, "step_outputs": outputs, "error": path.error}


def _statuses(execution_id: str, history: Sequence[Event]) -> list[str]:
    """Return every status the fold of the log passes through, beginning before the first event."""
    state = ExecutionState(execution_id)
    statuses = [state.status]
    for event in history:
        state = evolve(state, event)
        statuses.append(state.status)
    return [status for status, _ in groupby(statuses)]


def _old_id(event: ObservedEvent) -> str:
    operation_type, parameters = event.data["operation_type"], event.data["parameters"]
    named = {key: parameters[key] for key in OLD_PARAMETERS[operation_type] if key in parameters}
    return legacy_operation_id(operation_type, event.step, event.path, named)
