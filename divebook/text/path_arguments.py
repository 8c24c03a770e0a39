"""Conversion of path arguments, which callers of the public API pass as strings or path objects.

The function is not part of `divebook.text.arguments`, because pure packages import that module and must not import
`pathlib`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from divebook.errors import SetupError
from divebook.text.arguments import describe


def as_path(value: Any, name: str) -> Path:
    """Convert a string or path object to a `Path`. Raise `SetupError` for any other value; `name` names the argument in
    it.
    """
    if not isinstance(value, str | os.PathLike) or isinstance(value, type):
        raise SetupError(f"{name} must be a path, not {describe(value)}")
    return Path(value)
