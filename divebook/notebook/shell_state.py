"""State of the IPython shell: variables of the user, the running line, and the cell that contains a piece of code.

The module imports little, because ``%load_ext divebook`` imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from IPython import get_ipython

from divebook.runtime.errors import CodeCell

_NOTHING = object()
# Entries are never removed: a traceback may name any cell of the session.
_IDS: dict[int, str] = {}
"""Cell id of the front end by the execution count of the cell."""


def user_variables(shell: Any) -> Iterator[str]:
    """Yield the names of the variables that the user has defined in a shell, the newest last.

    Variables of IPython, such as ``In`` and ``exit``, are omitted.
    """
    # IPython records its own variables here with their original values.
    hidden = shell.user_ns_hidden
    for name, value in shell.user_ns.items():
        # A name of IPython that the user has assigned has another value now, and belongs to the user.
        if not name.startswith("_") and value is not hidden.get(name, _NOTHING):
            yield name


def line_in_cell(shell: Any) -> tuple[int, str] | None:
    """Return number and text of the line that is running in the current cell, for error messages.

    None if the cell has only one line, or if no cell runs. Errors then name the line only in cells with several lines.
    """
    number = _line_number(shell)
    history = getattr(shell, "history_manager", None)
    # `line_in_cell` is called while the cell runs, so the cell is the last input.
    source = history.input_hist_raw[-1] if history is not None and history.input_hist_raw else ""
    lines = source.splitlines()
    if number is None or len(source.strip().splitlines()) < 2 or not 1 <= number <= len(lines):
        return None
    return number, lines[number - 1]


def _line_number(shell: Any) -> int | None:
    """Return the number of the cell line that is running: that of the innermost Python frame whose code is in a cell.
    None if the stack has no such frame.
    """
    # IPython gives each cell a file name of its own, and `format_code_name` returns None for all other names.
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    frame = sys._getframe()  # noqa: SLF001 - the public way, inspect.stack, reads every source file
    while name_of is not None and frame is not None:
        if name_of(frame.f_code.co_filename) is not None:
            # The innermost frame comes first: a line of a function in a cell counts, not the line that called it.
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def remember_cell(info: Any) -> None:
    """Remember the id of the cell that is about to run, so that `cell_of` can provide it later.

    Registered for IPython's event ``pre_run_cell``.
    """
    shell = get_ipython()
    # Code that runs without history has no number.
    if shell is not None and info.store_history and getattr(info, "cell_id", None):
        # The position among the inputs is the cell's number: some versions of IPython have counted it by now.
        _IDS[len(shell.history_manager.input_hist_raw)] = info.cell_id


def cell_of(file: str) -> CodeCell | None:
    """Return the cell that belongs to the name of a code file, such as one in a traceback. The kernel creates such a
    name for each cell that it compiles. Return None if the name does not belong to a cell.

    Such file names mean nothing to people.
    """
    shell = get_ipython()
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})  # IPython has no public access to it
    number = numbers.get(file)
    if shell is None or number is None:
        return None
    # A slice, because the history may be shorter than the number, for example after ``%reset``.
    sources = shell.history_manager.input_hist_raw[number : number + 1]
    text = sources[0] if sources else ""
    # IPython removes the blank lines above a cell before it compiles the cell. Line numbers of the person include them.
    above = text[: len(text) - len(text.lstrip())].count("\n")
    return CodeCell(f"Cell [{number}]", above, _IDS.get(number, ""))
