"""What a model sees of a function: its arguments as the signature and the docstring say them, in pydantic-ai's form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
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
    try:
        made = Tool(called, takes_ctx=True, name=tool.name, description=_said(tool))
    except (UserError, PydanticUserError, NameError) as error:
        message = f"{tool.label} cannot be shown to a model: {error}"
        hint = "annotate its parameters with types that JSON can hold, defined where the function is"
        raise DefinitionError([Problem(message, hint=hint)]) from error
    return made


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
