"""What is around a call that is made in another process: the working directory, the variables, the code of modules.

A process is started once for many calls. Where it was started is no matter: a call finds what its owner has when it
begins, and one that has imported a file which has changed since makes no more calls.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from contextlib import suppress
from typing import NamedTuple

_INSTALLED = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
"""Folders of code that nobody edits."""
_NEVER = (0, -1)
"""What no file is."""


class Around(NamedTuple):
    """What a process has that calls see."""

    folder: str | None
    """None if it is gone."""
    variables: dict[str, str] | dict[bytes, bytes]
    """As the system has them."""
    imports: list[str]
    """Where modules are looked for."""

    @classmethod
    def of_now(cls) -> Around:
        """Return that of this process; other threads may change it meanwhile."""
        folder = None
        with suppress(OSError):
            folder = os.getcwd()  # noqa: PTH109 - twice a call
        held = getattr(os.environ, "_data", os.environ)  # as one copy, and in a tenth of the time that decoding takes
        return cls(folder, dict(held), [*map(str, sys.path)])

    def enter(self) -> None:
        """Have this process be so; a folder that is gone by now is left out."""
        here = self.of_now()
        if self.folder is not None and here.folder != self.folder:
            with suppress(OSError):
                os.chdir(self.folder)
        if here.variables != self.variables:
            for name in here.variables.keys() - self.variables.keys():
                os.environ.pop(os.fsdecode(name), None)
            os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in self.variables.items()})
        if here.imports != self.imports:
            sys.path[:] = self.imports


class KnownModules:
    """The files that this process has imported, but for what is installed, as they were then."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        """Time and size of each file."""
        self._seen: set[str] = set()
        self._began = time.time_ns()
        self.look()

    def have_changed(self) -> bool:
        """Whether a file is another one than it was when it was imported; asked when a call begins."""
        self._began = time.time_ns()
        return any(_stamp(file, found) != found for file, found in self._known.items())

    def look(self) -> None:
        """Note what a call has imported."""
        for name in [name for name in list(sys.modules) if name not in self._seen]:
            self._seen.add(name)
            file = getattr(sys.modules.get(name), "__file__", None)
            if not isinstance(file, str) or name.partition(".")[0] == "divebook" or _is_installed(file):
                continue
            found = _stamp(file, _NEVER)
            if found != _NEVER:
                is_late = self._began <= found[0] <= time.time_ns()  # it may have been imported before it changed
                self._known[file] = _NEVER if is_late else found


def _is_installed(file: str) -> bool:
    real = os.path.realpath(file)
    return real.startswith(_INSTALLED) or f"{os.sep}site-packages{os.sep}" in real  # of another environment


def _stamp(file: str, otherwise: tuple[int, int]) -> tuple[int, int]:
    """Return time and size of a file, or something else if there is none, as of what is in an archive."""
    try:
        about = os.stat(file)  # noqa: PTH116 - many times a call
    except OSError:
        return otherwise
    return about.st_mtime_ns, about.st_size
