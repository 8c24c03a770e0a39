"""Parser of the values that people type: ``NAME=VALUE`` in a shell, in a ``%dive`` line, for options and inputs.

The declared type of an input decides how its word is read: ``version=1.10`` is the text ``"1.10"`` where a text is
declared, and a number with two decimals where a `Decimal` is. Without a type a word is YAML: ``n=2`` is a number,
``n="2"`` a text, ``names=[a, b]`` a list, and what is not valid YAML is a text. ``NAME:=VALUE`` is JSON.

>>> from divebook import Step, Workflow
>>> inputs = ["n", "m", "names", {"name": "version", "type": "string"}]
>>> flow = Workflow("w", [Step("s", script="1")], inputs=inputs)
>>> read_inputs(["n=2", 'm="2"', "names=[a, b]", "version=1.10"], flow)
{'n': 2, 'm': '2', 'names': ['a', 'b'], 'version': '1.10'}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from divebook.errors import DefinitionError, InputError
from divebook.text.arguments import Assignment, assignment_of, same_name
from divebook.text.redaction import shared

if TYPE_CHECKING:
    from divebook.definitions.definition import Workflow
    from divebook.engine.forks import Change
    from divebook.runtime.run import Run

_TEXT_TYPES = ("string", "str", "text")


def _read_input(workflow: Workflow, name: str, text: str) -> Any:
    """Parse the text of one input of a workflow.

    An unknown input is read like one without a type. The start or the change of a run reports it.

    Raises
    ------
    InputError
        The value is not of the type of the input. Or the text starts like a YAML value in brackets or quotes, and is
        not one.
    """
    from divebook.definitions.functions import bind_changed, declared_type
    from divebook.definitions.yaml_text import BRACKETS, QUOTES

    declared = {entry.name: entry for entry in workflow.inputs}
    definition = declared.get(same_name(name, declared))
    if definition is None or text[:1] in QUOTES:
        return _read_yaml(name, text)
    type_name = (definition.type or "").lower()
    # The legacy dialect passes inputs as they are.
    if not workflow.manner.converts_inputs:
        return text if type_name in _TEXT_TYPES and text[:1] not in BRACKETS else _read_yaml(name, text)
    is_typed = type_name in _TEXT_TYPES or declared_type(workflow, definition) is not None
    if text[:1] in BRACKETS and not is_typed:
        _read_yaml(name, text)  # the error names the mistake in the YAML
    return bind_changed(workflow, {name: text}, coerce_text=True).popitem()[1]


def _read_yaml(name: str, text: str) -> Any:
    from divebook.definitions.yaml_text import value_typed

    try:
        return value_typed(text)
    # One value is one line. Its line number would be meaningless, so only the message is used.
    except DefinitionError as error:
        # The value of an input such as `password` is not repeated.
        shown = shared().under(name, text)
        raise InputError(f"input {name!r}: {error.problems[0].message} in {shown!r}", name) from None


def split_inputs(texts: Iterable[str]) -> list[Assignment]:
    """Split texts ``NAME=VALUE`` and ``NAME:=JSON``.

    Raises
    ------
    InputError
        A text has no name or no ``=``, or a name occurs twice.
    """
    assignments: dict[str, Assignment] = {}
    for text in texts:
        assignment = assignment_of(text)
        if assignment is None:
            raise InputError(f"-v {text!r} is not an input; write -v name=value, or -v name:=JSON")
        name = assignment.name
        if name in assignments:
            raise InputError(f"input {name!r} is given twice; keep one -v {name}=...", name)
        assignments[name] = assignment
    return [*assignments.values()]


def read_inputs(texts: Iterable[str], workflow: Workflow) -> dict[str, Any]:
    """Parse inputs of a workflow of the forms ``NAME=VALUE`` and ``NAME:=JSON``. Raise `InputError` for a value that is
    not of the type of its input.
    """
    inputs: dict[str, Any] = {}
    for name, text, is_json in split_inputs(texts):
        if is_json:
            from divebook.config.answers import json_input

            inputs[name] = json_input(f"input {name!r}", name, text)
        else:
            inputs[name] = _read_input(workflow, name, text)
    return inputs


def read_change(source: Run, change: Change, inputs: Iterable[str], answers: Iterable[str] = ()) -> Change:
    """Add inputs and answers of the form ``NAME=VALUE`` to the change of a fork or what-if. The workflow of the source
    declares the types of the inputs, and its questions those of the answers.
    """
    from divebook.config.answers import pairs
    from divebook.definitions.json_schemas import FITTING
    from divebook.questions import Typed

    questions = source.state.interrupts
    values: dict[str, Any] = pairs("--answer", answers, "--answer ask_1f0c=yes", Typed)
    for question_id, typed in values.items():
        if isinstance(typed, Typed):
            question = questions.get(question_id)
            values[question_id] = typed.text if question is None else typed.meant(question, FITTING)
    return replace(change, inputs=read_inputs(inputs, source.workflow), answers=values)
