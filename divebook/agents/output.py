"""What an agent answers with, where that is more than text: data of a type, or that fit a JSON schema.

The library makes the model give such data, checks them, and asks again where they do not fit.
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
"""Under which a model gives what is no JSON object, since a provider wants one."""


def output_type(declared: Any) -> Any:
    """Return what pydantic-ai calls an output type: a class as it is, a JSON schema as a class whose values fit it.

    Raises
    ------
    SetupError
        The schema refers to itself.
    DefinitionError
        It is a JSON schema that cannot be used; no model is asked then.
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


def _fitting(asked: dict[str, Any], schema: Mapping[str, Any], item: str | None) -> Any:
    def fitting(value: dict[str, Any]) -> Any:
        found = value if item is None else value.get(item)
        wrong = complaint(schema, found)
        if wrong is not None:
            raise ValueError(wrong)
        return found

    named = StructuredDict(asked, name=None if "title" in asked else "output")
    return type("Output", (named,), {"__get_pydantic_core_schema__": classmethod(_checked_by(fitting))})


def _checked_by(fitting: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    def core_schema(_cls: type, _source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(Annotated[dict[str, Any], AfterValidator(fitting)])

    return core_schema


def text_of_output(value: Any) -> str:
    """Return an answer as the text of its step: texts as they are, data as compact JSON."""
    return value if isinstance(value, str) else TypeAdapter(Any).dump_json(value, fallback=str).decode()
