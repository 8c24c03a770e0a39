"""Snapshots of a folder: detection of the files that have changed since the last snapshot, their contents, and the
digest of the whole tree.

A snapshot does not read all files. A file is read again only in two cases:

- Its sign (ctime, inode and size) has changed. Every change of a file sets its ctime, which, unlike other times,
programs cannot set back.
- Its ctime is so close to the time of the last scan that a later change could have set the same ctime. The clock of a
file system advances in ticks of some milliseconds::

      12:00:00.000   tick
      12:00:00.001   a command writes "1" into a file    ctime 12:00:00.000
      12:00:00.002   the snapshot reads "1"
      12:00:00.003   the command writes "2"              ctime 12:00:00.000, the sign is the same

  Such a file is "racy", and the next snapshot reads it again.

A folder is listed again by the same rule, since an added, removed or renamed entry changes its ctime. With a
`FolderWatch`, only the names that the kernel reports are examined at all. All files are opened through
`divebook.workspaces.paths.Root`.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, NamedTuple, Self

from divebook.documents.repository import matches
from divebook.events.values import StoredFile
from divebook.workspaces.paths import CLOEXEC, DIRECTORY, NOFOLLOW, NONBLOCK, Root
from divebook.workspaces.snapshots.restore import GetContent, has_unknown_content, open_folder, put_back, set_mode
from divebook.workspaces.snapshots.tree import FILE, FOLDER, LINK, NO_ENTRIES, Tree, TreeEntries, TreeEntry, TreeProblem
from divebook.workspaces.workspace import several


class TreeScanner:
    """Scanner of the files of one folder. It remembers the last scan, so that the next scan finds the changes without
    reading all files.

    If a scan raises an error, the scanner cannot be used any more: it may remember a part of the changes.

    Parameters
    ----------
    is_left_out
        Returns True if a path, given with its last name, is not part of the tree.
    largest
        Maximum size in bytes of a file that is read.
    watch
        Source of reported changes; None to examine all files each time.
    """

    def __init__(
        self, root: Root, is_left_out: Callable[[str, str], bool], largest: int, watch: FolderWatch | None
    ) -> None:
        self._root = root
        self._is_left_out = is_left_out
        self._largest = largest
        self._watch = watch
        self.entries: dict[str, TreeEntry] = {}
        self.problems: dict[str, str] = {}
        """Reason for leaving a path out, or for doubts about its content, by path."""
        self.delta: dict[str, TreeEntry | None] = {}
        """Entries that the current scan found changed, by path; None for a removed entry."""
        self.contents: dict[str, bytes] = {}
        """Contents of the files that the current scan has read, by SHA-256."""
        self._digests = Digests()
        self._children: dict[str, set[str]] = {"": set()}
        self._signs: dict[str, dict[str, _Sign]] = {}
        """Signs (ctime, inode, size) of entries by folder and name. Racy files have none, and so are read again."""
        self._listings: dict[str, tuple[_Sign, list[str]]] = {}
        """Ctime and inode of each folder at its last listing, and the names in it."""
        self._racy: set[str] = set()
        """Racy files: their sign may have stayed the same although they changed after the last scan."""
        self._linked: set[str] = set()
        """Files that have, or had, several hard links. Each scan examines them, since changes by another name are not
        reported. A program may still write by a name that is removed, so that a file stays in this set.
        """
        self.is_new = True
        """True until the first scan is complete."""
        self._is_relinked = False
        """True if an unknown name of a file with several hard links was found, so that all files must be examined: the
        file may have another name in this tree, of which nothing is reported.
        """
        self._next_racy: set[str] = set()
        self._scan_start = 0

    def scan(self, *, everything: bool) -> str:
        """Find all changes of the folder since the last scan. Return the digest of the tree; the attributes `delta` and
        `contents` have the changes.

        All files are examined without a watch, in the first scan, after lost events, if files change during the scan,
        and with `everything`. Otherwise only the reported names, racy files and files with several names are examined.
        """
        self.delta = {}
        self.contents = {}
        self._next_racy = set()
        # Before anything is read: a file that changes during the scan then counts as racy.
        self._scan_start = time.time_ns()
        # Drained before the scan, so that a change during the scan is reported for the next one.
        watch = self._watch
        names_by_folder = watch.drain() if watch is not None else {}
        if watch is None or everything or self._is_unsure():
            self._everything()
        else:
            # Entries of which the kernel may report nothing although they have changed.
            for path in self._racy | self._linked:
                folder, _, name = path.rpartition("/")
                names_by_folder.setdefault(folder, set()).add(name)
            for folder, names in sorted(names_by_folder.items()):
                self._names(folder, names)
            # A changed file of which a name is removed meanwhile has only one name left, and so is not recognised as a
            # file with several names (test_a_removed_name_of_a_changed_file_is_not_recorded_with_its_old_content).
            if watch.drain() or self._is_unsure():
                self._everything()
        # An entry without a sign is read again by the next scan.
        for path in self._next_racy:
            folder, _, name = path.rpartition("/")
            self._signs.get(folder, {}).pop(name, None)  # the folder may have been removed during this look
        self._racy = self._next_racy
        # A path that is left out is in no folder's list of entries, so that nothing else removes it with its folder.
        for path in [path for path in self.problems if not self._is_there(path)]:
            del self.problems[path]
        self.is_new = False
        return self._digests.of(self.entries, self._children)

    def _is_unsure(self) -> bool:
        """Return True if files may have changed of which the kernel has reported no name."""
        return self.is_new or self._is_relinked or (self._watch is not None and self._watch.is_lost)

    def _everything(self) -> None:
        # Both are reset before the scan. A name that appears during the scan may belong to a file that was examined
        # already, so that the next scan examines all files too
        # (test_a_hard_link_that_is_made_during_a_scan_hides_no_change).
        self._is_relinked = False
        if self._watch is not None:
            # `add` sets it again for a folder that cannot be watched.
            self._watch.is_lost = False
        self._folder("", os.open(".", _LIST, dir_fd=self._root.fd))

    def _is_there(self, path: str) -> bool:
        try:
            with self._root.parent(path) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _names(self, folder: str, names: set[str]) -> None:
        """Check some entries of a folder, given by their names, for changes since the last scan."""
        if folder not in self._children:
            return  # it was removed with the folder around it
        try:
            descriptor = self._root.open_file(folder or ".", _LIST)
        except OSError as error:
            # Its entries must not keep what they had before the change that was reported. What is there now instead of
            # the folder is reported for the next scan.
            if folder and error.errno in _VANISHED:
                self._remove_entry(folder)
            return
        try:
            for name in names:
                path = f"{folder}/{name}" if folder else name
                try:
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except FileNotFoundError:
                    self._remove_entry(path)
                except PermissionError:
                    # The tree would lose everything if this were the top folder.
                    if not folder:
                        raise
                    self._leave_out_content(folder)
                    return
                else:
                    self._entry(path, name, status, descriptor)
        finally:
            os.close(descriptor)

    def _folder(self, folder: str, descriptor: int) -> None:
        """Check all entries of a folder and of its subfolders for changes since the last scan. Close the folder's
        descriptor.
        """
        try:
            # Watched before it is listed, so that a change in between is reported.
            if self._watch is not None:
                self._watch.add(self._root.path, folder)
            prefix = f"{folder}/" if folder else ""
            names = self._listing(folder, descriptor)
            for name in self._children.setdefault(folder, set()).difference(names):
                self._remove_entry(prefix + name)
            sign_of = self._signs.setdefault(folder, {}).get
            stat_of = os.stat
            for name in names:
                try:
                    status = stat_of(name, dir_fd=descriptor, follow_symlinks=False)
                except FileNotFoundError:
                    # Removed after the listing. Its last entry may be older than this scan.
                    self._remove_entry(prefix + name)
                    continue
                except PermissionError:
                    # The mode ``r--`` lets the names be listed, but not the entries be examined.
                    if not folder:
                        raise
                    self._leave_out_content(folder)
                    return
                # Same as `_sign`, but without a call for each of perhaps ten thousand files (`benchmarks.snapshots`).
                if sign_of(name) != (status.st_ctime_ns, status.st_ino, status.st_size):
                    self._entry(prefix + name, name, status, descriptor, deep=True)
        finally:
            os.close(descriptor)

    def _listing(self, folder: str, descriptor: int) -> list[str]:
        """Return the names of the entries of a folder. If the folder's ctime shows that no entry was added or removed,
        the remembered list is returned without reading the folder.
        """
        status = os.fstat(descriptor)
        sign = (status.st_ctime_ns, status.st_ino)
        listing = self._listings.get(folder)
        if listing is not None and listing[0] == sign:
            return listing[1]
        try:
            names = os.listdir(descriptor)
        except FileNotFoundError:
            # The folder was removed after it was opened. Some C libraries return an empty list instead.
            return []
        # A recent listing is not remembered, by the rule of racy files: an entry that is added in the same tick of the
        # clock leaves the ctime the same.
        if self._scan_start - status.st_ctime_ns >= SLACK:
            self._listings[folder] = sign, names
        else:
            self._listings.pop(folder, None)
        return names

    def _entry(self, path: str, name: str, status: os.stat_result, folder: int, *, deep: bool = False) -> None:
        """Check one entry of a folder for a change since the last scan, and record its new state. An entry that is
        removed meanwhile is removed from the tree; one that is replaced is checked again.
        """
        for _ in range(_TRIES):
            if self._is_examined(path, name, status, folder, deep=deep):
                return
            self._remove_entry(path)
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                return

    def _is_examined(self, path: str, name: str, status: os.stat_result, folder: int, *, deep: bool) -> bool:
        """Compare ctime, inode and size of an entry with those of the last scan. If they differ, record its new state.
        Return False if the entry was removed or replaced since `status` was read.
        """
        # The patterns apply to new entries only: an entry that is in the tree was not left out before.
        mode = status.st_mode
        entry = self.entries.get(path)
        if entry is None and self._is_left_out(path, name):
            return True
        # A folder that became a file, or the reverse: forget everything below it first.
        if entry is not None and (entry.kind == FOLDER) is not stat.S_ISDIR(mode):
            self._remove_entry(path)
            entry = None
        if stat.S_ISDIR(mode):
            return self._is_folder_examined(path, name, status, folder, deep=deep)
        if status.st_nlink > 1:
            self._is_relinked |= path not in self._linked
            self._linked.add(path)
        if entry is not None and self._sign_of(path) == _sign(status):
            return True
        if stat.S_ISREG(mode):
            return self._is_file_read(path, name, folder)
        if stat.S_ISLNK(mode):
            try:
                target = os.readlink(name, dir_fd=folder)
            except OSError:
                return False
            self._set(path, TreeEntry(LINK, content=target), _sign(status))
        else:
            self._leave_out(path, SPECIAL)
        return True

    def _is_folder_examined(self, path: str, name: str, status: os.stat_result, folder: int, *, deep: bool) -> bool:
        """Check an entry that is a folder, and record its new state if it has changed. The entries inside are checked
        too if the folder has changed itself, if `deep` is true, or if the kernel has not watched the folder so far.
        Return False if it was removed or replaced since `status` was read.
        """
        if path.count("/") >= DEEPEST:
            self._leave_out(path, TOO_DEEP)
            return True
        # The inode shows whether the name still belongs to the same folder, to which the watch belongs.
        sign = self._sign_of(path)
        is_same_folder = path in self._children and sign is not None and sign[0] == status.st_ino
        is_watched = self._watch is None or self._watch.sees(path)
        if path in self._children and not deep and not (is_same_folder and is_watched):
            self._remove_entry(path)  # another folder with the same name: the watch is on the old one
        # `_set` also removes an earlier problem of the path, such as a folder that could not be read.
        is_changed = sign != _folder_sign(status) or path not in self._children or path in self.problems
        if is_changed:
            self._set(path, TreeEntry(FOLDER, status.st_mode & 0o7777), _folder_sign(status))
            self._children.setdefault(path, set())
        # A folder that is already watched is not entered: its own changes are reported with their names. A new mode may
        # forbid or allow to enter it, which changes no name.
        if deep or is_changed or not (is_same_folder and is_watched):
            try:
                below = os.open(name, _LIST, dir_fd=folder)
            except OSError as error:
                if error.errno in _VANISHED:
                    return False
                self._leave_out_content(path)
            else:
                self._folder(path, below)
        return True

    def _is_file_read(self, path: str, name: str, folder: int) -> bool:
        """Read a file and record its new tree entry and content. If it cannot be read or is too large, record the
        reason for leaving it out. Return False if it was removed, or replaced by an entry of another kind.
        """
        try:
            descriptor = os.open(name, _READ, dir_fd=folder)
        except OSError as error:
            if error.errno in _VANISHED:
                return False
            self._leave_out(path, UNREADABLE)
            return True
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return False
            result = self._read(descriptor)
        finally:
            os.close(descriptor)
        if result is None:
            self._leave_out(path, TOO_LARGE)
            return True
        content, status, is_stable = result
        digest = sha256(content).hexdigest()
        self.contents[digest] = content
        if not is_stable or self._scan_start - status.st_ctime_ns < SLACK:
            self._next_racy.add(path)
        mode = status.st_mode & 0o7777
        mtime = status.st_mtime_ns
        self._set(path, TreeEntry(FILE, mode, digest, len(content), mtime), _sign(status))
        if not is_stable:
            self.problems[path] = UNSTABLE
        return True

    def _read(self, descriptor: int) -> tuple[bytes, os.stat_result, bool] | None:
        """Read a file. Return its content, its `os.fstat` result, and True if it did not change while it was read.

        Return None if the file is too large.
        """
        content = b""
        after = os.fstat(descriptor)
        is_stable = False
        # A file that is written all the time never becomes stable. After some tries its last content is taken.
        for _ in range(_TRIES):
            before = after
            if before.st_size > self._largest:
                return None
            with open(descriptor, "rb", closefd=False) as file:
                file.seek(0)
                content = file.read(self._largest + 1)
            after = os.fstat(descriptor)
            is_stable = _sign(before) == _sign(after) and len(content) == after.st_size
            if is_stable:
                break
        return None if len(content) > self._largest else (content, after, is_stable)

    def _set(self, path: str, entry: TreeEntry, sign: _Sign) -> None:
        folder, _, name = path.rpartition("/")
        self._signs.setdefault(folder, {})[name] = sign
        self.problems.pop(path, None)
        if self.entries.get(path) == entry:
            return
        self.entries[path] = entry
        self.delta[path] = entry
        self._children[folder].add(name)
        # A folder itself is marked, since a new one has no digest yet. This marks its parents too.
        self._digests.mark_stale(path if entry.kind == FOLDER else folder)

    def _sign_of(self, path: str) -> _Sign | None:
        folder, _, name = path.rpartition("/")
        return self._signs.get(folder, {}).get(name)

    def _leave_out(self, path: str, reason: str) -> None:
        self._remove_entry(path)
        self.problems[path] = reason

    def _leave_out_content(self, folder: str) -> None:
        """Remove the entries of a folder that may not be entered, and record the folder as a problem. The folder itself
        stays in the tree.
        """
        for name in list(self._children.get(folder, ())):
            self._remove_entry(f"{folder}/{name}")
        for path in [path for path in self.problems if path.startswith(f"{folder}/")]:
            del self.problems[path]
        self.problems[folder] = UNREADABLE

    def _remove_entry(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        # Everything below the entry goes first, so that `delta` lists each path of a removed folder.
        for child in list(self._children.get(path, ())):
            self._remove_entry(f"{path}/{child}")
        if self._children.pop(path, None) is not None:
            self._digests.forget(path)
            if self._watch is not None:
                self._watch.remove(path)
        # By path: the signs and the listing of the content of a folder. By name: the sign of the entry itself.
        self._signs.pop(path, None)
        self._listings.pop(path, None)
        self._signs.get(folder, {}).pop(name, None)
        self.problems.pop(path, None)
        self._linked.discard(path)
        if path in self.entries:
            self._children[folder].discard(name)
            del self.entries[path]
            self.delta[path] = None
            self._digests.mark_stale(folder)

    def problem_list(self) -> tuple[TreeProblem, ...]:
        """Return the paths that the tree leaves out or that changed while they were read, each with the reason, sorted
        by path.
        """
        return tuple(TreeProblem(path, reason) for path, reason in sorted(self.problems.items()))


# --- snapshots of one folder: taken as it changes, and restored ---


LARGEST = 100_000_000
"""Maximum size in bytes of a file in a snapshot. Larger files are left out."""


class TreeSnapshot(NamedTuple):
    """Result of taking a snapshot of a folder: the tree of its files, and the differences from the tree of the last
    snapshot.
    """

    tree: Tree
    delta: Mapping[str, TreeEntry | None]
    """Changed entries by path; None for a removed entry."""
    contents: Mapping[str, bytes]
    """Contents of the changed files, by SHA-256."""


class Snapshots:
    """Taking and restoring of snapshots of one folder. Thread-safe: only one method runs at a time.

    Parameters
    ----------
    root
        The folder. The caller closes it.
    exclude
        Patterns of files that are left out and never changed: of names (``*.pyc``), or of paths (``build/**``).
    largest
        Maximum size in bytes of a file. Larger files are left out and listed among the problems.
    watch
        Whether to let the kernel report changes, if it can; otherwise all files are examined.
    """

    def __init__(self, root: Root, *, exclude: Sequence[str] = (), largest: int = LARGEST, watch: bool = True) -> None:
        self.root = root
        self._is_left_out = functools.partial(_is_left_out, _Patterns.of(several(exclude, "exclude")))
        self._largest = largest
        self._watch: FolderWatch | None = None
        self._scanner = self._new_scanner(watch=watch)
        self._lock = threading.Lock()
        self.tree = Tree("", NO_ENTRIES)
        """The tree of the last snapshot; empty before the first one."""
        self._delta: dict[str, TreeEntry | None] = {}
        """Changes that no method has returned yet: `restore` scans twice, and may fail between the two scans."""
        self._contents: dict[str, bytes] = {}
        """Contents that the scans since the last returned snapshot have read, by SHA-256."""

    def _new_scanner(self, *, watch: bool) -> TreeScanner:
        if self._watch is not None:
            self._watch.close()
        self._watch = FolderWatch.begin_watch() if watch else None
        return TreeScanner(self.root, self._is_left_out, self._largest, self._watch)

    def take(self, *, everything: bool = False) -> TreeSnapshot:
        """Take a snapshot of the folder, and return its tree and the changes since the last snapshot.

        Parameters
        ----------
        everything
            Whether to examine each file, regardless of reported changes.
        """
        with self._lock:
            self._scan(everything=everything)
            return self._new_snapshot()

    def _scan(self, *, everything: bool) -> None:
        """Update the tree by a scan of the folder. Add the changes to those that no method has returned yet."""
        scanner = self._scanner
        is_new = scanner.is_new
        try:
            digest = scanner.scan(everything=everything)
        except BaseException:
            # The scanner may have recorded some changes completely, some not at all, and one in part. A new scanner
            # reads all files, so that nothing depends on the point of the interruption
            # (test_an_interrupted_scan_loses_no_changes).
            self._scanner = self._new_scanner(watch=self._watch is not None)
            raise
        # The changes that a new scanner reports are relative to an empty tree.
        delta = _delta_between(self.tree.entries, scanner.entries) if is_new else scanner.delta
        # Without changes the same dict is used again, so that many equal snapshots do not copy ten thousand entries
        # each.
        entries = dict(scanner.entries) if delta or not self.tree.digest else self.tree.entries
        self.tree = Tree(digest, entries, scanner.problem_list())
        self._delta |= delta
        self._contents |= scanner.contents

    def _new_snapshot(self) -> TreeSnapshot:
        """Return the current tree with all changes since the last returned snapshot."""
        # Without the contents that were replaced before any snapshot was returned, and those that the tree had already.
        digests = {entry.content for entry in self._delta.values() if entry is not None}
        contents = {digest: content for digest, content in self._contents.items() if digest in digests}
        snapshot = TreeSnapshot(self.tree, self._delta, contents)
        self._delta = {}
        self._contents = {}
        return snapshot

    def restore(self, tree: Tree, get: GetContent) -> TreeSnapshot:
        """Change the folder so that it has the files of a tree. Return the tree that the folder now has, and the
        changes since the last snapshot.

        Files that snapshots leave out are not touched. Changes since the last snapshot are lost: take one first.

        Parameters
        ----------
        get
            Returns the content of a file by its digest.
        """
        with self._lock, self._opened_folders(tree.entries):
            put_back(self.root, self.tree.entries, tree.entries, get)
            self._scan(everything=True)
            return self._new_snapshot()

    @contextmanager
    def _opened_folders(self, target: TreeEntries) -> Iterator[None]:
        """Allow the owner to read, change and enter the folder and all its subfolders during the ``with`` block. The
        folder is scanned as well, before the block.

        A folder of which `target` knows only the mode is not opened. Raise `PermissionError` if another user owns a
        folder that must be opened.
        """
        modes = dict[str, int]()
        is_restored = False
        try:
            if not os.access(self.root.path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
                modes[""] = os.fstat(self.root.fd).st_mode & 0o7777
                open_folder(self.root, "", modes[""])
            self._scan(everything=True)
            # Each round may show further closed folders inside the opened ones.
            while closed := self._closed_folders(target, modes):
                for path in closed:
                    modes[path] = self.tree.entries[path].mode
                    open_folder(self.root, path, modes[path])
                self._scan(everything=True)
            yield
            is_restored = True
        finally:
            for path in sorted(modes, reverse=True):
                # A folder of the target has its new mode by now, and a removed folder is missing.
                if not (is_restored and path in target):
                    with suppress(OSError):
                        set_mode(self.root, path, modes[path])

    def _closed_folders(self, target: TreeEntries, opened: Collection[str]) -> list[str]:
        return [
            path
            for path, reason in self.tree.problems
            if reason == UNREADABLE
            and path in self.tree.entries
            and path not in opened
            and not has_unknown_content(path, target)
        ]

    def close(self) -> None:
        """Stop watching the folder for changes. Idempotent."""
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _delta_between(before: TreeEntries, after: TreeEntries) -> dict[str, TreeEntry | None]:
    """Return the entries of `after` that differ from `before`, by path; None for an entry that only `before` has."""
    return {path: after.get(path) for path in {*before, *after} if before.get(path) != after.get(path)}


class _Patterns(NamedTuple):
    """Parsed patterns of files that snapshots leave out: patterns for the names of files, and patterns for
    whole paths.
    """

    names: tuple[str, ...]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, patterns: Sequence[str]) -> Self:
        """Parse patterns of files to leave out. A pattern without a slash is compared with the last name of a path, any
        other with the whole path.
        """
        trimmed = [pattern.rstrip("/") for pattern in patterns]
        names = tuple(pattern for pattern in trimmed if "/" not in pattern)
        return cls(names, tuple(pattern.lstrip("/") for pattern in trimmed if "/" in pattern))


def _is_left_out(patterns: _Patterns, path: str, name: str) -> bool:
    return any(matches(pattern, name) for pattern in patterns.names) or any(
        matches(pattern, path) for pattern in patterns.paths
    )


# --- changes below a folder as the kernel reports them: inotify by ctypes, a watch for each folder ---
#
# The kernel queues an event within the call that makes the change. When a command has ended, all its events are in the
# queue. Not reported are changes of a mapped file while it is mapped, by another name of a hard link, and through a
# network. If the kernel has dropped events, or the changed file does not have the reported name any more, everything
# must be examined (`is_lost`): a name that was written and then removed may have been a second name of another file
# (test_a_change_by_a_name_that_is_gone_is_seen).


# Constants of ``<sys/inotify.h>``.
_MODIFY = 0x2
_ATTRIB = 0x4
_CLOSE_WRITE = 0x8
_FROM = 0x40
_TO = 0x80
_CREATE = 0x100
_DELETE = 0x200
_OVERFLOW = 0x4000
_IGNORED = 0x8000
_IS_FOLDER = 0x40000000
_WRITTEN = _MODIFY | _ATTRIB | _CLOSE_WRITE
_APPEARED = _CREATE | _TO
_GONE = _DELETE
_ONLY_FOLDERS = 0x01000000
_NOT_FOLLOWED = 0x02000000
# IN_EXCL_UNLINK: a file that has lost its name in the folder causes no events there.
_LINKED = 0x04000000
_MASK = _MODIFY | _ATTRIB | _CLOSE_WRITE | _FROM | _TO | _CREATE | _DELETE | _ONLY_FOLDERS | _NOT_FOLLOWED | _LINKED
# Head of ``struct inotify_event``: watch number, mask, cookie (the same in both events of a rename), length of the
# name.
_HEAD = struct.Struct("iIII")
# Bytes of events that one read takes.
_MOST = 1 << 18


class FolderWatch:
    """Watch of a folder and its subfolders by the Linux service inotify: the kernel reports the names of entries that
    change.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._fd = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"inotify: {os.strerror(code)}")
        self._folders: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self.is_lost = False
        """True if changes may have been missed, so that everything must be examined."""

    @classmethod
    def begin_watch(cls) -> FolderWatch | None:
        """Start a watch and return it. Return None if the system has no inotify or allows no further watch."""
        try:
            return cls()
        except (OSError, AttributeError):  # the limit of this user is reached; a system without inotify
            return None

    def add(self, root: str, folder: str) -> None:
        """Watch a subfolder for changes. Call this before its entries are listed, so that no change between the two is
        missed.
        """
        number = self._library.inotify_add_watch(self._fd, os.fsencode(os.path.join(root, folder)), _MASK)
        if number < 0:  # it is gone, or there are too many
            self.is_lost = True
            return
        self._folders[number] = folder
        self._numbers[folder] = number

    def remove(self, folder: str) -> None:
        """Stop watching a subfolder."""
        number = self._numbers.pop(folder, None)
        # The kernel gives a folder that was moved its old number again, so the number may belong to another path by
        # now.
        if number is not None and self._folders.get(number) == folder:
            del self._folders[number]
            self._library.inotify_rm_watch(self._fd, number)

    def sees(self, folder: str) -> bool:
        """Return True if this object watches the subfolder for changes."""
        return folder in self._numbers

    def drain(self) -> dict[str, set[str]]:
        """Return the names of the entries that may have changed since the last call, as a set for each folder."""
        changes = _ReportedChanges()
        while True:
            try:
                data = os.read(self._fd, _MOST)
            except BlockingIOError:
                self.is_lost |= changes.is_unsure
                return changes.names
            self._read(data, changes)

    def _read(self, data: bytes, changes: _ReportedChanges) -> None:
        at = 0
        while at < len(data):
            number, mask, cookie, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            # The kernel pads the name with NUL bytes.
            name = data[at : at + length].rstrip(b"\0")
            at += length
            if mask & _OVERFLOW:
                self.is_lost = True
            elif mask & _IGNORED:  # the folder was removed; another one may have its name, and even its inode, by now
                folder = self._folders.pop(number, None)
                if folder is not None and self._numbers.get(folder) == number:
                    del self._numbers[folder]
            elif name and number in self._folders:
                changes.record(self._folders[number], os.fsdecode(name), mask, cookie)

    def close(self) -> None:
        """End all watches and close their descriptor. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _ReportedChanges:
    """Names of the entries that the kernel has reported as changed since the last scan. It also detects written files
    that were renamed, as long as their new name is not known.
    """

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self._written_files: set[tuple[str, str]] = set()
        """Written files as folder and name, until they are renamed or removed."""
        self._renames: set[int] = set()
        """inotify cookies of renames of written files whose new name was not reported yet."""
        self._has_lost_names = False
        """True if a written file has lost its name, or may have, and no event reports another name of it. This is also
        set by folders that appear or are moved away.
        """

    @property
    def is_unsure(self) -> bool:
        """True if an entry may have changed under a name that the kernel did not report, for example in a new folder.
        The next scan must then examine all files.
        """
        return self._has_lost_names or bool(self._renames)

    def record(self, folder: str, name: str, mask: int, cookie: int) -> None:
        """Add the change that one inotify event reports for an entry of a folder."""
        self.names.setdefault(folder, set()).add(name)
        entry = folder, name
        if mask & _IS_FOLDER:
            # Changes in a new folder are not reported before it is watched. A folder that is moved away takes the names
            # of its files along, without an event for each
            # (test_a_change_by_a_name_in_a_folder_that_is_moved_away_is_seen).
            self._has_lost_names |= bool(mask & (_APPEARED | _FROM))
            return
        # A written file has lost its name. A rename is resolved by the event with the same cookie. For a name that was
        # deleted or replaced no such event follows, so that the mark stays.
        # Example of a file that is written under one name and renamed to another:
        #
        #     MODIFY ".a.new"                    written files {".a.new"}, renames {}
        #     MOVED_FROM ".a.new" (cookie 7)     written files {}, renames {7}
        #     MOVED_TO "a" (cookie 7)            written files {"a"}, renames {}
        #
        # A cookie that stays belongs to a file whose new name was not reported.
        if entry in self._written_files and mask & (_APPEARED | _GONE | _FROM):
            self._written_files.discard(entry)
            if mask & _FROM:
                self._renames.add(cookie)
            else:
                self._has_lost_names = True
        # Only renames have a cookie: the 0 of a plain write resolves nothing.
        if mask & _TO and cookie in self._renames:
            self._renames.discard(cookie)
            self._written_files.add(entry)
        if mask & _WRITTEN:
            self._written_files.add(entry)


# --- the digest of a tree: a hash of hashes, so that only the folders above a change are hashed again. Pure. ---


class Digests:
    """Digests (SHA-256) of the folders of a tree that changes. Only the digests of changed folders are computed again.

    The digest of a folder is the hash of the names, kinds, modes and digests of its entries. After a change of
    ``a/b/file`` only the digests of ``a/b``, ``a`` and the top folder are computed again.
    """

    def __init__(self) -> None:
        self._folder_digests: dict[str, bytes] = {}
        self._stale: set[str] = {""}

    def mark_stale(self, folder: str) -> None:
        """Note that the content of a folder has changed, so that its digest and those of all its parent folders are
        computed again.
        """
        # Ends at a folder whose parents are marked already, or after the top folder '', which is its own parent.
        while folder not in self._stale:
            self._stale.add(folder)
            folder = folder.rpartition("/")[0]

    def forget(self, folder: str) -> None:
        """Remove the digest of a folder that was deleted from the tree."""
        self._folder_digests.pop(folder, None)
        self._stale.discard(folder)

    def of(self, entries: Mapping[str, TreeEntry], children: Mapping[str, set[str]]) -> str:
        """Compute the digests of the folders that have changed. Return the digest of the whole tree, in hexadecimal."""
        # Deepest folders first: the digest of a folder depends on the digests of its subfolders.
        for folder in sorted(self._stale, key=_depth, reverse=True):
            if folder in children:
                self._folder_digests[folder] = self._folder(folder, entries, children[folder])
        self._stale = set()
        return self._folder_digests[""].hex()

    def _folder(self, folder: str, entries: Mapping[str, TreeEntry], names: set[str]) -> bytes:
        hasher = sha256()
        prefix = f"{folder}/" if folder else ""
        for name in sorted(names):
            entry = entries[prefix + name]
            content = self._folder_digests[prefix + name] if entry.kind == FOLDER else os.fsencode(entry.content)
            # Length and NUL make the parts unambiguous: different entries never give the same bytes.
            hasher.update(f"{entry.kind} {entry.mode:o} {len(content)} ".encode() + os.fsencode(name) + b"\0" + content)
        return hasher.digest()


def _depth(folder: str) -> int:
    # '' -> 0, 'a' -> 1, 'a/b' -> 2.
    return folder.count("/") + bool(folder)


def digest_of(entries: Mapping[str, TreeEntry]) -> str:
    """Return the digest of a tree in hexadecimal, computed from all its entries."""
    children: dict[str, set[str]] = {"": set()}
    digests = Digests()
    for path, entry in entries.items():
        folder, _, name = path.rpartition("/")
        children.setdefault(folder, set()).add(name)
        if entry.kind == FOLDER:
            children.setdefault(path, set())
            digests.mark_stale(path)
    return digests.of(entries, children)


SLACK = 20_000_000
"""Nanoseconds: two ticks of the coarsest file system clock. A ctime that is more recent may not show a later change."""
_READ = os.O_RDONLY | NOFOLLOW | NONBLOCK | CLOEXEC
_LIST = os.O_RDONLY | NOFOLLOW | DIRECTORY | CLOEXEC
_TRIES = 3
# Errors of `os.open` if an entry was removed, or replaced by one of another kind, after `os.stat`: no entry, a file
# instead of a folder, a link, a socket.
_VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
TOO_LARGE = "too large"
UNREADABLE = "may not be read"
SPECIAL = "not a file, folder or link"
DEEPEST = 100
TOO_DEEP = "nested too deep"
UNSTABLE = "changed while it was read, so the snapshot may contain an intermediate state"

_Sign = tuple[int, ...]


def _sign(status: os.stat_result) -> _Sign:
    return status.st_ctime_ns, status.st_ino, status.st_size


def _folder_sign(status: os.stat_result) -> _Sign:
    return status.st_ino, status.st_mode


# --- trees in events: rows of a whole tree, or of its changes. Pure. ---
#
# A row is ``[path, kind, mode, content, mtime]``, or ``[path]`` for a removed entry. A path that is not UTF-8 is bytes.
# The content of a file is a `StoredFile`, which a store keeps once. Example of a changed file: ``a.txt``, ``f``, 0o644,
# its `StoredFile`, 1700000000000000000.


Manifest = Sequence[Sequence[Any]]


def manifest_of(delta: Mapping[str, TreeEntry | None], contents: Mapping[str, bytes]) -> list[list[Any]]:
    """Convert changed tree entries to the list that an event stores for a snapshot, with one row per path. The entry
    None stands for a removed path.

    Parameters
    ----------
    contents
        Contents to store with the rows, by digest.
    """
    return [_row(path, entry, contents) for path, entry in sorted(delta.items())]


def _row(path: str, entry: TreeEntry | None, contents: Mapping[str, bytes]) -> list[Any]:
    if entry is None:
        return [_storable_name(path)]
    if entry.kind != FILE:
        return [_storable_name(path), entry.kind, entry.mode, _storable_name(entry.content)]
    content = StoredFile(entry.content, entry.size, contents.get(entry.content))
    return [_storable_name(path), entry.kind, entry.mode, content, entry.mtime]


def _storable_name(text: str) -> str | bytes:
    """Return the name of a file in a form that an event can store: as text, or as bytes if it is not valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def tree_of(manifests: Iterable[Manifest]) -> Tree:
    """Rebuild the tree of a folder from the changes that the events of its snapshots store, oldest first."""
    return changed_tree(NO_ENTRIES, manifests)


def changed_tree(entries: TreeEntries, manifests: Iterable[Manifest]) -> Tree:
    """Apply changes to the entries of a tree and return the new tree. The changes come from the events of snapshots,
    oldest first.
    """
    result = dict(entries)
    for manifest in manifests:
        for row in manifest:
            path = _read(row[0])
            # A row of one field is a removal.
            if len(row) > 1:
                result[path] = _entry(row[1:])
            else:
                result.pop(path, None)
    return Tree(digest_of(result), result)


def versions_in(manifests: Iterable[Manifest]) -> dict[str, set[TreeEntry | None]]:
    """Return a dict with all versions (tree entries) of each path, from the events of several snapshots. None stands
    for a removal.
    """
    versions: dict[str, set[TreeEntry | None]] = {}
    for manifest in manifests:
        for row in manifest:
            versions.setdefault(_read(row[0]), set()).add(_entry(row[1:]) if len(row) > 1 else None)
    return versions


def _entry(fields: Sequence[Any]) -> TreeEntry:
    kind, mode, content, *more = fields
    if isinstance(content, StoredFile):
        return TreeEntry(kind, mode, content.digest, content.size, more[0])
    return TreeEntry(kind, mode, _read(content))


def _read(name: str | bytes) -> str:
    return os.fsdecode(name) if isinstance(name, bytes) else name
