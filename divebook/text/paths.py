"""Paths that callers pass, as strings or path objects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from divebook.errors import SetupError
from divebook.text.arguments import describe


def as_path(value: Any, name: str) -> Path:
    """Return a path that is given as a string or path; `SetupError` if it is something else."""
    if not isinstance(value, str | os.PathLike) or isinstance(value, type):
        raise SetupError(f"{name} must be a path, not {describe(value)}")
    return Path(value)
