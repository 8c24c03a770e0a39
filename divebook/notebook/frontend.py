"""What the front end that runs this cell can do, read off the request it sent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Whoever runs the present cell.

    Attributes
    ----------
    has_kernel
        Whether there is a kernel at all; a terminal has none.
    takes_input
        Whether somebody sits there: `input` works. Programs that run notebooks say that it does not.
    cell
        Which cell and notebook this is, as far as the front end says: ``cell``, ``notebook``, and ``source``, a digest
        of the cell's text.
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
    """Return whether whoever runs the present code shows widgets; true outside of IPython, as in marimo."""
    from IPython import get_ipython

    shell = get_ipython()
    return shell is None or present_front_end(shell).shows_widgets


def present_front_end(shell: Any) -> FrontEnd:
    """Return the front end of the cell that is running in a shell."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return FrontEnd(count=getattr(shell, "execution_count", 0))
    request = kernel.get_parent() or {}
    content = request.get("content") or {}
    source = str(content.get("code", ""))
    cell = {
        "cell": str((request.get("metadata") or {}).get("cellId", "")),
        "notebook": os.environ.get("JPY_SESSION_NAME", ""),
        "source": hashlib.sha256(source.strip().encode()).hexdigest()[:16],
    }
    return FrontEnd(
        has_kernel=True,
        takes_input=bool(content.get("allow_stdin", False)),
        cell=cell if source.strip() else None,
        count=shell.execution_count,
    )
