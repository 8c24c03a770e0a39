"""Keeps an interrupt meant for us from ending the sandbox's processes.

A terminal's Ctrl-C, and Jupyter's interrupt, go to the whole process group, and with it to the sandbox, in whatever
execution it happens to work for. Its processes are therefore started by a script that has them ignore SIGINT
(`tests/scripting/test_shield.py` interrupts the group).
"""

from __future__ import annotations

import os
import shlex
import sysconfig
import tempfile
from pathlib import Path

_SCRIPT = """#!/bin/sh
trap '' INT
exec {program} "$@"
"""


class Shield:
    """The script, for as long as processes may be started; `program` is what to start."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.program: str | None = None
        """None leaves it to the sandbox's own library."""
        program = _own_program()
        if program is not None:
            self._folder = tempfile.TemporaryDirectory(prefix="divebook-", ignore_cleanup_errors=True)
            script = Path(self._folder.name) / "monty"
            script.write_text(_SCRIPT.format(program=shlex.quote(program)), encoding="utf-8")
            script.chmod(0o700)
            self.program = str(script) if os.access(script, os.X_OK) else None

    def close(self) -> None:
        """Remove the script."""
        if self._folder is not None:
            self._folder.cleanup()


def _own_program() -> str | None:
    """Return the program installed beside this Python, where there is one and a shell to start it."""
    if os.name != "posix" or "MONTY_BIN" in os.environ:
        return None
    program = Path(sysconfig.get_path("scripts")) / "monty"
    return str(program) if program.is_file() else None
