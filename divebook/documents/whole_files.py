"""Files that are replaced in one step: a reader finds the old one or the new one, and never half of it."""

from __future__ import annotations

import errno
import itertools
import tempfile
from contextlib import suppress
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
MOST_FOLDERS = 100
"""That are made for one file."""
_LONGEST = 100
"""Characters of a name that its draft has as well."""


def replace_whole(path: Path, text: str) -> None:
    """Write a file, for this user alone; what cannot be written leaves nothing behind."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name[:_LONGEST]}.", delete=False, encoding="utf-8", newline=""
    ) as file:
        draft = Path(file.name)
        try:
            file.write(text)
            file.flush()
            draft.chmod(FILE)
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise


def make_folders(folder: Path) -> None:
    """Make a folder, and those it is in, for this user alone; those that exist stay as they are."""
    missing = list(itertools.takewhile(lambda one: not one.is_dir(), (folder, *folder.parents)))
    if len(missing) > MOST_FOLDERS:
        raise OSError(errno.ENAMETOOLONG, f"it needs {len(missing)} new folders, more than {MOST_FOLDERS}")
    for one in reversed(missing):
        one.mkdir(FOLDER, exist_ok=True)
