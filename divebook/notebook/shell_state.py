"""State of the IPython shell: variables of the user, the running line, the cell that contains a piece of code, and the
front end that runs the current cell.

The module imports little, because ``%load_ext divebook`` imports it.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from IPython import get_ipython

from divebook.runtime.errors import CodeCell

_NOTHING = object()
_MAGIC_CALLS = ("get_ipython().run_line_magic", "get_ipython().run_cell_magic")
"""Functions whose calls IPython writes in place of magics."""
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
    # The innermost frame of a cell counts: a line of a function in a cell, not the line that called it.
    frame = _frame_in_cell(shell)
    number = None if frame is None else frame.f_lineno
    history = getattr(shell, "history_manager", None)
    # `line_in_cell` is called while the cell runs, so the cell is the last input.
    source = history.input_hist_raw[-1] if history is not None and history.input_hist_raw else ""
    lines = source.splitlines()
    if number is None or len(source.strip().splitlines()) < 2 or not 1 <= number <= len(lines):
        return None
    return number, lines[number - 1]


def assigned_name(shell: Any) -> str:
    """Return the name of the variable to which the running statement of a cell assigns the value of a magic: ``r`` for
    ``r = %dive run triage``. Return an empty string for any other statement.
    """
    frame = _frame_in_cell(shell)
    # Only a statement of the cell itself assigns a variable of the user, and only if its value is the call alone.
    if frame is None or frame.f_globals is not shell.user_ns or frame.f_locals is not frame.f_globals:
        return ""
    try:
        cell = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except SyntaxError:  # IPython allows ``await`` and more outside of functions
        return ""
    for statement in ast.walk(cell):
        if isinstance(statement, ast.Assign) and statement.lineno <= frame.f_lineno <= (statement.end_lineno or 0):
            value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
            is_magic = isinstance(value, ast.Call) and ast.unparse(value.func) in _MAGIC_CALLS
            target, *further = statement.targets
            if is_magic and isinstance(target, ast.Name) and not further:
                return target.id
    return ""


def _frame_in_cell(shell: Any) -> FrameType | None:
    """Return the innermost Python frame whose code is in a cell. None if the stack has no such frame."""
    # IPython gives each cell a file name of its own, and `format_code_name` returns None for all other names.
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the public way, inspect.stack, reads every source file
    while frame is not None:
        if name_of is not None and name_of(frame.f_code.co_filename) is not None:
            return frame
        frame = frame.f_back
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


# --- the front end of the current cell -------------------------------------------------------------------------------

# Properties of the front end that runs the current cell, and the identity of the cell, read from the request to the
# kernel.


_PATH_VARIABLES = ("__vsc_ipynb_file__", "PAPERMILL_INPUT_PATH")


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Front end that runs the current cell: JupyterLab, VS Code, a terminal, papermill, ...

    Attributes
    ----------
    has_kernel
        Whether there is a kernel at all; a terminal has none.
    takes_input
        Whether a person can answer `input`. Programs that run notebooks state that `input` does not work.
    has_page
        Whether a Jupyter server has started the kernel, so that pages can show the notebook although the cell does not
        take input: jupyter-server-documents runs the cells of a page on the server, which cannot ask.
    cell
        Identity of the cell: its id (``cell``) and the path of its ``notebook`` as far as the front end states them,
        ``source``, a digest of its text, and ``kernel``, the id of the kernel. None for an empty cell, and in a
        terminal.
    count
        Number of the cell's execution. It distinguishes the output of this cell from others.
    """

    has_kernel: bool = False
    takes_input: bool = False
    has_page: bool = False
    cell: Mapping[str, str] | None = None
    count: int = 0

    @property
    def shows_widgets(self) -> bool:
        """True if the front end shows live views (widgets).

        Programs that run notebooks would store the view but not show it.
        """
        # Programs that run notebooks have a kernel as well, but they do not accept `input`, and start it themselves.
        return self.has_kernel and (self.takes_input or self.has_page)


def shows_widgets() -> bool:
    """Return whether the front end that runs the current code can show live widgets; True outside IPython, as in
    marimo.
    """
    from IPython import get_ipython

    shell = get_ipython()
    # Outside IPython the front end is unknown. marimo, which displays widgets itself, is such a front end.
    return shell is None or present_front_end(shell).shows_widgets


def present_front_end(shell: Any) -> FrontEnd:
    """Return the front end that runs the current cell of a shell."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        # Without a kernel, no request describes the cell.
        return FrontEnd(takes_input=_is_terminal(shell), count=getattr(shell, "execution_count", 0))
    # The message that asked the kernel to run the cell. JupyterLab and VS Code put the id of the cell into it.
    request = kernel.get_parent() or {}
    content = request.get("content") or {}
    source = str(content.get("code", ""))
    cell = {
        "cell": str((request.get("metadata") or {}).get("cellId", "")),
        "notebook": notebook_of(shell),
        # Each start of a kernel has another id.
        "kernel": str(getattr(kernel, "ident", "")),
        # Sixteen hexadecimal digits are 64 bits, which is enough to tell the cells of a notebook apart. White space
        # around the text does not count.
        "source": hashlib.sha256(source.strip().encode()).hexdigest()[:16],
    }
    return FrontEnd(
        has_kernel=True,
        takes_input=bool(content.get("allow_stdin", False)),
        has_page=_is_of_server(kernel),
        # All requests without code would have the same digest.
        cell=cell if source.strip() else None,
        count=shell.execution_count,
    )


def notebook_of(shell: Any) -> str:
    """Return the path of the notebook that a shell runs, as VS Code, papermill or Jupyter provide it; empty if it is
    unknown.

    papermill provides it only with ``--inject-input-path``.
    """
    # VS Code and papermill set a variable in the kernel, Jupyter an environment variable.
    variables = {} if shell is None else shell.user_ns
    for name in _PATH_VARIABLES:
        if variables.get(name):
            return str(variables[name])
    return os.environ.get("JPY_SESSION_NAME", "")


def _is_of_server(kernel: Any) -> bool:
    """Return whether a Jupyter server has started a kernel for one of its notebooks."""
    # A program that a cell starts, such as ``!jupyter execute``, inherits the first variable. Its own kernel gets the
    # second one from it, and no such program has the file that a server writes beside its kernels' connection files.
    parent = os.environ.get("JPY_PARENT_PID", "")
    connection_file = getattr(kernel.parent, "abs_connection_file", "")
    if "JPY_SESSION_NAME" not in os.environ or not parent or not connection_file:
        return False
    return Path(connection_file).with_name(f"jpserver-{parent}.json").exists()


def _is_terminal(shell: Any) -> bool:
    """Return whether a shell is IPython's terminal shell with a person who can type. Programs that run cells use other
    shells.
    """
    # `sys.stdin` is None in programs without a console.
    return hasattr(shell, "simple_prompt") and sys.stdin is not None and sys.stdin.isatty()
