"""One value written in YAML, as people type it: an input, an answer, a bound."""

from __future__ import annotations

from typing import Any

from divebook.workflow.kinds import Anything
from divebook.workflow.reading import Reading
from divebook.workflow.yaml_text import parse_yaml


def yaml_of(text: str, source: str) -> Any:
    """Return what a YAML text means; raises `DefinitionError`, which names `source`."""
    reading = Reading(text, source)
    node = parse_yaml(reading)
    reading.raise_errors()
    value = None if node is None else Anything().read(node, (source,), reading)
    reading.raise_errors()
    return value
