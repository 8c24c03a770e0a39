"""Writing of trees of files into folders, with or without a journal that lets an interrupted write be undone, and the
rules for protected paths.

`put_back` changes a folder of divebook file by file: each file is replaced in one step, and an interruption leaves a
mixture of both trees, which the next restore repairs. `FolderWriter` changes a folder of the user: all files or none,
also after a kill.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from divebook.documents.policy import canonical_name, is_repository, marks_in, marks_named, why_protected_name
from divebook.errors import PathNotAllowedError, SnapshotError
from divebook.text.format import plural
from divebook.workspaces.locks import lock
from divebook.workspaces.paths import CLOEXEC, DIRECTORY, NOFOLLOW, PATH_ONLY, Root
from divebook.workspaces.snapshots.tree import FILE, FOLDER, LINK, TreeEntries, TreeEntry, shown_path

GetContent: TypeAlias = Callable[[str], bytes]
"""Callback that returns the content of a file by its SHA-256 in hexadecimal."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC
_OPEN_FOLDER = 0o700
_READ_AND_ENTER = 0o500
_CAP_DAC_OVERRIDE = 1 << 1


# --- journaled writes into a folder of the user: all files are old or all are new, also after a kill or a power cut ---
#
# Example: a write changes ``a`` and creates ``b``.
#
#     operation                                         after a kill here, the next write into the folder
#     1. stage ``new0``, ``new1`` and link ``old0``     removes the journal folder: nothing was changed
#        in `JOURNAL_FOLDER`
#     2. write the journal with the list of steps       undoes no step, removes the journal folder
#     3. rename ``new0`` to ``a``                       renames ``old0`` to ``a``: the old file is back
#     4. rename ``new1`` to ``b``                       removes ``b``, renames ``old0`` to ``a``
#     5. unlink the journal                             removes the journal folder: the new files stay
#     6. remove the journal folder                      -
#
# Each single file is the old or the new one at any moment, since it is exchanged by one rename. Step 5 decides about
# the write as a whole: before it the old state wins, after it the new one. A write that fails undoes its steps itself.
# A file that a person has changed after a kill is not touched.
#
# `tests/workspace/write_kills.py` kills a write before each of its file operations.


LOCK_PATIENCE = 30.0
"""Seconds to wait while another process writes into the same folder."""
_JOURNAL = "journal"
_FOLDER_FLAGS = os.O_RDONLY | DIRECTORY | NOFOLLOW
# Modes as `open` and `mkdir` take them, before the umask removes bits.
_NEW_FILE_MODE = 0o666
_NEW_FOLDER_MODE = 0o777
_PARENT_MODE = 0o755
_OWNER_ALL = 0o700
# Errors of ``flock`` on file systems that cannot lock a folder.
_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_FOLDER_IN_USE = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY)
"""Errors of ``rmdir`` for which a folder stays: it contains other files, or a file system is mounted there."""
# Errors of ``link`` for which the old file is copied: links are not supported or not allowed, or there are too many.
_NO_HARD_LINKS = (errno.EPERM, errno.EACCES, errno.EXDEV, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)


class _Step(NamedTuple):
    """One step of a journaled write: a path with its tree entry before and after the step. None stands for a path that
    does not exist.
    """

    path: str
    before: TreeEntry | None
    after: TreeEntry | None


class FolderWriter:
    """Writer of files into one locked folder. Each write is made as a whole or not at all. Created by
    `folder_writer`.
    """

    def __init__(self, root: Root) -> None:
        self._root = root

    def write(
        self, targets: Mapping[str, TreeEntry | None], get: Callable[[str], bytes], *, is_exact: bool = False
    ) -> None:
        """Write, replace or remove the files at several paths of the folder: all of them, or none.

        Parameters
        ----------
        targets
            New entries by path; None removes the path. A folder that contains other files is not removed.
        get
            Returns the content of a file by its digest.
        is_exact
            Whether files and folders get the modes and times of their entries. Otherwise a file keeps its mode, except
            for whether it is executable.

        Raises
        ------
        SnapshotError
            A file cannot be written; the folder is unchanged.
        """
        # Nothing is changed before `commit`. Each later error undoes the steps that were made.
        steps = _steps_of(self._root, targets, is_exact=is_exact)
        if not steps:
            return
        with _path_in_errors(self._root, JOURNAL_FOLDER):
            journal = _Journal.new(self._root)
        try:
            # Copy everything that is needed into the journal folder. The files of the folder are still unchanged.
            states = [journal.stage(number, step, get, is_exact=is_exact) for number, step in enumerate(steps)]
            # From here on, a kill leaves a journal from which the next writer undoes the steps.
            journal.commit(steps)
            # After `commit`, since only a committed journal lets the next writer restore the modes after a kill.
            if is_exact:
                _unlock_folders(self._root, steps)
            for number, step in enumerate(steps):
                with _path_in_errors(self._root, step.path):
                    journal.make_step(number, step, states[number])
            if is_exact:
                _set_folder_modes(self._root, {step.path: step.after or step.before for step in steps})
            # The commit point: as long as the journal exists, the next call undoes the write.
            _unlink_journal(self._root)
        except BaseException as error:
            journal.undo(steps)
            if isinstance(error, OSError):
                raise SnapshotError(
                    f"{self._root.path} cannot be written: {error.strerror or error}; nothing was changed"
                ) from error
            raise
        finally:
            journal.close()
        with suppress(OSError):  # without a journal the folder has no effect, and the next write removes it
            shutil.rmtree(JOURNAL_FOLDER, dir_fd=self._root.fd)


@contextmanager
def folder_writer(root: Root) -> Iterator[FolderWriter]:
    """Lock a folder during the ``with`` block and yield its writer. First undo the write of an earlier process that was
    killed before it had finished.

    Raises
    ------
    SnapshotError
        Another process writes into the folder, it cannot be read, or the earlier write cannot be undone.
    """
    with _path_in_errors(root, "."):  # also covers what the caller reads before it writes
        folder = root.open_file(".", _FOLDER_FLAGS)
        try:
            # The lock first: without it, the journal may belong to a write that is still running.
            _lock(folder, root.path)
            _recover(root)
            yield FolderWriter(root)
        finally:
            os.close(folder)  # releases the lock


def _lock(folder: int, path: str) -> None:
    try:
        is_locked = lock(folder, LOCK_PATIENCE)
    except OSError as error:
        if error.errno not in _NO_LOCKS:  # some network file systems cannot lock a folder: one writer is assumed
            raise
        return
    if not is_locked:
        raise SnapshotError(f"another process is writing into {path}; try again when that process has finished")


READ_FOLDER = os.R_OK | os.X_OK
CHANGE_FOLDER = READ_FOLDER | os.W_OK


def require_open_folders(root: Root, paths: Iterable[str], permission: int) -> None:
    """Raise `SnapshotError` if this process lacks a permission, such as `CHANGE_FOLDER`, for a folder that contains one
    of the paths. The error names the folder.
    """
    # Outer folders first: the entries of a closed folder cannot be examined.
    for parent in sorted({parent for path in paths for parent in _parents(path)}):
        try:
            with root.parent(parent) as (folder, name):
                if not _is_folder(name, folder) or os.access(name, permission, dir_fd=folder, effective_ids=True):
                    continue
                mode = os.stat(name, dir_fd=folder).st_mode & 0o7777
        except (FileNotFoundError, NotADirectoryError):
            continue
        raise SnapshotError(
            f"the files in {root.path}/{shown_path(parent)} cannot be read or written, because the folder has the mode "
            f"{mode:03o}; nothing was changed. Run `chmod u+rwx` for this folder, and try again"
        )


def present_entry(root: Root, path: str) -> TreeEntry | None:
    """Return the tree entry of a path as it is on the disk now. For a file, it includes the SHA-256 of the content.
    Return None if the path does not exist.
    """
    try:
        with root.parent(path) as (folder, name):
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(state.st_mode):
                return TreeEntry(LINK, content=os.readlink(name, dir_fd=folder))
        if stat.S_ISDIR(state.st_mode):
            return TreeEntry(FOLDER, state.st_mode & 0o7777)
        with open(root.open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return TreeEntry(FILE, state.st_mode & 0o7777, sha256(content).hexdigest(), len(content))


def same_content(one: TreeEntry | None, other: TreeEntry | None) -> bool:
    """Return True if two tree entries have the same kind and content, or are both None. Their modes are not
    compared.
    """
    if one is None or other is None:
        return one is None and other is None
    return one.kind == other.kind and one.content == other.content


def _state(root: Root, path: str) -> tuple[os.stat_result | None, TreeEntry | None]:
    """Return the result of `os.stat` for a path, and its tree entry without content. Return two None if the path does
    not exist.
    """
    try:
        with root.parent(path) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    mode = status.st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
        raise PathNotAllowedError(path, "not a regular file, folder or link")
    kind = FILE
    if stat.S_ISLNK(mode):
        kind = LINK
    elif stat.S_ISDIR(mode):
        kind = FOLDER
    return status, TreeEntry(kind, mode & 0o7777)


def _steps_of(root: Root, targets: Mapping[str, TreeEntry | None], *, is_exact: bool) -> list[_Step]:
    """Return the steps of a planned write into a folder, in the order in which they must be made. `targets` has the new
    entry of each path.

    First go entries in the way of a new file or link, then everything is created (a folder before its files), then the
    rest is removed (a folder after its files). So a renamed file is never missing under both of its names.

    Missing folders are added as steps. With `is_exact`, so are read-only folders of changed files, which get their mode
    back at the end.
    """
    entries = dict(targets)
    # Missing parent folders become steps of their own, so that `undo` removes them again.
    for path, entry in targets.items():
        names = path.split("/")[:-1]
        if entry is not None:
            for depth in range(1, len(names) + 1):
                parent = "/".join(names[:depth])
                if parent not in entries and _state(root, parent)[1] is None:
                    entries[parent] = TreeEntry(FOLDER, _PARENT_MODE)
        # A read-only parent becomes a step without a change: it is unlocked, and gets its mode back at the end.
        parent = "/".join(names)
        if is_exact and parent and parent not in entries:
            locked = _state(root, parent)[1]
            if locked is not None and locked.kind == FOLDER and locked.mode & _OWNER_ALL != _OWNER_ALL:
                entries[parent] = locked
    not_folders = {path for path, entry in entries.items() if entry is not None and entry.kind != FOLDER}

    # Sort key (phase, depth, path). Phase 0 removes entries in the way, 1 creates, 2 removes the rest. Removals go from
    # the deepest path upwards. A created folder sorts before its content, since its path is the beginning of theirs.
    def order(step: _Step) -> tuple[int, int, str]:
        names = step.path.split("/")
        if step.after is not None:
            return 1, 0, step.path
        is_in_the_way = any("/".join(names[:depth]) in not_folders for depth in range(1, len(names)))
        return 0 if is_in_the_way else 2, -len(names), step.path

    steps = [_Step(path, _state(root, path)[1], entry) for path, entry in entries.items()]
    # The removal of a path that does not exist needs no step.
    return sorted((step for step in steps if step.before is not None or step.after is not None), key=order)


class _Journal:
    """The journal folder of one write into a folder. It contains the new files, links to the old files and the list of
    steps, so that an interrupted write can be undone.
    """

    def __init__(self, root: Root, folder: int) -> None:
        self._root = root
        self._folder = folder

    @classmethod
    def new(cls, root: Root) -> _Journal:
        os.mkdir(JOURNAL_FOLDER, _OWNER_ALL, dir_fd=root.fd)
        return cls(root, os.open(JOURNAL_FOLDER, _FOLDER_FLAGS | os.O_CLOEXEC, dir_fd=root.fd))

    def close(self) -> None:
        os.close(self._folder)

    def identity(self) -> list[int]:
        """Return the inode numbers of the target folder and of the journal folder. They are stored in the journal, so
        that a journal that was copied to another folder is detected.

        Without this check, a cloned repository or an archive could contain a journal whose undoing writes arbitrary
        files.
        """
        return [os.fstat(self._root.fd).st_ino, os.fstat(self._folder).st_ino]

    def stage(self, number: int, step: _Step, get: Callable[[str], bytes], *, is_exact: bool) -> os.stat_result | None:
        """Prepare a step of the write: create its new file in the journal folder, and link the old file there.

        Return the status of the old file.
        """
        before = step.before
        after = step.after
        if after is not None and after.kind == LINK:
            os.symlink(after.content, f"new{number}", dir_fd=self._folder)
        elif after is not None and after.kind == FILE:
            descriptor = os.open(f"new{number}", _NEW, _NEW_FILE_MODE, dir_fd=self._folder)
            with open(descriptor, "wb") as file:
                file.write(get(after.content))
                file.flush()
                old = before if before is not None and before.kind == FILE else None
                old_mode = os.fstat(descriptor).st_mode & 0o7777 if old is None else old.mode
                os.fchmod(descriptor, after.mode if is_exact else _with_execution(old_mode, after))
                if is_exact:
                    os.utime(descriptor, ns=(after.mtime, after.mtime))
                # One fsync for each file. A `sync` for all would also flush the old files, which are soon removed, and
                # took five times as long for 4,000 files.
                os.fsync(descriptor)
        # `make_step` compares the status, so that a change of the old file between the two is detected.
        state = None
        if before is not None and before.kind != FOLDER:
            with self._root.parent(step.path) as (folder, name):
                state = os.stat(name, dir_fd=folder, follow_symlinks=False)
                self._keep(number, folder, name, state)
        return state

    def _keep(self, number: int, folder: int, name: str, state: os.stat_result) -> None:
        """Store an old file in the journal folder, so that the write can be undone: as a hard link, or as a copy if the
        file system has no hard links.
        """
        old = f"old{number}"
        try:
            os.link(name, old, src_dir_fd=folder, dst_dir_fd=self._folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            _copy(name, folder, old, self._folder, state)

    def commit(self, steps: Sequence[_Step]) -> None:
        """Write the list of steps into the journal. If this process is killed afterwards, the next write into the
        folder first undoes this one.
        """
        record = {"identity": self.identity(), "steps": steps}
        descriptor = os.open(f"{_JOURNAL}.new", _NEW, 0o600, dir_fd=self._folder)
        with open(descriptor, "wb") as file:
            file.write(json.dumps(record).encode())
            file.flush()
            os.fsync(descriptor)
        # The journal appears complete or not at all, and is on the disk before the first step.
        os.rename(f"{_JOURNAL}.new", _JOURNAL, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)

    def make_step(self, number: int, step: _Step, state: os.stat_result | None) -> None:
        """Make one prepared step of the write in the target folder. Raise an error if the path has changed since
        `stage` prepared the step.
        """
        before = step.before
        after = step.after
        with self._root.parent(step.path) as (folder, name):
            # Refuse to overwrite a change that was made after `stage`.
            if state is not None and not _is_unchanged(state, name, folder):
                raise SnapshotError(f"{shown_path(step.path)} has changed in the meantime; nothing was written")
            if before is None and after is not None and _has(folder, name):
                raise SnapshotError(f"{shown_path(step.path)} was created in the meantime; nothing was written")
            if before is not None and before.kind == FOLDER and (after is None or after.kind != FOLDER):
                # A removed folder may contain files that no tree lists, and then stays. One that is replaced by a file
                # must be empty.
                _remove_folder(name, folder, may_stay=after is None)
            # If both entries are folders, nothing is done here: only their mode can differ, which is set at the end.
            if after is None:
                if before is not None and before.kind != FOLDER:
                    os.unlink(name, dir_fd=folder)
            elif after.kind != FOLDER:
                self._place(f"new{number}", folder, name, number)
            elif before is None or before.kind != FOLDER:
                if before is not None:
                    os.unlink(name, dir_fd=folder)
                os.mkdir(name, _NEW_FOLDER_MODE, dir_fd=folder)

    def _place(self, staged: str, folder: int, name: str, number: int) -> None:
        """Move a file from the journal folder to its path in the target folder, atomically. If the path is on another
        file system, the file is copied there first.
        """
        try:
            os.rename(staged, name, src_dir_fd=self._folder, dst_dir_fd=folder)
        except OSError as error:
            if error.errno != errno.EXDEV:  # another file system is mounted inside the folder
                raise
            copy_name = _temporary_copy_name(number)
            with suppress(FileNotFoundError):  # left by a write that was killed while it copied
                os.unlink(copy_name, dir_fd=folder)
            state = os.stat(staged, dir_fd=self._folder, follow_symlinks=False)
            _copy(staged, self._folder, copy_name, folder, state)
            os.rename(copy_name, name, src_dir_fd=folder, dst_dir_fd=folder)

    def undo(self, steps: Sequence[_Step]) -> None:
        """Undo the steps of the write that were made, in reverse order, and remove the journal. If this process is
        killed meanwhile, the call can be repeated.

        Raises
        ------
        SnapshotError
            A step cannot be undone. The journal is kept, so that the next call tries again.
        """
        path = "it"
        try:
            # Without a journal, either no step was made, or the write has passed its commit point.
            if _has(self._folder, _JOURNAL):
                _unlock_folders(self._root, steps)
                for number, step in reversed([*enumerate(steps)]):
                    path = shown_path(step.path)
                    self._undo_step(number, step)
                _set_folder_modes(self._root, {step.path: step.before for step in steps})
        except OSError as error:
            raise SnapshotError(
                f"{self._root.path}: {path} cannot be restored: {error.strerror or error}. "
                f"The old files are in the subfolder {JOURNAL_FOLDER}. Make the path writable, and try again"
            ) from error
        _remove_journal(self._root)

    def _undo_step(self, number: int, step: _Step) -> None:
        """Undo one step of the write: restore the file that was at the path before the step. Does nothing if the step
        was not made.

        A path with neither the old nor the new content was changed by a person and stays.
        """
        before = step.before
        after = step.after
        # A kill may have happened before or after the rename, so the disk decides whether the step was made.
        current = present_entry(self._root, step.path)
        if current is not None and not same_content(current, after):
            return  # still the old file, or a later change of a person
        try:
            with self._root.parent(step.path) as (folder, name):
                with suppress(FileNotFoundError):
                    os.unlink(_temporary_copy_name(number), dir_fd=folder)
                if current is not None and current.kind == FOLDER and (before is None or before.kind != FOLDER):
                    with suppress(OSError):  # it contains later files of a person
                        os.rmdir(name, dir_fd=folder)
                if before is None:
                    if current is not None and current.kind != FOLDER:
                        os.unlink(name, dir_fd=folder)
                elif before.kind != FOLDER:
                    # ``oldN`` is missing if an earlier `undo`, which was killed, has moved it back.
                    if _has(self._folder, f"old{number}") and not _is_folder(name, folder):
                        self._place(f"old{number}", folder, name, number)
                elif current is None or current.kind != FOLDER:
                    if current is not None:
                        os.unlink(name, dir_fd=folder)
                    os.mkdir(name, before.mode | _OWNER_ALL, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):  # a person has removed the parent folder
            return


def _with_execution(mode: int, after: TreeEntry) -> int:
    """Return a copy of a file's mode that is executable exactly if the new tree entry `after` is executable.

    Everyone who may read the file then may execute it.
    """
    # Each bit "may read" is copied to "may execute": 0o640 -> 0o750, 0o644 -> 0o755.
    return mode | (mode & 0o444) >> 2 if after.mode & 0o100 else mode & ~0o111


def _is_unchanged(state: os.stat_result, name: str, folder: int) -> bool:
    # The ctime does not count, since the hard link has changed it.
    try:
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (now.st_ino, now.st_mtime_ns, now.st_size) == (state.st_ino, state.st_mtime_ns, state.st_size)


def _temporary_copy_name(number: int) -> str:
    """Return the name of the temporary copy of a file, for step `number` of a write. Such a copy is needed if the path
    is on another file system than the journal folder.
    """
    return f"{JOURNAL_FOLDER}-{number}"


def _has(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_folder(name: str, folder: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _remove_folder(name: str, folder: int, *, may_stay: bool) -> None:
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if not (may_stay and error.errno in _FOLDER_IN_USE):
            raise


def _copy(name: str, folder: int, copy: str, target: int, state: os.stat_result) -> None:
    if stat.S_ISLNK(state.st_mode):
        os.symlink(os.readlink(name, dir_fd=folder), copy, dir_fd=target)
        return
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with open(source, "rb") as old, open(os.open(copy, _NEW, 0o600, dir_fd=target), "wb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fchmod(new.fileno(), state.st_mode & 0o7777)
        os.utime(new.fileno(), ns=(state.st_atime_ns, state.st_mtime_ns))
        os.fsync(new.fileno())


def _unlock_folders(root: Root, steps: Sequence[_Step]) -> None:
    """Make the existing folders that a write will change writable for their owner, so that their entries can be
    changed.
    """
    # Outer folders first: entries of a locked folder cannot be reached.
    for path in sorted(step.path for step in steps if step.before is not None and step.before.kind == FOLDER):
        _, entry = _state(root, path)
        if entry is not None and entry.kind == FOLDER and entry.mode & _OWNER_ALL != _OWNER_ALL:
            with _path_in_errors(root, path):
                set_mode(root, path, entry.mode | _OWNER_ALL)


def _set_folder_modes(root: Root, entries: Mapping[str, TreeEntry | None]) -> None:
    """Set the modes of folders to those of their tree entries, inner folders first. Folders that do not exist any more
    are skipped.
    """
    for path, entry in sorted(entries.items(), reverse=True):
        if entry is not None and entry.kind == FOLDER:
            with suppress(FileNotFoundError, NotADirectoryError):
                set_mode(root, path, entry.mode)


@contextmanager
def _path_in_errors(root: Root, path: str) -> Iterator[None]:
    """Convert an OSError that is raised inside the ``with`` block to a `SnapshotError` that names the path."""
    try:
        yield
    except PathNotAllowedError:  # a subclass of OSError, but its text already names the path
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        location = root.path if path == "." else f"{root.path}: {shown_path(path)}"
        raise SnapshotError(f"{location} cannot be written: {reason}; nothing was changed") from error


def _recover(root: Root) -> None:
    """Undo the unfinished write of a process that was killed, by its journal in the folder, and remove the journal.
    Does nothing without a journal.
    """
    try:
        folder = os.open(JOURNAL_FOLDER, _FOLDER_FLAGS | os.O_CLOEXEC, dir_fd=root.fd)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SnapshotError(
            f"{root.path}/{JOURNAL_FOLDER} was not created by divebook, but has a reserved name; remove it"
        ) from error
    journal = _Journal(root, folder)
    try:
        try:
            descriptor = root.open_regular(f"{JOURNAL_FOLDER}/{_JOURNAL}", os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:  # killed before the first step, or after the last one
            _remove_journal(root)
            return
        with open(descriptor, "rb") as file:
            text = file.read()
        try:
            # The journal may come from an archive or another machine, so that everything in it is checked.
            record = json.loads(text)
            is_ours = record["identity"] == journal.identity()
            steps = [_step(row) for row in record["steps"]] if is_ours else []
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise SnapshotError(
                f"{root.path}/{JOURNAL_FOLDER}/{_JOURNAL} is damaged, or was not written by divebook: "
                f"{error}. Compare the old files in {JOURNAL_FOLDER} with those in the folder, and remove "
                f"{JOURNAL_FOLDER}"
            ) from error
        if not is_ours:
            raise SnapshotError(
                f"{root.path}/{JOURNAL_FOLDER} was written for another folder, so its files are not restored; "
                f"check its files, and remove {JOURNAL_FOLDER}"
            )
        journal.undo(steps)
    finally:
        journal.close()


def _step(row: Sequence[Sequence[object] | str | None]) -> _Step:
    # JSON has turned the named tuples into lists: ``[path, [kind, mode, ...] or null, [kind, mode, ...] or null]``.
    path, *entries = row
    before, after = (None if entry is None else TreeEntry(*entry) for entry in entries)  # type: ignore[arg-type]
    return _Step(str(path), before, after)


def _unlink_journal(root: Root) -> None:
    with suppress(FileNotFoundError):
        os.unlink(f"{JOURNAL_FOLDER}/{_JOURNAL}", dir_fd=root.fd)


def _remove_journal(root: Root) -> None:
    """Remove the journal folder of a write. Call this only if the write is complete or undone."""
    try:
        # The journal first: a folder without a journal means that there is nothing to undo.
        _unlink_journal(root)
        shutil.rmtree(JOURNAL_FOLDER, dir_fd=root.fd)
    except OSError as error:
        raise SnapshotError(
            f"{root.path}/{JOURNAL_FOLDER} cannot be removed: {error.strerror or error}. The other files of the folder "
            "are unchanged. Make the folder writable, and try again"
        ) from error


def put_back(root: Root, present: Mapping[str, TreeEntry], target: Mapping[str, TreeEntry], get: GetContent) -> None:
    """Change a folder from the tree `present`, which it has now, to the tree `target`. No journal is written, so that
    an interrupted change cannot be undone.

    Removed entries go first, a file before its folder. Then entries are created and changed, a folder before its files.
    Folders get their modes at the end, since a read-only folder could not be filled.

    Raises
    ------
    OSError, PathNotAllowedError
        A folder may not be changed, and nothing was changed; or a file cannot be written, or a path leads out
        meanwhile, and the changes made so far stay.
    """
    present = without_unknown_content(present, target)
    unlocked = _unlock_changed_folders(root, present, target)
    try:
        _put_back(root, present, target, get, unlocked)
    except BaseException:
        _lock_again(root, present, unlocked)
        raise


def _put_back(
    root: Root,
    present: Mapping[str, TreeEntry],
    target: Mapping[str, TreeEntry],
    get: GetContent,
    unlocked: Sequence[str],
) -> None:
    """Make the changes of `put_back`. The folders `unlocked` get the modes of the target at the end."""
    changed_folders = [*unlocked]
    surplus = [path for path in present if path not in target]
    for path in sorted(surplus, reverse=True):  # the content of a folder sorts behind it
        _remove(root, path, present[path].kind)
    for path in sorted(target):
        entry = target[path]
        old = present.get(path)
        # Unlike `is_like`, this compares the modification time too, so that it is restored.
        if entry == old:
            continue
        # A rename can replace a file by a file, but not a folder by a file.
        if old is not None and old.kind != entry.kind:
            _remove(root, path, old.kind)
            old = None
        if entry.kind == FOLDER:
            _make_folder(root, path, is_new=old is None)
            changed_folders.append(path)
        else:
            _write(root, path, entry, get)
    # Inner folders first: the mode of an outer folder may forbid changes in the inner ones.
    for path in sorted(changed_folders, reverse=True):
        if path in target:
            set_mode(root, path, target[path].mode)


def _unlock_changed_folders(root: Root, present: Mapping[str, TreeEntry], target: Mapping[str, TreeEntry]) -> list[str]:
    """Make the read-only folders whose entries will change writable. Return their paths, so that their modes can be
    restored.

    Raises
    ------
    PermissionError
        This process may not change a folder, for example because another user owns it. Nothing was changed.
    """
    changed = {path for path in {*present, *target} if present.get(path) != target.get(path)}
    around = {path.rpartition("/")[0] for path in changed}
    folders = [path for path in sorted(around) if path in present and present[path].kind == FOLDER]
    unlocked = list[str]()
    try:
        for path in folders:
            if not _is_open(present[path]):
                open_folder(root, path, 0)
                unlocked.append(path)
            with root.parent(path) as (folder, name):
                is_open = os.access(name, CHANGE_FOLDER, dir_fd=folder, effective_ids=True)
            if not is_open:
                raise _may_not_be_changed(root, path)
    except OSError:
        _lock_again(root, present, unlocked)
        raise
    return unlocked


def _lock_again(root: Root, present: TreeEntries, unlocked: Iterable[str]) -> None:
    for path in sorted(unlocked, reverse=True):
        with suppress(OSError):  # it was removed
            set_mode(root, path, present[path].mode)


def _may_not_be_changed(root: Root, path: str) -> PermissionError:
    folder = os.path.join(root.path, shown_path(path)) if path else root.path
    return PermissionError(
        errno.EACCES, "you have no permission to read and change the folder, so nothing was changed", folder
    )


def open_folder(root: Root, path: str, mode: int) -> None:
    """Allow the owner of a folder to read, change and enter it. `mode` is its present mode.

    Raises `PermissionError` with the path of the folder if another user owns it.
    """
    try:
        set_mode(root, path, mode | _OPEN_FOLDER)
    except PermissionError as error:
        raise _may_not_be_changed(root, path) from error


def without_unknown_content(present: TreeEntries, target: TreeEntries) -> TreeEntries:
    """Return the entries of the tree `present` without the content of folders of which `target` knows only the mode,
    since they could not be read when it was recorded. A restore must not remove this content.
    """
    with_content = {path.rpartition("/")[0] for path in target}
    unknown = {path for path, entry in target.items() if _is_unreadable(entry) and path not in with_content}
    if not unknown or _overrides_modes():
        return present
    return {path: entry for path, entry in present.items() if not any(each in unknown for each in _parents(path))}


def has_unknown_content(path: str, target: TreeEntries) -> bool:
    """Return True if a tree knows only the mode of a folder, and not its content."""
    entry = target.get(path)
    return entry is not None and _is_unreadable(entry) and not any(_parents(other)[-1:] == [path] for other in target)


def _parents(path: str) -> list[str]:
    # 'a/b/c' -> ['a', 'a/b'].
    names = path.split("/")[:-1]
    return ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]


def _is_unreadable(entry: TreeEntry) -> bool:
    return entry.kind == FOLDER and entry.mode & _READ_AND_ENTER != _READ_AND_ENTER


def _overrides_modes() -> bool:
    """Return True if this process may read every folder, whatever its mode, as the superuser of Linux usually may."""
    try:
        with open("/proc/self/status", "rb") as file:
            (capabilities,) = (line.split()[1] for line in file if line.startswith(b"CapEff:"))
    except (OSError, ValueError):
        return os.geteuid() == 0
    return bool(int(capabilities, 16) & _CAP_DAC_OVERRIDE)


def _is_open(entry: TreeEntry) -> bool:
    return entry.kind != FOLDER or entry.mode & _OPEN_FOLDER == _OPEN_FOLDER


def set_mode(root: Root, path: str, mode: int) -> None:
    """Set the mode of a folder below the root folder; the path '' stands for the root folder itself. Links are not
    followed.
    """
    # `PATH_ONLY` also opens a folder that its owner may not read or enter.
    flags = PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    descriptor = root.open_file(path, flags) if path else os.dup(root.fd)
    try:
        os.fchmod(descriptor, mode)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        # Linux refuses ``fchmod`` of such a descriptor, but not the same by its name.
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def _remove(root: Root, path: str, kind: str) -> None:
    with suppress(FileNotFoundError), root.parent(path) as (folder, name):
        if kind != FOLDER:
            os.unlink(name, dir_fd=folder)
            return
        with suppress(OSError):  # it contains files that snapshots leave out
            os.rmdir(name, dir_fd=folder)


def _make_folder(root: Root, path: str, *, is_new: bool) -> None:
    if is_new:
        with suppress(FileExistsError), root.parent(path) as (folder, name):
            os.mkdir(name, _OPEN_FOLDER, dir_fd=folder)
    set_mode(root, path, _OPEN_FOLDER)


def _write(root: Root, path: str, entry: TreeEntry, get: GetContent) -> None:
    """Put a file or link at a path by renaming a temporary file, which replaces an old file there. Hard links to the
    old file keep the old content.
    """
    temporary = f".{secrets.token_hex(8)}.restored"
    with root.parent(path) as (folder, name):
        try:
            if entry.kind == LINK:
                os.symlink(entry.content, temporary, dir_fd=folder)
            else:
                _write_file(os.open(temporary, _NEW, 0o600, dir_fd=folder), entry, get(entry.content))
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def _write_file(descriptor: int, entry: TreeEntry, content: bytes) -> None:
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(descriptor, entry.mode)
        os.utime(descriptor, ns=(entry.mtime, entry.mtime))


# --- protected paths: hidden names and version-control metadata, written to a user's folder only on request by name ---
#
# Many programs execute such files: git runs hooks and the commands in ``.git/config``, direnv ``.envrc``, editors
# ``.vscode/tasks.json``. A command in a workspace can write all of them, so a person must request each by its name. A
# path is protected if any of its names is hidden, or is the metadata of a version control system with another kind of
# name (``CVS``, ``_darcs``, a bare git repository).


JOURNAL_FOLDER = ".divebook-apply"
"""Name of the folder in a user's folder that contains the journal during a write. It is never copied."""
MOST_NAMED = 20
"""Maximum number of protected paths that a report names."""


def is_protected(path: str) -> bool:
    """Return True if any name in a path is hidden or belongs to version control, such as ``.git``. Only the text of the
    path is examined, not the disk.
    """
    return any(map(why_protected_name, _names(path)))


def is_reserved(path: str) -> bool:
    """Return True if a path lies in a journal folder, which only divebook itself may write."""
    return any(canonical_name(name).partition(":")[0] == JOURNAL_FOLDER for name in _names(path))


def _names(path: str) -> list[str]:
    # A file name may hold a backslash here, which separates folders where the project is checked out on Windows.
    return [name for name in re.split(r"[/\\]", path) if name]


def protected_paths(paths: Collection[str], folder: str | os.PathLike[str] | None) -> set[str]:
    """Return the protected paths among changed paths of a folder: hidden files, files of version control, and paths
    that lead to such files through links.

    Besides the names, the folder on disk counts: a link in it may lead into a hidden folder, and a changed file may
    belong to, or complete, a bare git repository, which has no hidden name.

    Parameters
    ----------
    paths
        Changed paths below the folder.
    folder
        The folder; None if it does not exist, so that only names count.
    """
    base = None if folder is None else os.path.realpath(folder)
    repositories = _repositories(paths, base)
    # Links are resolved once for each folder, not for each path: a change may have thousands of files.
    around_real: dict[str, str] = {}
    protected = set()
    for path in paths:
        around = path.rpartition("/")[0]
        if around not in around_real:
            around_real[around] = _real_below(base, around)
        if (
            is_protected(path)
            or is_protected(around_real[around])
            or any(is_beneath(path, folder_below) for folder_below in repositories)
        ):
            protected.add(path)
    return protected


def _real_below(base: str | None, around: str) -> str:
    """Return the path of a subfolder with its links resolved, relative to the folder `base`.

    A link that leads out is returned as written, since it is refused when it is opened.
    """
    if base is None or not around:
        return around
    real = os.path.realpath(os.path.join(base, around))
    return os.path.relpath(real, base) if real.startswith(f"{base}/") else around


def _repositories(paths: Iterable[str], base: str | None) -> set[str]:
    """Return the subfolders that would be bare git repositories if files were written at `paths`, in addition to the
    files on disk. '' stands for the folder itself.
    """
    by_folder: dict[str, set[str]] = {"": set()}
    for path in paths:
        names = path.split("/")
        for depth, name in enumerate(names):
            marks_of_folder = by_folder.setdefault("/".join(names[:depth]), set())
            marks_of_folder |= marks_named(name)
    repositories = set()
    for folder, marks in by_folder.items():
        on_disk = set() if base is None else marks_in(os.path.join(base, folder))
        if is_repository(marks | on_disk):
            repositories.add(folder)
    return repositories


def is_beneath(path: str, folder: str) -> bool:
    """Return True if a path is the folder itself or lies below it, compared as text. The folder '' contains every
    relative path.
    """
    return not folder or path == folder or path.startswith(f"{folder}/")


def left_out_text(paths: Collection[str], how: str) -> str:
    """Return a sentence for people that names the protected paths that were left out of a write. Return an empty string
    for no paths.

    Parameters
    ----------
    how
        Command by which a person requests a file, with ``{}`` for its name, such as ``apply RUN {}``.
    """
    if not paths:
        return ""
    names = list(dict.fromkeys(map(_protected_part, paths)))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"{plural(len(paths), 'protected file')} left out (hidden names and version-control metadata): "
        f"{', '.join(names[:MOST_NAMED])}{more}. To include a file, name the file or its folder: "
        f"{how.format(names[0])}"
    )


def _protected_part(path: str) -> str:
    """Return the beginning of a path up to its first protected name, for display. If that is a folder, a slash
    follows.
    """
    names = path.split("/")
    for depth, name in enumerate(names[:-1], 1):
        if why_protected_name(name):
            return shown_path("/".join(names[:depth])) + "/"
    return shown_path(path)
