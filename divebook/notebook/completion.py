"""Completion of ``%dive`` and ``%%dive`` in any front end: one matcher for IPython's completer.

It looks only at what the session holds already and at an existing store; it makes neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.interactiveshell import InteractiveShell

if TYPE_CHECKING:  # loading the extension must be quick
    from divebook.notebook.candidates import CellWithCursor, Found
    from divebook.notebook.cell_completion import Known

_LINE = re.compile(r"\s*(?:[\w.,\[\]\"' ]+=\s*)?%dive\s")
_CELL = re.compile(r"\s*%%dive\s")
_BODIES = ("workflow", "agent")
_TRY = "try"


class DiveMatcher:
    """The matcher of one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    @context_matcher(identifier="divebook")  # type: ignore[untyped-decorator]
    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return how the word before the cursor may go on; nothing outside our magics."""
        from divebook.errors import StoreError

        try:
            found = self._found(context)
        except StoreError:  # reported when the store is really used
            found = None
        completions = [SimpleCompletion(entry.text, type=entry.type) for entry in found.candidates] if found else []
        fragment = found.fragment if found and completions else context.token
        return {"completions": completions, "suppress": True, "matched_fragment": fragment, "ordered": True}

    def _found(self, context: CompletionContext) -> Found | None:
        lines = context.full_text.split("\n")
        row, column = context.cursor_line, context.cursor_position
        body = body_at(lines, row, column)
        if body is not None:
            return _in_cell(body)
        head = lines[row][:column]
        top = _top(lines)
        cell = _CELL.match(f"{lines[top]} ") if row == top else None
        if cell is not None:
            return _first_line(head[cell.end() :], self._shell) if column >= cell.end() else None
        line = line_before(head)
        return None if line is None else _in_line(line, self._shell)


def _top(lines: Sequence[str]) -> int:
    return next((number for number, line in enumerate(lines) if line.strip()), 0)


def body_at(lines: Sequence[str], row: int, column: int) -> CellWithCursor | None:
    """Return what the cell defines, with the cursor; None if it does not, or the cursor is in its first line."""
    top = _top(lines)
    cell = _CELL.match(f"{lines[top]} ") if row > top else None
    if cell is None:
        return None
    from divebook.notebook.candidates import CellWithCursor

    first = lines[top][cell.end() :]
    words = first.split()
    return CellWithCursor(
        above="\n".join(lines[top + 1 : row]),
        head=lines[row][:column],
        tail=lines[row][column:],
        below="\n".join(lines[row + 1 :]),
        body="step" if words[:1] == [_TRY] else words[0] if words[:1] and words[0] in _BODIES else "file",
        dialect="dive" if "--dialect dive" in first or "--dialect=dive" in first else "divebook",
    )


def line_before(head: str) -> str | None:
    """Return what stands behind ``%dive`` in a line, or None without that."""
    line = _LINE.match(head)
    return None if line is None else head[line.end() :]


def install(shell: InteractiveShell) -> None:
    """Add the matcher to a shell."""
    completer: Any = shell.Completer
    completer.custom_matchers.append(DiveMatcher(shell).match)


def remove(shell: InteractiveShell) -> None:
    """Take away what `install` added."""
    completer: Any = shell.Completer
    completer.custom_matchers[:] = [found for found in completer.custom_matchers if not _is_ours(found)]


def _is_ours(matcher: Any) -> bool:
    return isinstance(getattr(matcher, "__self__", None), DiveMatcher)


def _in_line(before: str, shell: InteractiveShell) -> Found:
    from divebook.notebook.line_completion import KnownNames, complete
    from divebook.notebook.magics import COMMANDS

    return complete(before, COMMANDS, KnownNames(shell))


def _first_line(before: str, shell: InteractiveShell) -> Found:
    from divebook.notebook.candidates import Candidate, matching
    from divebook.notebook.cell import DIALECTS
    from divebook.notebook.line_completion import KnownNames

    if before.lstrip().startswith(f"{_TRY} "):
        return _in_line(before, shell)
    names = KnownNames(shell)
    *words, fragment = before.split(" ")
    written = [word for word in words if word]
    if written[-1:] == ["--dialect"]:
        return matching(fragment, (Candidate(name, "dialect") for name in DIALECTS))
    if not written and not fragment.startswith("-"):
        return matching(fragment, (Candidate(name, "command") for name in (*_BODIES, "script", _TRY)))
    offered = [Candidate("--dialect", "option")]
    if len(written) == 1 and not fragment.startswith("-"):
        known = {"workflow": names.workflows, "agent": names.agents, "script": names.agents}.get(written[0], tuple)
        offered = [Candidate(name, "agent" if written[0] == "script" else written[0]) for name in known()]
    return matching(fragment, offered)


def _in_cell(document: CellWithCursor) -> Found:
    from divebook.notebook.cell_completion import complete

    return complete(document, _known())


def _known() -> Known:
    from divebook.notebook.cell_completion import Known
    from divebook.notebook.line_completion import present_environment

    environment = present_environment()
    if environment is None:
        return Known()
    return Known(tuple(environment.agents), tuple(environment.actions), tuple(environment.workflows))
