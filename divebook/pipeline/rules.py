"""What makes a pipeline sound: names that exist, settings that mean something, no stages that wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from divebook.errors import nearest
from divebook.workflow.problem import Problem

if TYPE_CHECKING:
    from divebook.pipeline.config import AgentStage, PipelineConfig

END = "end"
CLARIFICATION, CONFIRMATION = "clarification", "confirmation"
ASKING = (CLARIFICATION, CONFIRMATION)
"""Targets that ask a person with what the output holds as its question or message."""
RESERVED = (END, *ASKING)

_CHOICES = {
    "default_run_mode": ("sequential", "parallel"),
    "on_exhausted": ("stop", "ask"),
    "on_expired": ("terminate", "ask"),
}
_STAGE_CHOICES = {"join_strategy": ("all", "any"), "tool_access": ("none", "read", "write", "all")}
_COUNTS = ("max_iterations", "max_llm_calls", "max_agent_hops", "default_timeout_seconds")
_STAGE_COUNTS = ("timeout_seconds", "max_visits", "max_retries")
_RESUME_STAGES = ("clarification_resume_stage", "confirmation_resume_stage", "agent_review_resume_stage")


def problems_of(config: PipelineConfig) -> list[Problem]:
    """Return everything that is wrong with a pipeline."""
    if not config.name:
        return [Problem("pipeline name is required", key="name")]
    names = config.order
    return [
        *_chosen(config, _CHOICES, "the pipeline"),
        *_counted(config, _COUNTS, "the pipeline"),
        *_named(names),
        *(found for stage in config.agents for found in _stage(stage, names)),
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


def _stage(stage: AgentStage, names: list[str]) -> Iterator[Problem]:
    of = f"stage {stage.name!r}"
    if stage.has_llm and not stage.model_role:
        yield Problem(f"{of} has a model and no model_role", key="model_role", hint="name the agent that answers")
    yield from _chosen(stage, _STAGE_CHOICES, of)
    yield from _counted(stage, _STAGE_COUNTS, of)
    targets = [("routing rule", rule.target) for rule in stage.routing_rules]
    targets += [(key, getattr(stage, key)) for key in ("default_next", "error_next") if getattr(stage, key)]
    for key, target in targets:
        if target not in names and target not in RESERVED:
            yield _unknown(f"{of}: {key} leads to unknown target", target, (*names, *RESERVED))
    for key in ("requires", "after"):
        for name in getattr(stage, key):
            if name == stage.name:
                yield Problem(f"{of}: {key} itself", key=key)
            elif name not in names:
                yield _unknown(f"{of}: {key} unknown stage", name, names)


def _unknown(message: str, name: str, known: tuple[str, ...] | list[str]) -> Problem:
    near = nearest(name, known)
    return Problem(f"{message} {name!r}", hint=f"did you mean {near!r}?" if near else None)


def _chosen(record: object, choices: Mapping[str, tuple[str, ...]], of: str) -> Iterator[Problem]:
    for key, allowed in choices.items():
        value = getattr(record, key)
        if value not in allowed:
            yield Problem(f"{key} of {of} cannot be {value!r}", key=key, hint=f"one of {', '.join(allowed)}")


def _counted(record: object, keys: tuple[str, ...], of: str) -> Iterator[Problem]:
    for key in keys:
        value = getattr(record, key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            yield Problem(f"{key} of {of} must be a number of at least 0, not {value!r}", key=key)


def _limits(config: PipelineConfig, names: list[str]) -> Iterator[Problem]:
    for limit in config.edge_limits:
        for name in (limit.source, limit.target):
            if name not in names:
                yield _unknown("edge limit names unknown stage", name, names)
        yield from _counted(limit, ("max_count",), f"the edge limit {limit.source}->{limit.target}")


def _resume_stages(config: PipelineConfig, names: list[str]) -> Iterator[Problem]:
    for key in _RESUME_STAGES:
        name = getattr(config, key)
        if name and name not in (*names, END):
            yield _unknown(f"{key} names unknown stage", name, names)


def _prompts(config: PipelineConfig) -> Iterator[Problem]:
    for stage in config.agents:
        if config.prompts and stage.prompt_key and stage.prompt_key not in config.prompts:
            yield _unknown(
                f"stage {stage.name!r}: prompt_key names unknown prompt", stage.prompt_key, [*config.prompts]
            )


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
