"""Path arguments, which callers of the public API pass as strings or path objects, and advice about missing files.

The functions are not part of `divebook.text.arguments`, because pure packages import that module and must not import
`pathlib`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from divebook.errors import SetupError, nearest
from divebook.text.arguments import describe


def as_path(value: Any, name: str) -> Path:
    """Convert a string or path object to a `Path`. Raise `SetupError` for any other value; `name` names the argument in
    it.
    """
    if not isinstance(value, str | os.PathLike) or isinstance(value, type):
        raise SetupError(f"{name} must be a path, not {describe(value)}")
    return Path(value)


def similar_file(path: Path) -> str:
    """Return the text that a message about a missing file or folder ends with: the most similar name in its folder. It
    is empty if there is none.
    """
    try:
        entries = [*path.parent.iterdir()]
    except OSError:
        return ""
    # `flow.yaml` for `flow.yml`, else a similar name with the same suffix. Suffixes are not compared, since they would
    # make all files of one kind similar.
    names = {entry.stem: entry.name for entry in entries if path.stem == entry.stem or path.suffix == entry.suffix}
    stem = path.stem if path.stem in names else nearest(path.stem, names)
    return "" if stem is None else f" (did you mean {names[stem]!r}?)"
