"""Checks of a definition before an execution starts: names of agents, tools and models, tool schemas, and code in the
definition.

A workflow function chooses its agents at run time, so these agents are checked when the function asks them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from divebook.agents import Agent
from divebook.agents.models import DEFAULT_MODELS, RECORDED, is_known_provider
from divebook.definitions.definition import Definitions, Workflow
from divebook.definitions.functions import FUNCTION
from divebook.definitions.graph import reachable_from
from divebook.definitions.resources import ToolDefinition
from divebook.definitions.step import STAGE, Step
from divebook.definitions.table import nearest_position
from divebook.definitions.tools import ToolFunction
from divebook.errors import (
    DefinitionError,
    ExecutionNotFoundError,
    NotFoundError,
    Place,
    Problem,
    ScriptSyntaxError,
    SetupError,
    TemplateError,
    UndefinedVariableError,
    did_you_mean,
    nearest,
)
from divebook.scripting.needs import (
    CodeText,
    check_template,
    code_texts,
    filled_texts,
    needs_of_expression,
    needs_of_script,
    set_by_script,
)
from divebook.scripting.prelude import SAFE_NAMES
from divebook.scripting.syntax import Program
from divebook.steps.prompt import ASSIGN_WORK, AgentToolkit
from divebook.stores import EventStore
from divebook.text.redaction import logger
from divebook.tools.builtin import ABSENT, OFFERED

N = TypeVar("N", str, str | None)


_log = logger(__name__)


OurTools: TypeAlias = Mapping[str, ToolFunction]
"""Tools that were passed to the environment itself, by name."""


def require_existing(kind: str, names: Iterable[str], existing: Iterable[str], agent: str) -> None:
    """Raise `NotFoundError` if one of `names`, which an agent refers to, is not among `existing`. `kind` describes the
    named things in the error, for example "tool".
    """
    for name in names:
        if name not in existing:
            raise NotFoundError(kind, name, existing, f"{kind} not found: {name}, which agent {agent} names")


def agents_of_steps(
    steps: Iterable[Step], find: Callable[[str | None], Agent | None], toolkit: AgentToolkit
) -> list[Agent]:
    """Return the agents of all prompt steps and, recursively, the agents to which they may delegate work
    (subordinates). Each agent is returned once.
    """
    return agents_with_subordinates({step.agent for step in steps if step.type == "prompt"}, find, toolkit)


def agents_with_subordinates(
    names: Iterable[N], find: Callable[[N], Agent | None], toolkit: AgentToolkit
) -> list[Agent]:
    """Return the agents with the given names and, recursively, the agents to which they may delegate work
    (subordinates). Each agent is returned once.
    """
    agents: dict[str, Agent] = {}
    # Subordinates may have each other as subordinates. The walk ends, because each agent is looked at once.
    remaining = [agent for agent in map(find, names) if agent is not None]
    while remaining:
        agent = remaining.pop()
        if agent.name not in agents:
            agents[agent.name] = agent
            remaining += toolkit.subordinates_for(agent.definition)
    return [*agents.values()]


def check_declared(
    declared: Iterable[ToolDefinition], existing: Iterable[str], agents: Iterable[Agent], servers: Iterable[str]
) -> None:
    """Raise `NotFoundError` if an entry under the key ``Tools`` of a definition configures a tool that does not exist.
    Raise no error if there are MCP servers, because their tools are not known yet.
    """
    # Names of `ABSENT` get a warning of their own (`check_agent`).
    names = {*existing, *OFFERED, *ABSENT, ASSIGN_WORK, *(tool.name for agent in agents for tool in agent.tools)}
    for entry in declared:
        if entry.name not in names and not any(servers):  # the tools of servers are not known yet
            missing = f"Tools of the definition names an unknown tool: {entry.name}"
            raise NotFoundError("tool", entry.name, names, missing)


def check_agent(agent: Agent, toolkit: AgentToolkit, environment_tools: OurTools) -> None:
    """Check that all tools, servers and subordinates of an agent exist, that tool names are unique, and that tools have
    JSON schemas.

    In the legacy Dive dialect, tools of services that divebook does not have are skipped with a warning.

    Raises
    ------
    NotFoundError
        A name does not exist.
    SetupError
        Two tools have the same name, or ``ToolConfig`` names a tool that the agent does not use.
    DefinitionError
        A tool has no JSON schema, so that it cannot be described to a model.
    """
    definition = agent.definition
    for name in definition.tool_config:
        if name not in definition.tools:
            raise SetupError(f"ToolConfig of agent {agent.name} has options for {name}, which is not in Tools: add it")
    # Called only for the errors that they raise.
    toolkit.subordinates_for(definition)
    toolkit.servers_for(definition)
    tools = [toolkit.limited(tool) for tool in (*toolkit.tools_for(definition), *agent.tools)]
    _check_names(agent, tools, environment_tools)
    # A tool that is kept from an earlier turn has a schema.
    _check_signatures(agent, [tool for tool in tools if toolkit.library_cache.tool(tool) is None])
    for name in ABSENT.keys() & set(definition.tools) - {tool.name for tool in tools}:
        _log.warning("agent %s runs without the tool %s: %s", agent.name, name, ABSENT[name])


def _check_names(agent: Agent, tools: Iterable[ToolFunction], environment_tools: OurTools) -> None:
    """Raise `SetupError` if two tools of an agent have the same name, because an approval rule for one tool would also
    apply to the other.
    """
    by_name: dict[str, ToolFunction] = {}
    for tool in tools:
        if tool.name in by_name:
            both = f"{_place(by_name[tool.name].function)} and {_place(tool.function)}"
            raise SetupError(
                f"agent {agent.name} has two tools called {tool.name}: {both}; remove one, or rename it with "
                "@tool(name=...)"
            )
        by_name[tool.name] = tool
    # An agent that names a tool of the environment and brings another one of that name would be ambiguous.
    for tool in agent.tools:
        other = environment_tools.get(tool.name)
        if other is not None and not _is_same(tool.function, other.function):
            raise SetupError(
                f"agent {agent.name} has a tool called {tool.name} of its own, {_place(tool.function)}, and its "
                f"environment another one, {_place(other.function)}: give one of them another name with "
                f'@tool(name=...), or let the agent have the other with tools=["{tool.name}"]'
            )


def _is_same(first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    """Return True if two functions are the same, or one of them is a newer definition of the other, created by running
    a cell again.

    Functions that are defined inside another function are never considered the same, because each function call creates
    a different one.
    """
    return first == second or (_place(first) == _place(second) and "<locals>" not in _place(first))


def _place(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{function.__module__}.{name}"


def _check_signatures(agent: Agent, tools: Iterable[ToolFunction]) -> None:
    """Raise `DefinitionError` unless a JSON schema can be derived from the signature of each user function that is a
    tool.

    Functions of divebook and tools of servers already have a schema.
    """
    for tool in tools:
        if tool.schema is None and not _place(tool.function).startswith("divebook."):
            from divebook.agents.signatures import library_tool  # takes half a second: only for agents with tools

            try:
                library_tool(tool, _never)
            except DefinitionError as error:
                raise DefinitionError(error.problems, f"agent {agent.name}") from error


async def _never(*_: Any) -> Any:
    raise AssertionError("a tool that is only looked at is not called")


def check_model(model: Any, whose: str, store: EventStore) -> None:
    """Raise `SetupError` if an agent's model name contains an unknown provider or the id of an unknown run. `whose` is
    the beginning of the error message and names the owner of the model.

    A missing library or key is reported when the model is used: it can be fixed while the run waits.
    """
    # Model objects and names without a provider need no check here.
    if not isinstance(model, str) or ":" not in model:
        return
    provider, _, name = model.partition(":")
    if model.startswith(RECORDED):
        try:
            store.record(name)
        except ExecutionNotFoundError as error:
            raise SetupError(f"{whose}: {model} names a run that does not exist: {error}") from error
    # The table is asked first, because pydantic-ai takes half a second to load.
    elif provider not in DEFAULT_MODELS and not is_known_provider(provider):
        similar = nearest(provider, DEFAULT_MODELS)
        advice = f"did you mean {similar}:{name}?" if similar else f"use one of pydantic-ai's, such as openai:{name}"
        raise SetupError(f"{whose}: there is no model provider {provider!r}, used in {model!r}; {advice}")


# --- code problems ---------------------------------------------------------------------------------------------------
#
# Problems in scripts, conditions, items and templates of definitions: syntax errors, and names that cannot exist.
#
# A variable exists once a step that stores it has ended, a script has set it, or a loop is at an item. A name is a
# mistake if no part of the workflow sets it, or only parts that come after the step that reads it. All other errors
# appear at run time.


MOST_STEPS = 200
"""Maximum number of steps for which the order of steps is analysed. Each question walks over all steps."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Problem in the code of a definition: the code uses a variable, input or other name that cannot exist when the
    code runs.
    """

    message: str
    key: str
    hint: str | None
    pattern: str
    """Regular expression for its spelling in the source."""

    def problem(self, place: Place) -> Problem:
        """Convert this mistake to a `Problem` for the user. `place` is the path of keys that leads to the faulty code
        in the definition.
        """
        return Problem(self.message, key=self.key, hint=self.hint, place=place)


class Naming:
    """Analysis of the names in the code of one workflow: determines which variables and inputs can exist when a step
    runs.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._steps = {step.name: step for step in workflow.steps}
        self._start = workflow.first_step.name
        self._order = {name: number for number, name in enumerate(self._steps)}
        self._inputs = [entry.name for entry in workflow.inputs]
        # {step: names that its script sets}; None if only running the code shows them.
        self._scripts = {step.name: _set_by(step) for step in workflow.steps}
        self._is_known = all(names is not None for names in self._scripts.values())
        self._setters = self._all_setters()

    def _all_setters(self) -> dict[str, list[str]]:
        """Return a dict from the name of each variable to the names of the steps that set it."""
        setters: dict[str, list[str]] = {}
        for step in self._steps.values():
            # A step sets its `Store`, the variable of its loop, and the variables of its `Catch`.
            stored = {step.store, step.each.as_ if step.each else None, *(policy.store for policy in step.catch)}
            for name in (stored | (self._scripts[step.name] or frozenset())) - {None, ""}:
                setters.setdefault(str(name), []).append(step.name)
        return setters

    def mistakes(self, step: Step, code: CodeText, programs: Iterable[Program]) -> Iterator[Mistake]:
        """Check one piece of code of a step, compiled to `programs`. Yield a `Mistake` for each name that cannot exist
        when the code runs.
        """
        for program in programs:
            yield from self._unknown(step, code, program)
            needs = needs_of_script(program.text) if code.is_script else needs_of_expression(program)
            for root, name in sorted(needs):
                mistake = self._no_input(name) if root == "inputs" else self._no_variable(name, step, code)
                if mistake is not None:
                    message, hint = mistake
                    # `state.total`, `state["total"]` and `state['total']`
                    pattern = rf"\b{root}\s*(?:\.\s*|\[\s*[\"'])({re.escape(name)})\b"
                    yield Mistake(message, code.key, hint, pattern)

    def _unknown(self, step: Step, code: CodeText, program: Program) -> Iterator[Mistake]:
        names: Mapping[str, Any] = {"inputs": dict.fromkeys(self._inputs), "state": dict.fromkeys(self._setters)}
        # The loop variable exists only while an item runs.
        if step.each is not None and step.each.as_ and (code.is_of_item or not (code.is_before or code.is_after)):
            names = {**names, step.each.as_: None}
        try:
            program.require(names, code.offered)
        except UndefinedVariableError as error:
            # The near name of ${statte.total} is the better advice; a bare ${HOME} is more likely meant as text.
            is_bare = program.text.strip().isidentifier()
            hint = code.escape(program) if is_bare or error.hint is None else None
            yield Mistake(str(error), code.key, hint, rf"(?<![\w.])({re.escape(error.name)})\b")

    def _no_input(self, name: str) -> tuple[str, str] | None:
        if name in self._inputs:
            return None
        existing = f"its inputs are {', '.join(self._inputs)}" if self._inputs else "it has none"
        return f"the workflow has no input {name!r}", did_you_mean(
            name, self._inputs
        ) or f"{existing}; add it to Inputs"

    def _no_variable(self, name: str, step: Step, code: CodeText) -> tuple[str, str] | None:
        # Some script sets variables whose names only running it shows, so any name may exist.
        if not self._is_known:
            return None
        setters = self._setters.get(name, ())
        if not setters:
            existing = (
                f"the steps set {', '.join(sorted(self._setters))}"
                if self._setters
                else "write Store in an earlier step"
            )
            return f"no step sets state.{name}", did_you_mean(name, self._setters) or existing
        # A script may read variables that it sets itself. The order inside of a script is not checked.
        if name in (self._scripts[step.name] or ()) or any(
            self._may_precede(setter, step, code, name) for setter in setters
        ):
            return None
        if setters == [step.name]:
            return f"state.{name} is not set yet: it is the result of this step", "use it in a later step"
        return f"state.{name} is not set yet: step {setters[0]!r} sets it, after {step.name!r}", "move the step up"

    def _may_precede(self, setter: str, step: Step, code: CodeText, name: str) -> bool:
        """Return True if the step `setter` can set the variable `name` before the code of the step `step` is evaluated.
        `setter` and `step` may be the same step.
        """
        if setter == step.name:
            is_of_all = code.is_of_item and step.each is not None and step.each.as_ != name  # its items have not ended
            # Later items, and code after the step, may read the values that the step has stored. Without either, only a
            # cycle in the graph leads back to it.
            is_there = not is_of_all and (code.is_after or step.each is not None)
            return is_there or step.name in reachable_from(self._steps, step.name)
        # An earlier step may run first. For large workflows, assume so without a search.
        if self._order[setter] < self._order[step.name] or len(self._steps) > MOST_STEPS:
            return True
        # If every path to the setter leads through this step, the setter cannot have run before its first visit.
        # Example: in `start -> read -> set`, the step `read` comes before `set`, unless an edge leads back to `read`.
        without = {name: value for name, value in self._steps.items() if name != step.name}
        is_behind = self._start == step.name or setter not in reachable_from(without, self._start)
        return not is_behind or step.name in reachable_from(self._steps, setter)


def _set_by(step: Step) -> frozenset[str] | None:
    """Return the names of the variables that the script of a step sets with ``state.set``. Return None if they are only
    known when the code runs.
    """
    if step.type in (FUNCTION, STAGE):
        return None
    try:
        return set_by_script(step.script) if step.type == "script" and step.script else frozenset()
    except ScriptSyntaxError:  # reported by the check of the script itself
        return None


def syntax_problems(definitions: Definitions) -> list[Problem]:
    """Return the problems in all scripts, expressions and templates of the definitions, sorted by line and column.

    Workflows in the dialect ``dive`` are not checked here: they report problems at run time.
    """
    problems = [
        problem.below("Workflows", index)
        for index, workflow in enumerate(definitions.workflows)
        if workflow.manner.is_strict
        for problem in workflow_problems(workflow)
    ]
    problems += [problem for index in range(len(definitions.schedules)) for problem in _schedule(definitions, index)]
    problems += [problem for index in range(len(definitions.pipelines)) for problem in _pipeline(definitions, index)]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def _schedule(definitions: Definitions, index: int) -> Iterator[Problem]:
    """Yield a problem for each faulty template in the inputs of one schedule. These templates may use the name
    ``schedule`` only.
    """
    schedule = definitions.schedules[index]
    for code in filled_texts(("Inputs",), schedule.inputs):
        yield from _mistakes(definitions, code, ("Schedules", index), f"schedule {schedule.name!r}", "schedule")


def _pipeline(definitions: Definitions, index: int) -> Iterator[Problem]:
    """Yield a problem for each faulty prompt template of one pipeline and its stages. These templates may use the name
    ``envelope`` only.
    """
    pipeline = definitions.pipelines[index]
    place = ("Pipelines", index)
    for key, text in pipeline.prompts.items():
        code = CodeText(("Prompts", key), text, check_template)
        yield from _mistakes(definitions, code, place, f"pipeline {pipeline.name!r}", "envelope")
    # Stages are sorted by their own order; only without one they are where they were written.
    is_as_written = not any(stage.stage_order for stage in pipeline.agents)
    for number, stage in enumerate(pipeline.agents):
        code = CodeText(("Stages", number, "Prompt") if is_as_written else ("Prompt",), stage.prompt, check_template)
        yield from _mistakes(definitions, code, place, f"stage {stage.name!r}", "envelope")


def _mistakes(
    definitions: Definitions, code: CodeText, parent_place: Place, owner: str, name: str
) -> Iterator[Problem]:
    """Check the code of a schedule or pipeline. Yield a problem if the code is not valid or uses a name other than
    `name` (``schedule`` or ``envelope``) and the built-in functions. `owner` describes the schedule or stage in the
    error message.
    """
    place = (*parent_place, *code.place)
    hint = None
    try:
        for program in code.check(code.text):
            # The hint belongs to the expression that fails, which is the last one checked.
            hint = code.escape(program)
            program.require({name: {}}, SAFE_NAMES)
    except (ScriptSyntaxError, TemplateError, UndefinedVariableError) as error:
        line, column = nearest_position(place, definitions.positions)
        yield Problem(f"{code.key} of {owner}: {error}", key=code.key, hint=hint, place=place).at(line, column)


def workflow_problems(workflow: Workflow) -> Iterator[Problem]:
    """Yield the problems in all scripts, expressions and templates of one workflow. Each problem states in which part
    of the workflow it is, as a path of keys such as ``Steps``, 2, ``Script``.
    """
    names = Naming(workflow)
    for index, step in enumerate(workflow.steps):
        for code in code_texts(step):
            place = ("Steps", index, *code.place)
            try:
                programs = code.check(code.text)
            except (ScriptSyntaxError, TemplateError) as error:
                message = f"{code.key} of step {step.name!r}: {error}"
                yield workflow.written.located(Problem(message, key=code.key, place=place))
                continue
            for mistake in names.mistakes(step, code, programs):
                yield workflow.written.located(mistake.problem(place), mistake.pattern)
