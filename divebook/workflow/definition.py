"""A workflow as plain data, and everything a definition file can hold.

`Workflow` is made by the reader from text, by Python code directly, and from the log by `Workflow.from_dict`; the
three give equal objects with equal fingerprints. Agents are referred to by name only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Annotated, Any, Protocol, Self, TypeVar

from divebook.errors import (
    UNFIT,
    DefinitionError,
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
from divebook.events.codec import encode, parse
from divebook.events.upcast import FORM, Change, walked
from divebook.questions.bounds import Bounds
from divebook.text.arguments import describe
from divebook.text.names import normal_name, same_name
from divebook.workflow import table
from divebook.workflow.answer_types import ParameterType
from divebook.workflow.dialect import DIALECT_RULES, OWN, Dialect, DialectRules
from divebook.workflow.graph import check_workflow, reachable_from
from divebook.workflow.pipelines import RESERVED, AgentStage, PipelineConfig, RunMode
from divebook.workflow.resources import (
    AgentDefinition,
    Config,
    DocumentDefinition,
    ModelSettings,
    ProviderSettings,
    ScheduleDefinition,
    ToolDefinition,
    TriggerDefinition,
)
from divebook.workflow.servers import (
    ApprovalFilterDefinition,
    ApprovalRule,
    MCPServerDefinition,
    OAuthDefinition,
    TokenStoreDefinition,
    ToolConfigurationDefinition,
    WorkspaceDefinition,
)
from divebook.workflow.step import STAGE, Catch, ContentEntry, Each, Edge, Step, chained, require_step
from divebook.workflow.stored_form import (
    Definition,
    arguments,
    defaults,
    recorded_default,
    require_text,
    with_present_templates,
)
from divebook.workflow.table import Key, nearest_position

# Where a workflow stands in the text that it was read from, for what is found wrong with it later.


@dataclass(frozen=True, slots=True)
class Written:
    """The text of a workflow, and where its parts are in that; of one made in Python nothing is known."""

    name: str = ""
    """What the text is called: ``survey.yaml``, ``Cell [5]``."""
    positions: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """Line and column of all that the text has."""
    place: Place = ()
    """The place of the workflow in it."""
    text: str = ""
    above: int = 0
    """How many lines of the cell come before the text."""

    def located(self, problem: Problem, pattern: str = "") -> Problem:
        """Return a problem of the workflow, whose place is relative to that, with its line and column.

        With a `pattern` it is where that is first met in its part; of a group, where that begins.
        """
        line, column = nearest_position((*self.place, *problem.place), self.positions)
        if pattern and line:
            line, column = self._met(re.compile(pattern), line, column)
        return problem.at(line, column)

    def _met(self, pattern: re.Pattern[str], line: int, column: int) -> tuple[int, int]:
        for number, text in enumerate(self.text.splitlines()[line - self.above - 1 :], line):
            found = pattern.search(text, column - 1 if number == line else 0)
            if found is not None:
                return number, found.start(pattern.groups) + 1
        return line, column

    def where(self, place: Place) -> str:
        """Return where a part stands, such as ``survey.yaml:7:11``, or an empty text.

        >>> Written("survey.yaml", {("Steps", 0): (7, 11)}).where(("Steps", 0, "Agent"))
        'survey.yaml:7:11'
        """
        line, column = nearest_position((*self.place, *place), self.positions)
        return position_in(self.name, line, column) if line else ""


UNWRITTEN = Written()


# The fingerprint of a workflow: equal exactly when two definitions behave alike.
#
# Texts for people (descriptions), the source text and triggers do not count; every prompt, script, edge, condition,
# loop, agent name, piece of content and default does.


SILENT_FIELDS = frozenset({"source", "description", "triggers", "form"})
SILENT_PART_FIELDS = frozenset({"description"})


def fingerprint_of(definition: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of a definition as `Workflow.to_dict` gives it."""
    semantic = {key: value for key, value in definition.items() if key not in SILENT_FIELDS}
    for part in ("inputs", "outputs"):
        semantic[part] = [_without_silent(item) for item in semantic.get(part, ())]
    # Of content what it holds counts, and not when its file was changed.
    if "steps" in semantic:
        semantic["steps"] = [_without_sources(step) for step in semantic["steps"]]
    text = json.dumps(semantic, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _without_sources(step: Mapping[str, Any]) -> Mapping[str, Any]:
    content = step.get("content")
    return {**step, "content": ContentEntry.without_fingerprints(content)} if content else step


def _without_silent(part: Mapping[str, Any]) -> dict[str, Any]:
    semantic = {key: value for key, value in part.items() if key not in SILENT_PART_FIELDS}
    if "default" in semantic:  # it may be a date or another value that JSON lacks
        semantic["default"] = parse(encode(semantic["default"]))
    return semantic


FORMS: Sequence[Change] = (with_present_templates,)
"""Changes of what `Workflow.to_dict` gives, in order of age, as of events in `divebook.events.upcast`."""


@dataclass(frozen=True, slots=True)
class InputDefinition(Definition):
    """An input of a workflow. It must be given unless it has a default or `required` is False."""

    names = ("name",)
    short = (str,)
    name: Annotated[str, Key("The name, as in `inputs.name`.", required="input name is required", example="topic")]
    type: Annotated[
        str | None, Key("The type of its value; without it any value fits.", kind=table.InputType(), example="string")
    ] = None
    description: Annotated[
        str, Key("A description for people; the error for a missing input shows it.", example="What to write about")
    ] = ""
    required: Annotated[bool | None, Key("Whether it must be given; by default yes, unless it has a Default.")] = None
    default: Annotated[Any, Key("Its value if none is given.", example="rivers")] = None
    has_default: bool = False
    as_: Annotated[str | None, Key("Another name.", ignored="an input is known by its Name")] = None
    """Read in the dialect ``dive``, where it has no effect either."""
    annotated: ParameterType | None = field(default=None, init=False, compare=False, repr=False)
    """The annotation of a parameter of a workflow function, where `type` has no name for it; not part of the log."""

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        default = recorded_default(self.default, f"default of input {self.name!r}")
        self._put(default=default, has_default=self.has_default or self.default is not None)


@dataclass(frozen=True, slots=True)
class OutputDefinition(Definition):
    """An output of a workflow: the variable of that name when the execution ends."""

    names = ("name",)
    short = (str,)
    name: Annotated[str, Key("The variable it shows.", example="report")]
    type: Annotated[str | None, Key("Its type, for people.", example="string")] = None
    description: Annotated[str, Key("A description for people.", example="The finished report")] = ""
    format: Annotated[str | None, Key("How it is written, for people.", example="markdown")] = None
    default: Annotated[Any, Key("Its value where the variable does not exist.", example="nothing found")] = None
    has_default: bool = False
    document: Annotated[
        str | None, Key("A document to write it to.", ignored="write it with a Document.Write step")
    ] = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        default = recorded_default(self.default, f"default of output {self.name!r}")
        self._put(default=default, has_default=self.has_default or self.default is not None)


@dataclass(frozen=True, slots=True, init=False)
class Workflow(Definition):
    """Steps and the ways between them; the first listed step is the start.

    Raises `DefinitionError` at once if the steps do not fit together. ``divebook keys Workflow`` says what each of its
    fields means.

    Examples
    --------
    >>> workflow = Workflow("hello", [Step("ask", prompt="Greet ${inputs.who}", store="text")], inputs=["who"])
    >>> workflow.start.name
    'ask'
    """

    name: Annotated[str, Key("The name to run it by.", example="audit")]
    description: Annotated[str, Key("A description for people.", example="Checks the licences of a project")] = ""
    inputs: Annotated[tuple[InputDefinition, ...], Key("What it is given.")] = ()
    outputs: Annotated[
        tuple[OutputDefinition, ...], Key("Its results: the variables of these names.", extension=True)
    ] = ()
    steps: Annotated[
        tuple[Step, ...],
        Key("What it does; the first one is the start, and each leads to the next unless it says otherwise."),
    ] = ()
    triggers: Annotated[tuple[TriggerDefinition, ...], Key("Names under which it can be started.")] = ()
    continue_on_failure: Annotated[bool, Key("Whether the other paths go on after one has failed.", extension=True)] = (
        False
    )
    bounds: Annotated[
        Mapping[str, Any] | None,
        Key(
            "What a run may spend: tokens, calls, dollars, seconds.",
            extension=True,
            example="{MaxLLMCalls: 20, MaxCost: 1.5}",
        ),
    ] = None
    """What an execution may spend, where it is not said when it is started; see `divebook.Bounds`."""
    workspace: Annotated[
        str | None,
        Key("The workspace of its agents and steps that name none.", extension=True, example="app"),
    ] = None
    dialect: Dialect = OWN
    source: str = field(default="", compare=False, repr=False)
    """The text it was read from, empty if Python code made it."""
    written: Written = field(default=UNWRITTEN, compare=False, repr=False, metadata={"transient": True})
    """Where its parts stand in that text; a log does not hold it."""
    _steps: dict[str, Step] = field(init=False, compare=False, repr=False)
    _reachable: dict[str, frozenset[str]] = field(init=False, compare=False, repr=False)
    _fingerprint: str = field(init=False, compare=False, repr=False)
    _stored: Mapping[str, Any] | None = field(init=False, compare=False, repr=False)
    _has_joins: bool | None = field(init=False, compare=False, repr=False)

    def __init__(
        self,
        name: str,
        steps: Sequence[Step] = (),
        *,
        description: str = "",
        inputs: Sequence[InputDefinition | str] = (),
        outputs: Sequence[OutputDefinition | str] = (),
        triggers: Sequence[TriggerDefinition] = (),
        continue_on_failure: bool = False,
        bounds: Bounds | Mapping[str, Any] | None = None,
        workspace: str | None = None,
        dialect: Dialect = OWN,
        source: str = "",
        written: Written = UNWRITTEN,
    ) -> None:
        require_text(name, "the name of a workflow", 'write Workflow("name", [Step("name", ...)])')
        if isinstance(steps, str | Step) or not isinstance(steps, Iterable):
            hint = 'write Workflow("name", [Step("name", ...)])'
            raise DefinitionError([Problem(f"a workflow holds a list of steps, got {steps!r}", hint=hint)])
        listed = tuple(require_step(step) for step in steps)
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
        errors = [found for found in problems if found.severity == "error"]
        if errors:
            raise DefinitionError(errors, f"workflow {name!r}")
        try:
            encode(self.stored, "definition")
        except UnstorableValueError as error:  # a string that is not valid Unicode, which no start could record
            raise DefinitionError([Problem(f"{error}")], f"workflow {name!r}") from error

    def _fill(self, **values: Any) -> None:
        steps = {step.name: step for step in reversed(values["steps"])}
        self._put(**values, _steps=steps, _reachable={}, _fingerprint="", _stored=None, _has_joins=None)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make a workflow of what `to_dict` returned, by whatever version of divebook.

        It is not checked again: what once ran stays readable.
        """
        name = data.get("name")
        data = walked(dict(data), data.get(FORM, 0), FORMS, f"the definition of workflow {name!r}")
        workflow = object.__new__(cls)
        workflow._fill(written=UNWRITTEN, **{**defaults(cls), **arguments(cls, data)})
        return workflow

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON from which `from_dict` makes an equal workflow; it carries the version of its form."""
        stored = Definition.to_dict(self)
        return {FORM: len(FORMS), **stored} if FORMS else stored

    @property
    def stored(self) -> Mapping[str, Any]:
        """What `to_dict` returns, made once and to be left as it is: every start of the workflow writes it."""
        stored = self._stored
        if stored is None:
            stored = self.to_dict()
            self._put(_stored=stored)
        return stored

    @property
    def manner(self) -> DialectRules:
        """What its executions do otherwise than those of the other dialect."""
        return DIALECT_RULES[self.dialect]

    @property
    def start(self) -> Step:
        """The first listed step."""
        return self.steps[0]

    @property
    def has_joins(self) -> bool:
        """True if any step waits for other paths; computed once."""
        if self._has_joins is None:
            self._put(_has_joins=any(step.join for step in self.steps))
        return bool(self._has_joins)

    def step(self, name: str) -> Step:
        """Return the step of that name; raises `NotFoundError`."""
        known = same_name(name, self._steps)
        if known is None:
            raise NotFoundError("step", name, self._steps)
        return self._steps[known]

    def reachable(self, name: str) -> frozenset[str]:
        """Return the steps that a path at step `name` can still come to; each answer is computed once."""
        if name not in self._reachable:
            self._reachable[name] = reachable_from(self._steps, name)
        return self._reachable[name]

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything that changes behaviour; computed once."""
        if not self._fingerprint:
            self._put(_fingerprint=fingerprint_of(self.stored))
        return self._fingerprint


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
    """Everything one cell, file or folder defines."""

    name: Annotated[str, Key("The name of the environment.", example="research")] = ""
    description: Annotated[str, Key("A description for people.", example="Agents and workflows of the team")] = ""
    version: Annotated[str, Key("Its version, for people.", example="'1.2'")] = ""
    config: Annotated[Config, Key("Settings of the whole environment.")] = field(default_factory=Config)
    tools: Annotated[tuple[ToolDefinition, ...], Key("Options and limits of tools that agents name.")] = ()
    documents: Annotated[tuple[DocumentDefinition, ...], Key("Files that steps name without their paths.")] = ()
    agents: Annotated[
        tuple[AgentDefinition, ...],
        Key("Models with a role. Prompts that name no agent go to the first supervisor, else to the first agent."),
    ] = ()
    workflows: Annotated[tuple[Workflow, ...], Key("The workflows that can be run.")] = ()
    """Those of the pipelines as well: each pipeline becomes a workflow of its name."""
    pipelines: Annotated[
        tuple[PipelineConfig, ...], Key("Pipelines: stages that a request passes through.", extension=True)
    ] = ()
    triggers: Annotated[
        tuple[TriggerDefinition, ...],
        Key("Names that start workflows.", ignored="write it under the Triggers of each workflow"),
    ] = ()
    schedules: Annotated[tuple[ScheduleDefinition, ...], Key("When to start workflows.")] = ()
    mcp_servers: Annotated[tuple[MCPServerDefinition, ...], Key("Servers that offer tools to agents.")] = ()
    workspaces: Annotated[
        tuple[WorkspaceDefinition, ...], Key("Places with files and a shell, for agents and workflows.", extension=True)
    ] = ()
    warnings: tuple[Problem, ...] = field(default=(), compare=False, repr=False, metadata={"transient": True})
    """What is doubtful but not wrong; the caller shows it."""
    positions: Mapping[Place, tuple[int, int]] = field(
        default_factory=dict, compare=False, repr=False, metadata={"transient": True}
    )
    """Line and column of everything that was read from a text, for problems found later."""
    is_text: bool = field(default=False, compare=False, repr=False, metadata={"transient": True})
    """True if any of it was read from a text or plain data: only Python code vouches for what it defines."""


# What a log tells of a workflow whose definition it does not hold, as logs of other systems do not.


class Sketch(Workflow):
    """The names and types of the steps that were entered: enough to show a log, not to carry it on."""


def sketch_of(name: str, steps: Iterable[tuple[str, str]]) -> Sketch:
    """Return a workflow of which no more is known than its name and what it entered, in that order."""
    known = dict(steps)
    return Sketch.from_dict({"name": name, "steps": [{"name": step, "type": kind} for step, kind in known.items()]})


# Agents and workflows that a workflow names, in its own steps and in those of workflows that it runs.


def names(flow: Workflow, kind: str, name: str, workflows: Mapping[str, Workflow]) -> bool:
    """Return whether a step of a workflow, or of one that it runs, names an agent or workflow.

    Parameters
    ----------
    kind
        ``agent`` or ``workflow``.
    workflows
        Those that it can run, by their names.

    Examples
    --------
    >>> from divebook.workflow.step import Step
    >>> inner = Workflow("inner", [Step("ask", agent="critic", prompt="Well?")])
    >>> outer = Workflow("outer", [Step("run", workflow="inner")])
    >>> names(outer, "agent", "critic", {"inner": inner}), names(outer, "agent", "other", {"inner": inner})
    (True, False)
    """
    seen = {flow.name}
    left = [flow]
    while left:
        steps = left.pop().steps
        if any(getattr(step, kind) == name for step in steps):
            return True
        below = {str(step.workflow) for step in steps if step.workflow} & workflows.keys() - seen
        seen |= below
        left += [workflows[each] for each in below]
    return False


# Agents and actions that the steps of a workflow name but that are not defined.


def missing_agents(workflow: Workflow, known: Iterable[str], among: Container[str] | None = None) -> list[Problem]:
    """Return the steps that name an agent which is not `known`; a step without one takes the default agent.

    With `among` only those steps are looked at.
    """
    names = frozenset(known)
    return [
        _no_agent(step.agent, names).below("Steps", index, "Agent")
        for index, step in enumerate(workflow.steps)
        if step.agent is not None and same_name(step.agent, names) is None and (among is None or step.name in among)
    ]


def missing_actions(
    workflow: Workflow, known: Collection[str], among: Container[str] | None = None
) -> Iterator[tuple[Problem, str]]:
    """Yield the steps that name an action which is not `known`, and its name; with `among` only those steps."""
    for index, step in enumerate(workflow.steps):
        named: list[tuple[str | None, Place]] = [(step.action, ("Action",))] if step.type == "action" else []
        if step.rollback is not None:
            named.append((step.rollback.action, ("Rollback", "Action")))
        for name, place in named if among is None or step.name in among else ():
            if name and same_name(name, known) is None:
                message = f'action "{name}" of step "{step.name}" not found'
                hint = did_you_mean(name, known)
                yield Problem(message, key="Action", hint=hint, place=("Steps", index, *place)), name


def missing_workflows(
    workflow: Workflow, known: Collection[str], among: Container[str] | None = None
) -> Iterator[tuple[Problem, str]]:
    """Yield the steps that name a workflow which is not `known`, and its name; with `among` only those steps."""
    for index, step in enumerate(workflow.steps):
        name = step.workflow if among is None or step.name in among else None
        if name and "${" not in name and same_name(name, known) is None:
            hint = did_you_mean(name, known)
            place = ("Steps", index, "Workflow")
            yield Problem(f"workflow not found: {name}", key="Workflow", hint=hint, place=place), name


def _no_agent(name: str, known: Iterable[str]) -> Problem:
    names = sorted(known)
    others = f"there is {', '.join(names[:10])}" if names else "no agent is defined"
    return Problem(f"agent {name} not found", key="Agent", hint=did_you_mean(name, names) or others)


# The workflow that a pipeline becomes: stages around a step that says where a request goes next.
#
# ::
#
#     sequential    route -> the chosen stage -> route -> ...
#     parallel      route -> batch (each ready stage, side by side) -> merge -> route -> ...
#
# The step ``route`` checks the bounds before every stage, asks the questions that stages raise, and holds the
# definition of the whole pipeline. The variable `STATE` holds the envelope, and the stages that are to run next: so
# each stage has the envelope as the one before left it, and the log tells where it was. Questions are asked between
# stages, never inside one: an envelope that waits is complete and may be kept anywhere
# (``tests/pipeline/test_questions.py``).


STATE = "pipeline"
"""Variable: ``{"envelope": state, "next": [stage, ...], "again": whether route has another question}``."""
BRANCHES = "branches"
"""Variable: what the stages of a batch returned."""
ENVELOPE, SLOTS, RESPONSE = "envelope", "slot_names", "response"
"""The inputs: an envelope's state, its slot names, and the answer to the question it came with."""
DETACHED = "detached"
"""Input: whether to end at a question of the envelope, without asking it, since the envelope is kept elsewhere."""
FEEDBACK = "feedback"
"""Input: whether a stage that sends a request back hands its feedback on; executions of earlier versions lack it."""
REQUEST, USER, SESSION, METADATA = "request", "user", "session", "metadata"
"""The inputs of a pipeline that a definition file declares: the text of the request, who sends it, and what belongs
to it."""
OUTPUTS = "outputs"
"""Variable and output of such a pipeline: what the stages put out, by slot."""
PART, NAME, FUNCTIONS = "part", "stage", "functions"
"""Parameters of a step: what it does, for which stage; of the first one, which stages need Python functions."""
ROUTE = "route"
RUN = "run"
BATCH = "batch"
MERGE = "merge"


def compiled(config: PipelineConfig, mode: RunMode, functions: Iterable[str] = ()) -> Workflow:
    """Return a pipeline as a workflow; `functions` are the stages for which a process must have Python functions."""
    taken = set(config.order)
    route = _free(ROUTE, taken)
    steps = _sequential(config, route) if mode == "sequential" else _parallel(config, route, taken)
    if needed := sorted(functions):
        steps[0] = replace(steps[0], parameters={PART: ROUTE, FUNCTIONS: needed})
    optional = [InputDefinition(name, "map", required=False) for name in (SLOTS, RESPONSE)]
    flags = [InputDefinition(name, "bool", default=False) for name in (DETACHED, FEEDBACK)]
    inputs = [InputDefinition(ENVELOPE, "map"), *optional, *flags]
    return Workflow(config.name, steps, inputs=inputs, description=f"{mode} pipeline")


def declared(config: PipelineConfig) -> Workflow:
    """Return a pipeline of a definition file as a workflow, which is started with a request and not with an envelope.

    Its outputs are the slots of its stages.
    """
    made = compiled(config, config.default_run_mode)
    taken = {step.name for step in made.steps}
    last = _free(OUTPUTS, taken)
    route = made.steps[0]
    is_over = f"$(not state.{STATE}['again'] and len(state.{STATE}['next']) == 0)"
    steps = [
        replace(route, edges=(*route.edges, Edge(last, is_over))),
        *made.steps[1:],
        Step(last, script=f"state.{STATE}['envelope']['outputs']", store=OUTPUTS, next=[]),
    ]
    about = {
        REQUEST: "The text of the request",
        USER: "Who sends it",
        SESSION: "The session that it belongs to",
    }
    texts = [InputDefinition(name, "string", description=text, default="") for name, text in about.items()]
    inputs = [*texts, InputDefinition(METADATA, "map", required=False)]
    # The engine counts model calls, so that stages side by side do not overshoot. Where a person may be asked to allow
    # more, they are counted between the stages instead.
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
    """Return whether a workflow was made of a pipeline."""
    return bool(workflow.steps) and workflow.start.type == STAGE


def visible_steps(workflow: Workflow) -> list[Step]:
    """Return the steps of a workflow as people see them: of a pipeline its stages, with the ways between them.

    In parallel mode these are the batch of stages and its merge, since the stages of a batch are its items.
    """
    if not is_pipeline(workflow):
        return list(workflow.steps)
    config = PipelineConfig.from_text(str(workflow.start.script))
    if any(step.parameters.get(PART) == BATCH for step in workflow.steps):
        batch, merge = (
            next(step for step in workflow.steps if step.parameters.get(PART) == part) for part in (BATCH, MERGE)
        )
        return [batch, replace(merge, edges=(Edge(batch.name),))]
    steps = {step.name: step for step in workflow.steps}
    return [replace(steps[stage.name], edges=_ways(stage, config), catch=_caught(stage)) for stage in config.agents]


def hidden_steps(data: Payload) -> frozenset[str]:
    """Return the names of the steps that people do not see, of the definition that an event of a log holds, if any.

    Views, progress and tables leave these out. A log and its frames have all steps.
    """
    definition: Mapping[str, Any] = {}
    if isinstance(data, catalog.ExecutionStarted | catalog.ExecutionForked):
        definition = data.definition or {}
    steps = definition.get("steps")
    first = steps[0] if isinstance(steps, Sequence) and steps else None
    if not isinstance(first, Mapping) or first.get("type") != STAGE:
        return frozenset()  # most workflows, of which nothing more need be read
    try:
        return hidden_in(Workflow.from_dict(definition))
    except UNFIT:
        return frozenset()


def hidden_in(workflow: Workflow) -> frozenset[str]:
    """Return the names of the steps of a workflow that people do not see."""
    return frozenset(step.name for step in workflow.steps) - {step.name for step in visible_steps(workflow)}


def _ways(stage: AgentStage, config: PipelineConfig) -> tuple[Edge, ...]:
    """Return the edges of a stage to other stages: its routes in order, then where it goes if none of them fits."""
    ways = [
        Edge(rule.target, f"{rule.condition} == {rule.value!r}")
        for rule in stage.routing_rules
        if config.stage(rule.target) is not None
    ]
    return (*ways, Edge(stage.default_next)) if config.stage(stage.default_next) is not None else tuple(ways)


def _caught(stage: AgentStage) -> tuple[Catch, ...]:
    return (Catch(stage.error_next),) if stage.error_next not in ("", *RESERVED) else ()


def _sequential(config: PipelineConfig, route: str) -> list[Step]:
    ways = [(name, f"$(state.{STATE}['next'] == [{name!r}])") for name in config.order]
    stages = [_step(name, RUN, store=STATE, next=[route], stage=name) for name in config.order]
    return [_route(config, route, ways), *stages]


def _parallel(config: PipelineConfig, route: str, taken: set[str]) -> list[Step]:
    batch = _free(BATCH, taken)
    merge = _free(MERGE, taken)
    ways = [(batch, f"$(len(state.{STATE}['next']) > 0)")]
    each = Each(f"$(state.{STATE}['next'])", as_="stage", parallel=max(2, len(config.order)))
    return [
        _route(config, route, ways),
        _step(batch, BATCH, store=BRANCHES, next=[merge], each=each),
        _step(merge, MERGE, store=STATE, next=[route]),
    ]


def _route(config: PipelineConfig, name: str, ways: list[tuple[str, str]]) -> Step:
    again = (name, f"$(state.{STATE}['again'])")
    return Step(name, type=STAGE, script=config.to_text(), parameters={PART: ROUTE}, store=STATE, next=[again, *ways])


def _step(
    name: str, part: str, *, store: str, next: list[str], each: Each | None = None, stage: str | None = None
) -> Step:
    parameters = {PART: part} if stage is None else {PART: part, NAME: stage}
    return Step(name, type=STAGE, parameters=parameters, store=store, next=next, each=each)


def _free(name: str, taken: set[str]) -> str:
    """Return a name for a step that no stage has."""
    while name in taken:
        name = f"{name}_"
    return name


# Settings that hold for a whole environment: what they demand, and what they give to its agents.


DEFAULT_PROVIDER = "anthropic"


def require_name(definitions: Definitions) -> str:
    """Return the environment's name; raises `SetupError` if there is none."""
    if not definitions.name.strip():
        raise SetupError("environment name is required: add Name at the top of the definition")
    return definitions.name


def check_providers(definitions: Definitions, is_known: Callable[[str], bool]) -> None:
    """Raise `SetupError` if an agent, or the settings, name a provider that is not known."""
    named: dict[Place, str | None] = {("Config", "DefaultProvider"): definitions.config.default_provider}
    named |= {("Agents", index, "Provider"): agent.provider for index, agent in enumerate(definitions.agents)}
    for place, name in named.items():
        if name and not is_known(name):
            message = f'unsupported provider: "{name}". Use a provider that pydantic-ai has, such as openai'
            raise SetupError(message, place)


def check_default_workflow(config: Config, workflows: Collection[str]) -> None:
    """Raise `SetupError` if the default workflow does not exist."""
    if config.default_workflow and config.default_workflow not in workflows:
        raise SetupError(f"default workflow not found: {config.default_workflow}")


def with_defaults(agent: AgentDefinition, config: Config) -> AgentDefinition:
    """Return the agent with the model settings in effect: its own, filled up from its provider's."""
    entry = provider_settings(agent, config)
    return agent if entry is None else replace(agent, model_settings=combined_settings(entry, agent.model_settings))


def provider_settings(agent: AgentDefinition, config: Config) -> ProviderSettings | None:
    """Return what the settings say of the provider of an agent; None if they say nothing."""
    provider = agent.provider or config.default_provider or DEFAULT_PROVIDER
    return next((entry for entry in config.providers if entry.name == provider), None)


def combined_settings(provider: ProviderSettings, own: ModelSettings | None) -> ModelSettings:
    """Return what an agent asks for together with what its provider's entry says; the agent wins.

    Features are united and sorted; a header has the provider's values and then the agent's.
    """
    settings = own or ModelSettings()
    return replace(
        settings,
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


# Two sets of definitions become one.
#
# The later one wins: texts if they are given, named items whole (never field by field). The order of first appearance
# stays, because it decides which agent is the default one.


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=_Named)
LISTS = ("tools", "documents", "agents", "workflows", "pipelines", "triggers", "schedules", "mcp_servers", "workspaces")
TEXTS = ("name", "description", "version")


def merge_all(parts: Iterable[Definitions]) -> Definitions:
    """Return all parts merged from left to right."""
    return reduce(merge, parts, Definitions())


def merge(left: Definitions, right: Definitions) -> Definitions:
    """Return both in one; what `right` says wins. Positions are dropped: they would belong to several texts."""
    lists: Mapping[str, Any] = {name: merge_named(getattr(left, name), getattr(right, name)) for name in LISTS}
    texts: Mapping[str, Any] = {name: getattr(right, name) or getattr(left, name) for name in TEXTS}
    warnings = (*left.warnings, *right.warnings)
    config = merge_config(left.config, right.config)
    is_text = left.is_text or right.is_text
    return Definitions(**texts, **lists, config=config, warnings=warnings, is_text=is_text)


def merge_config(left: Config, right: Config) -> Config:
    """Return the settings of both; every setting that `right` gives wins, the confirmation mode too.

    Of rules for approvals all hold, so that none which asks or denies is lost.
    """
    given = {entry.name: getattr(right, entry.name) for entry in fields(right) if getattr(right, entry.name)}
    approvals = (*left.approvals, *unknown(right.approvals, left.approvals))
    both = {"providers": merge_named(left.providers, right.providers), "approvals": approvals}
    return replace(left, **{**given, **both})


def unknown(rules: Iterable[ApprovalRule], known: Sequence[ApprovalRule]) -> list[ApprovalRule]:
    """Return the rules that are not among others; equal ones may differ in what they mean (``1`` and ``True``)."""
    return [rule for rule in rules if all(rule is not other for other in known)]


def merge_named(left: Iterable[Item], right: Iterable[Item]) -> tuple[Item, ...]:
    """Return the items of both; one of the same name takes the place of the earlier one."""
    items = {item.name: item for item in left}
    items.update({item.name: item for item in right})
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
