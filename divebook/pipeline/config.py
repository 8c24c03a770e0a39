"""A pipeline as plain data: its stages, and what a request may spend on its way through them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from divebook.errors import DefinitionError, Problem
from divebook.pipeline.envelope.contents import END
from divebook.pipeline.stage import RESERVED, AgentStage, EdgeLimit, chosen, counted, unknown
from divebook.workflow.stored_form import Definition

RunMode = Literal["sequential", "parallel"]

_COUNTS = ("max_iterations", "max_llm_calls", "max_agent_hops", "default_timeout_seconds")
_RESUME_STAGES = ("clarification_resume_stage", "confirmation_resume_stage", "agent_review_resume_stage")


@dataclass(frozen=True, slots=True)
class PipelineConfig(Definition):
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
    agents: Sequence[AgentStage] = ()
    """The stages; kept in the order in which requests meet them."""
    default_run_mode: RunMode = "sequential"
    max_iterations: int = 3
    max_llm_calls: int = 10
    max_agent_hops: int = 21
    default_timeout_seconds: float = 300
    edge_limits: Sequence[EdgeLimit] = ()
    clarification_resume_stage: str = ""
    """Where a request goes on after an answer; by default where it stopped."""
    confirmation_resume_stage: str = ""
    agent_review_resume_stage: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Texts with ``${...}`` by key; they see ``envelope``, its state as `Envelope.to_state_dict` writes it."""
    on_exhausted: Literal["stop", "ask"] = "stop"
    """At a bound: stop and say which, or ask a person whether to raise it."""
    on_expired: Literal["terminate", "ask"] = "terminate"
    """When a question expires without an answer: terminate, or ask again."""
    resume_checkpoints: bool = False
    """Whether questions of kind ``checkpoint`` are passed without waiting for anybody."""

    def __post_init__(self) -> None:
        stages = sorted(map(AgentStage.of, self.agents), key=lambda stage: stage.stage_order)
        self._put(agents=tuple(stages), edge_limits=tuple(map(EdgeLimit.of, self.edge_limits)))
        problems = _problems_of(self)
        if problems:
            raise DefinitionError(problems, f"pipeline {self.name!r}")

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


def _problems_of(config: PipelineConfig) -> list[Problem]:
    """Return everything that is wrong with a pipeline."""
    if not config.name:
        return [Problem("pipeline name is required", key="name")]
    names = config.order
    return [
        *chosen(config, "the pipeline"),
        *counted(config, _COUNTS, "the pipeline"),
        *_named(names),
        *(found for stage in config.agents for found in stage.problems(names)),
        *_limits(config, names),
        *_resume_stages(config, names),
        *_prompts(config),
        *_cycles(config),
    ]


def _named(names: list[str]) -> Iterator[Problem]:
    for name in dict.fromkeys(names):
        if not name:
            yield Problem("stage name is required", key="name")
        if name in RESERVED:
            yield Problem(
                f"stage name {name!r} is reserved", key="name", hint="it is a target with a meaning of its own"
            )
        if names.count(name) > 1:
            yield Problem(f"duplicate stage name {name!r}", key="name", hint="every stage needs a name of its own")


def _limits(config: PipelineConfig, names: list[str]) -> Iterator[Problem]:
    for limit in config.edge_limits:
        for name in (limit.source, limit.target):
            if name not in names:
                yield unknown("edge limit names unknown stage", name, names)
        yield from counted(limit, ("max_count",), f"the edge limit {limit.source}->{limit.target}")


def _resume_stages(config: PipelineConfig, names: list[str]) -> Iterator[Problem]:
    for key in _RESUME_STAGES:
        name = getattr(config, key)
        if name and name not in (*names, END):
            yield unknown(f"{key} names unknown stage", name, names)


def _prompts(config: PipelineConfig) -> Iterator[Problem]:
    for stage in config.agents:
        if config.prompts and stage.prompt_key and stage.prompt_key not in config.prompts:
            yield unknown(f"stage {stage.name!r}: prompt_key names unknown prompt", stage.prompt_key, [*config.prompts])


def _cycles(config: PipelineConfig) -> Iterator[Problem]:
    """Find stages that wait for each other, so that none of them would ever run in parallel mode."""
    left = {stage.name: stage for stage in config.agents}
    while released := [name for name, stage in left.items() if not _waits_for(stage, left)]:
        for name in released:
            del left[name]
    if left:
        hint = "let one of them go without the others"
        yield Problem(f"requires form a cycle: {', '.join(left)} wait for each other", key="requires", hint=hint)


def _waits_for(stage: AgentStage, left: Mapping[str, AgentStage]) -> bool:
    """Whether a stage cannot run before one of those that are left."""
    blocked = [name in left for name in stage.requires]
    is_blocked = all(blocked) if stage.join_strategy == "any" and blocked else any(blocked)
    return is_blocked or any(name in left for name in stage.after)
