"""Problems in scripts, conditions, items and templates of definitions: syntax errors, and names that cannot exist.

A variable exists once a step that stores it has ended, a script has set it, or a loop is at an item. A name is a
mistake if no part of the workflow sets it, or only parts that come after the step that reads it. All other errors
appear at run time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from divebook.errors import Place, Problem, ScriptSyntaxError, TemplateError, UndefinedVariableError, did_you_mean
from divebook.scripting.needs import (
    CodeText,
    check_template,
    code_texts,
    filled_texts,
    needs_of_expression,
    needs_of_script,
    set_by_script,
)
from divebook.scripting.prelude import SAFE_NAMES
from divebook.scripting.syntax import Program
from divebook.workflow.definition import Definitions, Workflow
from divebook.workflow.functions import FUNCTION
from divebook.workflow.graph import reachable_from
from divebook.workflow.step import STAGE, Step
from divebook.workflow.table import nearest_position

MOST_STEPS = 200
"""Maximum number of steps for which the order of steps is analysed. Each question walks over all steps."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Name that cannot exist when the code runs."""

    message: str
    key: str
    hint: str | None
    pattern: str
    """Regular expression for its spelling in the source."""

    def problem(self, place: Place) -> Problem:
        """Return the mistake as a problem at a place."""
        return Problem(self.message, key=self.key, hint=self.hint, place=place)


class Naming:
    """Names that the code of a workflow may use."""

    def __init__(self, workflow: Workflow) -> None:
        self._steps = {step.name: step for step in workflow.steps}
        self._start = workflow.start.name
        self._order = {name: number for number, name in enumerate(self._steps)}
        self._inputs = [entry.name for entry in workflow.inputs]
        self._scripts = {step.name: _set_by(step) for step in workflow.steps}
        self._is_known = all(names is not None for names in self._scripts.values())
        self._setters = self._all_setters()

    def _all_setters(self) -> dict[str, list[str]]:
        """Return the steps that set each variable."""
        setters: dict[str, list[str]] = {}
        for step in self._steps.values():
            stored = {step.store, step.each.as_ if step.each else None, *(policy.store for policy in step.catch)}
            for name in (stored | (self._scripts[step.name] or frozenset())) - {None, ""}:
                setters.setdefault(str(name), []).append(step.name)
        return setters

    def mistakes(self, step: Step, code: CodeText, programs: Iterable[Program]) -> Iterator[Mistake]:
        """Yield the names in a text of a step that cannot exist."""
        for program in programs:
            yield from self._unknown(step, code, program)
            needs = needs_of_script(program.text) if code.is_script else needs_of_expression(program)
            for root, name in sorted(needs):
                mistake = self._no_input(name) if root == "inputs" else self._no_variable(name, step, code)
                if mistake is not None:
                    message, hint = mistake
                    pattern = rf"\b{root}\s*(?:\.\s*|\[\s*[\"'])({re.escape(name)})\b"
                    yield Mistake(message, code.key, hint, pattern)

    def _unknown(self, step: Step, code: CodeText, program: Program) -> Iterator[Mistake]:
        names: Mapping[str, Any] = {"inputs": dict.fromkeys(self._inputs), "state": dict.fromkeys(self._setters)}
        if step.each is not None and step.each.as_ and (code.is_of_item or not (code.is_before or code.is_after)):
            names = {**names, step.each.as_: None}
        try:
            program.require(names, code.offered)
        except UndefinedVariableError as error:
            # The near name of ${statte.total} is the better advice; a bare ${HOME} is more likely meant as text.
            is_bare = program.text.strip().isidentifier()
            hint = code.escape(program) if is_bare or error.hint is None else None
            yield Mistake(str(error), code.key, hint, rf"(?<![\w.])({re.escape(error.name)})\b")

    def _no_input(self, name: str) -> tuple[str, str] | None:
        if name in self._inputs:
            return None
        existing = f"there is {', '.join(self._inputs)}" if self._inputs else "it has none"
        return f"the workflow has no input {name!r}", did_you_mean(
            name, self._inputs
        ) or f"{existing}; add it to Inputs"

    def _no_variable(self, name: str, step: Step, code: CodeText) -> tuple[str, str] | None:
        if not self._is_known:
            return None
        setters = self._setters.get(name, ())
        if not setters:
            existing = (
                f"set are {', '.join(sorted(self._setters))}" if self._setters else "write Store in an earlier step"
            )
            return f"no step sets state.{name}", did_you_mean(name, self._setters) or existing
        if name in (self._scripts[step.name] or ()) or any(
            self._may_precede(setter, step, code, name) for setter in setters
        ):
            return None
        if setters == [step.name]:
            return f"state.{name} is not there yet: it is the result of this step", "take it in a later step"
        return f"state.{name} is not there yet: step {setters[0]!r} sets it, after {step.name!r}", "move the step up"

    def _may_precede(self, setter: str, step: Step, code: CodeText, name: str) -> bool:
        """Return True if the variable that a step sets can exist when a text of another step, or of the same one, is
        evaluated.
        """
        if setter == step.name:
            is_of_all = code.is_of_item and step.each is not None and step.each.as_ != name  # its items have not ended
            is_there = not is_of_all and (code.is_after or step.each is not None)
            return is_there or step.name in reachable_from(self._steps, step.name)
        if self._order[setter] < self._order[step.name] or len(self._steps) > MOST_STEPS:
            return True
        without = {name: value for name, value in self._steps.items() if name != step.name}
        is_behind = self._start == step.name or setter not in reachable_from(without, self._start)
        return not is_behind or step.name in reachable_from(self._steps, setter)


def _set_by(step: Step) -> frozenset[str] | None:
    """Return the variables that the code of a step sets besides its result; None if only running it shows them."""
    if step.type in (FUNCTION, STAGE):
        return None
    try:
        return set_by_script(step.script) if step.type == "script" and step.script else frozenset()
    except ScriptSyntaxError:  # said where it stands
        return None


def syntax_problems(definitions: Definitions) -> list[Problem]:
    """Return the problems of all texts, sorted by position. Definitions in the dialect ``dive`` report them at run
    time.
    """
    problems = [
        problem.below("Workflows", index)
        for index, workflow in enumerate(definitions.workflows)
        if workflow.manner.is_strict
        for problem in workflow_problems(workflow)
    ]
    problems += [problem for index in range(len(definitions.schedules)) for problem in _schedule(definitions, index)]
    problems += [problem for index in range(len(definitions.pipelines)) for problem in _pipeline(definitions, index)]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def _schedule(definitions: Definitions, index: int) -> Iterator[Problem]:
    """Yield the problems in the inputs of a schedule. Their code has the name ``schedule``."""
    schedule = definitions.schedules[index]
    for code in filled_texts(("Inputs",), schedule.inputs):
        yield from _mistakes(definitions, code, ("Schedules", index), f"schedule {schedule.name!r}", "schedule")


def _pipeline(definitions: Definitions, index: int) -> Iterator[Problem]:
    """Yield the problems in the prompts of a pipeline. Their code has the name ``envelope``."""
    pipeline = definitions.pipelines[index]
    place = ("Pipelines", index)
    for key, text in pipeline.prompts.items():
        code = CodeText(("Prompts", key), text, check_template)
        yield from _mistakes(definitions, code, place, f"pipeline {pipeline.name!r}", "envelope")
    # Stages are sorted by their own order; only without one they are where they were written.
    is_as_written = not any(stage.stage_order for stage in pipeline.agents)
    for number, stage in enumerate(pipeline.agents):
        code = CodeText(("Stages", number, "Prompt") if is_as_written else ("Prompt",), stage.prompt, check_template)
        yield from _mistakes(definitions, code, place, f"stage {stage.name!r}", "envelope")


def _mistakes(definitions: Definitions, code: CodeText, above: Place, owner: str, name: str) -> Iterator[Problem]:
    """Yield the problems in a text whose code has a single name."""
    place = (*above, *code.place)
    hint = None
    try:
        for program in code.check(code.text):
            hint = code.escape(program)
            program.require({name: {}}, SAFE_NAMES)
    except (ScriptSyntaxError, TemplateError, UndefinedVariableError) as error:
        line, column = nearest_position(place, definitions.positions)
        yield Problem(f"{code.key} of {owner}: {error}", key=code.key, hint=hint, place=place).at(line, column)


def workflow_problems(workflow: Workflow) -> Iterator[Problem]:
    """Yield the problems of one workflow. Places are relative to it."""
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
            for mistake in naming.mistakes(step, code, programs):
                yield workflow.written.located(mistake.problem(place), mistake.pattern)
