"""The tools that come with divebook, by the names under which agents ask for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from divebook.errors import SetupError, did_you_mean, shown_number
from divebook.text.ranges import COUNT_OR_ZERO, SECONDS
from divebook.tools.editor import text_editor
from divebook.tools.files import directory_lister, file_reader, file_writer
from divebook.tools.papers import document_lister, document_reader, document_searcher, document_writer
from divebook.tools.reach import ToolReach
from divebook.tools.web import fetcher
from divebook.workflow.tools import ToolFunction

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
"""What makes each of them, from what it may reach and its options."""

ABSENT: Mapping[str, str] = {
    "command": "programs come with workspaces; let an action do it, or write a @tool that runs what you need",
    "web_search": "it needs the key of a search service: write a @tool that asks yours, or use an MCP server of it",
    "generate_image": "it needs the key of a service: write a @tool that asks yours",
    "anthropic_code_execution": "a provider's own tools are not used; write a @tool",
    "anthropic_computer": "a provider's own tools are not used; write a @tool",
    "anthropic_web_search": "a provider's own tools are not used; write a @tool that asks your search service",
}
"""Tools of the old system that do not come with this one, and what to do."""


def offered(name: str, reach: ToolReach, options: Mapping[str, Any]) -> ToolFunction:
    """Return a tool that comes with divebook, made with its options.

    Options are known without regard to case and underscores, as the old system read them: ``MaxSize``, ``max_size``.

    Raises
    ------
    SetupError
        There is no such option, or its value does not fit.
    """
    make = OFFERED[name]
    kinds = get_type_hints(make)
    known = {option_named(option): option for option in list(inspect.signature(make).parameters)[1:]}
    given: dict[str, Any] = {}
    for written, value in options.items():
        option = known.get(option_named(written))
        if option is None:
            hint = did_you_mean(written, known.values()) or f"it has {', '.join(known.values()) or 'none'}"
            raise SetupError(f"tool {name} has no option {written!r}: {hint}")
        given[option] = _fitting(name, written, value, kinds[option])
    made = make(reach, **given)
    return made if made.name == name else replace(made, rule_name=name)


def option_named(name: str) -> str:
    """Return the one spelling of an option's name."""
    return name.replace("_", "").casefold()


def _fitting(name: str, option: str, value: Any, kind: Any) -> Any:
    """Return the value of an option; raises `SetupError` if it is of another kind."""
    texts = [value] if isinstance(value, str) else value
    if kind not in _NUMBERS and kind is not str:
        if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
    elif kind is str:
        if isinstance(value, str):
            return value
    elif _NUMBERS[kind].fits(value):
        return value
    wanted = "a text" if kind is str else _NUMBERS.get(kind, "a list of texts")
    raise SetupError(f"option {option} of tool {name} must be {wanted}, not {shown_number(value)}")


_NUMBERS = {int: COUNT_OR_ZERO, float: SECONDS}
