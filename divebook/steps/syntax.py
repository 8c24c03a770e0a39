"""Scripts, conditions, items and templates of definitions: what cannot be parsed, or names what cannot be there."""

from __future__ import annotations

from collections.abc import Iterator

from divebook.errors import Place, Problem, ScriptSyntaxError, TemplateError, UndefinedVariableError
from divebook.scripting.checks import check_template
from divebook.scripting.code_texts import CodeText, code_texts, filled_texts
from divebook.scripting.contexts import SAFE_NAMES
from divebook.steps.naming import Naming
from divebook.workflow.definition import Definitions, Workflow
from divebook.workflow.located import nearest_position


def syntax_problems(definitions: Definitions) -> list[Problem]:
    """Return what is wrong in every text, and where it stands; the dialect ``dive`` finds out when it runs."""
    found = [
        problem.below("Workflows", index)
        for index, workflow in enumerate(definitions.workflows)
        if workflow.manner.is_strict
        for problem in workflow_problems(workflow)
    ]
    found += [problem for index in range(len(definitions.schedules)) for problem in _schedule(definitions, index)]
    found += [problem for index in range(len(definitions.pipelines)) for problem in _pipeline(definitions, index)]
    return sorted(found, key=lambda problem: (problem.line, problem.column))


def _schedule(definitions: Definitions, index: int) -> Iterator[Problem]:
    """Yield what is wrong in the inputs of a schedule, whose code has the name ``schedule``."""
    schedule = definitions.schedules[index]
    for code in filled_texts(("Inputs",), schedule.inputs):
        yield from _mistakes(definitions, code, ("Schedules", index), f"schedule {schedule.name!r}", "schedule")


def _pipeline(definitions: Definitions, index: int) -> Iterator[Problem]:
    """Yield what is wrong in the prompts of a pipeline, whose code has the name ``envelope``."""
    pipeline, place = definitions.pipelines[index], ("Pipelines", index)
    for key, text in pipeline.prompts.items():
        code = CodeText(("Prompts", key), text, check_template)
        yield from _mistakes(definitions, code, place, f"pipeline {pipeline.name!r}", "envelope")
    # Stages are sorted by their own order; only without one they are where they were written.
    is_as_written = not any(stage.stage_order for stage in pipeline.agents)
    for number, stage in enumerate(pipeline.agents):
        code = CodeText(("Stages", number, "Prompt") if is_as_written else ("Prompt",), stage.prompt, check_template)
        yield from _mistakes(definitions, code, place, f"stage {stage.name!r}", "envelope")


def _mistakes(definitions: Definitions, code: CodeText, above: Place, owner: str, name: str) -> Iterator[Problem]:
    """Yield what is wrong in one text whose code has that one name."""
    place, hint = (*above, *code.place), None
    try:
        for program in code.check(code.text):
            hint = code.escape(program)
            program.require({name: {}}, SAFE_NAMES)
    except (ScriptSyntaxError, TemplateError, UndefinedVariableError) as error:
        line, column = nearest_position(place, definitions.positions)
        yield Problem(f"{code.key} of {owner}: {error}", key=code.key, hint=hint, place=place).at(line, column)


def workflow_problems(workflow: Workflow) -> Iterator[Problem]:
    """Yield what is wrong in one workflow; places are relative to it."""
    naming = Naming(workflow)
    for index, step in enumerate(workflow.steps):
        for code in code_texts(step):
            place = ("Steps", index, *code.place)
            try:
                programs = code.check(code.text)
            except (ScriptSyntaxError, TemplateError) as error:
                message = f"{code.key} of step {step.name!r}: {error}"
                yield workflow.written.located(Problem(message, key=code.key, place=place))
                continue
            for found in naming.mistakes(step, code, programs):
                yield workflow.written.located(found.problem(place), found.pattern)
