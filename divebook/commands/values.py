"""Parser of the values that people type: ``NAME=VALUE`` in a shell, in a ``%dive`` line, for options and inputs.

A value is YAML: ``n=2`` is a number, ``n="2"`` a text, ``names=[a, b]`` a list. What is not valid YAML is a text. Where
a text is declared, a plain word stays as it is: ``version=1.10`` is ``"1.10"``. ``NAME:=VALUE`` is JSON.

>>> read_inputs(["n=2", 'm="2"', "names=[a, b]", "version=1.10"], {"version": "string"})
{'n': 2, 'm': '2', 'names': ['a', 'b'], 'version': '1.10'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from divebook.errors import DefinitionError, InputError
from divebook.text.redaction import shared

_TEXT_TYPES = ("string", "str", "text")


def read_input(name: str, text: str, declared: str | None = None) -> Any:
    """Parse the text of one input; `declared` is the type that the workflow declares for it.

    Raises
    ------
    InputError
        The text starts like a YAML value in brackets or quotes, and is not one.
    """
    from divebook.definitions.yaml_text import BRACKETS, QUOTES, value_typed

    # version=1.10 of a declared string stays "1.10"; as YAML it would be the number 1.1.
    if (declared or "").lower() in _TEXT_TYPES and text[:1] not in {*QUOTES, *BRACKETS}:
        return text
    try:
        return value_typed(text)
    # One value is one line. Its line number would be meaningless, so only the message is used.
    except DefinitionError as error:
        # The value of an input such as `password` is not repeated.
        shown = shared().under(name, text)
        raise InputError(f"input {name!r}: {error.problems[0].message} in {shown!r}", name) from None


def split_inputs(assignments: Iterable[str]) -> dict[str, str]:
    """Split texts ``NAME=VALUE`` into names and the texts of their values. The name of ``NAME:=JSON`` keeps its colon.

    Raises
    ------
    InputError
        A text has no name or no ``=``, or a name occurs twice.
    """
    texts: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not (equals and name.removesuffix(":")):
            raise InputError(f"-v {assignment!r} is not an input; write -v name=value, or -v name:=JSON")
        if {name, f"{name}:", name.removesuffix(":")} & texts.keys():
            bare = name.removesuffix(":")
            raise InputError(f"input {bare!r} is given twice; keep one -v {bare}=...", bare)
        texts[name] = value
    return texts


def read_inputs(assignments: Iterable[str], types: Mapping[str, str | None]) -> dict[str, Any]:
    """Parse inputs of the forms ``NAME=VALUE`` and ``NAME:=JSON``.

    Parameters
    ----------
    types
        Declared types by name of the input.
    """
    inputs: dict[str, Any] = {}
    for name, text in split_inputs(assignments).items():
        bare = name.removesuffix(":")
        is_json = name != bare
        if is_json:
            from divebook.config.answers import json_input

            inputs[bare] = json_input(f"input {bare!r}", bare, text)
        else:
            inputs[bare] = read_input(bare, text, types.get(bare))
    return inputs
