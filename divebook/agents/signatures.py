"""What a model sees of a function: its arguments as the signature and the docstring say them, in pydantic-ai's form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

from pydantic.errors import PydanticUserError
from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import UserError

from divebook.errors import DefinitionError, Problem
from divebook.workflow.functions import IDEMPOTENCY_KEY, signature_of
from divebook.workflow.tools import ToolFunction

Call = Callable[[ToolFunction, RunContext[Any], Mapping[str, Any]], Awaitable[Any]]


def library_tool(tool: ToolFunction, call: Call) -> Tool[Any]:
    """Return a tool in pydantic-ai's form, of which each call is handed on with its arguments by name.

    What comes with a call (``idempotency_key``) is nothing a model gives.

    Raises
    ------
    DefinitionError
        A parameter has a type of which no schema can be made.
    """

    async def called(ctx: RunContext[Any], /, **arguments: Any) -> Any:
        return await call(tool, ctx, arguments)

    if tool.schema is not None:
        return Tool.from_schema(called, tool.name, tool.description, dict(tool.schema), takes_ctx=True)
    _take_on(called, tool.function)
    shape = _shape(called)
    known = _SCHEMAS.get(shape) if shape is not None else None
    schema = None if known is None else replace(known, function=called)
    try:
        made = Tool(called, takes_ctx=True, name=tool.name, description=_said(tool), function_schema=schema)
    except (UserError, PydanticUserError, NameError) as error:
        message = f"{tool.label} cannot be shown to a model: {error}"
        hint = "annotate its parameters with types that JSON can hold, defined where the function is"
        raise DefinitionError([Problem(message, hint=hint)]) from error
    if known is None and shape is not None and len(_SCHEMAS) < _MOST_KEPT:
        _SCHEMAS[shape] = replace(made.function_schema, function=_shape)  # and not this tool's, which would stay alive
    return made


_SCHEMAS: dict[Hashable, Any] = {}
"""What pydantic-ai makes of a function, by all that it is made of: to make it takes longer than a request's record."""
_MOST_KEPT = 500


def _shape(called: Any) -> Hashable:
    """Return all that the schema of a function is made of; None if that cannot be told.

    An annotation that is a text may mean another class the next time a notebook's cell has run; ours do not.
    """
    signature: inspect.Signature = called.__signature__
    taken = signature.parameters.values()
    hints, kinds = [each.annotation for each in taken], tuple(type(each.default) for each in taken)
    if not called.__module__.startswith("divebook.") and any(isinstance(hint, str) for hint in hints):
        return None
    shape = (called.__module__, called.__qualname__, called.__doc__, signature, kinds)
    try:
        hash(shape)
    except TypeError:  # a default that is a list
        return None
    return shape


def _said(tool: ToolFunction) -> str | None:
    """Return the description that was given for a tool; None leaves it to the docstring."""
    return tool.description if tool.description != (inspect.getdoc(tool.function) or "") else None


def _take_on(called: Any, function: Callable[..., Any]) -> None:
    """Let a stand-in look like a function that takes a context first, for those who read signatures."""
    signature = signature_of(function)
    own = {name: parameter for name, parameter in signature.parameters.items() if name != IDEMPOTENCY_KEY}
    first = next(name for name in ("ctx", "run_context", "divebook_run_context") if name not in own)
    context = inspect.Parameter(first, inspect.Parameter.POSITIONAL_ONLY, annotation=RunContext[Any])
    called.__signature__ = signature.replace(parameters=[context, *own.values()])
    functools.update_wrapper(called, inspect.unwrap(function))
    called.__annotations__ = {**called.__annotations__, first: RunContext[Any]}
