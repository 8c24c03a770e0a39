"""Which keys of `inputs` and `state` a text cannot do without, and which variables a script sets."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

from divebook.errors import DivebookError, Place, TemplateError
from divebook.scripting.prelude import ACTIVITY_NAMES, SAFE_NAMES, Attribute, Item, Reference
from divebook.scripting.syntax import (
    READ_ONLY,
    Keys,
    Program,
    compile_expression,
    compile_script,
    is_change,
    parse_expression,
    parse_script,
)
from divebook.scripting.templates import LITERALS, escape_hint, expressions_of, unwrapped
from divebook.text.arguments import normal_name
from divebook.text.syntax import is_escaped_expression, is_expression, texts_in, without_escape
from divebook.workflow.functions import FUNCTION
from divebook.workflow.step import CONTINUE, WORKFLOW, Step

Need: TypeAlias = tuple[str, str]
"""A mapping and a key of it: ``("state", "total")``."""
_OF_MAPPINGS = frozenset(dir(dict)) | {"set", "delete"}
"""What ``state.name`` may mean beside a key."""


def needs_of_expression(program: Program) -> frozenset[Need]:
    """Return the keys that an expression takes for granted.

    >>> from divebook.scripting.syntax import compile_expression
    >>> sorted(needs_of_expression(compile_expression("state.total + inputs['n'] + state.get('more', 0)")))
    [('inputs', 'n'), ('state', 'total')]
    """
    if program.uses.keys().isdisjoint(READ_ONLY):
        return frozenset()
    match program.reference:  # most are one, and are not parsed again
        case Reference(name, (Attribute(str(key)) | Item(str(key)), *_)) if key not in _OF_MAPPINGS:
            return frozenset({(name, normal_name(key))}) if name in READ_ONLY else frozenset()
    return _needs(parse_expression(program.text)[1])


def needs_of_script(text: str) -> frozenset[Need]:
    """Return the keys that a script takes for granted."""
    return _needs(parse_script(text)[1])


def set_by_script(text: str) -> frozenset[str] | None:
    """Return the variables that a script sets beside its result; None if that can only be told when it runs.

    >>> sorted(set_by_script("state.set('a', 1)")), set_by_script("state.set(name, 1)")
    (['a'], None)
    """
    return _changed(text, "set")


def changed_by_script(text: str) -> frozenset[str] | None:
    """Return the variables that a script sets or deletes; None as for `set_by_script`."""
    return _changed(text, "set", "delete")


def _changed(text: str, *changes: str) -> frozenset[str] | None:
    named = [_first(node) for node in ast.walk(parse_script(text)[1]) if is_change(node, *changes)]
    names = frozenset(name for name in named if name is not None)
    return names if len(names) == len(set(named)) else None


def _first(node: ast.AST) -> str | None:
    return _text(node.args[0]) if isinstance(node, ast.Call) and node.args else None


def _needs(tree: ast.AST) -> frozenset[Need]:
    """Return what is read without asking first: a text that asks whether a key is there knows that it may not be."""
    bound = {name for node in ast.walk(tree) for name in _bound_by(node)}
    if any(isinstance(node, ast.Try) for node in ast.walk(tree)):
        return frozenset()
    asked = {need for node in ast.walk(tree) for need in _asked(node)}
    read = {need for node in ast.walk(tree) for need in _read(node)}
    return frozenset(need for need in read - asked if need[0] not in bound)


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name


def _read(node: ast.AST) -> Iterator[Need]:
    if isinstance(node, ast.Attribute):
        yield from _needs_of(node.value, [node.attr] if node.attr not in _OF_MAPPINGS else [])
    elif isinstance(node, ast.Subscript):
        yield from _needs_of(node.value, [node.slice])


def _asked(node: ast.AST) -> Iterator[Need]:
    """Yield the keys of ``"total" in state``, ``state.get("total")`` and the like."""
    if isinstance(node, ast.Compare):
        for part in node.comparators:
            yield from _needs_of(part, [node.left])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from _needs_of(node.func.value, node.args)
    elif isinstance(node, ast.Call):  # hasattr(state, "total"), or a function of the script's own
        for part in node.args:
            yield from _needs_of(part, node.args)


def _needs_of(node: ast.AST, keys: Iterable[ast.AST | str]) -> Iterator[Need]:
    """Yield the needs of a mapping, if a node is one, for those of the keys that are written out."""
    if isinstance(node, ast.Name) and node.id in READ_ONLY:
        texts = (key if isinstance(key, str) else _text(key) for key in keys)
        yield from ((node.id, text) for text in texts if text is not None)


def _text(node: ast.AST) -> str | None:
    return normal_name(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


# Parsing without running: whether a text is what its context takes. Names and values are not looked at.


def check_script(text: str) -> list[Program]:
    """Return a script; raises `ScriptSyntaxError` unless it can be parsed and its context allows it."""
    return [compile_script(text)]


def check_condition(text: str) -> list[Program]:
    """Return the expression of a condition, if it has one; raises `ScriptSyntaxError` unless it can be parsed."""
    expression = unwrapped(text)
    return [] if expression.lower() in LITERALS else [compile_expression(expression)]


def check_expression(text: str) -> list[Program]:
    """Return what ``$(...)`` holds; raises `ScriptSyntaxError` unless it can be parsed."""
    return [compile_expression(unwrapped(text))]


def check_template(text: str) -> list[Program]:
    """Return the expressions of a text; raises `TemplateError` or `ScriptSyntaxError` unless all can be parsed."""
    return [compile_expression(expression) for expression in expressions_of(text)]


def check_text(text: str) -> list[Program]:
    """Return the expressions of a text that may be one as a whole; raises as `check_template`, also if it has no end.

    >>> check_text("$(state.a")
    Traceback (most recent call last):
    ...
    divebook.errors.TemplateError: unclosed expression: $(state.a (write $$( for the text $()
    """
    if text.lstrip().startswith("$(") and ")" not in text:
        raise TemplateError(f"unclosed expression: {text} (write $$( for the text $()")
    return check_template(text)


# The texts of a step that are code: scripts, conditions, items, parameters, and what ``${...}`` stands in.


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


# What a step reads: the variables and inputs that its code can reach, by its definition alone.
#
# A log does not say what a step has read. The sandbox is given the values of these keys and no others
# (`divebook.scripting.syntax.select`), so that what is not among them cannot have had an effect.


T = TypeVar("T")
STATE = "state"
INPUTS = "inputs"
KNOWN_TYPES = frozenset({"prompt", "action", "script", "wait", "interrupt", "workflow"})
"""Types of step whose code stands in their definition; a handler of another type may read everything."""


class ReadKeys(NamedTuple):
    """Names of variables and inputs; None for all of them."""

    state: Keys = frozenset()
    inputs: Keys = frozenset()

    def plus(self, other: ReadKeys) -> ReadKeys:
        """Return both together."""
        return ReadKeys(_both(self.state, other.state), _both(self.inputs, other.inputs))


NOTHING = ReadKeys()
EVERYTHING = ReadKeys(None, None)


def _both(one: Keys, other: Keys) -> Keys:
    return None if one is None or other is None else one | other


def reads_of(step: Step, *, only_items: bool = False) -> ReadKeys:
    """Return what a step reads while it runs, its items included; not what the conditions after it read.

    >>> reads_of(Step("add", script="state.a + inputs.n"))
    ReadKeys(state=frozenset({'a'}), inputs=frozenset({'n'}))

    Parameters
    ----------
    only_items
        Only what its items come from, which are computed before it begins.
    """
    if only_items:
        return _together(code for code in code_texts(step) if code.is_before)
    if step.type == FUNCTION:
        return ReadKeys(frozenset(), None)
    if step.type not in KNOWN_TYPES or any(entry.dynamic_from is not None for entry in step.content):
        return EVERYTHING
    item = step.each.as_ if step.each is not None else None
    return _together((code for code in code_texts(step) if not code.is_after), item)


def _together(codes: Iterable[CodeText], item: str | None = None) -> ReadKeys:
    found = NOTHING
    for code in codes:
        found = found.plus(_of_code(code.check, code.text, item))
    return found


def reads_of_condition(text: str) -> ReadKeys:
    """Return what the condition of an edge reads."""
    return _of_code(check_condition, text)


def reads_of_script(text: str) -> ReadKeys:
    """Return what a script reads; of one that cannot be parsed, which never ran, nothing."""
    return _of_code(check_script, text)


def _of_code(check: Check, text: str, item: str | None = None) -> ReadKeys:
    try:
        programs = check(text)
    except DivebookError:  # the step has failed with it
        return NOTHING
    found = NOTHING
    for program in programs:
        found = found.plus(_of_program(program, item))
    return found


def _of_program(program: Program, item: str | None) -> ReadKeys:
    if program.makes_code:
        return EVERYTHING
    uses = program.uses
    state = _normal(uses.get(STATE, frozenset()))
    if item is not None and item in uses:
        state = _both(state, frozenset({item}))
    return ReadKeys(state, _normal(uses.get(INPUTS, frozenset())))


def _normal(keys: Keys) -> Keys:
    return None if keys is None else frozenset(map(normal_name, keys))


def found_in(known: Mapping[str, T], keys: Keys) -> Iterator[T]:
    """Yield what keys stand for where something is known of them; None for all of it."""
    names = known if keys is None else sorted(key for key in keys if isinstance(key, str))
    yield from (known[name] for name in names if name in known)
