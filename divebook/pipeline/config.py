"""A pipeline as plain data: its stages, and the rules by which a request goes from one to the next."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal, Self, TypeVar, cast

from divebook.errors import DefinitionError, nearest
from divebook.pipeline.rules import END, problems_of
from divebook.workflow.problem import Problem
from divebook.workflow.record import Record, json_value, many

RunMode = Literal["sequential", "parallel"]
R = TypeVar("R", bound=Record)


def _texts() -> Any:
    return field(default=(), metadata={"tuple": True})


@dataclass(frozen=True, slots=True)
class RoutingRule(Record):
    """Go to `target` if the output holds `value` under the key `condition`, of the same type."""

    condition: str
    value: Any
    target: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", json_value(self.value, "value"))

    def fires(self, output: Mapping[str, Any]) -> bool:
        """Whether the rule applies to an output; 1 and 1.0 are equal, True and 1 are not."""
        return self.condition in output and _is_same(output[self.condition], self.value)


@dataclass(frozen=True, slots=True)
class EdgeLimit(Record):
    """How often a request may pass from one stage to another; 0 stands for no limit."""

    source: str
    target: str
    max_count: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make a limit; its ends may also be written as ``from`` and ``to``."""
        named = {"from": "source", "to": "target"}
        return cls(**_arguments(cls, {named.get(key, key): value for key, value in data.items()}))


@dataclass(frozen=True, slots=True)
class AgentStage(Record):
    """One stage of a pipeline: who works there, what must come out, and where the request goes next."""

    name: str
    stage_order: int = 0
    """Position; stages of equal order keep the order in which they are listed."""
    requires: tuple[str, ...] = _texts()
    """In parallel runs: stages that must be completed before."""
    after: tuple[str, ...] = _texts()
    """In parallel runs: stages that must have ended before, well or not."""
    join_strategy: Literal["all", "any"] = "all"
    """Whether all required stages must be completed, or one is enough."""
    has_llm: bool = False
    """A model works here: the agent that `model_role` names, unless the pipeline has a function for the stage."""
    has_tools: bool = False
    """The steps of the output ``plan`` are carried out with the environment's actions."""
    has_policies: bool = False
    """Kept for whoever reads the definition."""
    tool_access: Literal["none", "read", "write", "all"] = "none"
    """``none`` denies every tool, ``all`` allows every one, else `allowed_tools` decides."""
    allowed_tools: tuple[str, ...] = _texts()
    """Without any, every tool is allowed."""
    model_role: str = ""
    """Name of the agent."""
    prompt_key: str = ""
    """Which of the pipeline's prompts; by default the request's text and the outputs so far."""
    temperature: float | None = None
    max_tokens: int | None = None
    output_key: str = ""
    """Output slot; by default the stage's name."""
    required_output_fields: tuple[str, ...] = _texts()
    routing_rules: Sequence[RoutingRule] = many(RoutingRule)
    """In order; the first that fires decides."""
    default_next: str = ""
    """Where to go if no rule fires; by default ``end``."""
    error_next: str = ""
    """Where to go if the stage fails; without it the request is terminated."""
    timeout_seconds: float = 0
    """Of each attempt; by default the pipeline's."""
    max_visits: int = 0
    """How often a request may be here, all its runs together; the next entry ends it. 0 for as often as it likes."""
    max_retries: int = 0
    """How often a failed stage is tried again. One that may be retried is also repeated where its process died."""

    def __post_init__(self) -> None:
        for name in ("requires", "after", "allowed_tools", "required_output_fields"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "routing_rules", _records(RoutingRule, self.routing_rules))
        object.__setattr__(self, "output_key", self.output_key or self.name)

    def next_stage(self, output: Mapping[str, Any]) -> str:
        """Return where a request goes after an output."""
        fired = (rule.target for rule in self.routing_rules if rule.fires(output))
        return next(fired, self.default_next or END)

    def allows(self, tool: str) -> bool:
        """Whether the stage may call a tool."""
        if self.tool_access == "none":
            return False
        return self.tool_access == "all" or not self.allowed_tools or tool in self.allowed_tools


@dataclass(frozen=True, slots=True)
class PipelineConfig(Record):
    """Stages and what a request may spend on its way through them.

    Raises
    ------
    DefinitionError
        With everything that does not fit together.

    Examples
    --------
    >>> config = PipelineConfig("qa", [AgentStage("check", 2), AgentStage("draft", 1, default_next="check")])
    >>> config.order
    ['draft', 'check']
    """

    name: str
    agents: Sequence[AgentStage] = many(AgentStage)
    """The stages; kept in the order in which requests meet them."""
    default_run_mode: RunMode = "sequential"
    max_iterations: int = 3
    max_llm_calls: int = 10
    max_agent_hops: int = 21
    default_timeout_seconds: float = 300
    edge_limits: Sequence[EdgeLimit] = many(EdgeLimit)
    clarification_resume_stage: str = ""
    """Where a request goes on after an answer; by default where it stopped."""
    confirmation_resume_stage: str = ""
    agent_review_resume_stage: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Texts with ``${...}`` by key; they see ``envelope``, its state as `Envelope.to_state_dict` writes it."""
    on_exhausted: Literal["stop", "ask"] = "stop"
    """At a bound: stop and say which, or ask a person whether to raise it."""
    on_expired: Literal["terminate", "ask"] = "terminate"
    """Where nobody answered in time: terminate, or ask again."""
    resume_checkpoints: bool = False
    """Whether questions of kind ``checkpoint`` are passed without waiting for anybody."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        stages = sorted(_records(AgentStage, self.agents), key=lambda stage: stage.stage_order)
        put(self, "agents", tuple(stages))
        put(self, "edge_limits", _records(EdgeLimit, self.edge_limits))
        problems = problems_of(self)
        if problems:
            raise DefinitionError(problems, f"pipeline {self.name!r}")

    @classmethod
    def of(cls, value: PipelineConfig | Mapping[str, Any]) -> PipelineConfig:
        """Return `value` as a pipeline; a mapping has the fields' names as keys."""
        return value if isinstance(value, PipelineConfig) else read(cls, value)

    @property
    def order(self) -> list[str]:
        """The names of the stages, first to last."""
        return [stage.name for stage in self.agents]

    def stage(self, name: str) -> AgentStage | None:
        """Return the stage of that name, or None."""
        return next((stage for stage in self.agents if stage.name == name), None)

    def edge_limit(self, source: str, target: str) -> int:
        """Return how often that edge may be passed; 0 for no limit."""
        limits = (each.max_count for each in self.edge_limits if (each.source, each.target) == (source, target))
        return next(limits, 0)

    def resume_stage(self, kind: str) -> str:
        """Return the configured stage for answers to that kind of question, or an empty text."""
        return str(getattr(self, f"{kind}_resume_stage", ""))

    def seconds(self, stage: AgentStage) -> float | None:
        """Return how long an attempt at a stage may take, or None for as long as it likes."""
        return stage.timeout_seconds or self.default_timeout_seconds or None

    def to_text(self) -> str:
        """Return the pipeline as JSON, which `from_text` reads."""
        return json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> PipelineConfig:
        """Return the pipeline that `to_text` wrote."""
        return cls.from_dict(json.loads(text))


def read(record: type[R], data: Mapping[str, Any]) -> R:
    """Return what a person wrote as a record; a key that it does not have is a `DefinitionError`."""
    if not isinstance(data, Mapping):
        raise DefinitionError([Problem(f"{record.__name__} must be a mapping, not {data!r:.60}")])
    return record.from_dict(data) if record is EdgeLimit else record(**_arguments(record, data))


def _records(record: type[R], given: Iterable[R | Mapping[str, Any]]) -> tuple[R, ...]:
    return tuple(
        entry if isinstance(entry, record) else read(record, cast("Mapping[str, Any]", entry)) for entry in given
    )


def _arguments(record: type[Record], data: Mapping[str, Any]) -> dict[str, Any]:
    known = {entry.name: entry for entry in fields(record)}
    for key in data:
        if key not in known:
            near = nearest(str(key), known)
            hint = f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"
            raise DefinitionError([Problem(f"{record.__name__} has no key {key!r}", key=str(key), hint=hint)])
    data = {key: value for key, value in data.items() if value is not None or _is_mandatory(known[key])}
    missing = [name for name, entry in known.items() if name not in data and _is_mandatory(entry)]
    if missing:
        raise DefinitionError([Problem(f"{missing[0]} is required in {record.__name__}", key=missing[0])])
    return dict(data)


def _is_mandatory(entry: Field[Any]) -> bool:
    return entry.default is MISSING and entry.default_factory is MISSING


def _is_same(left: Any, right: Any) -> bool:
    """Whether two plain values are equal and of the same types; whole numbers and fractions are of one type."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_is_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_is_same, left, right))
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right)]
    return bool(left == right) and (all(numbers) or type(left) is type(right))
