"""Files that content entries name, alone or by a pattern."""

from __future__ import annotations

import re
from pathlib import Path

from divebook.documents.globs import alternatives, has_wildcards
from divebook.documents.policy import Policy
from divebook.errors import SetupError


def named_files(path: str, base_path: Path, policy: Policy) -> list[Path]:
    """Return the file that `path` names, or those that match if it is a pattern: sorted, maybe none.

    Raises
    ------
    SetupError
        One of them is not where the policy allows it, or cannot be looked for.
    """
    if not has_wildcards(path):
        policy.file(path, base_path)
        return [base_path / path]
    found = {file for pattern in alternatives(path) for file in _matching(pattern, base_path, policy)}
    root = base_path.resolve()
    visible = {file for file in found if not policy.why_protected(file.resolve(), root)}  # as a shell's ``*``
    for file in visible:
        policy.file(file, base_path)
    return sorted(visible)


def _matching(pattern: str, base_path: Path, policy: Policy) -> list[Path]:
    """Return the files that match; what a pattern begins with is checked before anything is looked for."""
    plain = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    policy.file(plain or ".", base_path)
    anchor = Path(pattern).anchor
    folder = Path(anchor) if anchor else base_path
    try:
        return [file for file in folder.glob(pattern[len(anchor) :]) if file.is_file()]
    except (ValueError, NotImplementedError, re.error) as error:
        raise SetupError(f"pattern {pattern!r} is not valid: {error}") from error
    except (OSError, RecursionError) as error:  # a folder that may not be read, or vanishes meanwhile
        raise SetupError(f"pattern {pattern!r} cannot be looked for: {error}; name a narrower one") from error
