"""The texts of a step that are code: scripts, conditions, items, parameters, and what ``${...}`` stands in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from divebook.errors import Place
from divebook.scripting.checks import check_condition, check_expression, check_script, check_template, check_text
from divebook.scripting.contexts import ACTIVITY_NAMES, SAFE_NAMES
from divebook.scripting.program import Program
from divebook.scripting.template import escape_hint
from divebook.text.templates import is_escaped_expression, is_expression, texts_in, without_escape
from divebook.workflow.step import CONTINUE, WORKFLOW, Step

Check = Callable[[str], list[Program]]
ABOUT = frozenset({"workflow", "step", "agent"})
"""Names that scripts of content have besides."""
OF_RESULT = frozenset({"result"})
"""The name that what undoes a step has besides."""


@dataclass(frozen=True, slots=True)
class CodeText:
    """One of them."""

    place: Place
    """Relative to the step."""
    text: str
    check: Check
    """What parses it."""
    is_before: bool = False
    """Whether it is looked at before the step has begun: it knows no item."""
    is_after: bool = False
    """Whether it is looked at when the step has ended: it knows its result, and no item."""
    is_of_item: bool = False
    """Whether it is looked at for each item all the same."""
    about: frozenset[str] = frozenset()
    """Names that it has besides those of all code."""
    is_value: bool = False
    """Whether it is written as ``$(...)`` where a text may stand as well."""

    @property
    def is_script(self) -> bool:
        """Whether it is a whole script, and no expressions."""
        return self.check is check_script

    @property
    def offered(self) -> Collection[str]:
        """The names that it has beside `inputs`, `state` and an item."""
        return (ACTIVITY_NAMES if self.is_script else SAFE_NAMES) | self.about

    def escape(self, program: Program) -> str | None:
        """Return how to write an expression as text; None where no text can stand."""
        if self.check in (check_template, check_text):
            return escape_hint(program.text)
        return f"write $$({program.text}) for the text $({program.text})" if self.is_value else None

    @property
    def key(self) -> str:
        """The key that it stands under."""
        return next(part for part in reversed(self.place) if isinstance(part, str))


def code_texts(step: Step) -> Iterator[CodeText]:
    """Yield each text of a step that is code."""
    if step.each is not None and isinstance(step.each.items, str):
        yield CodeText(("Each", "Items"), step.each.items, check_expression, is_before=True)
    elif step.each is not None:
        for code in filled_texts(("Each", "Items"), step.each.items):
            yield replace(code, is_before=True)
    for number, edge in enumerate(step.edges):
        if edge.condition:
            yield CodeText(("Next", number, "Condition"), edge.condition, check_condition, is_after=True)
    if step.type in _OWN:
        yield from _OWN[step.type](step)
    if step.rollback is not None:
        for code in filled_texts(("Rollback", "Parameters"), step.rollback.parameters):
            yield replace(code, is_after=True, is_of_item=True, about=OF_RESULT)


def _of_prompt(step: Step) -> Iterator[CodeText]:
    yield from _templates((), Prompt=step.prompt, Thread=step.thread)
    for number, entry in enumerate(step.content):
        if entry.dynamic is not None:
            yield CodeText(("Content", number, "Dynamic"), entry.dynamic, check_script, about=ABOUT)


def _of_script(step: Step) -> Iterator[CodeText]:
    if step.script:
        yield CodeText(("Script",), step.script, check_script)


def _of_action(step: Step) -> Iterator[CodeText]:
    return filled_texts(("Parameters",), step.parameters)


def _of_wait(step: Step) -> Iterator[CodeText]:
    return _templates((), Seconds=step.seconds, Signal=step.signal)


def _of_child(step: Step) -> Iterator[CodeText]:
    yield from _templates((), Workflow=step.workflow)
    yield from filled_texts(("Inputs",), step.inputs)


def _of_question(step: Step) -> Iterator[CodeText]:
    if step.ask is not None:
        yield from _templates(("Ask",), Question=step.ask.question, Message=step.ask.message)
        yield from filled_texts(("Ask", "Data"), step.ask.data)


def _templates(place: Place, **given: object) -> Iterator[CodeText]:
    for key, text in given.items():
        if isinstance(text, str) and text:
            yield CodeText((*place, key), text, check_template)


def filled_texts(place: Place, values: object) -> Iterator[CodeText]:
    """Yield the texts in values that are filled in, however deep they are nested."""
    for inner, text in texts_in(values):
        if is_escaped_expression(text):
            yield CodeText((*place, *inner), without_escape(text), check_template)
        else:
            check = check_expression if is_expression(text) else check_text
            yield CodeText((*place, *inner), text, check, is_value=is_expression(text))


_OWN: Mapping[str, Callable[[Step], Iterator[CodeText]]] = {
    "prompt": _of_prompt,
    "script": _of_script,
    "action": _of_action,
    "wait": _of_wait,
    WORKFLOW: _of_child,
    CONTINUE: _of_child,
    "interrupt": _of_question,
}
"""What the code of a step is that only steps of its type have."""
