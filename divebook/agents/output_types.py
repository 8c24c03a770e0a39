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
    """Convert the declared output of an agent to an output type of pydantic-ai. A Python type stays unchanged, a JSON
    schema becomes a class that validates data, and None becomes `str`.

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
    try:
        # Providers accept only objects as arguments of an output tool, so other values are wrapped.
        if declared.get("type") == "object":
            return _validating_type(dict(declared), declared, None)
        return _validating_type(_as_object(declared), declared, ITEM)
    except UserError as error:
        raise SetupError(f"this Output cannot be asked of a model: {error}") from error


def _as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    # References in a schema start at its root (`#/$defs/...`), so the definitions stay there.
    value_schema = {name: value for name, value in schema.items() if name != "$defs"}
    wrapper = {"type": "object", "properties": {ITEM: value_schema}, "required": [ITEM], "additionalProperties": False}
    return {**wrapper, "$defs": schema["$defs"]} if "$defs" in schema else wrapper


def _validating_type(object_schema: dict[str, Any], schema: Mapping[str, Any], item: str | None) -> Any:
    # `StructuredDict` shows the schema to the model, but does not validate the answer.
    def validate(value: dict[str, Any]) -> Any:
        answer = value if item is None else value.get(item)
        problem = complaint(schema, answer)
        if problem is not None:
            raise ValueError(problem)
        return answer

    base_type = StructuredDict(object_schema, name=None if "title" in object_schema else "output")
    return type("Output", (base_type,), {"__get_pydantic_core_schema__": classmethod(_core_schema_with(validate))})


def _core_schema_with(validate: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    def core_schema(_cls: type, _source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(Annotated[dict[str, Any], AfterValidator(validate)])

    return core_schema


def text_of_output(value: Any) -> str:
    """Return the output of an agent as text for the output of a step: strings unchanged, data as compact JSON."""
    return value if isinstance(value, str) else TypeAdapter(Any).dump_json(value, fallback=str).decode()
