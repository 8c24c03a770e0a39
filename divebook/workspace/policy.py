"""Which folders may be reached: one rule for files, scratch, the folders of commands, and tools."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

from divebook.errors import PathNotAllowedError, WorkspaceNotEnteredError
from divebook.workspace.paths import Root, path_of

T = TypeVar("T")
Guard: TypeAlias = Callable[[Path, Path], str]


class PathPolicy:
    """Folders that may be reached, and nothing else.

    A path is held against each of them as it is written, then without ``..``, then without links: what is opened is
    always below one of them, whatever changes meanwhile (`divebook.workspace.paths.Root`).

    Parameters
    ----------
    default
        The folder that relative paths are of.
    allowed
        The others.
    guard
        Returns why a file below a folder is refused all the same, from the real paths of both; empty if it is not. It
        is asked about what was opened, so that no link and no spelling gets past it.
    """

    def __init__(self, default: Root, allowed: Sequence[Root] = (), guard: Guard | None = None) -> None:
        self.default, self._roots, self._is_closed = default, [default, *allowed], False
        self._guard = guard

    @property
    def roots(self) -> list[Root]:
        """The folders that may be reached, the default one first."""
        return list(self._roots)

    def add(self, root: Root) -> None:
        """Let one more folder be reached."""
        self._roots.append(root)

    def absolute(self, path: str | os.PathLike[str]) -> str:
        """Return a path as it is from the root of all, by its text."""
        text = os.fspath(path)
        return text if text.startswith("/") else f"{self.default.name.rstrip('/')}/{text}"

    def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Return a descriptor of what is at a path; see `Root.open`."""
        return self._admitted(path, self._tried(path, lambda root, text: root.open(text, flags, mode)))

    def open_regular(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Return a descriptor of a plain file; see `Root.open_regular`."""
        return self._admitted(path, self._tried(path, lambda root, text: root.open_regular(text, flags, mode)))

    def _admitted(self, path: str, descriptor: int, name: str = "") -> int:
        """Return the descriptor of what was opened, or of the folder with a name, unless the guard refuses it."""
        if self._guard is not None and (reason := self._refusal(f"{path_of(descriptor)}/{name}")):
            os.close(descriptor)
            raise PathNotAllowedError(path, reason)
        return descriptor

    def _refusal(self, real: str) -> str:
        """Return why the guard refuses a real path, judged from the deepest folder that holds it."""
        folders = (root.path for root in self._roots if real.startswith(f"{root.path.rstrip('/')}/"))
        return "" if self._guard is None else self._guard(Path(real), Path(max(folders, key=len, default="/")))

    @property
    def is_guarded(self) -> bool:
        """Whether some files below its folders may be refused."""
        return self._guard is not None

    def visible(self, descriptor: int, names: Iterable[str]) -> list[str]:
        """Return those of the names in an open folder that the guard does not refuse."""
        if self._guard is None:
            return [*names]
        folder = path_of(descriptor)
        return [name for name in names if not self._refusal(f"{folder}/{name}")]

    def real(self, path: str) -> str:
        """Return a path without links."""
        return self._tried(path, lambda root, text: root.real(text))

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Give the descriptor of the folder that holds a path, and its last name."""
        entered = self._tried(path, _entered)
        self._admitted(path, *entered)
        try:
            yield entered
        finally:
            os.close(entered[0])

    def folder(self, path: str | None) -> str:
        """Return the path of a folder in which a command may start."""
        return self.real(self.default.name if path is None else path)

    def _tried(self, path: str, act: Callable[[Root, str], T]) -> T:
        """Return what comes of a path under the first folder that lets it be reached."""
        if self._is_closed:
            raise WorkspaceNotEnteredError(
                f"the workspace of {self.default.name} was left: enter it again, and take its files and shell anew"
            )
        text, rule = self.absolute(path), ""
        for written in self._ways(text):
            for root in self._holding(written):
                try:
                    return act(root, written)
                except PathNotAllowedError as error:
                    rule = rule or error.rule
                except (FileNotFoundError, NotADirectoryError):  # what leads out is refused, whatever is missing there
                    if self._holding(os.path.normpath(text)):
                        raise
        raise PathNotAllowedError(os.fspath(path).replace("\0", "\\0"), rule, [root.name for root in self._roots])

    def _ways(self, text: str) -> Iterator[str]:
        yield text
        yield os.path.normpath(text)
        with suppress(ValueError, OSError):  # NUL; links in a circle
            yield os.path.realpath(text)

    def _holding(self, text: str) -> list[Root]:
        """Return the folders that a path is below by its text, the deepest first."""
        return sorted((root for root in self._roots if root.holds(text)), key=lambda root: -len(root.name))

    def close(self) -> None:
        """Let go of all folders; twice is once."""
        self._is_closed = True
        for root in self._roots:
            root.close()


def _entered(root: Root, text: str) -> tuple[int, str]:
    with root.parent(text) as (folder, name):
        return os.dup(folder), name
