"""Files and folders that only this user can access, and the replacement of files in one step.

A reader sees the old or the new content of a replaced file, never a part of it. The new content is written to a draft,
a hidden file beside it, which is then renamed:

    operation                                    after a kill here
    1. write the draft ``.state.json.k3x1abcd``  the old file, and a draft that is never read
    2. if durable, wait until it is on disk      the same, also after a power cut
    3. rename the draft to ``state.json``        the new file

`divebook.workspaces.files` and `divebook.workspaces.snapshots.restore` write files in folders that other programs
change at the same time. They do the same relative to an open folder, so that no link can lead them elsewhere.
"""

from __future__ import annotations

import errno
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

FILE = 0o600
FOLDER = 0o700
MOST_FOLDERS = 100
"""Maximum number of folders that are created for one file."""
_LONGEST = 100
"""Maximum number of bytes of a file name that the name of its draft repeats."""


@contextmanager
def replacement(path: Path, *, is_durable: bool = False) -> Iterator[BinaryIO]:
    """Yield a stream for the new content of a file, which replaces the old content when the ``with`` block ends. If the
    block raises, the file is unchanged.

    Parameters
    ----------
    is_durable
        True to wait until the content is on disk, so that a power cut leaves either the old file or the new one.
    """
    with _draft(path) as (draft, stream):
        yield stream
        _complete(stream, is_durable=is_durable)
        # Some file systems report a failed write only when the file is closed.
        stream.close()
        draft.replace(path)


def replace_whole(path: Path, content: str | bytes, *, is_durable: bool = False) -> None:
    """Write a file, replacing an existing file in one step. A string is stored as UTF-8. `is_durable` as in
    `replacement`.
    """
    # Encoded here: the text mode of a stream could change the line ends.
    with replacement(path, is_durable=is_durable) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)


def create_whole(path: Path, content: bytes) -> bool:
    """Create a file in one step. Return False, and leave the file unchanged, if it exists already."""
    with _draft(path) as (draft, stream):
        stream.write(content)
        _complete(stream, is_durable=False)
        try:
            # Unlike a rename, a link never replaces a file, so that the first of several processes wins.
            path.hardlink_to(draft)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
    return True


@contextmanager
def _draft(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield the path of a new file beside `path`, and a stream to it. If the block raises, the file is deleted."""
    # In the same folder, because a rename is atomic only within one file system.
    name = path.name.encode("utf-8", "ignore")[:_LONGEST].decode("utf-8", "ignore")
    descriptor, text = tempfile.mkstemp(dir=path.parent, prefix=f".{name}.")
    draft = Path(text)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield draft, stream
    # Also for an interrupt by Ctrl-C. The error of the clean-up must not hide the first one.
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _complete(stream: BinaryIO, *, is_durable: bool) -> None:
    stream.flush()
    # Set before the file gets its name, so that no other user can open it in between. Under an unusual umask, `mkstemp`
    # leaves fewer rights.
    os.fchmod(stream.fileno(), FILE)
    if is_durable:
        os.fsync(stream.fileno())


def make_folders(folder: Path) -> None:
    """Create a folder and its missing parents, accessible to this user only. Existing folders are not changed."""
    # The missing folders, the deepest first. `Path.mkdir` with `parents` would create them with the default mode.
    missing = list(itertools.takewhile(lambda parent: not parent.is_dir(), (folder, *folder.parents)))
    # A path of a definition may consist of thousands of folders.
    if len(missing) > MOST_FOLDERS:
        raise OSError(
            errno.ENAMETOOLONG, f"the path needs {len(missing)} new folders, more than the limit of {MOST_FOLDERS}"
        )
    # `exist_ok`: another run may have created the folder since.
    for parent in reversed(missing):
        parent.mkdir(FOLDER, exist_ok=True)
