"""Build hook: makes the browser half of the widgets where it does not exist yet, as in a git checkout.

A source distribution brings it along, and then neither Node nor npm is needed.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FrontEndHook(BuildHookInterface[Any]):
    """Runs ``widgets/frontend.py build``."""

    @property
    def _program(self) -> Path:
        return Path(self.root) / "widgets" / "frontend.py"

    def dependencies(self) -> list[str]:
        """Return the package that brings Node, if something has to be built."""
        program = runpy.run_path(str(self._program))
        return [] if program["is_current"]() else [program["NODE_PACKAGE"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Build before the files are collected."""
        subprocess.run([sys.executable, str(self._program), "build"], check=True)
