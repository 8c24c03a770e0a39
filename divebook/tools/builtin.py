"""Built-in tools for documents and web pages, and the table of all built-in tools by name."""

from __future__ import annotations

import functools
import inspect
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, get_type_hints
from urllib.parse import urljoin

from divebook.definitions.functions import signature_of
from divebook.definitions.resources import ToolDefinition
from divebook.definitions.step import Retry
from divebook.definitions.tools import ToolFunction
from divebook.documents import fetch as fetching
from divebook.documents.fetch import Page, PageLimits
from divebook.documents.policy import FileArguments, require_allowed, resolved
from divebook.errors import DivebookError, SetupError, did_you_mean, shown_number
from divebook.text.format import lines_in
from divebook.text.ranges import COUNT_OR_ZERO, SECONDS
from divebook.tools.file_tools import (
    READS,
    WRITES,
    ToolReach,
    builtin_tool,
    directory_lister,
    file_reader,
    file_writer,
    text_editor,
    tool_failure,
)

# --- web page --------------------------------------------------------------------------------------------------------
#
# Text of web pages: headings, lists and links are kept, all other markup is removed.


# Elements whose content is not text for a reader.
_SILENT = ("script", "style", "noscript", "template", "svg", "head", "iframe")


_BLOCKS = (
    *("p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "table", "tr", "ul", "ol", "dl"),
    *("dt", "dd", "blockquote", "pre", "form", "figure", "hr", "li", "h1", "h2", "h3", "h4", "h5", "h6"),
)


# Elements that begin a line of their own; all other blocks begin a paragraph.
_LINES = ("li", "tr", "dt", "dd")


_MARKS = {f"h{level}": "#" * level + " " for level in range(1, 7)} | {"li": "- "}


def readable(markup: str, address: str) -> str:
    """Convert the HTML of a web page to plain text. `address` is the base address of relative links.

    >>> print(readable("<title>T</title><h1>Hi</h1><p><a href='/x'>This</a> &amp; that<script>f()", "http://a/"))
    T
    <BLANKLINE>
    # Hi
    <BLANKLINE>
    [This](http://a/x) & that
    """
    reader = _Reader(address)
    reader.feed(_harmless(markup))
    reader.close()
    return reader.text()


def _harmless(markup: str) -> str:
    """Remove the parts of a web page's HTML that would make Python's HTML parser fail or take quadratic time.

    These are comments, sections, and tags that never end (test_a_page_that_was_made_to_hold_the_reader_up).
    """
    parts = []
    done = 0
    # Comments are removed. One without an end takes the rest of the page with it.
    while (start := markup.find("<!--", done)) >= 0:
        parts.append(markup[done:start])
        end = markup.find("-->", start + 4)
        done = len(markup) if end < 0 else end + 3
    # A declaration such as `<![CDATA[` without an end would hold the parser up, too.
    text = "".join([*parts, markup[done:]]).replace("<![", "<! ")
    # Behind the last `>`, a `<` cannot begin a whole tag, but would make the parser wait for the end of one.
    last = text.rfind(">") + 1
    return text[:last] + text[last:].replace("<", " ")


class _Reader(HTMLParser):
    """Parser that collects the text of a web page.

    Written by hand, since a page may be hostile. The library markdownify 1.2.3, measured on the same pages, raises
    `RecursionError` for 330 nested elements, and takes more than a minute for 800 kB of ``<!--``
    (test_a_page_that_was_made_to_hold_the_reader_up). A page of 1 MB takes 3.7 s with it and 0.8 s here.
    """

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self._address = address
        self._parts: list[str] = []
        self._title: list[str] = []
        # Name of the silent element that the parser is in, and how many elements of this name are open; "" and 0
        # outside.
        self._silent = ""
        self._depth = 0
        # Targets of the links that are open; "" for a link that is not shown as one.
        self._links: list[str] = []
        self._in_title = self._is_verbatim = False

    def text(self) -> str:
        """Return the converted text, with the title of the page first."""
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
        title = " ".join("".join(self._title).split())
        return f"{title}\n\n{body}" if title else body

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = self._in_title or tag == "title"
        # Text inside of elements such as scripts is left out. Only their own end tag ends this, since scripts contain
        # tags.
        if tag == "body":  # some pages leave their head open
            self._silent = ""
        if tag in _SILENT and self._silent in ("", tag):
            self._depth = self._depth + 1 if self._silent else 1
            self._silent = tag
        if self._silent:
            return
        self._is_verbatim = self._is_verbatim or tag == "pre"
        if tag in _BLOCKS:
            self._parts.append(("\n" if tag in _LINES else "\n\n") + _MARKS.get(tag, ""))
        elif tag == "br":
            self._parts.append("\n")
        # Cells of a row are separated by spaces.
        elif tag in ("td", "th") and self._parts[-1:] != ["\n"]:
            self._parts.append(" ")
        # Links are a stack: HTML does not allow nested links, but pages contain them.
        elif tag == "a":
            self._links.append(self._target(dict(attrs).get("href") or ""))
            self._parts.append("[" if self._links[-1] else "")

    def _target(self, reference: str) -> str:
        """Return the absolute address of a link on the web page. Return an empty string if the link does not lead to
        another web page.
        """
        try:
            target = urljoin(self._address, reference.strip())
        except ValueError:
            return ""
        # A reference such as "#top" leads to a place on the same page.
        return target if reference.strip()[:1] not in ("", "#") and target.startswith(("http://", "https://")) else ""

    def handle_endtag(self, tag: str) -> None:
        # Silent elements may be nested in elements of the same name, so their depth is counted.
        if tag == "title":
            self._in_title = False
        if self._silent:
            self._depth -= tag == self._silent
            self._silent = self._silent if self._depth else ""
            return
        if tag == "pre":
            self._is_verbatim = False
        if tag == "a" and self._links:
            target = self._links.pop()
            self._parts.append(f"]({target})" if target else "")
        elif tag in _BLOCKS:
            self._parts.append("\n" if tag in _LINES else "\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._silent:
            self._parts.append(data if self._is_verbatim else self._joined(data))

    def _joined(self, data: str) -> str:
        """Return a piece of text of the web page in which white space is replaced by single spaces, and removed at the
        beginning of a line.
        """
        text = re.sub(r"\s+", " ", data)
        return text.lstrip() if not self._parts or self._parts[-1].endswith(("\n", " ")) else text


# --- document tools --------------------------------------------------------------------------------------------------
#
# Tools for the environment's documents: read, list, search and write.


_LONGEST = 1_000_000
"""Maximum size in bytes of a document that is searched."""


_SHOWN = 300
"""Maximum number of characters of a matching line."""


def document_reader(reach: ToolReach, *, max_size: int = 10_000_000) -> ToolFunction:
    """Return the tool ``read_document``, which reads documents of at most `max_size` bytes."""

    def read_document(path: str, first_line: int = 1, lines: int | None = None) -> str:
        """Read a document and return its text.

        Parameters
        ----------
        path
            Path or registered name of the document.
        first_line
            Number of the first line to read.
        lines
            Number of lines to read; by default all.
        """
        # `first_line` counts from 1, and a model may also write 0.
        text = _text(reach, path, max_size)
        if first_line <= 1 and lines is None:
            return text
        text_lines = lines_in(text)[max(0, first_line - 1) :]
        return "".join(text_lines if lines is None else text_lines[: max(0, lines)])

    return builtin_tool(read_document, READS, files=_files(reach))


def document_lister(reach: ToolReach, *, max_entries: int = 200) -> ToolFunction:
    """Return the tool ``list_documents``, which lists at most `max_entries` paths of documents."""

    def list_documents(folder: str = "", recursive: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - a model gives it by name
        """List the paths of documents.

        Parameters
        ----------
        folder
            List only documents below this folder.
        recursive
            Whether to list documents in subfolders as well.
        """
        paths = _paths(reach, folder, recursive=recursive)
        more = {"note": f"limited to {max_entries} of {len(paths)}"} if len(paths) > max_entries else {}
        return {"paths": paths[:max_entries], **more}

    return builtin_tool(list_documents, READS, files=_files(reach))


def document_searcher(reach: ToolReach, *, max_matches: int = 50) -> ToolFunction:
    """Return the tool ``search_documents``, which finds lines of documents that contain all given words."""

    def search_documents(words: str, folder: str = "") -> dict[str, Any]:
        """Find the lines of documents that contain all given words, in any order and in upper or lower case.

        Parameters
        ----------
        words
            The words, separated by spaces.
        folder
            Search only documents below this folder.
        """
        needles = words.casefold().split()
        if not needles:
            raise tool_failure("no words were given: name at least one")
        matches: list[dict[str, Any]] = []
        for path in _paths(reach, folder, recursive=True):
            matches += _lines_with(needles, path, reach)
            # The search ends as soon as it has more matches than it may return.
            if len(matches) > max_matches:
                return {"matches": matches[:max_matches], "note": f"limited to {max_matches}: use more words"}
        return {"matches": matches}

    return builtin_tool(search_documents, READS, files=_files(reach))


def document_writer(reach: ToolReach) -> ToolFunction:
    """Return the tool ``write_document``, which creates or replaces documents."""

    def write_document(path: str, content: str) -> str:
        """Write a document. An existing document is replaced.

        Parameters
        ----------
        path
            Path or registered name of the document.
        content
            The whole content of the document.
        """
        try:
            document = reach.documents.put(path, content)
        except (DivebookError, OSError, UnicodeError) as error:
            raise tool_failure(f"document {path} cannot be written: {error}") from error
        return f"Successfully wrote {len(content)} characters to {document.path}"

    return builtin_tool(write_document, WRITES, files=_files(reach))


def _files(reach: ToolReach) -> FileArguments:
    return FileArguments(("path", "folder"), reach.folder, path_of_name=reach.documents.path_named)


def _text(reach: ToolReach, path: str, most: int) -> str:
    try:
        if (size := reach.documents.size(path)) > most:
            raise tool_failure(f"document {path} is too large ({size} bytes): at most {most} bytes can be read")
        return reach.documents.get(path).content
    except (DivebookError, OSError, UnicodeError) as error:
        raise tool_failure(f"document {path} cannot be read: {error}") from error


def _paths(reach: ToolReach, folder: str, *, recursive: bool) -> list[str]:
    try:
        return [path for path in reach.documents.list(folder, recursive=recursive) if not _is_hidden(path)]
    except (DivebookError, OSError) as error:
        raise tool_failure(f"documents of {folder!r} cannot be listed: {error}") from error


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _lines_with(needles: list[str], path: str, reach: ToolReach) -> list[dict[str, Any]]:
    """Return the lines of a document that contain all words in `needles`, with their numbers. Return an empty list for
    a document that is binary, larger than 1 MB or unreadable.
    """
    try:
        if reach.documents.size(path) > _LONGEST:
            return []
        text = reach.documents.get(path).content
    except (DivebookError, OSError, UnicodeError):
        return []
    matches = []
    for number, line in enumerate(lines_in(text), start=1):
        folded = line.casefold()
        if all(word in folded for word in needles):
            matches.append({"path": path, "line": number, "text": line.strip()[:_SHOWN]})
    return matches


UNREACHABLE_PAGE = Retry(seconds=0.5, jitter=0.0)
"""Pauses before a page is fetched again. The number of attempts is an option of the tool."""


def fetcher(reach: ToolReach, *, max_size: int = 512_000, max_retries: int = 0, timeout: float = 15.0) -> ToolFunction:
    """Return the tool ``fetch``, which returns web pages of at most `max_size` bytes as text.

    Each attempt may take `timeout` seconds. A network error is retried `max_retries` times.
    """
    limits = PageLimits(bytes=max_size, silence=timeout, seconds=timeout)

    def fetch(url: str) -> str:
        """Fetch a web page and return its text, with the addresses of its links.

        Parameters
        ----------
        url
            Address of the page, beginning with http:// or https://.
        """
        try:
            page = _fetch_page(url, reach, limits, max_retries)
            text = page.text(url, max_size)
        except SetupError as error:
            raise tool_failure(str(error)) from error
        # Other types, such as JSON or plain text, are returned unchanged.
        return readable(text, page.address) if page.media_type in ("text/html", "application/xhtml+xml") else text

    return builtin_tool(fetch, replace(READS, open_world=True))


def _fetch_page(url: str, reach: ToolReach, limits: PageLimits, retries: int) -> Page:
    failures = 0
    while True:
        try:
            return fetching.fetch(url, reach.policy, limits)
        except SetupError as error:
            # Another attempt helps after a network error only, and not if the policy refuses the address, for example.
            if failures == retries or not isinstance(error.__cause__, OSError):
                raise
            failures += 1
            time.sleep(UNREACHABLE_PAGE.delay(failures))


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
"""Factories of the built-in tools, by name of the tool. A factory takes a `ToolReach` and the options of the tool."""


ABSENT: Mapping[str, str] = {
    "command": "programs run in workspaces; use an action, or write a @tool that runs the program",
    "web_search": "write a @tool that calls your search service, or use the MCP server of that service",
    "generate_image": "write a @tool that calls your image service",
    "anthropic_code_execution": "tools that run at the provider are not supported; write a @tool",
    "anthropic_computer": "tools that run at the provider are not supported; write a @tool",
    "anthropic_web_search": (
        "tools that run at the provider are not supported; write a @tool that calls your search service"
    ),
}
"""Tools of the legacy Dive dialect that divebook lacks, by name, with the advice that the error message gives."""


def offered(name: str, reach: ToolReach, options: Mapping[str, Any]) -> ToolFunction:
    """Create the built-in tool called `name` with the options of its definition, such as ``max_size``.

    Case and underscores of option names are ignored, as in the legacy Dive dialect: ``MaxSize``, ``max_size``.

    Raises
    ------
    SetupError
        The option does not exist, or its value does not fit.
    """
    make = OFFERED[name]
    kinds = get_type_hints(make)
    # The first parameter is the `ToolReach`; all others are options of the tool.
    options_by_name = {option_named(parameter): parameter for parameter in list(inspect.signature(make).parameters)[1:]}
    arguments: dict[str, Any] = {}
    for option_name, value in options.items():
        parameter = options_by_name.get(option_named(option_name))
        if parameter is None:
            hint = (
                did_you_mean(option_name, options_by_name.values())
                or f"available options: {', '.join(options_by_name.values()) or 'none'}"
            )
            raise SetupError(f"tool {name} has no option {option_name!r}; {hint}")
        arguments[parameter] = _checked_option(name, option_name, value, kinds[parameter])
    tool = make(reach, **arguments)
    # An option may rename the tool for the model (`text_editor`). Approval rules keep its usual name.
    return tool if tool.name == name else replace(tool, rule_name=name)


def declared(
    name: str,
    function: ToolFunction | None,
    declaration: ToolDefinition | None,
    config: Mapping[str, Any],
    reach: ToolReach,
) -> ToolFunction | None:
    """Create the tool that an agent's definition names, with its options and limits. Return None if neither a user
    function nor a built-in tool has the name.

    Parameters
    ----------
    function
        The user's function with this name as a tool; None without one. It takes precedence over a built-in tool.
    declaration
        The definition of the tool under ``Tools``; None without one.
    config
        The options of the tool in the agent's ``ToolConfig``. They take precedence over those of `declaration`.

    Raises
    ------
    SetupError
        The tool is disabled, or an option is invalid or would have no effect.
    """
    # The error is the one for an unknown tool, with the reason.
    if declaration is not None and not declaration.enabled:
        raise SetupError(f'agent references unknown tool "{name}": its definition under Tools has Enabled: false')
    options = _merged({} if declaration is None else declaration.parameters, config)
    if function is not None:
        return with_arguments(function, options, reach)
    if name in OFFERED:
        return offered(name, reach, options)
    # The tools of `ABSENT` have error messages of their own, which the caller raises.
    if options and name not in ABSENT:
        raise SetupError(f"tool {name} takes no options here: {', '.join(options)} would have no effect")
    return None


def limited(tool: ToolFunction, declaration: ToolDefinition | None) -> ToolFunction:
    """Return a copy of a tool with the limits that its definition under ``Tools`` sets, such as a timeout or a maximum
    number of calls. Without a definition, return the tool unchanged.
    """
    if declaration is None:
        return tool
    limits = {key: getattr(declaration, key) for key in _LIMITS if getattr(declaration, key) is not None}
    # A definition can only add the need for an approval, not remove it.
    return replace(tool, **limits, approval=tool.approval or declaration.approval)


def option_named(name: str) -> str:
    """Return the name of a tool's option without underscores and in lower case, so that different spellings of it are
    equal.
    """
    return name.replace("_", "").casefold()


def _checked_option(name: str, option: str, value: Any, kind: Any) -> Any:
    """Return the value of a tool's option if it has the expected type `kind`. Otherwise raise `SetupError`. A boolean
    is not accepted as a number.
    """
    # A kind that is neither a number nor `str` is a list of strings; one string alone counts as a list of one.
    texts = [value] if isinstance(value, str) else value
    if kind not in _NUMBERS and kind is not str:
        if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
    elif kind is str:
        if isinstance(value, str):
            return value
    elif _NUMBERS[kind].fits(value):
        return value
    expected = "a string" if kind is str else _NUMBERS.get(kind, "a list of strings")
    raise SetupError(f"option {option} of tool {name} must be {expected}, not {shown_number(value)}")


_NUMBERS = {int: COUNT_OR_ZERO, float: SECONDS}


_LIMITS = ("timeout", "limit", "most", "concurrency", "retry")


def _merged(parameters: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the options of a tool from its definition under ``Tools`` (`parameters`) and from the agent that uses it
    (`config`). The options of the agent take precedence.

    Names that differ only in case or underscores are the same option.
    """
    # {"MaxSize": 5} and {"max_size": 7} -> {"max_size": 7}
    written = {option_named(name): name for name in (*parameters, *config)}
    values = {option_named(name): value for source in (parameters, config) for name, value in source.items()}
    return {written[folded]: value for folded, value in values.items()}


def with_arguments(tool: ToolFunction, arguments: Mapping[str, Any], reach: ToolReach) -> ToolFunction:
    """Return a copy of a tool in which some arguments have fixed values. The model cannot see or set these arguments,
    and their values are not recorded in any log.

    References in the values (``env://KEY``) are resolved each time the tool is called.
    """
    if not arguments:
        return tool
    require_allowed(arguments, reach.policy, reach.folder)
    # References are only checked above. They are resolved in each call of the tool, since their values may change.
    function = tool.function
    signature = signature_of(tool.function)
    for name in arguments:
        if name not in signature.parameters:
            takes = ", ".join(signature.parameters) or "nothing"
            raise SetupError(f"{tool.kind_and_name} has no parameter {name!r} (it takes: {takes})")
    remaining = [parameter for name, parameter in signature.parameters.items() if name not in arguments]

    # Called for each call of the tool, so that a changed variable or file counts.
    def fixed_arguments() -> dict[str, Any]:
        values: dict[str, Any] = resolved(dict(arguments), reach.policy, reach.folder)
        return values

    wrapper = (
        _async(function, fixed_arguments)
        if inspect.iscoroutinefunction(function)
        else _plain(function, fixed_arguments)
    )
    # The schema for the model is built from the signature, which must not contain the fixed arguments.
    functools.update_wrapper(wrapper, function)
    wrapper.__signature__ = signature.replace(parameters=remaining)  # type: ignore[attr-defined]  # what inspect looks for
    return replace(tool, function=wrapper, fixed=dict(arguments))


def _async(function: Callable[..., Any], fixed_arguments: Callable[[], dict[str, Any]]) -> Callable[..., Any]:
    async def wrapper(**arguments: Any) -> Any:
        return await function(**fixed_arguments(), **arguments)

    return wrapper


def _plain(function: Callable[..., Any], fixed_arguments: Callable[[], dict[str, Any]]) -> Callable[..., Any]:
    def wrapper(**arguments: Any) -> Any:
        return function(**fixed_arguments(), **arguments)

    return wrapper
