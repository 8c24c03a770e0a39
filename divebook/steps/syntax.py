"""Scripts, conditions, items and templates of definitions: what cannot be parsed, or names what cannot be there."""

from __future__ import annotations

from collections.abc import Iterator

from divebook.errors import Problem, ScriptSyntaxError, TemplateError, UndefinedVariableError
from divebook.scripting.code_texts import code_texts, filled_texts
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
    return sorted(found, key=lambda problem: (problem.line, problem.column))


def _schedule(definitions: Definitions, index: int) -> Iterator[Problem]:
    """Yield what is wrong in the inputs of a schedule, whose code has the name ``schedule``."""
    schedule = definitions.schedules[index]
    for code in filled_texts(("Inputs",), schedule.inputs):
        place = ("Schedules", index, *code.place)
        hint = None
        try:
            for program in code.check(code.text):
                hint = code.escape(program)
                program.require({"schedule": {}}, SAFE_NAMES)
        except (ScriptSyntaxError, TemplateError, UndefinedVariableError) as error:
            message = f"{code.key} of schedule {schedule.name!r}: {error}"
            line, column = nearest_position(place, definitions.positions)
            yield Problem(message, key=code.key, hint=hint, place=place).at(line, column)


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
