"""Looking at a folder: which of its files are others than at the last look, and what they hold.

A file is read again only if its ctime, inode or size differ, or if its ctime is so close to the last look that a later
change could bear the same one: whatever changes a file changes its ctime, which cannot be put back as other times can,
but clocks of files tick. A folder is listed again by the same rule: what comes, goes or is renamed in it changes its
ctime. With a `FolderWatch` only what the kernel named is looked at. Everything goes through
`divebook.workspace.paths.Root`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

from divebook.workspace.paths import Root
from divebook.workspace.snapshots.hashing import Digests
from divebook.workspace.snapshots.trees import FILE, FOLDER, LINK, LeftOut, TreeEntry
from divebook.workspace.snapshots.watch import FolderWatch

SLACK = 20_000_000
"""Nanoseconds: two ticks of the coarsest clock of file systems in use."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_TRIES = 3
TOO_LARGE, UNREADABLE, SPECIAL = "too large", "may not be read", "not a file, folder or link"
DEEPEST, TOO_DEEP = 100, "nested too deep"
UNSTABLE = "was written while it was read: the tree has what it held for a moment"

_Sign = tuple[int, ...]


def _sign(found: os.stat_result) -> _Sign:
    return found.st_ctime_ns, found.st_ino, found.st_size


def _folder_sign(found: os.stat_result) -> _Sign:
    return found.st_ino, found.st_mode


class Looker:
    """What is known of a folder, and how it is found out.

    Parameters
    ----------
    is_left_out
        Whether a path, with its name, is no part of the tree.
    largest
        Bytes of a file that is still read.
    watch
        What tells of changes; None has everything looked at each time.
    """

    def __init__(
        self, root: Root, is_left_out: Callable[[str, str], bool], largest: int, watch: FolderWatch | None
    ) -> None:
        self._root, self._is_left_out, self._largest, self._watch = root, is_left_out, largest, watch
        self.entries: dict[str, TreeEntry] = {}
        self.problems: dict[str, str] = {}
        """Why a path is left out, or not sure, by path."""
        self.delta: dict[str, TreeEntry | None] = {}
        """What the present look found to be otherwise; None is gone."""
        self.contents: dict[str, bytes] = {}
        """What files hold that the present look has read, by digest."""
        self._digests = Digests()
        self._children: dict[str, set[str]] = {"": set()}
        self._signs: dict[str, dict[str, _Sign]] = {}
        """By folder and name; none of files that may have changed since without a sign of it."""
        self._listed: dict[str, tuple[_Sign, list[str]]] = {}
        """By folder, its ctime and inode and all names in it, as with signs of files."""
        self._racy: set[str] = set()
        """Files that may have changed since without a sign of it."""
        self._linked: set[str] = set()
        """Files with several names, which are looked at each time: a change by another name is not told."""
        self._is_new, self._is_relinked = True, False
        self._next_racy: set[str] = set()
        self._began = 0

    def forget(self) -> None:
        """Look at everything next time."""
        self._is_new = True

    def look(self, *, everything: bool) -> str:
        """Find out what has changed; return the digest of the tree."""
        self.delta, self.contents, self._next_racy, self._is_relinked = {}, {}, set(), False
        self._began = time.time_ns()
        watch = self._watch
        told = watch.drain() if watch is not None else {}
        if watch is None or everything or self._is_new or watch.is_lost:
            if watch is not None:
                watch.is_lost = False
            self._everything()
        else:
            for path in self._racy | self._linked:
                folder, _, name = path.rpartition("/")
                told.setdefault(folder, set()).add(name)
            for folder, names in sorted(told.items()):
                self._names(folder, names)
            if self._is_relinked:  # other names of a file may be here as well, and nothing tells of them
                self._everything()
        for path in self._next_racy:
            folder, _, name = path.rpartition("/")
            self._signs.get(folder, {}).pop(name, None)  # the folder may have gone during this look
        self._racy, self._is_new = self._next_racy, False
        return self._digests.of(self.entries, self._children)

    def _everything(self) -> None:
        self._folder("", os.open(".", _LIST, dir_fd=self._root.fd))
        for path in [path for path in self.problems if not self._is_there(path)]:
            del self.problems[path]

    def _is_there(self, path: str) -> bool:
        try:
            with self._root.parent(path) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _names(self, folder: str, names: set[str]) -> None:
        """Look at some names of a folder."""
        if folder not in self._children:
            return  # it went with the one around it
        try:
            opened = self._root.open(folder or ".", _LIST)
        except OSError:
            return  # what is told of the one around it says so
        try:
            for name in names:
                path = f"{folder}/{name}" if folder else name
                try:
                    found = os.stat(name, dir_fd=opened, follow_symlinks=False)
                except FileNotFoundError:
                    self._gone(path)
                else:
                    self._entry(path, name, found, opened)
        finally:
            os.close(opened)

    def _folder(self, folder: str, opened: int) -> None:
        """Look at a folder and all below it; closes its descriptor."""
        try:
            if self._watch is not None:
                self._watch.add(self._root.path, folder)
            prefix = f"{folder}/" if folder else ""
            names = self._listing(folder, opened)
            for name in self._children.setdefault(folder, set()).difference(names):
                self._gone(prefix + name)
            sign_of, look = self._signs.setdefault(folder, {}).get, os.stat
            for name in names:
                try:
                    found = look(name, dir_fd=opened, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                # As `_sign`, but without a call for each of perhaps ten thousand files (`benchmarks.snapshots`).
                if sign_of(name) != (found.st_ctime_ns, found.st_ino, found.st_size):
                    self._entry(prefix + name, name, found, opened, deep=True)
        finally:
            os.close(opened)

    def _listing(self, folder: str, opened: int) -> list[str]:
        """Return the names in a folder, as listed before if none can have come or gone since."""
        found = os.fstat(opened)
        sign, known = (found.st_ctime_ns, found.st_ino), self._listed.get(folder)
        if known is not None and known[0] == sign:
            return known[1]
        names = os.listdir(opened)
        if self._began - found.st_ctime_ns >= SLACK:
            self._listed[folder] = sign, names
        else:
            self._listed.pop(folder, None)
        return names

    def _entry(self, path: str, name: str, found: os.stat_result, folder: int, *, deep: bool = False) -> None:
        mode, known = found.st_mode, self.entries.get(path)
        if known is None and self._is_left_out(path, name):
            return
        if known is not None and (known.kind == FOLDER) is not stat.S_ISDIR(mode):
            self._gone(path)
            known = None
        if stat.S_ISDIR(mode):
            self._folder_entry(path, name, found, folder, deep=deep)
            return
        if found.st_nlink > 1:
            self._is_relinked |= path not in self._linked
            self._linked.add(path)
        else:
            self._linked.discard(path)
        if known is not None and self._sign_of(path) == _sign(found):
            return
        if stat.S_ISREG(mode):
            self._file(path, name, folder)
        elif stat.S_ISLNK(mode):
            with suppress(OSError):  # it was changed meanwhile, which the next look sees
                self._set(path, TreeEntry(LINK, content=os.readlink(name, dir_fd=folder)), _sign(found))
        else:
            self._leave_out(path, SPECIAL)

    def _folder_entry(self, path: str, name: str, found: os.stat_result, folder: int, *, deep: bool) -> None:
        if path.count("/") >= DEEPEST:
            self._leave_out(path, TOO_DEEP)
            return
        sign = self._sign_of(path)
        is_known = path in self._children and sign is not None and sign[0] == found.st_ino
        is_seen = self._watch is None or self._watch.sees(path)
        if path in self._children and not deep and not (is_known and is_seen):
            self._gone(path)  # another folder of the same name: what is watched is the old one
        if sign != _folder_sign(found) or path not in self._children or path in self.problems:
            self._set(path, TreeEntry(FOLDER, found.st_mode & 0o7777), _folder_sign(found))
            self._children.setdefault(path, set())
        if deep or not (is_known and is_seen):
            try:
                below = os.open(name, _LIST, dir_fd=folder)
            except PermissionError:
                self.problems[path] = UNREADABLE
            except OSError:  # it is gone, or no folder any more, which the next look sees
                return
            else:
                self._folder(path, below)

    def _file(self, path: str, name: str, folder: int) -> None:
        try:
            opened = os.open(name, _READ, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                self._leave_out(path, UNREADABLE)
            return
        try:
            read = self._read(opened)
        finally:
            os.close(opened)
        if read is None:
            self._leave_out(path, TOO_LARGE)
            return
        content, found, is_stable = read
        digest = sha256(content).hexdigest()
        self.contents[digest] = content
        if not is_stable or self._began - found.st_ctime_ns < SLACK:
            self._next_racy.add(path)
        mode, mtime = found.st_mode & 0o7777, found.st_mtime_ns
        self._set(path, TreeEntry(FILE, mode, digest, len(content), mtime), _sign(found))
        if not is_stable:
            self.problems[path] = UNSTABLE

    def _read(self, opened: int) -> tuple[bytes, os.stat_result, bool] | None:
        """Return what a file holds, what is said of it, and whether that stood still; None if it is too large."""
        content, after, is_stable = b"", os.fstat(opened), False
        for _ in range(_TRIES):
            before = after
            if before.st_size > self._largest:
                return None
            with open(opened, "rb", closefd=False) as file:
                file.seek(0)
                content = file.read(self._largest + 1)
            after = os.fstat(opened)
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
        self._digests.is_stale(path if entry.kind == FOLDER else folder)

    def _sign_of(self, path: str) -> _Sign | None:
        folder, _, name = path.rpartition("/")
        return self._signs.get(folder, {}).get(name)

    def _leave_out(self, path: str, reason: str) -> None:
        self._gone(path)
        self.problems[path] = reason

    def _gone(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        for child in list(self._children.get(path, ())):
            self._gone(f"{path}/{child}")
        if self._children.pop(path, None) is not None:
            self._digests.forget(path)
            if self._watch is not None:
                self._watch.remove(path)
        self._signs.pop(path, None)
        self._listed.pop(path, None)
        self._signs.get(folder, {}).pop(name, None)
        self.problems.pop(path, None)
        self._linked.discard(path)
        if path in self.entries:
            self._children[folder].discard(name)
            del self.entries[path]
            self.delta[path] = None
            self._digests.is_stale(folder)

    def told(self) -> tuple[LeftOut, ...]:
        """Return what is not as it should be, by path."""
        return tuple(LeftOut(path, reason) for path, reason in sorted(self.problems.items()))
