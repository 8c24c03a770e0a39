"""One value written in YAML, as people type it: an input, an answer, a bound."""

from __future__ import annotations

from typing import Any

from divebook.errors import DefinitionError
from divebook.workflow.kinds import Anything
from divebook.workflow.located import Node, Scalar
from divebook.workflow.reading import Reading
from divebook.workflow.yaml_text import parse_yaml

BRACKETS = {"[": "]", "{": "}"}
QUOTES = "\"'"


def yaml_of(text: str, source: str, line_offset: int = 0) -> Any:
    """Return what a YAML text means; raises `DefinitionError`, which names `source`.

    Parameters
    ----------
    line_offset
        How many lines stand above the text where people see it.
    """
    reading = Reading(text, source, line_offset=line_offset)
    node = parse_yaml(reading)
    reading.raise_errors()
    value = None if node is None else Anything().read(node, (source,), reading)
    reading.raise_errors()
    return value


def value_typed(text: str) -> Any:
    """Return what a value means in YAML; a word that is not a scalar there (``*.py``, ``#1``) is text all the same."""
    is_written_out = text[:1] in {*QUOTES, *BRACKETS}
    reading = Reading(text, "value")
    try:
        node: Node | None = parse_yaml(reading)
        reading.raise_errors()
    except DefinitionError:
        if is_written_out:
            raise
        return text
    if not is_written_out and not isinstance(node, Scalar):
        return None if text in ("", "~") or text.lower() == "null" else text
    value = Anything().read(node, ("value",), reading) if node is not None else None
    reading.raise_errors()
    return value
