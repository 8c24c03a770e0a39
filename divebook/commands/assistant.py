"""Tools for coding assistants in JupyterLab, through the package jupyter-server-mcp.

That package serves Python functions to assistants as MCP tools. It finds them through the entry point group
``jupyter_server_mcp.tools``; the entry point of divebook is `tools`, which returns the functions of this module as
``module:function``. They run in the process of the Jupyter server, and read the store of its folder or of the variable
``DIVEBOOK_STORE``.

Results are metadata: ids, statuses, times, costs, and names of workflows, steps and variables. Values, texts of
questions and errors are content. They are returned only if a call asks for them with ``content=True``, and then without
secrets.

`divebook_answer` exists only if the environment variable ``DIVEBOOK_ASSISTANT_ANSWERS`` of the Jupyter server is ``1``.
An answer can approve a call that a person should see first.
"""

# The annotations are not strings: the server reads the types of the parameters from a wrapper of each function.
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from divebook.commands.command import Invocation
from divebook.commands.control import inbox, inbox_data
from divebook.commands.inspection import ShownRun, comparison_data, provenance_data, runs_data, shown_run_data
from divebook.commands.inspection import runs as list_runs
from divebook.commands.store import existing_store
from divebook.commands.variants import what_if_data
from divebook.environments.environment import Environment
from divebook.errors import AnswerKeptError, DefinitionError
from divebook.runtime.run import compared
from divebook.text.redaction import shared

ANSWERS_VARIABLE = "DIVEBOOK_ASSISTANT_ANSWERS"
"""Environment variable that offers the tool `divebook_answer`, if its value is ``1``."""
_READING = (
    *("divebook_runs", "divebook_show", "divebook_questions", "divebook_why", "divebook_compare"),
    *("divebook_what_if_plan", "divebook_check_definition", "divebook_help"),
)
_CONTENT_OF_RUNS = frozenset({"error", "note"})
_CONTENT_OF_RUN = frozenset({"error", "failure", "inputs", "outputs", "variables", "last_output", "questions"})
_CONTENT_OF_PATHS = frozenset({"error_message", "step_outputs"})
_METADATA_OF_QUESTIONS = (
    *("run_id", "question_id", "address", "kind", "path", "step", "raised_at", "expires_at", "optional", "status"),
)
_answering: dict[str, Environment] = {}
"""Environments in which answered runs continue, by address of the store. They stay open as long as the server."""


def tools() -> list[str]:
    """Return the tools that this server offers, as ``module:function``. This is the entry point."""
    names = (*_READING, "divebook_answer") if may_answer() else _READING
    return [f"{__name__}:{name}" for name in names]


def may_answer() -> bool:
    """Return whether assistants may answer questions here."""
    return os.environ.get(ANSWERS_VARIABLE) == "1"


@contextmanager
def _opened(store: str | None) -> Iterator[Environment]:
    """Open an environment over an existing store for the time of one call."""
    with Environment(store=existing_store(store)) as environment:
        yield environment


def _call(environment: Environment) -> Invocation:
    """Return a call of a command over an environment."""
    return Invocation("python", lambda: environment, lambda _text, _style: None, learn=_learn)


def _learn(*values: Any) -> None:
    for value in values:
        shared().learn(value)


def _without(data: dict[str, Any], content: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in content}


def _safe(data: Any, environment: Environment, *runs: str) -> Any:
    """Return content without secrets. The secrets in the inputs of its runs are found first."""
    for run in runs:
        shared().learn(environment.run_of(run).state.inputs)
    return shared().documents(data)


def divebook_runs(
    *,
    workflow: str | None = None,
    status: str | None = None,
    limit: int = 20,
    store: str | None = None,
    content: bool = False,
) -> dict[str, Any]:
    """List the recorded runs of divebook workflows, newest first: ids, statuses, times, costs, numbers of questions.

    `status` is one of running, waiting, paused, completed, failed, cancelled. With `content` also errors and notes.
    `store` is the file of a store, relative to the folder of the Jupyter server; the default is that of this folder.
    """
    with _opened(store) as environment:
        filters: dict[str, Any] = {"workflow": workflow, "status": status}
        query = list_runs(_call(environment), limit=limit, **{name: each for name, each in filters.items() if each})
        data: dict[str, Any] = {**runs_data(query)}
        if content:
            return dict(_safe(data, environment, *(run["id"] for run in data["runs"])))
        return {**data, "runs": [_without(run, _CONTENT_OF_RUNS) for run in data["runs"]]}


def divebook_show(
    run: str,
    *,
    store: str | None = None,
    content: bool = False,
) -> dict[str, Any]:
    """Show one run: status, paths (branches) with their steps, usage, names of inputs and variables, open questions.

    `run` is an id or the beginning of one. With `content` also the values, errors and texts of questions.
    """
    with _opened(store) as environment:
        handle = environment.run_of(run)
        data: dict[str, Any] = {**shown_run_data(ShownRun(handle))}
        if content:
            return dict(_safe(data, environment, handle.id))
        return {
            **_without(data, _CONTENT_OF_RUN),
            "paths": [_without(path, _CONTENT_OF_PATHS) for path in data["paths"]],
            "input_names": sorted(data["inputs"]),
            "variable_names": sorted(data["variables"]),
            "question_ids": sorted(data["questions"]),
            "has_error": data["error"] is not None,
        }


def divebook_questions(
    *,
    store: str | None = None,
    content: bool = False,
) -> dict[str, Any]:
    """List the open questions of all runs, with the address for an answer. With `content` also texts and data."""
    with _opened(store) as environment:
        data = inbox_data(inbox(_call(environment)))
        if content:
            return dict(_safe(data, environment, *{question["run_id"] for question in data["questions"]}))
        metadata = [{name: dict(question)[name] for name in _METADATA_OF_QUESTIONS} for question in data["questions"]]
        return {"questions": metadata}


def divebook_why(
    variable: str,
    run: str,
    *,
    at: int | None = None,
    store: str | None = None,
    content: bool = False,
) -> dict[str, Any]:
    """Return the origin of the value of a variable: the steps, calls, variables and inputs that led to it.

    `variable` may also be inputs.NAME, or state for all variables. `at` is the number of an event; the default is the
    end of the run. With `content` also the values and a text.
    """
    with _opened(store) as environment:
        handle = environment.run_of(run)
        data: dict[str, Any] = {**provenance_data(handle.why(variable, at))}
        if content:
            return dict(_safe(data, environment, handle.id))
        origins = [_without(origin, frozenset({"value"})) for origin in data["origins"]]
        return {"name": data["name"], "at": data["at"], "origins": origins}


def divebook_compare(
    runs: list[str],
    *,
    store: str | None = None,
    content: bool = False,
) -> dict[str, Any]:
    """Compare two or more runs of one workflow: the places that differ. With `content` also how they differ."""
    with _opened(store) as environment:
        data: dict[str, Any] = {**comparison_data(compared(environment, *runs))}
        if content:
            return dict(_safe(data, environment, *runs))
        return {**data, "differences": [_without(each, frozenset({"text"})) for each in data["differences"]]}


def divebook_what_if_plan(
    run: str,
    *,
    inputs: dict[str, Any] | None = None,
    variables: dict[str, Any] | None = None,
    prompts: dict[str, str] | None = None,
    model: str | None = None,
    at: int | None = None,
    definitions: str | None = None,
    store: str | None = None,
) -> dict[str, Any]:
    """Return the plan of a what-if: the recorded calls that one change would reuse, the live ones, and their cost.

    Nothing is called or run. Name one change: inputs or variables by name, prompts by step, or a model. `definitions`
    is YAML or JSON text with the agents of the workflow, which the log does not have.
    """
    from divebook.definitions.reader import read_definitions

    with _opened(store) as environment:
        changes = {"inputs": inputs, "variables": variables, "prompts": prompts, "model": model}
        change = {name: value for name, value in changes.items() if value}
        if definitions:
            environment.define(read_definitions(definitions, source_name="definitions"))
        source = environment.run_of(run)
        data = what_if_data(source.what_if(change, at, plan=True))["plan"]
        return dict(_safe(data or {}, environment, source.id))


def divebook_check_definition(text: str) -> dict[str, Any]:
    """Check the YAML or JSON text of a definition of agents and workflows. Nothing is run.

    Return its problems with line, column, key and hint, and the names of its workflows and agents if it can be read.
    """
    from divebook.definitions.reader import read_definitions
    from divebook.steps.checks import syntax_problems

    try:
        definitions = read_definitions(text, source_name="definition")
        problems = [*definitions.warnings, *syntax_problems(definitions)]
    except DefinitionError as error:
        return {"problems": [asdict(problem) for problem in error.problems], "workflows": [], "agents": []}
    return {
        "problems": [asdict(problem) for problem in problems],
        "workflows": [workflow.name for workflow in definitions.workflows],
        "agents": [agent.name for agent in definitions.agents],
    }


def divebook_help(key: str) -> str:
    """Return the meaning and type of a key of definitions, such as Ask, Each or Prompt, with an example."""
    from divebook.definitions.schema import help_about

    return help_about(key)


def divebook_answer(address: str, answer: Any, store: str | None = None) -> dict[str, Any]:
    """Answer an open question, on behalf of the person at this server. Ask that person first.

    `address` is that of `divebook_questions`. `answer` is a text, true or false, a number, or data that fits the
    schema of the question. The run continues where it is driven, or in this server.
    """
    if not may_answer():
        raise PermissionError(f"assistants may not answer here; {ANSWERS_VARIABLE}=1 for the Jupyter server allows it")
    event_store = existing_store(store)
    environment = _answering.setdefault(event_store.location, Environment(store=event_store))
    try:
        run = environment.answer(address, answer, by="assistant")
    except AnswerKeptError as error:
        # The functions of the run are in another process, which reads the answer when it continues the run.
        return {"stored": True, "note": str(error)}
    return {"stored": True, "run_id": run.id, "status": run.status}
