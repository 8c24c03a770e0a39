"""A tool as an agent asks for it: by name, with the options that a definition sets and the limits that it declares."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from divebook.documents.references import require_allowed, resolved
from divebook.errors import SetupError
from divebook.tools.offered import ABSENT, OFFERED, offered, option_named
from divebook.tools.reach import ToolReach
from divebook.workflow.resources import ToolDefinition
from divebook.workflow.tools import ToolFunction
from divebook.workflow.user_functions import signature_of

_LIMITS = ("timeout", "limit", "most", "concurrency", "retry")


def declared(
    name: str, own: ToolFunction | None, said: ToolDefinition | None, config: Mapping[str, Any], reach: ToolReach
) -> ToolFunction | None:
    """Return the tool of a name, or None if it neither is a person's own nor comes with divebook.

    Parameters
    ----------
    own
        The function that a person made a tool of that name, which wins over one that comes with divebook.
    said
        What stands about it under ``Tools``.
    config
        What the agent's ``ToolConfig`` says of it, which wins over that.

    Raises
    ------
    SetupError
        It is switched off, or an option does not fit, or has no effect.
    """
    if said is not None and not said.enabled:
        raise SetupError(f'agent references unknown tool "{name}": its definition under Tools says Enabled: false')
    options = _merged({} if said is None else said.parameters, config)
    if own is not None:
        return with_arguments(own, options, reach)
    if name in OFFERED:
        return offered(name, reach, options)
    if options and name not in ABSENT:
        raise SetupError(f"tool {name} is not one that takes options here: {', '.join(options)} would have no effect")
    return None


def limited(tool: ToolFunction, said: ToolDefinition | None) -> ToolFunction:
    """Return a tool of any kind with the limits that stand about it under ``Tools``."""
    if said is None:
        return tool
    limits = {key: getattr(said, key) for key in _LIMITS if getattr(said, key) is not None}
    return replace(tool, **limits, approval=tool.approval or said.approval)


def _merged(parameters: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return options, each once however it is written; those of the agent win."""
    written = {option_named(name): name for name in (*parameters, *config)}
    values = {option_named(name): value for source in (parameters, config) for name, value in source.items()}
    return {written[folded]: value for folded, value in values.items()}


def with_arguments(tool: ToolFunction, arguments: Mapping[str, Any], reach: ToolReach) -> ToolFunction:
    """Return a tool some arguments of which are fixed: a model neither sees nor gives them, and no log holds them.

    What they name (``env://KEY``) is looked up at each call.
    """
    if not arguments:
        return tool
    require_allowed(arguments, reach.policy, reach.folder)
    function, signature = tool.function, signature_of(tool.function)
    for name in arguments:
        if name not in signature.parameters:
            takes = ", ".join(signature.parameters) or "nothing"
            raise SetupError(f"{tool.label} has no parameter {name!r} (it takes: {takes})")
    left = [parameter for name, parameter in signature.parameters.items() if name not in arguments]

    def given() -> dict[str, Any]:
        found: dict[str, Any] = resolved(dict(arguments), reach.policy, reach.folder)
        return found

    called = _async(function, given) if inspect.iscoroutinefunction(function) else _plain(function, given)
    functools.update_wrapper(called, function)
    called.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]  # what inspect looks for
    return replace(tool, function=called, fixed=dict(arguments))


def _async(function: Callable[..., Any], given: Callable[[], dict[str, Any]]) -> Callable[..., Any]:
    async def called(**arguments: Any) -> Any:
        return await function(**given(), **arguments)

    return called


def _plain(function: Callable[..., Any], given: Callable[[], dict[str, Any]]) -> Callable[..., Any]:
    def called(**arguments: Any) -> Any:
        return function(**given(), **arguments)

    return called
