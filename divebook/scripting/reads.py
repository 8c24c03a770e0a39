"""What a step reads: the variables and inputs that its code can reach, by its definition alone.

A log does not say what a step has read. The sandbox is given the values of these keys and no others
(`divebook.scripting.program.select`), so that what is not among them cannot have had an effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from divebook.errors import DivebookError
from divebook.scripting.checks import check_condition, check_script
from divebook.scripting.code_texts import Check, CodeText, code_texts
from divebook.scripting.names import Keys
from divebook.scripting.program import Program
from divebook.text.names import normal_name
from divebook.workflow.functions import FUNCTION
from divebook.workflow.step import Step

T = TypeVar("T")
STATE, INPUTS = "state", "inputs"
KNOWN_TYPES = frozenset({"prompt", "action", "script", "wait", "interrupt", "workflow"})
"""Types of step whose code stands in their definition; a handler of another type may read everything."""


class ReadKeys(NamedTuple):
    """Names of variables and inputs; None for all of them."""

    state: Keys = frozenset()
    inputs: Keys = frozenset()

    def plus(self, other: ReadKeys) -> ReadKeys:
        """Return both together."""
        return ReadKeys(_both(self.state, other.state), _both(self.inputs, other.inputs))


NOTHING, EVERYTHING = ReadKeys(), ReadKeys(None, None)


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
