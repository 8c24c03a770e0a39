"""Scripts, conditions, items and templates of definitions, parsed before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from divebook.errors import Place, Problem, ScriptSyntaxError, TemplateError
from divebook.scripting import check_condition, check_expression, check_script, check_template
from divebook.workflow.definition import Definitions, Step, Workflow
from divebook.workflow.located import nearest_position
from divebook.workflow.rules import is_expression

Check = Callable[[str], None]


def syntax_problems(definitions: Definitions) -> list[Problem]:
    """Return every text that cannot be parsed, and where it stands; the dialect ``dive`` finds out when it runs."""
    found = [
        problem.below("Workflows", index)
        for index, workflow in enumerate(definitions.workflows)
        if workflow.manner.is_strict
        for problem in workflow_problems(workflow)
    ]
    return [problem.at(*nearest_position(problem.place, definitions.positions)) for problem in found]


def workflow_problems(workflow: Workflow) -> Iterator[Problem]:
    """Yield what cannot be parsed in one workflow; places are relative to it."""
    for index, step in enumerate(workflow.steps):
        for place, text, check in _texts(step):
            try:
                check(text)
            except (ScriptSyntaxError, TemplateError) as error:
                where: Place = ("Steps", index, *place)
                key = next(part for part in reversed(place) if isinstance(part, str))
                yield Problem(f"{key} of step {step.name!r}: {error}", key=key, place=where)


def _texts(step: Step) -> Iterator[tuple[Place, str, Check]]:
    """Yield each text of a step that is code, with what parses it."""
    if step.script and step.type == "script":
        yield ("Script",), step.script, check_script
    if step.each is not None and isinstance(step.each.items, str):
        yield ("Each", "Items"), step.each.items, check_expression
    for number, edge in enumerate(step.edges):
        if edge.condition:
            yield ("Next", number, "Condition"), edge.condition, check_condition
    if step.prompt:
        yield ("Prompt",), step.prompt, check_template
    for key, value in step.parameters.items() if step.type == "action" else ():
        if isinstance(value, str):
            yield ("Parameters", key), value, check_expression if is_expression(value) else check_template
