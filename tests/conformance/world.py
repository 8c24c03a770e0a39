"""Runs one case through divebook's public API and notes what can be seen of it from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from divebook.agents import Agent, ScriptedModel
from divebook.documents import MemoryDocuments
from divebook.engine.evolve import evolve
from divebook.engine.operations import legacy_operation_id
from divebook.engine.state import ExecutionState
from divebook.environment import Environment
from divebook.errors import DivebookError
from divebook.events import Event
from divebook.execution import Execution
from divebook.scripting import evaluate_condition, render_template
from divebook.store import MemoryStore
from divebook.workflow import AgentDefinition, read_workflow
from tests.conformance.cases import Case
from tests.conformance.outcome import REJECTED, Evaluation, ObservedEvent, Outcome

TIMEOUT = 60.0
"""Seconds one case may take."""

OLD_PARAMETERS = {
    "agent_response": ("agent", "prompt"),
    "action_execution": ("action_name", "params"),
    "script_execution": ("script",),
}
"""The parameters that enter an operation's old id, by its type; other operations had none."""


def observe(case: Case) -> Outcome | Evaluation:
    """Run one case."""
    if case.group == "condition":
        return _evaluate(case.data["given"]["condition"], case.data["given"]["globals"], evaluate_condition)
    if case.group == "template":
        return _evaluate(case.data["given"]["template"], case.data["given"]["globals"], render_template)
    return _run(case.data)


def _evaluate(text: str, names: Mapping[str, Any], evaluate: Any) -> Evaluation:
    try:
        return Evaluation(evaluate(text, names))
    except DivebookError as error:
        return Evaluation(error=str(error))


def _run(data: Mapping[str, Any]) -> Outcome:
    documents = MemoryDocuments(dict(data.get("documents", {})))
    printed: list[str] = []
    with MemoryStore() as store:
        environment = Environment(
            "conformance",
            store=store,
            agents=_agents(data.get("agents", {})),
            documents=documents,
            printer=printed.append,
        )
        try:
            workflow = read_workflow(data["definition"], dialect="dive")
            execution = environment.start(workflow, data.get("inputs", {}))
        except DivebookError as error:
            return Outcome(REJECTED, str(error))
        execution.wait(TIMEOUT)
        return _outcome(execution, printed, documents, data.get("documents", {}))


def _agents(replies: Mapping[str, Any]) -> list[Agent]:
    """Make agents that answer from a script: a list of replies, or a mapping that says more."""
    return [_agent(name, spec if isinstance(spec, Mapping) else {"replies": spec}) for name, spec in replies.items()]


def _agent(name: str, spec: Mapping[str, Any]) -> Agent:
    model = ScriptedModel(list(spec.get("replies", ())), usage=spec.get("usage", {}), error=spec.get("error"))
    return Agent(AgentDefinition(name, is_supervisor=spec.get("supervisor", False)), model=model)


def _outcome(
    execution: Execution, printed: Sequence[str], documents: MemoryDocuments, initial_documents: Mapping[str, str]
) -> Outcome:
    history = execution.history()
    events = [ObservedEvent(event.event_type, event.path, event.step, event.data.to_data()) for event in history]
    operations = [event for event in events if event.event_type == "operation_started"]
    return Outcome(
        status=execution.status,
        error=execution.error,
        state=execution.variables,
        outputs=execution.outputs,
        inputs=execution.inputs,
        paths={path_id: _path(path) for path_id, path in execution.paths.items()},
        usage=execution.usage.to_dict(),
        events=events,
        status_sequence=_statuses(execution.id, history),
        agent_calls=[_call(event) for event in operations if event.data["operation_type"] == "agent_response"],
        operation_ids=[_old_id(event) for event in operations if event.data["operation_type"] in OLD_PARAMETERS],
        printed=[text.removesuffix("\n") for text in printed],
        documents={path: documents.get(path).content for path in documents.list()},
        initial_documents=initial_documents,
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


def _call(event: ObservedEvent) -> Mapping[str, Any]:
    parameters: Mapping[str, Any] = event.data["parameters"]
    return parameters


def _old_id(event: ObservedEvent) -> str:
    operation_type, parameters = event.data["operation_type"], event.data["parameters"]
    named = {key: parameters[key] for key in OLD_PARAMETERS[operation_type] if key in parameters}
    return legacy_operation_id(operation_type, event.step, event.path, named)
