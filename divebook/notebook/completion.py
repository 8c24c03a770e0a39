"""Completion of ``%dive`` and ``%%dive`` in any front end: one matcher for IPython's completer.

It looks only at what the session holds already and at an existing store; it makes neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.interactiveshell import InteractiveShell

from divebook.notebook.magics import (
    DevEnvMagics,
    DiveMagics,
    await_magics,
    help_for_commands,
    remember_cell,
    runs_inside,
)
from divebook.notebook.recovery import tell_on_load

if TYPE_CHECKING:
    from divebook.notebook.line_completion import CellWithCursor, Found, Known


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
        row = context.cursor_line
        column = context.cursor_position
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
    from divebook.notebook.line_completion import CellWithCursor

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
    from divebook.notebook.cells import DIALECTS
    from divebook.notebook.line_completion import Candidate, KnownNames, matching

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
    from divebook.notebook.line_completion import complete_cell as complete

    return complete(document, _known())


def _known() -> Known:
    from divebook.notebook.line_completion import Known, present_environment

    environment = present_environment()
    if environment is None:
        return Known()
    return Known(tuple(environment.agents), tuple(environment.actions), tuple(environment.workflows))


# Shift+Tab in a cell: what the key of a definition, or the sub-command of ``%dive``, under the cursor means.
#
# A kernel is asked about a place in a cell, and asks IPython about the name that stands there. Keys are no names of
# Python, so that the kernel's own method is stood in for; elsewhere it answers as ever.


_WORD = re.compile(r"\w*")


class HelpAtCursor:
    """Stands in for a kernel's ``do_inspect``."""

    def __init__(self, asked: Callable[..., Any]) -> None:
        self._asked = asked

    def __call__(self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Iterable[str] = ()) -> Any:
        """Return the reply to a request for inspection."""
        text = told_at(code, cursor_pos)
        if text is None:
            return self._asked(code, cursor_pos, detail_level, omit_sections)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}


def install_inspection(shell: InteractiveShell) -> None:
    """Have the kernel of a shell answer for keys; a shell in a terminal has none."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        kernel.do_inspect = HelpAtCursor(kernel.do_inspect)


def remove_inspection(shell: InteractiveShell) -> None:
    """Take away what `install` put there."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and isinstance(vars(kernel).get("do_inspect"), HelpAtCursor):
        del kernel.do_inspect


def told_at(code: str, cursor: int) -> str | None:
    """Return what is to be said of a place in a cell; None where that is for others to say."""
    lines = code.split("\n")
    row = code.count("\n", 0, cursor)
    column = cursor - (code.rfind("\n", 0, cursor) + 1)
    body = body_at(lines, row, column)
    if body is not None:
        from divebook.notebook.line_completion import key_at
        from divebook.workflow.schema import help_for

        found = key_at(body)
        return None if found is None else help_for(*found)
    line = line_before(lines[row])
    if line is None:
        return None
    from divebook.notebook.magics import COMMANDS

    name = _WORD.match(line.lstrip())
    return COMMANDS[name[0]].whole_help if name and name[0] in COMMANDS else None


# ``%load_ext divebook`` and ``%unload_ext divebook``: magics, completion, and two changes to the text of cells.


Transform: TypeAlias = Callable[[list[str]], list[str]]


class AwaitWherePossible:
    """The change that lets cells await; bound to a shell, since not every cell can be changed."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines with long calls awaited, unless the shell would run them without a loop."""
        is_nested = runs_inside(InteractiveShell.run_code.__code__)
        return lines if is_nested or not self._shell.autoawait else await_magics(lines)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics, and say which executions were interrupted; loading twice is the same as once."""
    _take_away(shell)
    shell.register_magics(DiveMagics, DevEnvMagics)
    shell.input_transformers_cleanup.append(help_for_commands)
    shell.input_transformers_post.append(AwaitWherePossible(shell))
    install(shell)
    install_inspection(shell)
    shell.events.register("pre_run_cell", remember_cell)
    tell_on_load()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take away all that loading added, and close the session: runs that have not ended can be resumed later."""
    from divebook.notebook.session import close_session  # loading the extension must be quick

    _take_away(shell)
    close_session()


def _take_away(shell: InteractiveShell) -> None:
    _remove(shell.input_transformers_cleanup, lambda transform: transform is help_for_commands)
    _remove(shell.input_transformers_post, lambda transform: isinstance(transform, AwaitWherePossible))
    remove(shell)
    remove_inspection(shell)
    if remember_cell in shell.events.callbacks["pre_run_cell"]:
        shell.events.unregister("pre_run_cell", remember_cell)
    shell.configurables[:] = [
        found for found in shell.configurables if not isinstance(found, DiveMagics | DevEnvMagics)
    ]
    for kind in (DiveMagics, DevEnvMagics):
        shell.magics_manager.registry.pop(kind.__name__, None)
    for magics in shell.magics_manager.magics.values():
        magics.pop("dive", None)
        magics.pop("dev_env", None)


def _remove(transforms: list[Transform], is_ours: Callable[[Transform], bool]) -> None:
    transforms[:] = [transform for transform in transforms if not is_ours(transform)]
