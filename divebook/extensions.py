"""What lower packages take from higher ones: places named by the package's face, loaded when first asked for.

`divebook/__init__.py`, which sees every package, fills the table; no package imports what stands above it.
"""

from __future__ import annotations

import importlib
from typing import Any

ENVELOPE = "envelope"
"""Function from the state of an execution, and its workflow, to its envelope."""
CODE_CELLS = "code cells"
"""Function that runs code cells of a notebook, and returns what they have defined."""
CELL_OF_CODE = "cell of code"
"""Function from the file name of compiled code to the cell of a notebook that it stands in, or None."""
FRAMES = "frames"
"""Function that makes a DataFrame: from which one (``events``, ``steps`` ...) and what it is of."""
INSPECT = "inspect"
"""Function that says what the run of a log waited for and spent."""
WHY = "why"
"""Function that says where a value came from: from a log, a name and an event."""
COMPARED = "compared"
"""Function that makes a DataFrame of runs that are laid side by side."""
REPLAY = "replay"
"""Function from an execution to what stands at an event of its log."""
VERIFY = "verify"
"""Function that drives a definition against the log of an execution."""
PAGE = "page"
"""Function that writes an execution as a page that shows it."""
NOTEBOOK = "notebook"
"""Function that writes an execution as a notebook that tells of it."""
KEEP = "keep"
"""Function that writes the definition that a trial has made into a cell, or a file."""
RUN = "run"
"""Class `divebook.Run`: handle of an execution and its environment, with a display."""
DISPLAY_ROWS = "display rows"
"""Function that displays a `divebook.mapping.MappedRows` in a cell."""
STEP_TYPES = "step types"
"""Function that adds types of step to an `Environment`, with `Environment.add_step_type`."""

_PLACES: dict[str, str] = {}


def extend(point: str, place: str) -> None:
    """Let ``"module:name"`` serve a point."""
    _PLACES[point] = place


def extension(point: str) -> Any:
    """Return what serves a point; its module is loaded now."""
    module, _, name = _PLACES[point].partition(":")
    return getattr(importlib.import_module(module), name)
