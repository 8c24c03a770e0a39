"""Which cell of a notebook some code stands in: kernels compile cells under file names that mean nothing to people."""

from __future__ import annotations

from typing import Any

from IPython import get_ipython

from divebook.execution.tracing import CodeCell

_IDS: dict[int, str] = {}
"""By the number of a cell's execution: the id that the front end has for the cell."""


def remember_cell(info: Any) -> None:
    """Note which cell is about to run; for IPython's event ``pre_run_cell``."""
    shell = get_ipython()
    if shell is not None and info.store_history and getattr(info, "cell_id", None):
        # its place among the inputs is its number: some versions of IPython have counted it by now
        _IDS[len(shell.history_manager.input_hist_raw)] = info.cell_id


def cell_of(file: str) -> CodeCell | None:
    """Return the cell that was compiled under a file name in this process, by the number of its last execution."""
    shell = get_ipython()
    known = getattr(getattr(shell, "compile", None), "_filename_map", {})  # there is no public way to ask for it
    number = known.get(file)
    if shell is None or number is None:
        return None
    written = shell.history_manager.input_hist_raw[number : number + 1]
    text = written[0] if written else ""
    above = text[: len(text) - len(text.lstrip())].count("\n")
    return CodeCell(f"Cell [{number}]", above, _IDS.get(number, ""))
