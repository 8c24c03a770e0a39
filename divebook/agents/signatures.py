"""What a model sees of a function: its arguments as the signature and the docstring say them, in pydantic-ai's form."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import replace
from types import CodeType
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_ai import Tool
from pydantic_ai.exceptions import UserError

from divebook.errors import DefinitionError, Problem
from divebook.workflow.tools import ToolFunction
from divebook.workflow.user_functions import IDEMPOTENCY_KEY, signature_of

Call = Callable[[ToolFunction, Mapping[str, Any]], Awaitable[Any]]


def library_tool(tool: ToolFunction, call: Call) -> Tool[Any]:
    """Return a tool in pydantic-ai's form, of which each call is handed on with its arguments by name.

    What comes with a call (``idempotency_key``) is nothing a model gives.

    Raises
    ------
    DefinitionError
        A parameter has a type of which no schema can be made.
    """

    async def called(**arguments: Any) -> Any:
        return await call(tool, arguments)

    if tool.schema is not None:
        said = Tool.from_schema(called, tool.name, tool.description, dict(tool.schema), takes_ctx=False)
        if tool.result_schema is not None:
            said.function_schema.return_schema = dict(tool.result_schema)
            said.function_schema.validator = _filling(tool.schema)
        return said
    _take_on(called, tool.function)
    code, shape = getattr(inspect.unwrap(tool.function), "__code__", None), _shape(called)
    made_of, known = _SCHEMAS.get(code, (None, None)) if code is not None else (None, None)
    schema = replace(known, function=called) if known is not None and made_of == shape else None
    try:
        made = Tool(called, takes_ctx=False, name=tool.name, description=_said(tool), function_schema=schema)
    except (UserError, PydanticUserError, NameError) as error:
        message = f"{tool.label} cannot be shown to a model: {error}"
        hint = "annotate its parameters with types that JSON can hold, defined where the function is"
        raise DefinitionError([Problem(message, hint=hint)]) from error
    if schema is None and code is not None and shape is not None:
        _SCHEMAS[code] = shape, replace(made.function_schema, function=_shape)  # not the tool's, which would stay alive
    return made


_SCHEMAS: WeakKeyDictionary[CodeType, tuple[Hashable, Any]] = WeakKeyDictionary()
"""What pydantic-ai makes of a function, with all that it is made of: to make it takes longer than a request's record.

By the function's code, which those that are made anew for each turn have in common, and kept no longer than that."""


def _filling(schema: Mapping[str, Any]) -> Any:
    """Return what puts the defaults of a schema where a model leaves an argument out."""
    known = schema.get("properties", {}).items()
    defaults = {name: said["default"] for name, said in known if "default" in said}
    filled = AfterValidator(lambda given: {**defaults, **given})
    return TypeAdapter(Annotated[dict[str, Any], filled]).validator


def _shape(called: Any) -> Hashable:
    """Return all that the schema of a function is made of; None if that cannot be told.

    An annotation that is a text may mean another class the next time a notebook's cell has run: what it means counts.
    """
    signature: inspect.Signature = called.__signature__
    kinds = tuple(type(each.default) for each in signature.parameters.values())
    try:
        hints = tuple(typing.get_type_hints(called, include_extras=True).items())
        shape = (called.__qualname__, called.__doc__, signature, kinds, hints)
        hash(shape)
    except (TypeError, NameError):  # a default that is a list, or a class that is not there
        return None
    return shape


def _said(tool: ToolFunction) -> str | None:
    """Return the description that was given for a tool; None leaves it to the docstring."""
    return tool.description if tool.description != (inspect.getdoc(tool.function) or "") else None


def _take_on(called: Any, function: Callable[..., Any]) -> None:
    """Let a stand-in look like a function without what comes with a call, for those who read signatures."""
    signature = signature_of(function)
    own = [parameter for name, parameter in signature.parameters.items() if name != IDEMPOTENCY_KEY]
    called.__signature__ = signature.replace(parameters=own)
    functools.update_wrapper(called, inspect.unwrap(function))
