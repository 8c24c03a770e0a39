"""Build hook: builds the browser part of the widgets where it is missing, as in a git checkout, and adds the notebooks
of the tutorial and the skill for coding assistants to the wheel.

A source distribution contains the built front end, and then neither Node nor npm is needed.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TUTORIAL = ("[0-9]*.ipynb", "example_sundial-*.dist-info/*")
"""Files below `notebooks/` that ``divebook tutorial`` copies (`divebook.commands.tutorial`)."""


class FrontEndHook(BuildHookInterface[Any]):
    """Runs ``widgets/frontend.py build``."""

    @property
    def _program(self) -> Path:
        return Path(self.root) / "widgets" / "frontend.py"

    def dependencies(self) -> list[str]:
        """Return the package that brings Node, if something has to be built."""
        program = runpy.run_path(str(self._program))
        return [] if program["is_current"]() else [program["NODE_PACKAGE"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before the files are collected."""
        subprocess.run([sys.executable, str(self._program), "build"], check=True)
        # An editable installation reads the notebooks in the repository.
        if self.target_name == "wheel" and version != "editable":
            notebooks = Path(self.root) / "notebooks"
            for pattern in TUTORIAL:
                for path in sorted(notebooks.glob(pattern)):
                    target = f"divebook/tutorial/{path.relative_to(notebooks).as_posix()}"
                    build_data["force_include"][str(path)] = target
