"""Workflows and inputs as plain data, all definitions of a file, and functions that check, merge and convert
definitions.

A `Workflow` is created by the reader from text, by Python code directly, or from a log by `Workflow.from_dict`. All
three ways result in equal objects with equal fingerprints. Agents are referred to by name only.

The module also converts pipelines to workflows (`compiled`), finds names that are not defined (`missing_agents` ...),
and merges definitions of several files (`merge`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Annotated, Any, Protocol, Self, TypeVar

from divebook.definitions import table
from divebook.definitions.answer_types import ParameterType
from divebook.definitions.dialect import OWN, Dialect, DialectRules, rules_of
from divebook.definitions.graph import check_workflow, reachable_from
from divebook.definitions.pipelines import RESERVED, AgentStage, PipelineConfig, RunMode
from divebook.definitions.resources import (
    AgentDefinition,
    ApprovalRule,
    Config,
    DocumentDefinition,
    ModelSettings,
    ProviderSettings,
    ScheduleDefinition,
    ToolDefinition,
    TriggerDefinition,
    WorkspaceDefinition,
)
from divebook.definitions.servers import (
    ApprovalFilterDefinition,
    MCPServerDefinition,
    OAuthDefinition,
    TokenStoreDefinition,
    ToolConfigurationDefinition,
)
from divebook.definitions.step import STAGE, Catch, ContentEntry, Each, Edge, Step, chained, require_step
from divebook.definitions.stored_form import (
    Definition,
    arguments,
    defaults,
    recorded_default,
    require_text,
    with_present_templates,
)
from divebook.definitions.table import Key, nearest_position
from divebook.errors import (
    UNFIT,
    DefinitionError,
    ExecutionError,
    NotFoundError,
    Place,
    Problem,
    SetupError,
    Severity,
    UnstorableValueError,
    did_you_mean,
    position_in,
)
from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.codec import encode, tagged_form
from divebook.events.upcast import FORM, Change, apply_changes
from divebook.questions.bounds import Bounds
from divebook.text.arguments import describe, normal_name, same_name, suggest_arguments


@dataclass(frozen=True, slots=True)
class Written:
    """Source text of a workflow and the positions of its parts in the text, so that errors found later can show file,
    line and column.

    Empty for a workflow that was created by Python code.
    """

    name: str = ""
    """Name of the text, such as ``survey.yaml`` or ``Cell [5]``."""
    positions: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """Line and column of all parts of the text."""
    place: Place = ()
    """Place of the workflow in the text."""
    text: str = ""
    above: int = 0
    """Number of lines in the cell before the text."""

    def located(self, problem: Problem, pattern: str = "") -> Problem:
        """Return a copy of a problem with line and column filled in. `problem.place` is the path of the faulty part
        within this workflow, such as ``Steps``, 2.

        With a `pattern` the position is that of its first match in the faulty part, or of the group in the match.
        """
        # Positions belong to the whole text: `place` leads to the workflow in it, `problem.place` to a part of the
        # workflow.
        line, column = nearest_position((*self.place, *problem.place), self.positions)
        if pattern and line:
            line, column = self._first_match(re.compile(pattern), line, column)
        return problem.at(line, column)

    def _first_match(self, pattern: re.Pattern[str], line: int, column: int) -> tuple[int, int]:
        # `line` counts from the top of the cell. The text begins below `above` lines. Later lines are searched as well,
        # because the part may be a block of several lines.
        for number, text in enumerate(self.text.splitlines()[line - self.above - 1 :], line):
            match = pattern.search(text, column - 1 if number == line else 0)
            if match is not None:
                # A pattern without a group has `groups` 0, which is the whole match. With one group it is the group.
                return number, match.start(pattern.groups) + 1
        return line, column

    def where(self, place: Place) -> str:
        """Return the source position of a part of the workflow for an error message, such as ``survey.yaml:7:11``;
        empty if the position is unknown.

        >>> Written("survey.yaml", {("Steps", 0): (7, 11)}).where(("Steps", 0, "Agent"))
        'survey.yaml:7:11'
        """
        line, column = nearest_position((*self.place, *place), self.positions)
        return position_in(self.name, line, column) if line else ""


UNWRITTEN = Written()


@suggest_arguments
@dataclass(frozen=True, slots=True, init=False)
class Workflow(Definition):
    """A workflow: steps and the edges between them. The first listed step is the start.

    The constructor raises `DefinitionError` if the steps do not fit together, for example because an edge leads to a
    step that does not exist. ``divebook keys Workflow`` describes each field.

    Examples
    --------
    >>> workflow = Workflow("hello", [Step("ask", prompt="Greet ${inputs.who}", store="text")], inputs=["who"])
    >>> workflow.first_step.name
    'ask'
    """

    name: Annotated[str, Key("Name under which the workflow is run.", example="audit")]
    description: Annotated[str, Key("Description for people.", example="Checks the licences of a project")] = ""
    inputs: Annotated[tuple[InputDefinition, ...], Key("Inputs of the workflow.")] = ()
    outputs: Annotated[
        tuple[OutputDefinition, ...], Key("Results of the workflow: the variables with these names.", extension=True)
    ] = ()
    steps: Annotated[
        tuple[Step, ...],
        Key(
            "Steps of the workflow. The first step is the start. Each step leads to the next one in the list, unless "
            "it has `Next` or `End: true`."
        ),
    ] = ()
    triggers: Annotated[tuple[TriggerDefinition, ...], Key("Names under which the workflow can be started.")] = ()
    continue_on_failure: Annotated[bool, Key("Continue the other paths after one path has failed.", extension=True)] = (
        False
    )
    bounds: Annotated[
        Mapping[str, Any] | None,
        Key(
            "Budget of a run, such as tokens, model calls, US dollars and seconds.",
            extension=True,
            example="{MaxLLMCalls: 20, MaxCost: 1.5}",
        ),
    ] = None
    """Bounds of an execution that is started without bounds; see `divebook.Bounds`."""
    workspace: Annotated[
        str | None,
        Key("Workspace of the agents and steps that do not name one.", extension=True, example="app"),
    ] = None
    dialect: Dialect = OWN
    source: str = field(default="", compare=False, repr=False)
    """Text that defines the workflow; empty if Python code created the workflow."""
    written: Written = field(default=UNWRITTEN, compare=False, repr=False, metadata={"transient": True})
    """Positions of the parts of the workflow in that text. They are not recorded."""
    _steps: dict[str, Step] = field(init=False, compare=False, repr=False)
    _reachable: dict[str, frozenset[str]] = field(init=False, compare=False, repr=False)
    _fingerprint: str = field(init=False, compare=False, repr=False)
    _stored: Mapping[str, Any] | None = field(init=False, compare=False, repr=False)
    _has_joins: bool | None = field(init=False, compare=False, repr=False)
    _manner: DialectRules | None = field(init=False, compare=False, repr=False)

    def __init__(
        self,
        name: str,
        steps: Sequence[Step] = (),
        *,
        description: str = "",
        inputs: Sequence[InputDefinition | str | Mapping[str, Any]] = (),
        outputs: Sequence[OutputDefinition | str | Mapping[str, Any]] = (),
        triggers: Sequence[TriggerDefinition] = (),
        continue_on_failure: bool = False,
        bounds: Bounds | Mapping[str, Any] | None = None,
        workspace: str | None = None,
        dialect: Dialect = OWN,
        source: str = "",
        written: Written = UNWRITTEN,
    ) -> None:
        require_text(name, "the name of a workflow", 'write Workflow("name", [Step("name", ...)])')
        # A string is iterable, and a single step looks like a list of one. Both get an error with the right form.
        if isinstance(steps, str | Step) or not isinstance(steps, Iterable):
            hint = 'write Workflow("name", [Step("name", ...)])'
            raise DefinitionError(
                [Problem(f"the steps of a workflow must be a list of steps, got {steps!r}", hint=hint)]
            )
        listed = tuple(require_step(step) for step in steps)
        # The fields are filled before the checks, which read the linked steps and the rules of the dialect from them.
        self._fill(
            name=normal_name(name),
            description=description,
            inputs=tuple(InputDefinition.of(value) for value in _listed(inputs, "inputs", "inputs=['topic']")),
            outputs=tuple(OutputDefinition.of(value) for value in _listed(outputs, "outputs", "outputs=['report']")),
            steps=chained(listed),
            triggers=tuple(
                TriggerDefinition.of(value)
                for value in _listed(triggers, "triggers", "triggers=[TriggerDefinition(...)]")
            ),
            continue_on_failure=continue_on_failure,
            bounds=_plain_bounds(bounds),
            workspace=workspace,
            dialect=dialect,
            source=source,
            written=written,
        )
        names = {"inputs": [entry.name for entry in self.inputs], "outputs": [entry.name for entry in self.outputs]}
        problems = check_workflow(name, listed, self.steps, self.manner, **names)
        # Only errors are raised. The reader of a definition file also shows the warnings.
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors:
            raise DefinitionError(errors, f"workflow {name!r}")
        try:
            encode(self.stored, "definition")
        except UnstorableValueError as error:  # a string that is not valid Unicode, which a log cannot hold
            raise DefinitionError([Problem(f"{error}")], f"workflow {name!r}") from error

    def _fill(self, **values: Any) -> None:
        self._put(**values)
        self._reset_caches()

    def _reset_caches(self) -> None:
        # Of several steps with the same name, the first one is used.
        steps = {step.name: step for step in reversed(self.steps)}
        self._put(_steps=steps, _reachable={}, _fingerprint="", _stored=None, _has_joins=None, _manner=None)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Create a workflow from the output of `to_dict`, written by this or any earlier version of divebook.

        The workflow is not checked again, so that recorded workflows stay readable when checks become stricter.
        """
        name = data.get("name")
        # Logs of earlier versions are upgraded first. A log of a later version raises an error here.
        data = apply_changes(dict(data), data.get(FORM, 0), FORMS, f"the definition of workflow {name!r}")
        workflow = object.__new__(cls)
        # A field that an earlier version did not have gets its default.
        workflow._fill(written=UNWRITTEN, **{**defaults(cls), **arguments(cls, data)})
        return workflow

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON from which `from_dict` creates an equal workflow. ``form`` is the version of this JSON
        form.
        """
        # `super()` without arguments does not work in a dataclass with slots: the decorator replaces the class object.
        stored = Definition.to_dict(self)
        return {FORM: len(FORMS), **stored} if FORMS else stored

    @property
    def stored(self) -> Mapping[str, Any]:
        """Plain JSON form of the workflow, as `to_dict` returns it. Computed once.

        Callers must not change it, because each start of the workflow records this object.
        """
        stored = self._stored
        if stored is None:
            stored = self.to_dict()
            self._put(_stored=stored)
        return stored

    @property
    def manner(self) -> DialectRules:
        """Rules of execution that follow from the dialect (``divebook`` or ``dive``) of the workflow. Computed once."""
        manner = self._manner
        if manner is None:
            manner = rules_of(self.dialect)
            self._put(_manner=manner)
        return manner

    @property
    def first_step(self) -> Step:
        """The step at which an execution starts: the first one in the list."""
        return self.steps[0]

    @property
    def has_joins(self) -> bool:
        """True if a step of the workflow is a join, which waits for several paths of the execution. Computed once."""
        if self._has_joins is None:
            self._put(_has_joins=any(step.join for step in self.steps))
        return bool(self._has_joins)

    def step(self, name: str) -> Step:
        """Return the step with this name. Raise `NotFoundError` if there is none."""
        step = self._steps.get(name)
        if step is not None:
            return step
        step_name = same_name(name, self._steps)  # the name in another Unicode form
        if step_name is None:
            raise NotFoundError("step", name, self._steps)
        return self._steps[step_name]

    def reachable(self, name: str) -> frozenset[str]:
        """Return the names of the steps that can be executed after the step `name`, directly or later. The result for
        each step is cached.
        """
        if name not in self._reachable:
            self._reachable[name] = reachable_from(self._steps, name)
        return self._reachable[name]

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hex of all parts of the definition that affect behaviour; see `fingerprint_of`. Computed once."""
        if not self._fingerprint:
            self._put(_fingerprint=fingerprint_of(self.stored))
        return self._fingerprint


# --- fingerprints: equal for two definitions exactly if they behave alike ---------------------------------------------
#
# Descriptions, the source text and triggers do not count. Every prompt, script, edge, condition, loop, agent name,
# piece of content and default does.


SILENT_FIELDS = frozenset({"source", "description", "triggers", "form"})
SILENT_PART_FIELDS = frozenset({"description"})


def fingerprint_of(definition: Mapping[str, Any]) -> str:
    """Return the fingerprint of a definition in the form of `Workflow.to_dict`: a SHA-256 in hex.

    Descriptions and the source text do not count. Two definitions that behave alike have equal fingerprints.
    """
    # Fields without an effect on behaviour are removed, on the level of the workflow and of its inputs and outputs.
    semantic = {key: value for key, value in definition.items() if key not in SILENT_FIELDS}
    for part in ("inputs", "outputs"):
        semantic[part] = [_without_silent(item) for item in semantic.get(part, ())]
    # The content of files counts, not the time of their last change.
    if "steps" in semantic:
        semantic["steps"] = [_without_sources(step) for step in semantic["steps"]]
    # Canonical JSON: keys in order, no spaces, ASCII only. Equal definitions have equal bytes on all systems.
    text = json.dumps(semantic, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _without_sources(step: Mapping[str, Any]) -> Mapping[str, Any]:
    content = step.get("content")
    return {**step, "content": ContentEntry.without_fingerprints(content)} if content else step


def _without_silent(part: Mapping[str, Any]) -> dict[str, Any]:
    semantic = {key: value for key, value in part.items() if key not in SILENT_PART_FIELDS}
    if "default" in semantic:  # a default may be a date or another value that JSON does not have
        semantic["default"] = tagged_form(semantic["default"])
    return semantic


FORMS: Sequence[Change] = (with_present_templates,)
"""Functions that upgrade older forms of `Workflow.to_dict`, the oldest first, like the upcasts of events."""


@dataclass(frozen=True, slots=True)
class InputDefinition(Definition):
    """Definition of one input of a workflow. An input is required unless it has a default or `required` is False."""

    names = ("name",)
    short = (str,)
    name: Annotated[
        str,
        Key(
            "Name of the input. Expressions use it as `inputs.NAME`.",
            required="input name is required",
            example="topic",
        ),
    ]
    type: Annotated[
        str | None,
        Key("Type of the value. Without it, any value is accepted.", kind=table.InputType(), example="string"),
    ] = None
    description: Annotated[
        str, Key("Description for people. The error about a missing input shows it.", example="What to write about")
    ] = ""
    required: Annotated[bool | None, Key("Require a value. Default: true, unless the input has a `Default`.")] = None
    default: Annotated[Any, Key("Value of the input if the caller does not give one.", example="rivers")] = None
    has_default: bool = False
    as_: Annotated[str | None, Key("Another name of the input.", ignored="an input is identified by its Name")] = None
    """Former key ``As``, accepted in the dialect ``dive``. It has no effect."""
    annotated: ParameterType | None = field(default=None, init=False, compare=False, repr=False)
    """Annotation of a parameter of a workflow function, if `type` has no name for it. It is not recorded."""

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        default = recorded_default(self.default, f"default of input {self.name!r}")
        # The default may be None. `has_default` then distinguishes it from an input without a default.
        self._put(default=default, has_default=self.has_default or self.default is not None)


@dataclass(frozen=True, slots=True)
class OutputDefinition(Definition):
    """Definition of one output of a workflow. Its value is the value of the variable with the same name at the end of
    the execution.
    """

    names = ("name",)
    short = (str,)
    name: Annotated[str, Key("Name of the variable.", example="report")]
    type: Annotated[str | None, Key("Type of the value, for people.", example="string")] = None
    description: Annotated[str, Key("Description for people.", example="The finished report")] = ""
    format: Annotated[str | None, Key("Format of the value, for people.", example="markdown")] = None
    default: Annotated[Any, Key("Value of the output if the variable does not exist.", example="nothing found")] = None
    has_default: bool = False
    document: Annotated[
        str | None,
        Key(
            "Document to which the output is written.",
            ignored="write the document in a step with Action: Document.Write",
        ),
    ] = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        default = recorded_default(self.default, f"default of output {self.name!r}")
        self._put(default=default, has_default=self.has_default or self.default is not None)


def _listed(value: Any, name: str, example: str) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        message = f"{name} of a workflow must be a list, not {describe(value)}"
        raise DefinitionError([Problem(message, key=name, hint=f"write {example}")])
    return list(value)


def _plain_bounds(bounds: Bounds | Mapping[str, Any] | None) -> dict[str, Any] | None:
    if bounds is None:
        return None
    return (bounds if isinstance(bounds, Bounds) else Bounds.read(bounds)).to_dict()


@dataclass(frozen=True, slots=True)
class Definitions(Definition):
    """All definitions of one cell, file or folder."""

    name: Annotated[str, Key("Name of the environment.", example="research")] = ""
    description: Annotated[str, Key("Description for people.", example="Agents and workflows of the team")] = ""
    version: Annotated[str, Key("Version of the definitions, for people.", example="'1.2'")] = ""
    config: Annotated[Config, Key("Settings of the whole environment.")] = field(default_factory=Config)
    tools: Annotated[tuple[ToolDefinition, ...], Key("Options and limits of tools that agents use.")] = ()
    documents: Annotated[
        tuple[DocumentDefinition, ...], Key("Files that steps refer to by name instead of by path.")
    ] = ()
    agents: Annotated[
        tuple[AgentDefinition, ...],
        Key(
            "Models with a role. A prompt that does not name an agent is answered by the first supervisor, or, "
            "without a supervisor, by the first agent."
        ),
    ] = ()
    workflows: Annotated[tuple[Workflow, ...], Key("Workflows that can be run.")] = ()
    """Includes the workflows of pipelines: each pipeline becomes a workflow with its name."""
    pipelines: Annotated[
        tuple[PipelineConfig, ...], Key("Pipelines: sequences of stages that a request passes through.", extension=True)
    ] = ()
    triggers: Annotated[
        tuple[TriggerDefinition, ...],
        Key("Names that start workflows.", ignored="add Triggers to each workflow"),
    ] = ()
    schedules: Annotated[tuple[ScheduleDefinition, ...], Key("Times at which workflows are started.")] = ()
    mcp_servers: Annotated[tuple[MCPServerDefinition, ...], Key("MCP servers that offer tools to agents.")] = ()
    workspaces: Annotated[
        tuple[WorkspaceDefinition, ...], Key("Places with files and a shell, for agents and workflows.", extension=True)
    ] = ()
    warnings: tuple[Problem, ...] = field(default=(), compare=False, repr=False, metadata={"transient": True})
    """Warnings, which the caller shows."""
    positions: Mapping[Place, tuple[int, int]] = field(
        default_factory=dict, compare=False, repr=False, metadata={"transient": True}
    )
    """Line and column of all parts that were read from a string, for problems found later."""
    is_text: bool = field(default=False, compare=False, repr=False, metadata={"transient": True})
    """True if a part was read from text or plain data, which is less trusted than Python code."""


# --- workflows of logs without a definition, such as logs of other systems --------------------------------------------


class Sketch(Workflow):
    """Workflow that is rebuilt from a log that contains no definition. It has only the names and types of the executed
    steps.

    A sketch is sufficient to show a log, but an execution cannot be resumed with it.
    """


def sketch_of(name: str, steps: Iterable[tuple[str, str]]) -> Sketch:
    """Return a `Sketch` of a workflow from the names and types of the steps in a log, in the order of their first
    execution.
    """
    types = dict(steps)
    return Sketch.from_dict({"name": name, "steps": [{"name": step, "type": kind} for step, kind in types.items()]})


def require_definition(workflow: Workflow) -> None:
    """Raise `ExecutionError` if a workflow is only a sketch, so that its executions cannot continue. Otherwise do
    nothing.
    """
    if isinstance(workflow, Sketch):
        raise ExecutionError(
            f"an execution of {workflow.name!r} cannot be resumed: its log has no definition, because it was imported "
            "from another system. Show, replay or export it, and start the workflow as a new run"
        )


# --- names of agents, actions and workflows that steps use ------------------------------------------------------------


def names(flow: Workflow, kind: str, name: str, workflows: Mapping[str, Workflow]) -> bool:
    """Return True if the workflow `flow`, or one of its child workflows, has a step that refers to the agent or
    workflow called `name`.

    Parameters
    ----------
    kind
        ``agent`` or ``workflow``.
    workflows
        Workflows that it can run, by name.

    Examples
    --------
    >>> from divebook.definitions.step import Step
    >>> inner = Workflow("inner", [Step("ask", agent="critic", prompt="Well?")])
    >>> outer = Workflow("outer", [Step("run", workflow="inner")])
    >>> names(outer, "agent", "critic", {"inner": inner}), names(outer, "agent", "other", {"inner": inner})
    (True, False)
    """
    # Workflows may run each other in a cycle.
    visited = {flow.name}
    waiting = [flow]
    while waiting:
        steps = waiting.pop().steps
        if any(getattr(step, kind) == name for step in steps):
            return True
        # "-" binds tighter than "&": the child workflows that are known and have not been visited.
        below = {str(step.workflow) for step in steps if step.workflow} & workflows.keys() - visited
        visited |= below
        waiting += [workflows[child] for child in below]
    return False


def missing_agents(workflow: Workflow, agents: Iterable[str], among: Container[str] | None = None) -> list[Problem]:
    """Return a problem for each step of a workflow that refers to an agent which is not in `agents`. A step that names
    no agent uses the default agent.

    `among` limits the check to the steps with these names.
    """
    names = frozenset(agents)
    problems = []
    for index, step in enumerate(workflow.steps):
        if step.agent is None or (among is not None and step.name not in among):
            continue
        # Names are compared in their normal form, as everywhere in an execution.
        if same_name(step.agent, names) is None:
            problems.append(_no_agent(step.agent, names).below("Steps", index, "Agent"))
    return problems


def missing_actions(
    workflow: Workflow, actions: Collection[str], among: Container[str] | None = None
) -> Iterator[tuple[Problem, str]]:
    """Check the actions that steps and their rollbacks call. Yield a pair for each one that is not in `actions`: a
    problem, and the name of the action.

    `among` limits the check to the steps with these names.
    """
    for index, step in enumerate(workflow.steps):
        if among is not None and step.name not in among:
            continue
        uses: list[tuple[str | None, Place]] = [(step.action, ("Action",))] if step.type == "action" else []
        if step.rollback is not None:
            uses.append((step.rollback.action, ("Rollback", "Action")))
        for name, place in uses:
            if name and name not in actions and same_name(name, actions) is None:
                message = f'action "{name}" of step "{step.name}" not found'
                hint = did_you_mean(name, actions)
                yield Problem(message, key="Action", hint=hint, place=("Steps", index, *place)), name


def missing_workflows(
    workflow: Workflow, workflows: Collection[str], among: Container[str] | None = None
) -> Iterator[tuple[Problem, str]]:
    """Check the workflows that steps start. Yield a pair for each one that is not defined: a problem, and the name of
    the workflow.

    `among` limits the check to the steps with these names.
    """
    for index, step in enumerate(workflow.steps):
        name = step.workflow if among is None or step.name in among else None
        # A name with ``${...}`` is computed when the step runs, and cannot be checked.
        if name and "${" not in name and same_name(name, workflows) is None:
            hint = did_you_mean(name, workflows)
            place = ("Steps", index, "Workflow")
            yield Problem(f"workflow not found: {name}", key="Workflow", hint=hint, place=place), name


def _no_agent(name: str, agents: Iterable[str]) -> Problem:
    names = sorted(agents)
    choices = f"defined agents: {', '.join(names[:10])}" if names else "no agent is defined"
    return Problem(f"agent {name} not found", key="Agent", hint=did_you_mean(name, names) or choices)


# --- conversion of pipelines to workflows -----------------------------------------------------------------------------
#
# A pipeline becomes a workflow of its stages around a step that chooses the next one::
#
#     sequential    route -> the chosen stage -> route -> ...
#     parallel      route -> batch (each ready stage, concurrently) -> merge -> route -> ...
#
# The step ``route`` checks the bounds before each stage, asks the questions of stages, and holds the definition of the
# whole pipeline. The variable `STATE` has the envelope and the stages to run next. Each stage therefore gets the
# envelope as the previous stage left it, and the log shows its path. Questions are asked between stages, never inside
# one, so that a waiting envelope is complete and can be stored anywhere (``tests/pipeline/test_questions.py``).


STATE = "pipeline"
"""Name of the variable with the state of a pipeline: ``{"envelope": state, "next": [stage, ...], "again": bool}``.

``again`` is True if the step ``route`` has another question to ask.
"""
BRANCHES = "branches"
"""Name of the variable with the results of stages that ran concurrently."""
# Inputs: state of an envelope, its slot names, and the answer to its open question.
ENVELOPE = "envelope"
SLOTS = "slot_names"
RESPONSE = "response"
DETACHED = "detached"
"""Name of an input: True to end at a question of the envelope without asking it, because the envelope is stored
elsewhere.
"""
FEEDBACK = "feedback"
"""Name of an input: True if feedback is passed on when a stage sends a request back. Executions of earlier versions
lack the input.
"""
# Inputs of a pipeline in a definition file: text of the request, its sender, its session and metadata.
REQUEST = "request"
USER = "user"
SESSION = "session"
METADATA = "metadata"
OUTPUTS = "outputs"
"""Name of the variable and output with the outputs of all stages by slot, in a workflow made by `declared`."""
# Parameters of a step: its part, its stage, and for the first step the stages that need Python functions.
PART = "part"
NAME = "stage"
FUNCTIONS = "functions"
ROUTE = "route"
RUN = "run"
BATCH = "batch"
MERGE = "merge"


def compiled(config: PipelineConfig, mode: RunMode, functions: Iterable[str] = ()) -> Workflow:
    """Convert a pipeline to a workflow. Its steps are the stages of the pipeline, and a step that chooses the next
    stage.

    `functions` are the names of the stages whose Python functions a process needs to run the workflow.
    """
    # Names of stages are free. The names of the steps that are added avoid them.
    used_names = set(config.order)
    route = _free(ROUTE, used_names)
    steps = _sequential(config, route) if mode == "sequential" else _parallel(config, route, used_names)
    # A process without these functions cannot run the pipeline. The first step names them.
    if needed := sorted(functions):
        steps[0] = replace(steps[0], parameters={PART: ROUTE, FUNCTIONS: needed})
    optional = [InputDefinition(name, "map", required=False) for name in (SLOTS, RESPONSE)]
    flags = [InputDefinition(name, "bool", default=False) for name in (DETACHED, FEEDBACK)]
    inputs = [InputDefinition(ENVELOPE, "map"), *optional, *flags]
    return Workflow(config.name, steps, inputs=inputs, description=f"{mode} pipeline")


def declared(config: PipelineConfig) -> Workflow:
    """Convert a pipeline of a definition file to a workflow whose input is the text of a request. The workflow that
    `compiled` returns, in contrast, has an envelope as its input.

    The outputs of the workflow are the slots of its stages.
    """
    pipeline = compiled(config, config.default_run_mode)
    last = _free(OUTPUTS, {step.name for step in pipeline.steps})
    route = pipeline.steps[0]
    is_over = f"$(not state.{STATE}['again'] and len(state.{STATE}['next']) == 0)"
    steps = [
        # After the edges to the stages: the request is over if no stage is next and no question is left.
        replace(route, edges=(*route.edges, Edge(last, is_over))),
        *pipeline.steps[1:],
        Step(last, script=f"state.{STATE}['envelope']['outputs']", store=OUTPUTS, next=[]),
    ]
    about = {
        REQUEST: "The text of the request",
        USER: "Who sends it",
        SESSION: "The session that it belongs to",
    }
    texts = [InputDefinition(name, "string", description=text, default="") for name, text in about.items()]
    inputs = [*texts, InputDefinition(METADATA, "map", required=False)]
    # The engine counts model calls, so that concurrent stages do not exceed the bound. If a person may raise it, the
    # calls are counted between the stages instead.
    stops = config.on_exhausted == "stop"
    bounds = {"max_llm_calls": config.max_llm_calls, "on_exhausted": "fail"} if stops else None
    return Workflow(
        config.name,
        steps,
        inputs=inputs,
        outputs=[OutputDefinition(OUTPUTS)],
        description=f"{config.default_run_mode} pipeline",
        bounds=bounds,
    )


def is_pipeline(workflow: Workflow) -> bool:
    """Return True if a workflow was created from a pipeline."""
    return bool(workflow.steps) and workflow.first_step.type == STAGE


def visible_steps(workflow: Workflow) -> list[Step]:
    """Return the steps of a workflow that people see. For a pipeline these are its stages with the edges between them,
    without internal steps.

    In parallel mode the visible steps are the batch of stages and its merge, because the stages of a batch are its
    items.
    """
    if not is_pipeline(workflow):
        return list(workflow.steps)
    # The script of the first step is the whole pipeline as JSON (`_route`).
    config = PipelineConfig.from_text(str(workflow.first_step.script))
    if any(step.parameters.get(PART) == BATCH for step in workflow.steps):
        # `reversed` lets the first step of each part win.
        steps_by_part = {step.parameters.get(PART): step for step in reversed(workflow.steps)}
        batch = steps_by_part[BATCH]
        return [batch, replace(steps_by_part[MERGE], edges=(Edge(batch.name),))]
    # The edges between stages lead through ``route`` in the workflow. People see the routes of the stages instead.
    steps = {step.name: step for step in workflow.steps}
    return [
        replace(steps[stage.name], edges=_stage_edges(stage, config), catch=_caught(stage)) for stage in config.agents
    ]


def hidden_steps(data: Payload) -> frozenset[str]:
    """Return the names of the internal steps of a workflow, from the definition in its start event. Return no names for
    an event of any other type.

    Only workflows of pipelines have internal steps. Views, progress and tables omit these steps. A log and its frames
    have all steps.
    """
    definition: Mapping[str, Any] = {}
    # Only these events contain a definition.
    if isinstance(data, catalog.ExecutionStarted | catalog.ExecutionForked):
        definition = data.definition or {}
    steps = definition.get("steps")
    first = steps[0] if isinstance(steps, Sequence) and steps else None
    if not isinstance(first, Mapping) or first.get("type") != STAGE:
        return frozenset()  # most workflows; their definition need not be parsed
    try:
        return hidden_in(Workflow.from_dict(definition))
    # The definition may be of another version, or damaged. All its steps are then shown.
    except UNFIT:
        return frozenset()


def hidden_in(workflow: Workflow) -> frozenset[str]:
    """Return the names of the internal steps of a workflow, which views do not show. Only workflows of pipelines have
    such steps.
    """
    return frozenset(step.name for step in workflow.steps) - {step.name for step in visible_steps(workflow)}


def _stage_edges(stage: AgentStage, config: PipelineConfig) -> tuple[Edge, ...]:
    """Return the edges from a pipeline stage to other stages: its routing rules in order, then its default target."""
    edges = [
        Edge(rule.target, f"{rule.condition} == {rule.value!r}")
        for rule in stage.routing_rules
        if config.stage(rule.target) is not None
    ]
    return (*edges, Edge(stage.default_next)) if config.stage(stage.default_next) is not None else tuple(edges)


def _caught(stage: AgentStage) -> tuple[Catch, ...]:
    return (Catch(stage.error_next),) if stage.error_next not in ("", *RESERVED) else ()


def _sequential(config: PipelineConfig, route: str) -> list[Step]:
    # In sequence the variable has one stage in ``next``, and the edge to this stage is taken.
    edges = [(name, f"$(state.{STATE}['next'] == [{name!r}])") for name in config.order]
    stages = [_step(name, RUN, store=STATE, next=[route], stage=name) for name in config.order]
    return [_route(config, route, edges), *stages]


def _parallel(config: PipelineConfig, route: str, used_names: set[str]) -> list[Step]:
    batch = _free(BATCH, used_names)
    merge = _free(MERGE, used_names)
    edges = [(batch, f"$(len(state.{STATE}['next']) > 0)")]
    each = Each(f"$(state.{STATE}['next'])", as_="stage", parallel=max(2, len(config.order)))
    return [
        _route(config, route, edges),
        _step(batch, BATCH, store=BRANCHES, next=[merge], each=each),
        _step(merge, MERGE, store=STATE, next=[route]),
    ]


def _route(config: PipelineConfig, name: str, edges: list[tuple[str, str]]) -> Step:
    # The edge of the step to itself asks one question after the other.
    again = (name, f"$(state.{STATE}['again'])")
    return Step(name, type=STAGE, script=config.to_text(), parameters={PART: ROUTE}, store=STATE, next=[again, *edges])


def _step(
    name: str, part: str, *, store: str, next: list[str], each: Each | None = None, stage: str | None = None
) -> Step:
    parameters = {PART: part} if stage is None else {PART: part, NAME: stage}
    return Step(name, type=STAGE, parameters=parameters, store=store, next=next, each=each)


def _free(name: str, used_names: set[str]) -> str:
    """Return `name` for an internal step. If `used_names`, the names of the stages, has this name already, underscores
    are appended to it.
    """
    while name in used_names:
        name = f"{name}_"
    return name


# --- settings of an environment and their effect on agents ------------------------------------------------------------


DEFAULT_PROVIDER = "anthropic"


def require_name(definitions: Definitions) -> str:
    """Return the name that definitions give to the environment. Raise `SetupError` if they have no name."""
    if not definitions.name.strip():
        raise SetupError("environment name is required: add Name at the top of the definition")
    return definitions.name


def check_providers(definitions: Definitions, is_known: Callable[[str], bool]) -> None:
    """Raise `SetupError` if an agent, or the key DefaultProvider, names an unknown provider."""
    # Places with the names, so that the error shows the line of the faulty one.
    providers: dict[Place, str | None] = {("Config", "DefaultProvider"): definitions.config.default_provider}
    providers |= {("Agents", index, "Provider"): agent.provider for index, agent in enumerate(definitions.agents)}
    for place, name in providers.items():
        if name and not is_known(name):
            message = f'unsupported provider: "{name}". Use a provider that pydantic-ai has, such as openai'
            raise SetupError(message, place)


def check_default_workflow(config: Config, workflows: Collection[str]) -> None:
    """Raise `SetupError` if the environment's settings name a default workflow that does not exist."""
    if config.default_workflow and config.default_workflow not in workflows:
        raise SetupError(f"default workflow not found: {config.default_workflow}")


def with_defaults(agent: AgentDefinition, config: Config) -> AgentDefinition:
    """Return a copy of an agent's definition in which missing model settings are filled in from the settings of its
    provider.
    """
    entry = provider_settings(agent, config)
    return agent if entry is None else replace(agent, model_settings=combined_settings(entry, agent.model_settings))


def provider_settings(agent: AgentDefinition, config: Config) -> ProviderSettings | None:
    """Return the settings that the environment has for the provider of an agent; None if it has no settings for this
    provider.
    """
    provider = agent.provider or config.default_provider or DEFAULT_PROVIDER
    return next((entry for entry in config.providers if entry.name == provider), None)


def combined_settings(provider: ProviderSettings, agent_settings: ModelSettings | None) -> ModelSettings:
    """Return the model settings of an agent, completed by the settings of its provider. A value that the agent sets has
    priority.

    The features of both are united and sorted. A header has the values of the provider and then those of the agent.
    """
    settings = agent_settings or ModelSettings()
    return replace(
        settings,
        # Sorted, because the order of a set differs between processes.
        features=tuple(sorted({*provider.features, *settings.features})),
        request_headers=_headers(provider.request_headers, settings.request_headers),
        caching=provider.caching if settings.caching is None else settings.caching,
    )


def _headers(*sources: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for source in sources:
        for name, values in source.items():
            headers.setdefault(name, []).extend(values)
    return headers


# --- merging of definitions -------------------------------------------------------------------------------------------
#
# The later definitions have priority: strings if they are not empty, items with equal names as a whole (never field by
# field). The order of first appearance stays, because it determines the default agent.


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=_Named)
LISTS = ("tools", "documents", "agents", "workflows", "pipelines", "triggers", "schedules", "mcp_servers", "workspaces")
TEXTS = ("name", "description", "version")


def merge_all(parts: Iterable[Definitions]) -> Definitions:
    """Merge any number of definition sets from left to right. Later definitions have priority."""
    return reduce(merge, parts, Definitions())


def merge(earlier: Definitions, later: Definitions) -> Definitions:
    """Merge two sets of definitions. Definitions in `later` have priority.

    The result has no positions, because its parts belong to two texts.
    """
    lists: Mapping[str, Any] = {name: merge_named(getattr(earlier, name), getattr(later, name)) for name in LISTS}
    texts: Mapping[str, Any] = {name: getattr(later, name) or getattr(earlier, name) for name in TEXTS}
    warnings = (*earlier.warnings, *later.warnings)
    config = merge_config(earlier.config, later.config)
    is_text = earlier.is_text or later.is_text
    return Definitions(**texts, **lists, config=config, warnings=warnings, is_text=is_text)


def merge_config(earlier: Config, later: Config) -> Config:
    """Merge the settings of two environments. A value that is set in `later` replaces the value in `earlier`. The
    settings of providers are merged by the provider's name.

    All approval rules are kept, so that no rule that asks or denies is lost.
    """
    # An empty value means that a setting is not set, so that it replaces nothing.
    settings = {entry.name: getattr(later, entry.name) for entry in fields(later) if getattr(later, entry.name)}
    approvals = (*earlier.approvals, *unknown(later.approvals, earlier.approvals))
    both = {"providers": merge_named(earlier.providers, later.providers), "approvals": approvals}
    return replace(earlier, **{**settings, **both})


def unknown(rules: Iterable[ApprovalRule], existing: Sequence[ApprovalRule]) -> list[ApprovalRule]:
    """Return those of some approval rules that are not in `existing`. Two rules count as the same only if they are one
    object (``is``).

    Equal rules may differ in meaning, because 1 and True are equal in Python.
    """
    return [rule for rule in rules if all(rule is not other for other in existing)]


def merge_named(earlier: Iterable[Item], later: Iterable[Item]) -> tuple[Item, ...]:
    """Merge two lists of definitions with names, such as agents. A definition in `later` replaces the definition of the
    same name in `earlier`.
    """
    # A replaced item keeps its place in the mapping, and so in the list.
    items = {item.name: item for item in earlier}
    items.update({item.name: item for item in later})
    return tuple(items.values())


__all__ = [
    "AgentDefinition",
    "ApprovalFilterDefinition",
    "Config",
    "ContentEntry",
    "Definitions",
    "DocumentDefinition",
    "Each",
    "Edge",
    "InputDefinition",
    "MCPServerDefinition",
    "ModelSettings",
    "OAuthDefinition",
    "OutputDefinition",
    "Problem",
    "ProviderSettings",
    "ScheduleDefinition",
    "Severity",
    "Step",
    "TokenStoreDefinition",
    "ToolConfigurationDefinition",
    "ToolDefinition",
    "TriggerDefinition",
    "Workflow",
    "WorkspaceDefinition",
]
