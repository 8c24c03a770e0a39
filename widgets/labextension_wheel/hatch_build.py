"""Build hook of the wheel with the JupyterLab extension alone: builds the front end and collects its files."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET = "share/jupyter/labextensions/divebook"


class LabextensionHook(BuildHookInterface[Any]):
    """Runs ``widgets/frontend.py build`` and collects its files."""

    @property
    def _widgets(self) -> Path:
        return Path(self.root).parent

    def dependencies(self) -> list[str]:
        """Return the package that brings Node, if something has to be built."""
        program = runpy.run_path(str(self._widgets / "frontend.py"))
        return [] if program["is_current"]() else [program["NODE_PACKAGE"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Build, then add every file of the extension."""
        subprocess.run([sys.executable, str(self._widgets / "frontend.py"), "build"], check=True)
        labextension = self._widgets / "labextension"
        for path in sorted(labextension.rglob("*")):
            name = path.relative_to(labextension).as_posix()
            if path.is_file() and name != "install.json":
                build_data["shared_data"][str(path)] = f"{TARGET}/{name}"
        # JupyterLab shows it beside the extension: which package to uninstall.
        name = self.metadata.core.raw_name
        install = {"packageManager": "python", "packageName": name, "uninstallInstructions": f"pip uninstall {name}"}
        path = Path(self.directory) / "install.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(install, indent=2) + "\n", encoding="utf-8")
        build_data["shared_data"][str(path)] = f"{TARGET}/install.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - same
        """Remove the file that was written for the build."""
        (Path(self.directory) / "install.json").unlink(missing_ok=True)
