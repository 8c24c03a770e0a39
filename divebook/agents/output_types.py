"""Structured output of agents: data of a Python type, or data that match a JSON schema.

pydantic-ai makes the model produce and correct the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, TypeAdapter
from pydantic_ai import StructuredDict
from pydantic_ai.exceptions import UserError

from divebook.errors import SetupError
from divebook.workflow.json_schemas import complaint, require_schema

ITEM = "response"
"""Key that wraps an answer that is not a JSON object, because providers require an object."""


def output_type(declared: Any) -> Any:
    """Convert the declared output of an agent to an output type for pydantic-ai: a type stays unchanged, a JSON schema
    becomes a class that validates data.

    Raises
    ------
    SetupError
        The schema refers to itself.
    DefinitionError
        The declared output is not a usable JSON schema. No request is made.
    """
    if not isinstance(declared, Mapping):
        return str if declared is None else declared
    require_schema(declared, "Output")
    is_object = declared.get("type") == "object"
    try:
        return _fitting(dict(declared) if is_object else _as_object(declared), declared, None if is_object else ITEM)
    except UserError as error:
        raise SetupError(f"this Output cannot be asked of a model: {error}") from error


def _as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    around = {"type": "object", "properties": {ITEM: inner}, "required": [ITEM], "additionalProperties": False}
    return {**around, "$defs": schema["$defs"]} if "$defs" in schema else around


def _fitting(object_schema: dict[str, Any], schema: Mapping[str, Any], item: str | None) -> Any:
    def fitting(value: dict[str, Any]) -> Any:
        answer = value if item is None else value.get(item)
        problem = complaint(schema, answer)
        if problem is not None:
            raise ValueError(problem)
        return answer

    base = StructuredDict(object_schema, name=None if "title" in object_schema else "output")
    return type("Output", (base,), {"__get_pydantic_core_schema__": classmethod(_checked_by(fitting))})


def _checked_by(fitting: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    def core_schema(_cls: type, _source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(Annotated[dict[str, Any], AfterValidator(fitting)])

    return core_schema


def text_of_output(value: Any) -> str:
    """Return the output of an agent as text for the output of a step: strings unchanged, data as compact JSON."""
    return value if isinstance(value, str) else TypeAdapter(Any).dump_json(value, fallback=str).decode()
