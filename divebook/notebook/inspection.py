"""Shift+Tab in a cell: what the key of a definition, or the sub-command of ``%dive``, under the cursor means.

A kernel is asked about a place in a cell, and asks IPython about the name that stands there. Keys are no names of
Python, so that the kernel's own method is stood in for; elsewhere it answers as ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

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


def install(shell: InteractiveShell) -> None:
    """Have the kernel of a shell answer for keys; a shell in a terminal has none."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        kernel.do_inspect = HelpAtCursor(kernel.do_inspect)


def remove(shell: InteractiveShell) -> None:
    """Take away what `install` put there."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and isinstance(vars(kernel).get("do_inspect"), HelpAtCursor):
        del kernel.do_inspect


def told_at(code: str, cursor: int) -> str | None:
    """Return what is to be said of a place in a cell; None where that is for others to say."""
    from divebook.notebook.completion import body_at, line_before

    lines, row = code.split("\n"), code.count("\n", 0, cursor)
    column = cursor - (code.rfind("\n", 0, cursor) + 1)
    body = body_at(lines, row, column)
    if body is not None:
        from divebook.notebook.cell_completion import key_at
        from divebook.workflow.key_help import help_for

        found = key_at(body)
        return None if found is None else help_for(*found)
    line = line_before(lines[row])
    if line is None:
        return None
    from divebook.notebook.magics import COMMANDS

    name = _WORD.match(line.lstrip())
    return COMMANDS[name[0]].whole_help if name and name[0] in COMMANDS else None
