"""Where cases about workspaces happen: a folder of its own for each, what was made there, and placeholders for it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from divebook.workspaces import Workspace
from tests.conformance.scenario.paths import MISSING, read

T = TypeVar("T")
FOLDERS = ("ws", "out", "base")
"""What is in the folder of a case from the beginning."""
IS_FOLDER = "<a folder>"
"""What is read where a folder is."""


class Place:
    """The folder of one case, the workspace that was made there, and the loop in which it lives."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="case-")).resolve()
        for name in FOLDERS:
            (self.root / name).mkdir()
        self.workspace: Workspace | None = None
        self.made: dict[str, int] = {}
        """How often each factory was called, by key."""
        self.last_resource: Any = None
        self.close_order: list[str] = []
        self._runner = asyncio.Runner()
        self._environ = dict(os.environ)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine comes to, in the loop of this case."""
        return self._runner.run(work)

    def close(self) -> None:
        """Leave the workspace, and undo what was done to this process and its disk."""
        try:
            if self.workspace is not None and self.workspace.is_entered:
                self.wait(self.workspace.__aexit__())
        finally:
            self._runner.close()
            os.environ.clear()
            os.environ.update(self._environ)
            shutil.rmtree(self.root)

    def filled(self, text: str, names: Mapping[str, Any], *, is_pattern: bool = False) -> str:
        """Return a text with paths and bound names in the place of ``{ws}``, ``{tmp}`` or ``{x.id}``."""

        def value(found: re.Match[str]) -> str:
            name = found[1]
            known = {"root": self.root, **{each: self.root / each for each in FOLDERS}}
            if name == "tmp" and self.workspace is not None:
                known["tmp"] = Path(self.workspace.tmp_dir or "<no tmp>")
            said = known[name] if name in known else read(names, name)
            if said is MISSING:
                return found[0]
            return re.escape(str(said)) if is_pattern else str(said)

        return re.sub(r"\{([a-z][a-z_.]*)\}", value, text)

    def found(self, path: str) -> Any:
        """Return the bytes at a path below the folder of the case; or that it is a folder, or missing."""
        at = self.root / path
        if at.is_dir():
            return IS_FOLDER
        return at.read_bytes() if at.exists() or at.is_symlink() else MISSING
