"""Looking at a folder: which of its files are others than at the last look, and what they hold.

A file is read again only if its ctime, inode or size differ, or if its ctime is so close to the last look that a later
change could bear the same one: whatever changes a file changes its ctime, which cannot be put back as other times can,
but clocks of files tick. A folder is listed again by the same rule: what comes, goes or is renamed in it changes its
ctime. With a `FolderWatch` only what the kernel named is looked at. Everything goes through
`divebook.workspace.paths.Root`.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple, Self

from divebook.documents.repository import matches
from divebook.events.values import StoredFile
from divebook.workspace.paths import Root
from divebook.workspace.snapshots.restore import GetContent, put_back
from divebook.workspace.snapshots.tree import FILE, FOLDER, LINK, NO_ENTRIES, LeftOut, Tree, TreeEntries, TreeEntry
from divebook.workspace.workspace import several

# What has changed below a folder since the last look, from the kernel: inotify by ctypes, a watch for each folder.
#
# The kernel queues an event within the call that makes the change, so that when a command has ended all it did is in
# the queue. Not told: a mapped file while it is mapped, changes by another name of a hard link, changes through a
# network. When the kernel has lost count, or what was changed is not what stands under its name now, everything is to
# be looked at (`is_lost`): a name that was written and then went may have been one of another file's
# (test_a_change_by_a_name_that_is_gone_is_seen).


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
_COME = _CREATE | _TO
_GONE = _DELETE
_ONLY_FOLDERS = 0x01000000
_NOT_FOLLOWED = 0x02000000
_LINKED = 0x04000000
_MASK = _MODIFY | _ATTRIB | _CLOSE_WRITE | _FROM | _TO | _CREATE | _DELETE | _ONLY_FOLDERS | _NOT_FOLLOWED | _LINKED
_HEAD = struct.Struct("iIII")
_MOST = 1 << 18


class FolderWatch:
    """The folders of one root that the kernel watches."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._fd = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"inotify: {os.strerror(code)}")
        self._folders: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self.is_lost = False
        """Whether something may have changed of which nothing is told."""

    @classmethod
    def made(cls) -> FolderWatch | None:
        """Return a watch; None where the system has none to give."""
        try:
            return cls()
        except (OSError, AttributeError):  # no more of them for this user; another system
            return None

    def add(self, root: str, folder: str) -> None:
        """Watch a folder; to be done before it is listed, so that nothing falls between."""
        number = self._library.inotify_add_watch(self._fd, os.fsencode(os.path.join(root, folder)), _MASK)
        if number < 0:  # it is gone, or there are too many
            self.is_lost = True
            return
        self._folders[number] = folder
        self._numbers[folder] = number

    def remove(self, folder: str) -> None:
        """Watch a folder no more."""
        number = self._numbers.pop(folder, None)
        if number is not None and self._folders.get(number) == folder:
            del self._folders[number]
            self._library.inotify_rm_watch(self._fd, number)

    def sees(self, folder: str) -> bool:
        """Return whether a folder is watched."""
        return folder in self._numbers

    def drain(self) -> dict[str, set[str]]:
        """Return the names that may have changed, by folder."""
        told = _Told()
        while True:
            try:
                data = os.read(self._fd, _MOST)
            except BlockingIOError:
                self.is_lost |= told.is_unsure
                return told.names
            self._read(data, told)

    def _read(self, data: bytes, told: _Told) -> None:
        at = 0
        while at < len(data):
            number, mask, cookie, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            name = data[at : at + length].rstrip(b"\0")
            at += length
            if mask & _OVERFLOW:
                self.is_lost = True
            elif mask & _IGNORED:  # the folder is gone; another one may have its name, and even its inode
                folder = self._folders.pop(number, None)
                if folder is not None and self._numbers.get(folder) == number:
                    del self._numbers[folder]
            elif name and number in self._folders:
                told.take(self._folders[number], os.fsdecode(name), mask, cookie)

    def close(self) -> None:
        """Let go of all watches; twice is once."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Told:
    """What was told since the last look."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self._written: set[tuple[str, str]] = set()
        """Names whose file was written, as long as it stands under that name."""
        self._moving: set[int] = set()
        """Files that were written, and have left their name for another one."""
        self._has_new_folders = False

    @property
    def is_unsure(self) -> bool:
        """Whether something may have been written that stands under another name."""
        return self._has_new_folders or bool(self._moving)

    def take(self, folder: str, name: str, mask: int, cookie: int) -> None:
        """Take note of what happened to a name."""
        self.names.setdefault(folder, set()).add(name)
        place = folder, name
        if mask & _IS_FOLDER:  # what happened in a new one before it is watched is not told
            self._has_new_folders |= bool(mask & _COME)
            return
        if place in self._written and mask & (_COME | _GONE | _FROM):
            self._written.discard(place)
            self._moving.add(cookie if mask & _FROM else 0)
        if mask & _WRITTEN or (mask & _TO and cookie in self._moving):
            self._written.add(place)
            self._moving.discard(cookie)


# The digest of a tree: a hash of hashes, so that only the folders above a change are hashed anew. Pure.


class Digests:
    """The digests of the folders of one tree, as it changes."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}
        self._stale: set[str] = {""}

    def is_stale(self, folder: str) -> None:
        """Note that something in a folder has changed, and with it all folders around it."""
        while folder not in self._stale:
            self._stale.add(folder)
            folder = folder.rpartition("/")[0]

    def forget(self, folder: str) -> None:
        """Note that a folder is gone."""
        self._known.pop(folder, None)
        self._stale.discard(folder)

    def of(self, entries: Mapping[str, TreeEntry], children: Mapping[str, set[str]]) -> str:
        """Return the digest of the whole tree, hexadecimal."""
        for folder in sorted(self._stale, key=_depth, reverse=True):
            if folder in children:
                self._known[folder] = self._folder(folder, entries, children[folder])
        self._stale = set()
        return self._known[""].hex()

    def _folder(self, folder: str, entries: Mapping[str, TreeEntry], names: set[str]) -> bytes:
        hasher = sha256()
        prefix = f"{folder}/" if folder else ""
        for name in sorted(names):
            entry = entries[prefix + name]
            content = self._known[prefix + name] if entry.kind == FOLDER else os.fsencode(entry.content)
            hasher.update(f"{entry.kind} {entry.mode:o} {len(content)} ".encode() + os.fsencode(name) + b"\0" + content)
        return hasher.digest()


def _depth(folder: str) -> int:
    return folder.count("/") + bool(folder)


def digest_of(entries: Mapping[str, TreeEntry]) -> str:
    """Return the digest of a tree of which only the entries are known, hexadecimal."""
    children: dict[str, set[str]] = {"": set()}
    digests = Digests()
    for path, entry in entries.items():
        folder, _, name = path.rpartition("/")
        children.setdefault(folder, set()).add(name)
        if entry.kind == FOLDER:
            children.setdefault(path, set())
            digests.is_stale(path)
    return digests.of(entries, children)


SLACK = 20_000_000
"""Nanoseconds: two ticks of the coarsest clock of file systems in use."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_TRIES = 3
TOO_LARGE = "too large"
UNREADABLE = "may not be read"
SPECIAL = "not a file, folder or link"
DEEPEST = 100
TOO_DEEP = "nested too deep"
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
        self._root = root
        self._is_left_out = is_left_out
        self._largest = largest
        self._watch = watch
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
        self._is_new = True
        self._is_relinked = False
        self._next_racy: set[str] = set()
        self._began = 0

    def forget(self) -> None:
        """Look at everything next time."""
        self._is_new = True

    def look(self, *, everything: bool) -> str:
        """Find out what has changed; return the digest of the tree."""
        self.delta = {}
        self.contents = {}
        self._next_racy = set()
        self._is_relinked = False
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
        self._racy = self._next_racy
        self._is_new = False
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
            sign_of = self._signs.setdefault(folder, {}).get
            look = os.stat
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
        sign = (found.st_ctime_ns, found.st_ino)
        known = self._listed.get(folder)
        if known is not None and known[0] == sign:
            return known[1]
        names = os.listdir(opened)
        if self._began - found.st_ctime_ns >= SLACK:
            self._listed[folder] = sign, names
        else:
            self._listed.pop(folder, None)
        return names

    def _entry(self, path: str, name: str, found: os.stat_result, folder: int, *, deep: bool = False) -> None:
        mode = found.st_mode
        known = self.entries.get(path)
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
        mode = found.st_mode & 0o7777
        mtime = found.st_mtime_ns
        self._set(path, TreeEntry(FILE, mode, digest, len(content), mtime), _sign(found))
        if not is_stable:
            self.problems[path] = UNSTABLE

    def _read(self, opened: int) -> tuple[bytes, os.stat_result, bool] | None:
        """Return what a file holds, what is said of it, and whether that stood still; None if it is too large."""
        content = b""
        after = os.fstat(opened)
        is_stable = False
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


# The snapshots of one folder: taken as it changes, and put back.


LARGEST = 100_000_000
"""Bytes of a file that is still kept."""


class Taken(NamedTuple):
    """A tree, and what is new in it."""

    tree: Tree
    delta: Mapping[str, TreeEntry | None]
    """What is otherwise than in the tree before, by path; None is gone."""
    contents: Mapping[str, bytes]
    """What files hold that are new in it, by digest."""


class Snapshots:
    """What a folder holds at each look; one object for a live folder, in any thread, one look at a time.

    Parameters
    ----------
    root
        The folder; who made it closes it.
    exclude
        Patterns of what is left out and left alone: of names (``*.pyc``), or of paths (``build/**``).
    largest
        Bytes of a file that is still kept; what is larger is told among the problems.
    watch
        Whether the kernel is asked what has changed, where it can tell; else everything is looked at.
    """

    def __init__(self, root: Root, *, exclude: Sequence[str] = (), largest: int = LARGEST, watch: bool = True) -> None:
        self.root = root
        self._watch = FolderWatch.made() if watch else None
        is_left_out = functools.partial(_is_left_out, _Patterns.of(several(exclude, "exclude")))
        self._looker = Looker(root, is_left_out, largest, self._watch)
        self._lock = threading.Lock()
        self.tree = Tree("", NO_ENTRIES)
        """As it was at the last look."""

    def take(self, *, everything: bool = False) -> Taken:
        """Look what the folder holds now.

        Parameters
        ----------
        everything
            Look at each file, whatever is told of it.
        """
        with self._lock:
            return self._take(everything=everything)

    def _take(self, *, everything: bool) -> Taken:
        looker = self._looker
        try:
            digest = looker.look(everything=everything)
        except BaseException:
            looker.forget()
            raise
        entries = dict(looker.entries) if looker.delta or not self.tree.digest else self.tree.entries
        self.tree = Tree(digest, entries, looker.told())
        return Taken(self.tree, looker.delta, looker.contents)

    def restore(self, tree: Tree, get: GetContent) -> Taken:
        """Make the folder hold what a tree has, and nothing else; return it, with what was changed to come there.

        What is left out of snapshots is left alone. Whatever is there now and stands in no tree is lost: take it first.

        Parameters
        ----------
        get
            Returns the content of a file by its digest.
        """
        with self._lock:
            self._take(everything=True)
            put_back(self.root, self.tree.entries, tree.entries, get)
            return self._take(everything=True)

    def close(self) -> None:
        """Let go of what watches the folder; twice is once."""
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Patterns(NamedTuple):
    """What is left out."""

    names: tuple[str, ...]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, written: Sequence[str]) -> Self:
        """Return patterns as they are written: one without a slash is of a name at any depth."""
        trimmed = [pattern.rstrip("/") for pattern in written]
        names = tuple(pattern for pattern in trimmed if "/" not in pattern)
        return cls(names, tuple(pattern.lstrip("/") for pattern in trimmed if "/" in pattern))


def _is_left_out(patterns: _Patterns, path: str, name: str) -> bool:
    return any(matches(pattern, name) for pattern in patterns.names) or any(
        matches(pattern, path) for pattern in patterns.paths
    )


# Trees as events hold them: rows of paths and what stands there, of a whole tree or of what has changed. Pure.
#
# A row is ``[path, kind, mode, content, mtime]``, of what is gone ``[path]``. A path that is no UTF-8 is bytes. The
# content of a file is a `StoredFile`, which a store keeps once.


Manifest = Sequence[Sequence[Any]]


def manifest_of(delta: Mapping[str, TreeEntry | None], contents: Mapping[str, bytes]) -> list[list[Any]]:
    """Return rows of what has changed; None stands for what is gone.

    Parameters
    ----------
    contents
        What is to be kept with them, by digest.
    """
    return [_row(path, entry, contents) for path, entry in sorted(delta.items())]


def _row(path: str, entry: TreeEntry | None, contents: Mapping[str, bytes]) -> list[Any]:
    if entry is None:
        return [_written(path)]
    if entry.kind != FILE:
        return [_written(path), entry.kind, entry.mode, _written(entry.content)]
    content = StoredFile(entry.content, entry.size, contents.get(entry.content))
    return [_written(path), entry.kind, entry.mode, content, entry.mtime]


def _written(text: str) -> str | bytes:
    """Return a name as JSON can have it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def tree_of(manifests: Iterable[Manifest]) -> Tree:
    """Return the tree that manifests come to, the oldest first."""
    return changed_tree(NO_ENTRIES, manifests)


def changed_tree(entries: TreeEntries, manifests: Iterable[Manifest]) -> Tree:
    """Return the tree that the entries of one come to with changes, the oldest first."""
    found = dict(entries)
    for manifest in manifests:
        for row in manifest:
            path = _read(row[0])
            if len(row) > 1:
                found[path] = _entry(row[1:])
            else:
                found.pop(path, None)
    return Tree(digest_of(found), found)


def versions_in(manifests: Iterable[Manifest]) -> dict[str, set[TreeEntry | None]]:
    """Return what stood at each path at some time; None where it was gone."""
    found: dict[str, set[TreeEntry | None]] = {}
    for manifest in manifests:
        for row in manifest:
            found.setdefault(_read(row[0]), set()).add(_entry(row[1:]) if len(row) > 1 else None)
    return found


def _entry(told: Sequence[Any]) -> TreeEntry:
    kind, mode, content, *more = told
    if isinstance(content, StoredFile):
        return TreeEntry(kind, mode, content.digest, content.size, more[0])
    return TreeEntry(kind, mode, _read(content))


def _read(name: str | bytes) -> str:
    return os.fsdecode(name) if isinstance(name, bytes) else name
