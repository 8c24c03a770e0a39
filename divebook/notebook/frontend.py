"""What the front end that runs this cell can do, read off the request it sent."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TOLD_BY_VARIABLES = ("__vsc_ipynb_file__", "PAPERMILL_INPUT_PATH")


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The program that runs the present cell.

    Attributes
    ----------
    has_kernel
        Whether there is a kernel at all; a terminal has none.
    takes_input
        Whether somebody sits there: `input` works. Programs that run notebooks say that it does not.
    cell
        Which cell and notebook this is, as far as the front end says: ``cell``, ``notebook``, and ``source``, a digest
        of the cell's text; and ``kernel``, which runs it.
    count
        The number of the cell's execution; it tells this cell's output from others.
    """

    has_kernel: bool = False
    takes_input: bool = False
    cell: Mapping[str, str] | None = None
    count: int = 0

    @property
    def shows_widgets(self) -> bool:
        """Whether a live view is worth sending; programs that run notebooks would store it, and show nothing else."""
        return self.has_kernel and self.takes_input


def shows_widgets() -> bool:
    """Return whether the front end that runs the present code shows widgets; true outside of IPython, as in marimo."""
    from IPython import get_ipython

    shell = get_ipython()
    return shell is None or present_front_end(shell).shows_widgets


def present_front_end(shell: Any) -> FrontEnd:
    """Return the front end of the cell that is running in a shell."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return FrontEnd(takes_input=_is_terminal(shell), count=getattr(shell, "execution_count", 0))
    request = kernel.get_parent() or {}
    content = request.get("content") or {}
    source = str(content.get("code", ""))
    cell = {
        "cell": str((request.get("metadata") or {}).get("cellId", "")),
        "notebook": notebook_of(shell),
        "kernel": str(getattr(kernel, "ident", "")),
        "source": hashlib.sha256(source.strip().encode()).hexdigest()[:16],
    }
    return FrontEnd(
        has_kernel=True,
        takes_input=bool(content.get("allow_stdin", False)),
        cell=cell if source.strip() else None,
        count=shell.execution_count,
    )


def notebook_of(shell: Any) -> str:
    """Return the path of the notebook that a shell runs, as VS Code, papermill or Jupyter tell it; empty if none does.

    papermill tells it where it is asked to (``--inject-input-path``).
    """
    names = {} if shell is None else shell.user_ns
    told = next((str(names[name]) for name in _TOLD_BY_VARIABLES if names.get(name)), "")
    return told or os.environ.get("JPY_SESSION_NAME", "")


def _is_terminal(shell: Any) -> bool:
    """Whether a person types at a shell of IPython's own; others run cells for programs."""
    return hasattr(shell, "simple_prompt") and sys.stdin is not None and sys.stdin.isatty()
