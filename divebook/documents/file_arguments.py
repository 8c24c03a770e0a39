"""Arguments of tools that name files: the spellings by which approval rules know the file that a call would reach.

A tool follows links, and ``./a//b``, ``x/../a/b`` and an absolute path all reach ``a/b``. A rule about ``a/b`` holds
for the file, so a call is judged by the real path of the file, once below the working folder and once absolute. A rule
that asks or denies also holds for the file that its own path leads to: one about ``secret/**`` protects ``vault/``
where ``secret`` is a link to ``vault``. The path of a rule that allows is not followed: whoever makes a link under an
allowed name must not extend the rule to the link's target.
"""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_WILDCARD = "*"


class FileArguments:
    """Arguments that name files below a folder.

    Parameters
    ----------
    names
        Names of the arguments, at any depth: ``src`` in ``{"pairs": [{"src": "a", "dst": "b"}]}``.
    folder
        The working folder, to which paths of rules are relative.
    start
        The folder to which paths of calls are relative; by default the working folder.
    shown_as
        Absolute path of the working folder as the tool knows it, such as the mount point in a container.
    path_of_name
        Returns the path that a registered name stands for; None for what is not a file.
    """

    def __init__(
        self,
        names: Sequence[str],
        folder: Path,
        shown_as: str | None = None,
        start: Path | None = None,
        path_of_name: Callable[[str], str | None] = str,
    ) -> None:
        self._names, self._path_of_name = frozenset(names), path_of_name
        self._folder = os.path.realpath(folder)
        self._start = self._folder if start is None else os.path.realpath(start)
        self._shown_as = self._folder if shown_as is None else shown_as

    def spellings(self, arguments: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the arguments with the real paths of their files: below the working folder, and absolute."""
        absolute = dict(self._map_paths(arguments, functools.partial(self._absolute, start=self._start)))
        return [dict(self._map_paths(absolute, self._below)), absolute]

    def with_links_followed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a rule with links followed in what precedes the first wildcard of a path."""
        return dict(self._map_paths(arguments, self._follow_links))

    def without_detours(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a rule as `spellings` spells them, without following links below the folder."""
        return dict(self._map_paths(arguments, self._without_detours))

    def _map_paths(self, value: Any, change: Callable[[str], str], *, is_path: bool = False) -> Any:
        match value:
            case str():
                return change(value) if is_path and value else value
            case Mapping():
                parts = value.items()
                return {
                    name: self._map_paths(part, change, is_path=is_path or name in self._names) for name, part in parts
                }
            case list() | tuple():
                return [self._map_paths(part, change, is_path=is_path) for part in value]
        return value

    def _absolute(self, path: str, start: str | None = None) -> str:
        file = self._path_of_name(path)
        if file is None:
            return path
        try:
            return os.path.realpath(Path(start or self._folder, self._on_disk(file)))
        except (OSError, ValueError):  # a NUL; the tool refuses it
            return path

    def _relative(self, path: str) -> str:
        return self._below(self._absolute(path))

    def _below(self, real: str) -> str:
        return real.removeprefix(f"{self._folder}/") if real != self._folder else "."

    def _on_disk(self, path: str) -> str:
        """Return an absolute path below the folder as it is on this machine."""
        if path == self._shown_as or path.startswith(f"{self._shown_as.rstrip('/')}/"):
            return self._folder + path[len(self._shown_as.rstrip("/")) :]
        return path

    def _follow_links(self, pattern: str) -> str:
        start, wildcard, rest = pattern.partition(_WILDCARD)
        folder, slash, name = start.rpartition("/") if wildcard else (start, "", "")
        if wildcard and not slash:
            return pattern
        return f"{self._relative(folder or '/')}{slash}{name}{wildcard}{rest}"

    def _without_detours(self, pattern: str) -> str:
        if ".." in pattern.split("/") or self._path_of_name(pattern) is None:
            return pattern
        tidy = posixpath.normpath(self._on_disk(pattern))
        if not tidy.startswith("/"):
            return tidy
        # /tmp/project/** means the project also where /tmp is a link: what leads to the folder may be followed
        parts = tidy.split("/")
        for count in range(len(parts), 1, -1):
            start = "/".join(parts[:count])
            if _WILDCARD not in start and os.path.realpath(start) == self._folder:
                return "/".join([self._folder, *parts[count:]])
        return tidy
