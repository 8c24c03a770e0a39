"""The types of step that every environment has, each with what carries it out."""

from __future__ import annotations

from collections.abc import Callable

from divebook.agents import Agent
from divebook.execution.children import BeginSuccessor, DriveChild
from divebook.execution.step_run import Handler
from divebook.steps.action import ActionStep
from divebook.steps.actions import Action
from divebook.steps.content import ContentBuilder
from divebook.steps.continuing import ContinueStep
from divebook.steps.function import FunctionStep
from divebook.steps.interrupt import interrupt_step
from divebook.steps.offers import Offers
from divebook.steps.prompt import PromptStep
from divebook.steps.rollback import RollbackStep
from divebook.steps.script import ScriptStep
from divebook.steps.wait import wait_step
from divebook.steps.workflow import WorkflowStep
from divebook.workflow.step import CONTINUE, ROLLBACK
from divebook.workflow.undoing import find_rollback


def built_in_handlers(
    find_agent: Callable[[str | None], Agent | None],
    find_action: Callable[[str], Action],
    content: ContentBuilder,
    script: ScriptStep,
    *,
    drive_child: DriveChild,
    begin_successor: BeginSuccessor,
    offers: Offers,
) -> dict[str, Handler]:
    """Return what carries out each type of step, by type."""
    prompts = PromptStep(find_agent, content, offers)
    return {
        "prompt": prompts,
        "action": ActionStep(find_action),
        f"{ROLLBACK} action": RollbackStep(find_action),
        f"{ROLLBACK} step": RollbackStep(find_rollback),
        "script": script,
        "wait": wait_step,
        "interrupt": interrupt_step,
        "workflow": WorkflowStep(drive_child),
        CONTINUE: ContinueStep(begin_successor),
        "function": FunctionStep(drive_child, prompts.ask, begin_successor),
    }
