"""Built-in tools of divebook, by the names under which agents ask for them."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from divebook.documents import fetch as fetching
from divebook.documents.fetch import Page, PageLimits
from divebook.documents.policy import require_allowed, resolved
from divebook.errors import SetupError, did_you_mean, shown_number
from divebook.text.ranges import COUNT_OR_ZERO, SECONDS
from divebook.tools.document_tools import document_lister, document_reader, document_searcher, document_writer
from divebook.tools.file_tools import (
    READS,
    ToolReach,
    coming,
    directory_lister,
    failed,
    file_reader,
    file_writer,
    text_editor,
)
from divebook.tools.web_page import readable
from divebook.workflow.functions import signature_of
from divebook.workflow.resources import ToolDefinition
from divebook.workflow.tools import ToolFunction

_PAUSE = 0.5
"""Seconds before the first retry. The pause doubles with each further one."""


def fetcher(reach: ToolReach, *, max_size: int = 512_000, max_retries: int = 0, timeout: float = 15.0) -> ToolFunction:
    """Return the tool that fetches pages: at most `max_size` bytes, each attempt within `timeout` seconds."""
    limits = PageLimits(bytes=max_size, silence=timeout, seconds=timeout)

    def fetch(url: str) -> str:
        """Fetch a page of the web and return its text, with the addresses of its links.

        Parameters
        ----------
        url
            Its address, beginning with http:// or https://.
        """
        try:
            page = _fetched(url, reach, limits, max_retries)
            text = page.text(url, max_size)
        except SetupError as error:
            raise failed(str(error)) from error
        return readable(text, page.address) if page.media_type in ("text/html", "application/xhtml+xml") else text

    return coming(fetch, replace(READS, open_world=True))


def _fetched(url: str, reach: ToolReach, limits: PageLimits, retries: int) -> Page:
    for attempt in range(retries):
        try:
            return fetching.fetch(url, reach.policy, limits)
        except SetupError as error:
            if not isinstance(error.__cause__, OSError):  # it may not be fetched, or is no page
                raise
            time.sleep(_PAUSE * 2**attempt)
    return fetching.fetch(url, reach.policy, limits)


OFFERED: Mapping[str, Callable[..., ToolFunction]] = {
    "read_document": document_reader,
    "list_documents": document_lister,
    "search_documents": document_searcher,
    "write_document": document_writer,
    "fetch": fetcher,
    "read_file": file_reader,
    "write_file": file_writer,
    "list_directory": directory_lister,
    "text_editor": text_editor,
}
"""Functions that create the built-in tools from their reach and options, by name."""


ABSENT: Mapping[str, str] = {
    "command": "programs come with workspaces; let an action do it, or write a @tool that runs what you need",
    "web_search": "it needs the key of a search service: write a @tool that asks yours, or use an MCP server of it",
    "generate_image": "it needs the key of a service: write a @tool that asks yours",
    "anthropic_code_execution": "a provider's own tools are not used; write a @tool",
    "anthropic_computer": "a provider's own tools are not used; write a @tool",
    "anthropic_web_search": "a provider's own tools are not used; write a @tool that asks your search service",
}
"""Tools of the legacy Dive dialect that divebook does not have, with advice."""


def offered(name: str, reach: ToolReach, options: Mapping[str, Any]) -> ToolFunction:
    """Return a built-in tool with options.

    Case and underscores of option names are ignored, as in the legacy Dive dialect: ``MaxSize``, ``max_size``.

    Raises
    ------
    SetupError
        There is no such option, or its value does not fit.
    """
    make = OFFERED[name]
    kinds = get_type_hints(make)
    options_by_name = {option_named(option): option for option in list(inspect.signature(make).parameters)[1:]}
    arguments: dict[str, Any] = {}
    for written, value in options.items():
        option = options_by_name.get(option_named(written))
        if option is None:
            hint = (
                did_you_mean(written, options_by_name.values())
                or f"it has {', '.join(options_by_name.values()) or 'none'}"
            )
            raise SetupError(f"tool {name} has no option {written!r}: {hint}")
        arguments[option] = _fitting(name, written, value, kinds[option])
    tool = make(reach, **arguments)
    return tool if tool.name == name else replace(tool, rule_name=name)


def declared(
    name: str,
    function: ToolFunction | None,
    declaration: ToolDefinition | None,
    config: Mapping[str, Any],
    reach: ToolReach,
) -> ToolFunction | None:
    """Return the tool of a name; None if it is neither a function of the user nor built in.

    Parameters
    ----------
    function
        The function that a person made a tool of that name, which wins over one that comes with divebook.
    declaration
        What stands about it under ``Tools``.
    config
        What the agent's ``ToolConfig`` says of it, which wins over that.

    Raises
    ------
    SetupError
        It is switched off, or an option does not fit, or has no effect.
    """
    if declaration is not None and not declaration.enabled:
        raise SetupError(f'agent references unknown tool "{name}": its definition under Tools says Enabled: false')
    options = _merged({} if declaration is None else declaration.parameters, config)
    if function is not None:
        return with_arguments(function, options, reach)
    if name in OFFERED:
        return offered(name, reach, options)
    if options and name not in ABSENT:
        raise SetupError(f"tool {name} is not one that takes options here: {', '.join(options)} would have no effect")
    return None


def limited(tool: ToolFunction, declaration: ToolDefinition | None) -> ToolFunction:
    """Return a tool with the limits that are declared for it under ``Tools``."""
    if declaration is None:
        return tool
    limits = {key: getattr(declaration, key) for key in _LIMITS if getattr(declaration, key) is not None}
    return replace(tool, **limits, approval=tool.approval or declaration.approval)


def option_named(name: str) -> str:
    """Return the normalized name of an option."""
    return name.replace("_", "").casefold()


def _fitting(name: str, option: str, value: Any, kind: Any) -> Any:
    """Return the value of an option; raise `SetupError` if it has another type. bool is not accepted as a number."""
    texts = [value] if isinstance(value, str) else value
    if kind not in _NUMBERS and kind is not str:
        if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
    elif kind is str:
        if isinstance(value, str):
            return value
    elif _NUMBERS[kind].fits(value):
        return value
    expected = "a text" if kind is str else _NUMBERS.get(kind, "a list of texts")
    raise SetupError(f"option {option} of tool {name} must be {expected}, not {shown_number(value)}")


_NUMBERS = {int: COUNT_OR_ZERO, float: SECONDS}


_LIMITS = ("timeout", "limit", "most", "concurrency", "retry")


def _merged(parameters: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options regardless of their spelling. Those of the agent take precedence."""
    written = {option_named(name): name for name in (*parameters, *config)}
    values = {option_named(name): value for source in (parameters, config) for name, value in source.items()}
    return {written[folded]: value for folded, value in values.items()}


def with_arguments(tool: ToolFunction, arguments: Mapping[str, Any], reach: ToolReach) -> ToolFunction:
    """Return a tool with some arguments fixed. The model does not see or set them, and no log contains them.

    References in them (``env://KEY``) are resolved at each call.
    """
    if not arguments:
        return tool
    require_allowed(arguments, reach.policy, reach.folder)
    function = tool.function
    signature = signature_of(tool.function)
    for name in arguments:
        if name not in signature.parameters:
            takes = ", ".join(signature.parameters) or "nothing"
            raise SetupError(f"{tool.label} has no parameter {name!r} (it takes: {takes})")
    remaining = [parameter for name, parameter in signature.parameters.items() if name not in arguments]

    def fixed_arguments() -> dict[str, Any]:
        values: dict[str, Any] = resolved(dict(arguments), reach.policy, reach.folder)
        return values

    called = (
        _async(function, fixed_arguments)
        if inspect.iscoroutinefunction(function)
        else _plain(function, fixed_arguments)
    )
    functools.update_wrapper(called, function)
    called.__signature__ = signature.replace(parameters=remaining)  # type: ignore[attr-defined]  # what inspect looks for
    return replace(tool, function=called, fixed=dict(arguments))


def _async(function: Callable[..., Any], fixed_arguments: Callable[[], dict[str, Any]]) -> Callable[..., Any]:
    async def called(**arguments: Any) -> Any:
        return await function(**fixed_arguments(), **arguments)

    return called


def _plain(function: Callable[..., Any], fixed_arguments: Callable[[], dict[str, Any]]) -> Callable[..., Any]:
    def called(**arguments: Any) -> Any:
        return function(**fixed_arguments(), **arguments)

    return called
