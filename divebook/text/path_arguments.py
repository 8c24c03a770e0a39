"""Validation of path arguments, which callers pass as strings or path objects.

This is not part of `divebook.text.arguments`, because pure packages import that module and must not import `pathlib`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from divebook.errors import SetupError
from divebook.text.arguments import describe


def as_path(value: Any, name: str) -> Path:
    """Convert a string or path object to a `Path`. Raise `SetupError`, which contains `name`, for any other value."""
    if not isinstance(value, str | os.PathLike) or isinstance(value, type):
        raise SetupError(f"{name} must be a path, not {describe(value)}")
    return Path(value)
