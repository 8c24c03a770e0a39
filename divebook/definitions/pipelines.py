"""Definitions of pipelines: stages that a request passes through, routes between the stages, and bounds.

`divebook.definitions.definition.compiled` converts a pipeline to a workflow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

from divebook.definitions import table
from divebook.definitions.stored_form import Definition, as_definition, json_value, require_whole_characters, restored
from divebook.definitions.table import Key, Many, number_problems
from divebook.errors import DefinitionError, Problem, did_you_mean
from divebook.questions.question import AGENT_REVIEW, CLARIFICATION, CONFIRMATION
from divebook.text import ranges

START = "start"
"""Name of the stage of an envelope whose request has not started."""
END = "end"
"""Target of a route that ends a request."""
ASKING = (CLARIFICATION, CONFIRMATION)
"""Targets of a route that ask a person. The output of the stage has the question or message."""
RESERVED = (END, *ASKING)

_COUNT = table.Number(ranges.COUNT_OR_ZERO)
_SECONDS = table.Number(ranges.SECONDS)


@dataclass(frozen=True, slots=True)
class RoutingRule(Definition):
    """Routing rule of a pipeline stage: the request is sent to `target` if the output of the stage, a mapping, has
    under the key `condition` the value `value` (also of the same type).
    """

    condition: Annotated[
        str, Key("Field of the stage's output to compare.", required="a route needs a Condition", example="verdict")
    ]
    value: Annotated[Any, Key("Value that the field must have.", example="loop_back")]
    target: Annotated[
        str,
        Key(
            "Stage to continue with, `end`, or `clarification` or `confirmation` to ask a person.",
            required="a route needs a Target",
            example="draft",
        ),
    ]

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        self._put(value=json_value(self.value, "value"))

    def fires(self, output: Mapping[str, Any]) -> bool:
        """Return True if the output of a stage has the value of this routing rule, so that its route is taken. 1 and
        1.0 are equal, True and 1 are not.
        """
        return self.condition in output and _is_same(output[self.condition], self.value)


@dataclass(frozen=True, slots=True)
class EdgeLimit(Definition):
    """Limit on how often one request may pass from one stage to another. 0 means no limit."""

    source: Annotated[
        str, Key("Stage at which the edge starts.", required="an edge limit needs a Source", example="check")
    ]
    target: Annotated[
        str, Key("Stage at which the edge ends.", required="an edge limit needs a Target", example="draft")
    ]
    max_count: Annotated[
        int,
        Key("Maximum number of times that a request may follow the edge; 0 for no limit.", kind=_COUNT, example="2"),
    ] = 0

    @classmethod
    def of(cls, value: Any) -> Self:
        """Create an edge limit from a mapping of its fields; an `EdgeLimit` is returned unchanged. In the mapping,
        `source` may also be called ``from``, and `target` ``to``.
        """
        if isinstance(value, Mapping):
            # ``from`` is a keyword of Python, and cannot be the name of a field.
            synonyms = {"from": "source", "to": "target"}
            value = {synonyms.get(key, key): item for key, item in value.items()}
        return as_definition(cls, value)


@dataclass(frozen=True, slots=True)
class AgentStage(Definition):
    """One stage of a pipeline: its agent, the output that the agent must return, and the routes to other stages."""

    name: Annotated[str, Key("Name of the stage.", required="stage name is required", example="draft")]
    stage_order: Annotated[
        int, Key("Position of the stage. Stages with the same position keep the order of the list.", example="1")
    ] = 0
    requires: Annotated[
        tuple[str, ...],
        Key("With `Mode: parallel`: stages that must complete before this stage starts.", example="[draft]"),
    ] = ()
    after: Annotated[
        tuple[str, ...],
        Key(
            "With `Mode: parallel`: stages that must end before this stage starts, completed or failed.",
            example="[draft]",
        ),
    ] = ()
    join_strategy: Annotated[
        Literal["all", "any"],
        Key(
            "`all`: all stages in `Requires` must complete. `any`: one of them is enough.",
            kind=table.Text(choices=("all", "any"), complaint="invalid JoinStrategy: {}"),
            example="any",
        ),
    ] = "all"
    has_llm: Annotated[
        bool,
        Key(
            "Let the stage ask its agent, or call the Python function that replaces the agent. A stage with `Agent` "
            "does this by default.",
            name="HasLLM",
        ),
    ] = False
    has_tools: Annotated[
        bool, Key("Run the steps of a plan, the output `plan` of an earlier stage, with the environment's actions.")
    ] = False
    has_policies: bool = False
    """True if the stage has policies. For readers of the definition only; it has no effect."""
    tool_access: Annotated[
        Literal["none", "read", "write", "all"],
        Key(
            "Tools that a plan may use. `none`: no tools. `read`, `write`: the `AllowedTools`. `all`: all tools.",
            kind=table.Text(choices=("none", "read", "write", "all"), complaint="invalid ToolAccess: {}"),
            example="read",
        ),
    ] = "none"
    allowed_tools: Annotated[
        tuple[str, ...] | None,
        Key(
            "Tools that a plan may use with `ToolAccess` `read` or `write`; `[]` for none. Default: all tools.",
            kind=table.OptionalTexts(),
            example="[Document.Read]",
        ),
    ] = None
    model_role: Annotated[str, Key("Agent that does the work of the stage.", name="Agent", example="writer")] = ""
    prompt: Annotated[
        str,
        Key(
            "Prompt for the agent; a template with the variable `envelope`. Default: the request and the outputs so "
            "far.",
            example="Draft an answer to ${envelope.raw_input}",
        ),
    ] = ""
    prompt_key: Annotated[
        str, Key("Key of the prompt in the `Prompts` of the pipeline, in place of `Prompt`.", example="draft")
    ] = ""
    temperature: Annotated[
        float | None, Key("Sampling temperature: higher values give more varied answers.", example="0.2")
    ] = None
    max_tokens: Annotated[
        int | None, Key("Maximum number of tokens of an answer.", kind=table.Number(ranges.COUNT), example="2000")
    ] = None
    output_key: Annotated[
        str, Key("Key under which the output of the stage is stored. Default: the name of the stage.", example="plan")
    ] = ""
    required_output_fields: Annotated[
        tuple[str, ...], Key("Fields that the output of the stage must have.", example="[verdict]")
    ] = ()
    routing_rules: Annotated[
        Sequence[RoutingRule],
        Key(
            "Routes that depend on the output. The first route that matches is taken.",
            name="Routes",
            kind=Many(RoutingRule),
        ),
    ] = ()
    default_next: Annotated[
        str, Key("Stage to continue with if no route matches. Default: `end`.", name="Next", example="check")
    ] = ""
    error_next: Annotated[
        str, Key("Stage to continue with if this stage fails. Default: the request ends.", example="repair")
    ] = ""
    timeout_seconds: Annotated[
        float | None,
        Key(
            "Time limit of one attempt; 0 for no limit. Default: `TimeoutSeconds` of the pipeline.",
            kind=_SECONDS,
            example="60",
        ),
    ] = None
    max_visits: Annotated[
        int,
        Key(
            "Maximum number of times that a request may enter the stage; 0 for no limit. A further entry ends the "
            "request.",
            kind=_COUNT,
            example="3",
        ),
    ] = 0
    max_retries: Annotated[
        int,
        Key(
            "Maximum number of retries of a failed stage. With 1 or more, the stage is also repeated after its "
            "process died.",
            kind=_COUNT,
            example="2",
        ),
    ] = 0

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        lists = ("requires", "after", "allowed_tools", "required_output_fields")
        values = {name: getattr(self, name) for name in lists}
        # Lists become tuples, so that equal stages compare equal.
        self._put(**{name: tuple(value) for name, value in values.items() if value is not None})
        self._put(routing_rules=tuple(map(RoutingRule.of, self.routing_rules)), output_key=self.output_key or self.name)

    def next_stage(self, output: Mapping[str, Any]) -> str:
        """Return the stage or target to which this stage routes an output: the target of the first routing rule that
        fits the output, or else the default.
        """
        # The first rule that fits decides, so that the order of the rules matters.
        fired = (rule.target for rule in self.routing_rules if rule.fires(output))
        return next(fired, self.default_next or END)

    def allows(self, tool: str) -> bool:
        """Return True if the agent of the stage may call a tool."""
        if self.tool_access == "none":
            return False
        # Without a list, ``read`` and ``write`` allow all tools.
        return self.tool_access == "all" or self.allowed_tools is None or tool in self.allowed_tools

    def problems(self, names: Sequence[str]) -> Iterator[Problem]:
        """Check this stage as a part of a pipeline whose stages have the given names. Yield each problem.

        The checks cover its model, its choices and numbers, the targets of its routes, and the stages that it waits
        for.
        """
        of = f"stage {self.name!r}"
        if self.prompt and self.prompt_key:
            yield Problem(f"{of} has both a prompt and a prompt_key", key="prompt", hint="remove one of the two")
        if self.has_llm and not self.model_role:
            yield Problem(f"{of} uses a model, but has no model_role", key="model_role", hint="name an agent")
        yield from chosen(self, of)
        yield from number_problems(self)
        targets = [("routing rule", rule.target) for rule in self.routing_rules]
        targets += [(key, getattr(self, key)) for key in ("default_next", "error_next") if getattr(self, key)]
        for key, target in targets:
            # A target is a stage, or a word such as ``end``.
            if target not in names and target not in RESERVED:
                yield unknown(f"{of}: {key} leads to the unknown target", target, (*names, *RESERVED))
        for key in ("requires", "after"):
            for name in getattr(self, key):
                if name == self.name:
                    yield Problem(f"{of}: {key} contains the stage itself", key=key)
                elif name not in names:
                    yield unknown(f"{of}: {key} unknown stage", name, names)


# --- checks of stages and pipelines -----------------------------------------------------------------------------------


def unknown(message: str, name: str, names: Sequence[str]) -> Problem:
    """Return a problem about a `name` that is not one of `names`. Its text is `message` followed by the name; its hint
    is the most similar of `names`.
    """
    return Problem(f"{message} {name!r}", hint=did_you_mean(name, names))


def chosen(record: object, of: str) -> Iterator[Problem]:
    """Check the fields of a definition for which only certain strings are valid (type `Literal`). Yield a problem for
    each field with any other value. `of` describes the definition in the text of the problem.
    """
    # `get_type_hints` removes `Annotated`, so that the literal types of the fields are visible.
    for key, hint in get_type_hints(type(record)).items():
        value = getattr(record, key, None)
        if get_origin(hint) is Literal and value not in get_args(hint):
            yield Problem(f"{key} of {of} cannot be {value!r}", key=key, hint=f"use one of {', '.join(get_args(hint))}")


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two plain values are equal and have the same types at all levels. Integers and floats count as the
    same type.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    # 1 == 1.0 is wanted, and 1 == True is not. Booleans are integers for ``isinstance``.
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)]
    return bool(one == other) and (all(numbers) or type(one) is type(other))


RunMode = Literal["sequential", "parallel"]

_RESUME_STAGES = ("clarification_resume_stage", "confirmation_resume_stage", "agent_review_resume_stage")


@dataclass(frozen=True, slots=True)
class PipelineConfig(Definition):
    """Definition of a pipeline: its stages, the routes between them, and the bounds of a request.

    Raises
    ------
    DefinitionError
        Parts of the pipeline do not fit together. The exception lists all problems.

    Examples
    --------
    >>> config = PipelineConfig("qa", [AgentStage("check", 2), AgentStage("draft", 1, default_next="check")])
    >>> config.order
    ['draft', 'check']
    """

    name: Annotated[
        str, Key("Name under which the pipeline is run.", required="pipeline name is required", example="review")
    ]
    agents: Annotated[
        Sequence[AgentStage],
        Key("Stages, in the order in which a request passes through them.", name="Stages", kind=Many(AgentStage)),
    ] = ()
    default_run_mode: Annotated[
        RunMode,
        Key(
            "`sequential`: the stages run one after the other. `parallel`: all stages that are ready run together.",
            name="Mode",
            kind=table.Text(choices=("sequential", "parallel"), complaint="invalid Mode: {}"),
            example="parallel",
        ),
    ] = "sequential"
    max_iterations: Annotated[
        int, Key("Maximum number of times that a request may return to an earlier stage.", kind=_COUNT, example="2")
    ] = 3
    max_llm_calls: Annotated[
        int, Key("Maximum number of model calls for one request.", name="MaxLLMCalls", kind=_COUNT, example="20")
    ] = 10
    max_agent_hops: Annotated[
        int, Key("Maximum number of stages that one request may pass through.", kind=_COUNT, example="40")
    ] = 21
    default_timeout_seconds: Annotated[
        float,
        Key(
            "Time limit of one attempt at a stage; 0 for no limit.",
            name="TimeoutSeconds",
            kind=_SECONDS,
            example="60",
        ),
    ] = 300
    edge_limits: Annotated[
        Sequence[EdgeLimit], Key("Limits on how often a request may follow certain edges.", kind=Many(EdgeLimit))
    ] = ()
    clarification_resume_stage: Annotated[
        str,
        Key(
            "Stage at which a request continues after a clarification. Default: the stage at which it stopped.",
            example="draft",
        ),
    ] = ""
    confirmation_resume_stage: Annotated[
        str,
        Key(
            "Stage at which a request continues after a confirmation. Default: the stage at which it stopped.",
            example="draft",
        ),
    ] = ""
    agent_review_resume_stage: Annotated[
        str,
        Key(
            "Stage at which a request continues after a review. Default: the stage at which it stopped.",
            example="draft",
        ),
    ] = ""
    prompts: Annotated[
        Mapping[str, str],
        Key(
            "Prompts by key. Each is a template with the variable `envelope`.",
            example="{draft: 'Answer ${envelope.raw_input}'}",
        ),
    ] = field(default_factory=dict)
    on_exhausted: Annotated[
        Literal["stop", "ask"],
        Key(
            "Reaction to a limit that is reached. `stop`: end the request. `ask`: ask a person whether to raise the "
            "limit.",
            kind=table.Text(choices=("stop", "ask"), complaint="invalid OnExhausted: {}"),
            example="ask",
        ),
    ] = "stop"
    on_expired: Annotated[
        Literal["terminate", "ask"],
        Key(
            "Reaction to a question that expires without an answer. `terminate`: end the request. `ask`: ask again.",
            kind=table.Text(choices=("terminate", "ask"), complaint="invalid OnExpired: {}"),
            example="ask",
        ),
    ] = "terminate"
    resume_checkpoints: Annotated[bool, Key("Continue after a checkpoint without waiting for a person.")] = False

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        listed = [AgentStage.of(stage) for stage in self.agents]
        # `sorted` is stable: stages of equal order keep the order in which they are listed.
        stages = sorted(listed, key=lambda stage: stage.stage_order)
        self._put(agents=tuple(stages), edge_limits=tuple(map(EdgeLimit.of, self.edge_limits)))
        require_whole_characters(self)
        problems = _problems_of(self, {stage.name: place for place, stage in enumerate(listed)})
        if problems:
            raise DefinitionError(problems, f"pipeline {self.name!r}")

    @property
    def order(self) -> list[str]:
        """Names of the stages, in the order in which a sequential request passes through them."""
        return [stage.name for stage in self.agents]

    def stage(self, name: str) -> AgentStage | None:
        """Return the stage with this name; None if there is none."""
        return next((stage for stage in self.agents if stage.name == name), None)

    def edge_limit(self, source: str, target: str) -> int:
        """Return how often one request may pass from one stage to another; 0 if the pipeline has no limit for this
        edge.
        """
        limits = (each.max_count for each in self.edge_limits if (each.source, each.target) == (source, target))
        return next(limits, 0)

    def resume_stage(self, kind: str) -> str:
        """Return the name of the stage at which a request continues after a person has answered a question. It depends
        on the `kind` of the question, such as a clarification. Return an empty string if the pipeline has none for this
        kind.
        """
        stages = {
            CLARIFICATION: self.clarification_resume_stage,
            CONFIRMATION: self.confirmation_resume_stage,
            AGENT_REVIEW: self.agent_review_resume_stage,
        }
        return stages.get(kind, "")

    def seconds(self, stage: AgentStage) -> float | None:
        """Return the time limit of one attempt at a stage in seconds; None for no limit."""
        seconds = self.default_timeout_seconds if stage.timeout_seconds is None else stage.timeout_seconds
        return seconds or None  # 0 stands for no limit

    def to_text(self) -> str:
        """Return the pipeline as a JSON string, which `from_text` reads."""
        # Sorted keys: equal pipelines have equal text, and thus equal fingerprints of their workflows.
        return json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> PipelineConfig:
        """Create a pipeline from the JSON string that `to_text` returned. The pipeline is not checked again, so that
        recorded pipelines stay readable when checks become stricter.
        """
        return restored(cls, json.loads(text))


def _problems_of(config: PipelineConfig, places: Mapping[str, int]) -> list[Problem]:
    """Check all parts of a pipeline. Return all problems. `places` has the position of each stage in the list as it was
    written.
    """
    if not config.name:
        # The other checks refer to the pipeline by its name.
        return [Problem("pipeline name is required", key="name")]
    names = config.order
    problems_of_stages = [
        problem.below("Stages", places[stage.name]) for stage in config.agents for problem in stage.problems(names)
    ]
    return [
        *chosen(config, "the pipeline"),
        *number_problems(config),
        *_named(names),
        *problems_of_stages,
        *_limits(config, names),
        *_resume_stages(config, names),
        *_prompts(config, places),
        *_cycles(config),
    ]


def _named(names: list[str]) -> Iterator[Problem]:
    # Each name once, so that three stages of one name give one problem.
    for name in dict.fromkeys(names):
        if not name:
            yield Problem("stage name is required", key="name")
        if name in RESERVED:
            yield Problem(
                f"stage name {name!r} is reserved",
                key="name",
                hint="choose another name: a route to this target has a special meaning",
            )
        if names.count(name) > 1:
            yield Problem(f"duplicate stage name {name!r}", key="name", hint="every stage needs a unique name")


def _limits(config: PipelineConfig, names: list[str]) -> Iterator[Problem]:
    for limit in config.edge_limits:
        for name in (limit.source, limit.target):
            if name not in names:
                yield unknown("an edge limit names the unknown stage", name, names)
        yield from number_problems(limit)


def _resume_stages(config: PipelineConfig, names: list[str]) -> Iterator[Problem]:
    for key in _RESUME_STAGES:
        name = getattr(config, key)
        # A request may also end after an answer.
        if name and name not in (*names, END):
            yield unknown(f"{key} names the unknown stage", name, names)


def _prompts(config: PipelineConfig, places: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each stage whose prompt key is not a key of the prompts of the pipeline. `places` has the
    position of each stage in the list as it was written.
    """
    for stage in config.agents:
        key = stage.prompt_key
        if key and key not in config.prompts:
            message = f"stage {stage.name!r}: prompt_key names the unknown prompt {key!r}"
            hint = did_you_mean(key, config.prompts) or f"add Prompts: {{{key}: ...}} to the pipeline, or write Prompt"
            yield Problem(message, key="prompt_key", hint=hint, place=("Stages", places[stage.name], "PromptKey"))


def _cycles(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem if stages wait for each other in a cycle. In parallel mode none of these stages would ever run.

    Stages that wait for no other stage are removed repeatedly. Stages that remain form a cycle.
    """
    waiting = {stage.name: stage for stage in config.agents}
    # Kahn's algorithm: a, b after a, c after b. The rounds release [a], [b], [c], and nothing remains.
    while released := [name for name, stage in waiting.items() if not _waits_for(stage, waiting)]:
        for name in released:
            del waiting[name]
    if waiting:
        hint = "remove one of these stages from the requires of another"
        yield Problem(f"requires form a cycle: {', '.join(waiting)} wait for each other", key="requires", hint=hint)


def _waits_for(stage: AgentStage, waiting: Mapping[str, AgentStage]) -> bool:
    """Return True if a pipeline stage cannot run yet, because it must follow at least one of the stages in `waiting`,
    which have not run.
    """
    blocked = [name in waiting for name in stage.requires]
    # With the strategy `any`, one completed stage of `requires` is sufficient.
    is_blocked = all(blocked) if stage.join_strategy == "any" and blocked else any(blocked)
    return is_blocked or any(name in waiting for name in stage.after)
