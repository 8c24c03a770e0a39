"""Which stages of a parallel run may begin: pure."""

from __future__ import annotations

from collections.abc import Collection

from divebook.workflow.pipelines import AgentStage, PipelineConfig


def ready_stages(
    config: PipelineConfig, completed: Collection[str], failed: Collection[str] = frozenset()
) -> list[str]:
    """Return the stages that may begin, in their order.

    A stage needs what it `requires` to be completed (any one of it for join ``any``), and what it comes `after` to have
    ended: completed, failed, or skipped because something it required failed. A stage that another one names as
    `error_next` is released by that one's failure as well.
    """
    ended = {*completed, *failed, *skipped_stages(config, completed, failed)}
    return [
        stage.name
        for stage in config.agents
        if stage.name not in ended
        and _is_joined(stage, {name for name in stage.requires if _releases(config, name, stage, completed, failed)})
        and ended.issuperset(stage.after)
    ]


def skipped_stages(
    config: PipelineConfig, completed: Collection[str], failed: Collection[str] = frozenset()
) -> list[str]:
    """Return the stages that can never run, since what they require has failed or is skipped itself."""
    skipped: dict[str, None] = {}
    while found := [
        stage.name
        for stage in config.agents
        if stage.name not in skipped
        and stage.name not in completed
        and stage.name not in failed
        and not _is_joined(
            stage, {name for name in stage.requires if not _is_dead(config, name, stage, failed, skipped)}
        )
    ]:
        skipped |= dict.fromkeys(found)
    return list(skipped)


def _is_joined(stage: AgentStage, released: Collection[str]) -> bool:
    """Whether what is released of a stage's requirements is enough."""
    if stage.join_strategy == "any" and stage.requires:
        return bool(released)
    return len(released) == len(set(stage.requires))


def _releases(
    config: PipelineConfig, required: str, stage: AgentStage, completed: Collection[str], failed: Collection[str]
) -> bool:
    return required in completed or (required in failed and _hands_over(config, required, stage))


def _is_dead(
    config: PipelineConfig, required: str, stage: AgentStage, failed: Collection[str], skipped: Collection[str]
) -> bool:
    return required in skipped or (required in failed and not _hands_over(config, required, stage))


def _hands_over(config: PipelineConfig, source: str, stage: AgentStage) -> bool:
    """Whether the failure of one stage is what another one is there for."""
    found = config.stage(source)
    return found is not None and found.error_next == stage.name
