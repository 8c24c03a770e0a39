"""What has changed below a folder since the last look, from the kernel: inotify by ctypes, a watch for each folder.

The kernel queues an event within the call that makes the change, so that when a command has ended all it did is in the
queue. Not told: a mapped file while it is mapped, changes by another name of a hard link, changes through a network.
When the kernel has lost count, or what was changed is not what stands under its name now, everything is to be looked at
(`is_lost`): a name that was written and then went may have been one of another file's
(test_a_change_by_a_name_that_is_gone_is_seen).
"""

from __future__ import annotations

import ctypes
import os
import struct

_MODIFY, _ATTRIB, _CLOSE_WRITE, _FROM, _TO, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_WRITTEN, _COME, _GONE = _MODIFY | _ATTRIB | _CLOSE_WRITE, _CREATE | _TO, _DELETE
_ONLY_FOLDERS, _NOT_FOLLOWED, _LINKED = 0x01000000, 0x02000000, 0x04000000
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
        self._folders[number], self._numbers[folder] = folder, number

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
