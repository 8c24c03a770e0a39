"""Warnings that name the line of the user, however many functions of divebook are between that line and the warning."""

from __future__ import annotations

import inspect
import os
import warnings
from pathlib import Path

_OURS = str(Path(__file__).parents[1]) + os.sep
_BETWEEN = tuple(f"{os.sep}{package}{os.sep}" for package in ("IPython", "ipykernel", "asyncio", "concurrent"))
"""Packages that call divebook for the line of a user: magics and event loops."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest line outside divebook, which is that of the user.

    A fixed `stacklevel` would name a line of divebook as soon as another function of it calls the one that warns.
    """
    frame = inspect.currentframe()
    level = 1
    while frame is not None and frame.f_back is not None and _is_between(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _is_between(file: str) -> bool:
    return file.startswith(_OURS) or any(package in file for package in _BETWEEN)
