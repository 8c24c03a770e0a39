"""Compares answers with JSON schemas, and reads what was typed: the one door to jsonschema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.errors import DefinitionError, Problem
from divebook.questions import Fitting
from divebook.workflow.yaml_value import yaml_of


def complaint(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return what is wrong with a value, the most telling thing first, or None if it fits."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import best_match

    found = best_match(Draft202012Validator(schema, format_checker=FormatChecker()).iter_errors(value))
    if found is None:
        return None
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found.absolute_path)
    return f"{where.lstrip('.')}: {found.message}" if where else found.message


def load() -> None:
    """Import jsonschema ahead of its use: with all its optional parts that takes a second."""
    import jsonschema  # noqa: F401


def _written(text: str) -> Any:
    return yaml_of(text, "the answer")


FITTING = Fitting(complaint, _written)
"""For `divebook.questions.checked_answer`."""


def require_schema(schema: Mapping[str, Any]) -> None:
    """Raise DefinitionError unless `schema` is a JSON schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise DefinitionError([Problem(f"this is not a JSON schema: {error.message}", key="Schema")]) from None


def schema_of(answer: Any) -> Mapping[str, Any]:
    """Return the JSON schema of a type, for example of a pydantic model; a schema is returned as it is."""
    if isinstance(answer, Mapping):
        require_schema(answer)
        return answer
    from pydantic import TypeAdapter

    return TypeAdapter(answer).json_schema()


def instance_of(answer: Any, value: Any) -> Any:
    """Return a plain value as an instance of the type that was asked for."""
    if isinstance(answer, Mapping):
        return value
    from pydantic import TypeAdapter

    return TypeAdapter(answer).validate_python(value)
