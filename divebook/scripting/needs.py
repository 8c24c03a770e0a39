"""Static analysis of the code in a step: keys of `inputs` and `state` that the code requires, reads and sets.

The functions do not run code. `needs_of_expression` and `needs_of_script` return keys that must exist, for errors
before a run. `reads_of` returns all keys that a step can read, for comparison of runs. `code_texts` yields all code in
a step, each with the function that checks its syntax.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

from divebook.definitions.functions import FUNCTION
from divebook.definitions.step import CONTINUE, WORKFLOW, Step
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

Need: TypeAlias = tuple[str, str]
"""A required key: ``state`` or ``inputs``, and the key in it, such as ``("state", "total")``."""
_OF_MAPPINGS = frozenset(dir(dict)) | {"set", "delete"}
"""Methods of ``state`` and ``inputs``: ``state.items`` is a method, not a key."""


def needs_of_expression(program: Program) -> frozenset[Need]:
    """Return the keys of `state` and `inputs` that must exist, because an expression fails without them.

    >>> from divebook.scripting.syntax import compile_expression
    >>> sorted(needs_of_expression(compile_expression("state.total + inputs['n'] + state.get('more', 0)")))
    [('inputs', 'n'), ('state', 'total')]
    """
    # An expression that uses neither variable needs no key, and is not parsed again.
    if program.uses.keys().isdisjoint(READ_ONLY):
        return frozenset()
    match program.reference:  # most expressions are references, and need not be parsed again
        case Reference(name, (Attribute(str(key)) | Item(str(key)), *_)) if key not in _OF_MAPPINGS:
            return frozenset({(name, normal_name(key))}) if name in READ_ONLY else frozenset()
    # A `Program` does not hold its syntax tree.
    return _needs(parse_expression(program.text)[1])


def needs_of_script(text: str) -> frozenset[Need]:
    """Return the keys of `state` and `inputs` that must exist, because a script fails without them."""
    return _needs(parse_script(text)[1])


def set_by_script(text: str) -> frozenset[str] | None:
    """Return the names of the variables that a script sets with ``state.set``. Return None if one of the names is
    computed when the script runs.

    >>> sorted(set_by_script("state.set('a', 1)")), set_by_script("state.set(name, 1)")
    (['a'], None)
    """
    return _changed(text, "set")


def changed_by_script(text: str) -> frozenset[str] | None:
    """Return the names of the variables that a script sets or deletes. Return None if one of the names is computed when
    the script runs.
    """
    return _changed(text, "set", "delete")


def _changed(text: str, *changes: str) -> frozenset[str] | None:
    arguments = [_first(node) for node in ast.walk(parse_script(text)[1]) if is_change(node, *changes)]
    names = frozenset(name for name in arguments if name is not None)
    # None in `arguments` is a computed name. It is missing in `names`, so that the numbers differ.
    return names if len(names) == len(set(arguments)) else None


def _first(node: ast.AST) -> str | None:
    """Return the first argument of a function call in a syntax tree; None if it is not a constant string."""
    return _text(node.args[0]) if isinstance(node, ast.Call) and node.args else None


def _needs(tree: ast.AST) -> frozenset[Need]:
    """Return the keys of `state` and `inputs` that code reads without testing that they exist.

    Code that tests a key (``"total" in state``) or catches exceptions handles its absence. Names that the code binds
    itself do not refer to the variables.
    """
    # A variable ``state`` of the script itself is not the state of the execution.
    bound = {name for node in ast.walk(tree) for name in _bound_by(node)}
    # An exception handler may handle a missing key.
    if any(isinstance(node, ast.Try) for node in ast.walk(tree)):
        return frozenset()
    tested = {need for node in ast.walk(tree) for need in _tested(node)}
    # The order of reading and testing is not examined: a key that is tested anywhere may be missing everywhere.
    read = {need for node in ast.walk(tree) for need in _read(node)}
    return frozenset(need for need in read - tested if need[0] not in bound)


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name


def _read(node: ast.AST) -> Iterator[Need]:
    if isinstance(node, ast.Attribute):
        # ``state.items()`` calls a method of the mapping.
        yield from _needs_of(node.value, [node.attr] if node.attr not in _OF_MAPPINGS else [])
    elif isinstance(node, ast.Subscript):
        yield from _needs_of(node.value, [node.slice])


def _tested(node: ast.AST) -> Iterator[Need]:
    """Yield the keys whose existence a syntax node tests: ``"total" in state``, ``state.get("total")`` and similar
    code.
    """
    if isinstance(node, ast.Compare):
        # ``"total" in state``: the key is on the left, the mapping among the comparators.
        for part in node.comparators:
            yield from _needs_of(part, [node.left])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # ``state.get("total")`` and similar methods take the key as an argument.
        yield from _needs_of(node.func.value, node.args)
    elif isinstance(node, ast.Call):  # hasattr(state, "total"), or a function that the script defines
        for part in node.args:
            yield from _needs_of(part, node.args)


def _needs_of(node: ast.AST, keys: Iterable[ast.AST | str]) -> Iterator[Need]:
    """Yield a `Need` for each of `keys` that is a constant string, if the syntax node `node` is the name ``state`` or
    ``inputs``, from which the code reads these keys. Yield nothing for any other node.
    """
    if isinstance(node, ast.Name) and node.id in READ_ONLY:
        texts = (key if isinstance(key, str) else _text(key) for key in keys)
        yield from ((node.id, text) for text in texts if text is not None)


def _text(node: ast.AST) -> str | None:
    return normal_name(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


# --- syntax checks: names and values are not checked ------------------------------------------------------------------


def check_script(text: str) -> list[Program]:
    """Check a script and return its compiled program in a list. Raise `ScriptSyntaxError` if the script cannot be
    parsed or is not allowed.
    """
    return [compile_script(text)]


def check_condition(text: str) -> list[Program]:
    """Check the condition of an edge. Return a list with its compiled program, empty for the constants ``true`` and
    ``false``. Raise `ScriptSyntaxError` if the condition is not valid.
    """
    expression = unwrapped(text)
    return [] if expression.lower() in LITERALS else [compile_expression(expression)]


def check_expression(text: str) -> list[Program]:
    """Check an expression, with or without ``$(...)`` around it, and return its compiled program in a list. Raise
    `ScriptSyntaxError` if it is not valid.
    """
    return [compile_expression(unwrapped(text))]


def check_template(text: str) -> list[Program]:
    """Check a template and return the compiled programs of its ``${...}`` expressions. Raise `TemplateError` if an
    expression is not closed, `ScriptSyntaxError` if one is not valid.
    """
    return [compile_expression(expression) for expression in expressions_of(text)]


def check_text(text: str) -> list[Program]:
    """Return the compiled programs of the expressions in a string of a definition, which is a template
    (``Dear ${state.name}``) or a single value (``$(state.rows)``).

    Raises `TemplateError` if an expression is not closed.

    >>> check_text("$(state.a")
    Traceback (most recent call last):
    ...
    divebook.errors.TemplateError: unclosed expression: $(state.a (write $$( for the text $()
    """
    # With a closing parenthesis somewhere, the text may be prose such as ``$(a) and more``.
    if text.lstrip().startswith("$(") and ")" not in text:
        raise TemplateError(f"unclosed expression: {text} (write $$( for the text $()")
    return check_template(text)


# --- code in a step: scripts, conditions, items, parameters and templates ---------------------------------------------


Check = Callable[[str], list[Program]]
ABOUT = frozenset({"workflow", "step", "agent"})
"""Additional names for scripts in the content of a prompt."""
OF_RESULT = frozenset({"result"})
"""Additional name for expressions in the parameters of a rollback."""


@dataclass(frozen=True, slots=True)
class CodeText:
    """A string in a step's definition that is code or contains code: the path of its key in the definition, the
    function that checks it, and the names that the code may use.
    """

    place: Place
    """Place of the string, relative to the step."""
    text: str
    check: Check
    """Function that checks the string and returns its programs."""
    is_before: bool = False
    """True if the code is evaluated before the step begins. It cannot use a loop item."""
    is_after: bool = False
    """True if the code is evaluated after the end of the step. It can use the result, but no loop item."""
    is_of_item: bool = False
    """True if the code is evaluated for each loop item, although `is_after` is True."""
    about: frozenset[str] = frozenset()
    """Additional names that the code may use."""
    is_value: bool = False
    """True if the string has the form ``$(...)`` in a field that accepts plain strings as well."""

    @property
    def is_script(self) -> bool:
        """True if the string is the source of a script, False if it is an expression or contains expressions."""
        return self.check is check_script

    @property
    def offered(self) -> Collection[str]:
        """Names that the code may use in addition to `inputs`, `state` and the loop item, for example the built-in
        functions.
        """
        return (ACTIVITY_NAMES if self.is_script else SAFE_NAMES) | self.about

    def escape(self, program: Program) -> str | None:
        """Return advice on how to write `program`, an expression in this code, so that it stays plain text, for example
        ``$${a}``. Return None if the key of the step does not accept plain text.
        """
        if self.check in (check_template, check_text):
            return escape_hint(program.text)
        return f"write $$({program.text}) for the text $({program.text})" if self.is_value else None

    @property
    def key(self) -> str:
        """Name of the key in the step's definition under which the string occurs, such as ``Prompt``."""
        # Numbers in a place are positions in a list: ("Content", 0, "Dynamic") -> "Dynamic".
        return next(part for part in reversed(self.place) if isinstance(part, str))


def code_texts(step: Step) -> Iterator[CodeText]:
    """Yield a `CodeText` for each string in the definition of a step that is code or contains code.

    All types of steps share loop items, conditions of edges and rollback parameters. `_OF_TYPE` has a function for the
    code of each type.
    """
    if step.each is not None and isinstance(step.each.items, str):
        yield CodeText(("Each", "Items"), step.each.items, check_expression, is_before=True)
    # Items that are written as a list, each of which may contain templates.
    elif step.each is not None:
        for code in filled_texts(("Each", "Items"), step.each.items):
            yield replace(code, is_before=True)
    for number, edge in enumerate(step.edges):
        if edge.condition:
            yield CodeText(("Next", number, "Condition"), edge.condition, check_condition, is_after=True)
    if step.type in _OF_TYPE:
        yield from _OF_TYPE[step.type](step)
    if step.rollback is not None:
        # The parameters of a rollback are evaluated with the result of the call, for each item of a loop.
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


def _templates(place: Place, **texts: object) -> Iterator[CodeText]:
    """Yield a `CodeText` (a string that may contain code) for each keyword argument that is a string and not empty. The
    keyword arguments are keys of a definition, such as ``Prompt``, whose strings may be templates.
    """
    for key, text in texts.items():
        if isinstance(text, str) and text:
            yield CodeText((*place, key), text, check_template)


def filled_texts(place: Place, values: object) -> Iterator[CodeText]:
    """Yield a `CodeText` for each string at any depth of a definition's value, such as the parameters of an action.
    Each of the strings may be a template or ``$(...)``.
    """
    for inner, text in texts_in(values):
        if is_escaped_expression(text):
            # The text is checked as it will be evaluated: ``$$(a)`` is the text ``$(a)``, which may contain ``${...}``.
            yield CodeText((*place, *inner), without_escape(text), check_template)
        else:
            check = check_expression if is_expression(text) else check_text
            yield CodeText((*place, *inner), text, check, is_value=is_expression(text))


_OF_TYPE: Mapping[str, Callable[[Step], Iterator[CodeText]]] = {
    "prompt": _of_prompt,
    "script": _of_script,
    "action": _of_action,
    "wait": _of_wait,
    WORKFLOW: _of_child,
    CONTINUE: _of_child,
    "interrupt": _of_question,
}
"""Functions that yield the code in the keys of one step type, by type."""


# --- variables and inputs that a step can read, according to its definition -------------------------------------------
#
# A log does not contain the keys that a step has read. But the sandbox gets the values of these keys only
# (`divebook.scripting.syntax.select`), so that other keys cannot have had an effect.


T = TypeVar("T")
STATE = "state"
INPUTS = "inputs"
KNOWN_TYPES = frozenset({"prompt", "action", "script", "wait", "interrupt", "workflow"})
"""Step types whose code is completely in their definition. The handler of another type may read any variable."""


class ReadKeys(NamedTuple):
    """Names of the variables (`state`) and inputs (`inputs`) that code can read. None stands for all variables, or for
    all inputs.
    """

    state: Keys = frozenset()
    inputs: Keys = frozenset()

    def plus(self, other: ReadKeys) -> ReadKeys:
        """Return the union of two results: the names of the variables and inputs that this code or the code of `other`
        can read.
        """
        return ReadKeys(_both(self.state, other.state), _both(self.inputs, other.inputs))


NOTHING = ReadKeys()
EVERYTHING = ReadKeys(None, None)


def _both(one: Keys, other: Keys) -> Keys:
    return None if one is None or other is None else one | other


def reads_of(step: Step, *, only_items: bool = False) -> ReadKeys:
    """Return the names of the variables and inputs that a step can read while it runs. Conditions of its edges do not
    count.

    >>> reads_of(Step("add", script="state.a + inputs.n"))
    ReadKeys(state=frozenset({'a'}), inputs=frozenset({'n'}))

    Parameters
    ----------
    only_items
        True for only the keys that the expression for the loop items reads. It is evaluated before the step begins.
    """
    if only_items:
        # The items are evaluated before the first item exists, and so cannot read it.
        return _together(code for code in code_texts(step) if code.is_before)
    # A workflow function gets all inputs, and does not read variables.
    if step.type == FUNCTION:
        return ReadKeys(frozenset(), None)
    # A program of `DynamicFrom`, and the handler of a custom step type, may read everything.
    if step.type not in KNOWN_TYPES or any(entry.dynamic_from is not None for entry in step.content):
        return EVERYTHING
    # A sequential loop sets its item as a variable, so that code that uses the name of the item reads this variable.
    item = step.each.as_ if step.each is not None else None
    return _together((code for code in code_texts(step) if not code.is_after), item)


def _together(codes: Iterable[CodeText], item: str | None = None) -> ReadKeys:
    keys = NOTHING
    for code in codes:
        # None absorbs all keys: code that may read everything decides.
        keys = keys.plus(_of_code(code.check, code.text, item))
    return keys


def reads_of_condition(text: str) -> ReadKeys:
    """Return the names of the variables and inputs that the condition of an edge can read."""
    return _of_code(check_condition, text)


def reads_of_script(text: str) -> ReadKeys:
    """Return the names of the variables and inputs that a script can read; no names for a script that cannot be parsed,
    because such a script never ran.
    """
    return _of_code(check_script, text)


def _of_code(check: Check, text: str, item: str | None = None) -> ReadKeys:
    try:
        programs = check(text)
    except DivebookError:  # the step failed with this error
        return NOTHING
    keys = NOTHING
    for program in programs:
        keys = keys.plus(_of_program(program, item))
    return keys


def _of_program(program: Program, item: str | None) -> ReadKeys:
    # ``eval`` may read any variable.
    if program.makes_code:
        return EVERYTHING
    uses = program.uses
    state = _normal(uses.get(STATE, frozenset()))
    if item is not None and item in uses:
        state = _both(state, frozenset({item}))
    return ReadKeys(state, _normal(uses.get(INPUTS, frozenset())))


def _normal(keys: Keys) -> Keys:
    return None if keys is None else frozenset(map(normal_name, keys))


def found_in(values: Mapping[str, T], keys: Keys) -> Iterator[T]:
    """Yield the values that a mapping has under the given keys, in the alphabetical order of the keys. Keys that the
    mapping lacks are skipped. If `keys` is None, yield all values.
    """
    # Only strings can be names of variables. Integers come from code such as ``state[0]``.
    names = values if keys is None else sorted(key for key in keys if isinstance(key, str))
    yield from (values[name] for name in names if name in values)
