"""A workflow as plain data, and everything a definition file can hold.

`Workflow` is made by the reader from text, by Python code directly, and from the log by `Workflow.from_dict`; the
three give equal objects with equal fingerprints. Agents are referred to by name only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from divebook.bounds import Bounds
from divebook.dialects import MANNERS, OWN, Dialect, Manner
from divebook.errors import DefinitionError, NotFoundError, Place, Problem, Severity, UnstorableValueError
from divebook.events.codec import encode
from divebook.events.upcast import FORM, Change, walked
from divebook.text.arguments import describe
from divebook.text.names import normal_name, same_name
from divebook.workflow import kinds
from divebook.workflow.content import ContentEntry
from divebook.workflow.fingerprint import fingerprint_of
from divebook.workflow.former_templates import with_present_templates
from divebook.workflow.graph import check_workflow, reachable_from
from divebook.workflow.parameter_types import ParameterType
from divebook.workflow.pipelines import PipelineConfig
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
    MCPServerDefinition,
    OAuthDefinition,
    TokenStoreDefinition,
    ToolConfigurationDefinition,
)
from divebook.workflow.step import Each, Edge, Step, chained, require_step
from divebook.workflow.stored_form import Definition, arguments, defaults, recorded_default, require_text
from divebook.workflow.table import Key
from divebook.workflow.workspaces import WorkspaceDefinition
from divebook.workflow.written import UNWRITTEN, Written

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

FORMS: Sequence[Change] = (with_present_templates,)
"""Changes of what `Workflow.to_dict` gives, in order of age, as of events in `divebook.events.upcast`."""


@dataclass(frozen=True, slots=True)
class InputDefinition(Definition):
    """An input of a workflow. It must be given unless it has a default or `required` is False."""

    names = ("name",)
    short = (str,)
    name: Annotated[str, Key("The name, as in `inputs.name`.", required="input name is required", example="topic")]
    type: Annotated[
        str | None, Key("The type of its value; without it any value fits.", kind=kinds.InputType(), example="string")
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
    def manner(self) -> Manner:
        """What its executions do otherwise than those of the other dialect."""
        return MANNERS[self.dialect]

    @property
    def start(self) -> Step:
        """The first listed step."""
        return self.steps[0]

    @property
    def has_joins(self) -> bool:
        """Whether any step waits for other paths; computed once."""
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
    """Whether any of it was read from a text or plain data: only Python code vouches for what it defines."""
