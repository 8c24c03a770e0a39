"""Tab completion and Shift+Tab help for ``%dive`` lines and ``%%dive`` cells, for all front ends of IPython.

`DiveMatcher` determines which part of the cell contains the cursor: a line of ``%dive``, the first line of a ``%%dive``
cell, or its body. It passes the part to `divebook.notebook.line_completion`, which is imported at the first completion.
`HelpAtCursor` answers Shift+Tab. Both use an existing session and store, but never create them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.interactiveshell import InteractiveShell

if TYPE_CHECKING:
    from divebook.notebook.line_completion import CellWithCursor, Completions


# The assignment is optional: ``%dive ``, ``r = %dive ``, ``a, b[0] = %dive ``.
_LINE = re.compile(r"\s*(?:[\w.,\[\]\"' ]+=\s*)?%dive\s")
_CELL = re.compile(r"\s*%%dive\s")
_BODIES = ("workflow", "agent")
_TRY = "try"


class DiveMatcher:
    """Matcher of IPython's completer: it completes words in ``%dive`` lines and ``%%dive`` cells."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    @context_matcher(identifier="divebook")  # type: ignore[untyped-decorator]
    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return the completions of the word before the cursor; an empty result outside ``%dive`` and ``%%dive``."""
        from divebook.errors import StoreError

        try:
            result = self._completions(context)
        # A typing person must not see an error of the store.
        except StoreError:  # reported when the store is really used
            result = None
        completions = []
        # IPython replaces the fragment by the completion, so it must be the part that the matcher has completed.
        fragment = context.token
        if result is not None and result.candidates:
            completions = [SimpleCompletion(entry.text, type=entry.type) for entry in result.candidates]
            fragment = result.fragment
        # `suppress` hides all other matchers, which would offer Python names and files inside a line of words. Outside
        # ``%dive`` the list is empty, and an empty result suppresses nothing.
        return {"completions": completions, "suppress": True, "matched_fragment": fragment, "ordered": True}

    def _completions(self, context: CompletionContext) -> Completions | None:
        lines = context.full_text.split("\n")
        row = context.cursor_line
        column = context.cursor_position
        body = body_at(lines, row, column)
        if body is not None:
            return _in_cell(body)
        head = lines[row][:column]
        top = _top(lines)
        # The space at the end lets the pattern match ``%%dive`` without words.
        cell = _CELL.match(f"{lines[top]} ") if row == top else None
        if cell is not None:
            # Nothing is completed inside the word ``%%dive`` itself.
            return _first_line(head[cell.end() :], self._shell) if column >= cell.end() else None
        line = line_before(head)
        return None if line is None else _in_line(line, self._shell)


def _top(lines: Sequence[str]) -> int:
    """Return the index of the first line of a cell that is not blank; 0 if all are blank."""
    return next((number for number, line in enumerate(lines) if line.strip()), 0)


def body_at(lines: Sequence[str], row: int, column: int) -> CellWithCursor | None:
    """Return the body of a ``%%dive`` cell, divided at the cursor.

    None for cells without ``%%dive``, and if the cursor is in the first line.
    """
    top = _top(lines)
    cell = _CELL.match(f"{lines[top]} ") if row > top else None
    if cell is None:
        return None
    from divebook.notebook.line_completion import CellWithCursor

    # The option is searched for in the text and not parsed, because the line may be unfinished.
    first = lines[top][cell.end() :]
    words = first.split()
    return CellWithCursor(
        above="\n".join(lines[top + 1 : row]),
        head=lines[row][:column],
        tail=lines[row][column:],
        below="\n".join(lines[row + 1 :]),
        body=_kind_of_body(words[0] if words else ""),
        dialect="dive" if "--dialect dive" in first or "--dialect=dive" in first else "divebook",
    )


def _kind_of_body(word: str) -> str:
    """Return the kind of definition that a ``%%dive`` cell contains: ``step``, ``workflow``, ``agent`` or ``file``. The
    kind determines the keys that completion offers. `word` is the first word of the cell's first line.

    ``step`` is for ``%%dive try``, and ``file`` for a cell with several definitions.
    """
    if word == _TRY:
        return "step"
    return word if word in _BODIES else "file"


def line_before(head: str) -> str | None:
    """Return the text between ``%dive`` and the cursor; None for a line without ``%dive``."""
    line = _LINE.match(head)
    return None if line is None else head[line.end() :]


def install_completion(shell: InteractiveShell) -> None:
    """Add a `DiveMatcher` to the completer of a shell."""
    completer: Any = shell.Completer
    completer.custom_matchers.append(DiveMatcher(shell).match)


def remove_completion(shell: InteractiveShell) -> None:
    """Remove the `DiveMatcher` from the completer of a shell."""
    completer: Any = shell.Completer
    matchers = completer.custom_matchers
    # `entry` is a bound method; its ``__self__`` is the matcher.
    matchers[:] = [entry for entry in matchers if not isinstance(getattr(entry, "__self__", None), DiveMatcher)]


def _in_line(before: str, shell: InteractiveShell) -> Completions:
    from divebook.notebook.line_completion import KnownNames, complete
    from divebook.notebook.magics import COMMANDS

    return complete(before, COMMANDS, KnownNames(shell))


def _first_line(before: str, shell: InteractiveShell) -> Completions:
    """Return the completions of the word before the cursor if the cursor is in the first line of a ``%%dive`` cell."""
    from divebook.notebook.cells import DIALECTS
    from divebook.notebook.line_completion import Candidate, KnownNames, matching

    # ``%%dive try`` takes the same words and options as the line ``%dive try``.
    if before.lstrip().startswith(f"{_TRY} "):
        return _in_line(before, shell)
    names = KnownNames(shell)
    # Only the words before the cursor decide. The last part of the split is the unfinished word.
    *words, fragment = before.split(" ")
    previous = [word for word in words if word]
    is_option = fragment.startswith("-")
    # The first line is: %%dive [workflow|agent|script|try] [NAME] [--dialect DIALECT]
    if previous[-1:] == ["--dialect"]:
        return matching(fragment, (Candidate(name, "dialect") for name in DIALECTS))
    if not previous and not is_option:
        return matching(fragment, (Candidate(name, "command") for name in (*_BODIES, "script", _TRY)))
    # All words are complete: kind and name. Only the option is left.
    if len(previous) != 1 or is_option:
        return matching(fragment, [Candidate("--dialect", "option")])
    match previous[0]:
        case "workflow":
            candidates = [Candidate(name, "workflow") for name in names.workflows()]
        case "agent" | "script":
            candidates = [Candidate(name, "agent") for name in names.agents()]
        case _:
            candidates = []
    return matching(fragment, candidates)


def _in_cell(document: CellWithCursor) -> Completions:
    from divebook.notebook.line_completion import DefinedNames, complete_cell, present_environment

    environment = present_environment()
    # Before the first use of the session, only the names inside the cell are known.
    if environment is None:
        return complete_cell(document, DefinedNames())
    names = DefinedNames(tuple(environment.agents), tuple(environment.actions), tuple(environment.workflows))
    return complete_cell(document, names)


# --- Shift+Tab: the meaning of the key or sub-command under the cursor -----------------------------------------------
#
# A kernel answers for a place in a cell by asking IPython about the Python name there. Keys are not Python names, so
# the kernel's method is replaced; elsewhere in a cell the replacement calls the original.

_WORD = re.compile(r"\w*")


class HelpAtCursor:
    """Replacement of the kernel method ``do_inspect``, which answers Shift+Tab, with help for ``%dive``.

    Outside ``%dive`` and ``%%dive`` the original method answers.
    """

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original

    def __call__(self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Iterable[str] = ()) -> Any:
        """Return the reply to the message ``inspect_request`` by which a front end asks for help about the code at the
        cursor.
        """
        text = help_at(code, cursor_pos)
        if text is None:
            return self._original(code, cursor_pos, detail_level, omit_sections)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}


def install_inspection(shell: InteractiveShell) -> None:
    """Make a shell's kernel answer Shift+Tab with help for ``%dive``, by replacing its method ``do_inspect``. In a
    terminal, which has no kernel, nothing changes.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        # An attribute of the kernel object hides the method of its class, so that `remove_inspection` restores it by
        # deleting the attribute.
        kernel.do_inspect = HelpAtCursor(kernel.do_inspect)


def remove_inspection(shell: InteractiveShell) -> None:
    """Undo `install_inspection`: restore the original method ``do_inspect`` of a shell's kernel."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and isinstance(vars(kernel).get("do_inspect"), HelpAtCursor):
        del kernel.do_inspect


def help_at(code: str, cursor: int) -> str | None:
    """Return the help for the key or sub-command at an offset in a cell; None if the offset is at neither of them."""
    lines = code.split("\n")
    row = code.count("\n", 0, cursor)
    # The kernel passes the cursor as an offset in the whole cell.
    column = cursor - (code.rfind("\n", 0, cursor) + 1)
    body = body_at(lines, row, column)
    if body is not None:
        from divebook.notebook.line_completion import key_at
        from divebook.workflow.schema import help_for

        table_and_key = key_at(body)
        return None if table_and_key is None else help_for(*table_and_key)
    line = line_before(lines[row])
    if line is None:
        return None
    from divebook.notebook.magics import COMMANDS

    name = _WORD.match(line.lstrip())
    return COMMANDS[name[0]].whole_help if name and name[0] in COMMANDS else None
