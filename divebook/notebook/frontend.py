"""Properties of the front end that runs the current cell, and the identity of the cell, read from the request to the
kernel.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    cell
        Identity of the cell: its id (``cell``) and the path of its ``notebook`` as far as the front end states them,
        ``source``, a digest of its text, and ``kernel``, the id of the kernel. None for an empty cell, and in a
        terminal.
    count
        Number of the cell's execution. It distinguishes the output of this cell from others.
    """

    has_kernel: bool = False
    takes_input: bool = False
    cell: Mapping[str, str] | None = None
    count: int = 0

    @property
    def shows_widgets(self) -> bool:
        """True if the front end shows live views (widgets).

        Programs that run notebooks would store the view but not show it.
        """
        # Programs that run notebooks have a kernel as well, but they do not accept `input`.
        return self.has_kernel and self.takes_input


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


def _is_terminal(shell: Any) -> bool:
    """Return whether a shell is IPython's terminal shell with a person who can type. Programs that run cells use other
    shells.
    """
    # `sys.stdin` is None in programs without a console.
    return hasattr(shell, "simple_prompt") and sys.stdin is not None and sys.stdin.isatty()
