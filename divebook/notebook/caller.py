"""Which line of a cell called a magic: shown with an error where a cell has several lines."""

from __future__ import annotations

import sys
from typing import Any


def line_in_cell(shell: Any) -> tuple[int, str] | None:
    """Return the number and the text of the line that is being run; None where a cell has only one, or none is run."""
    number = _line_number(shell)
    history = getattr(shell, "history_manager", None)
    written = history.input_hist_raw[-1] if history is not None and history.input_hist_raw else ""
    lines = written.splitlines()
    if number is None or len(written.strip().splitlines()) < 2 or not 1 <= number <= len(lines):
        return None
    return number, lines[number - 1]


def _line_number(shell: Any) -> int | None:
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    frame = sys._getframe()  # noqa: SLF001 - the public way, inspect.stack, reads every source file
    while name_of is not None and frame is not None:
        if name_of(frame.f_code.co_filename) is not None:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None
