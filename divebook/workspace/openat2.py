"""The kernel's own way to open below a folder: ``openat2`` (Linux 5.6), by ctypes since Python has none."""

from __future__ import annotations

import ctypes
import errno
import functools
import os

_NUMBER = 437
"""Of the system call, the same on every architecture."""
_NO_MAGICLINKS, _BENEATH = 0x02, 0x08
_TRIES = 64
AT_FDCWD = -100
PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
"""Opens a name without what is behind it."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def _syscall() -> ctypes._NamedFuncPointer:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t]
    return call


def open_beneath(folder: int, path: str, flags: int, mode: int) -> int:
    """Return a descriptor of what is at a path below an open folder, which no link on the way leads out of.

    Raises
    ------
    OSError
        With EXDEV where the path leads out, and also where an absolute link leads to inside.
    """
    if flags & PATH_ONLY == PATH_ONLY:  # openat2 refuses what openat ignores beside O_PATH
        flags &= PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    how = _How(flags, mode if flags & os.O_CREAT else 0, _NO_MAGICLINKS | _BENEATH)
    code = 0
    for _ in range(_TRIES):
        found = _syscall()(_NUMBER, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return int(found)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a rename has come between two steps of ".."
            break
    raise OSError(code, os.strerror(code), path)


@functools.cache
def has_openat2() -> bool:
    """Whether the kernel has it; the rules of old container engines say EPERM or ENOSYS."""
    try:
        os.close(open_beneath(AT_FDCWD, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0))
    except (OSError, AttributeError):  # no such call, no such library
        return False
    return True
