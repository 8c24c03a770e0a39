"""A workspace in a fence on this machine: commands write its folder only, and reach no network (bubblewrap)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from divebook.errors import ShellExecutionError
from divebook.workspace.commands.reapers import NEEDED, Reapers
from divebook.workspace.local import LocalWorkspace, ToldShell
from divebook.workspace.policy import PathPolicy

PROGRAM, OWN = "bwrap", "/tmp"  # noqa: S108 - the fence's own
"""What makes the fence, and the folder of which it has one of its own, empty but for what is needed."""
NOTE = (
    "Commands run in a fence: they can write this directory only, read the machine's other files, and reach no network."
)


class FencedWorkspace(LocalWorkspace):
    """Files of folders on this machine, and commands that write nothing else and reach no network.

    One fence holds all commands of the workspace. The disk is there to be read, ``/tmp`` is its own and empty, but for
    this Python where it is installed there, and it sees no other processes. It needs the program ``bwrap`` (Debian:
    bubblewrap) and a system that lets users make namespaces. Parameters are those of `LocalWorkspace`.
    """

    kind: ClassVar[str] = "fenced"

    def _make_shell(self, policy: PathPolicy) -> ToldShell:
        program = shutil.which(PROGRAM)
        if program is None:
            raise ShellExecutionError(
                "", f"a fence needs the program {PROGRAM}: install bubblewrap, or use a container"
            )
        writable = [root.path for root in policy.roots]
        shell = self._shell_with(policy, Reapers(_fence(program, writable)))
        shell.note = NOTE
        return shell


def _fence(program: str, writable: Sequence[str]) -> list[str]:
    """Return the program that makes the fence, and its arguments."""
    hidden = [path for path in NEEDED if Path(path).is_relative_to(OWN)]
    binds = [part for path in hidden for part in ("--ro-bind", path, path)]
    binds += [part for path in writable for part in ("--bind", path, path)]
    alone = ["--unshare-all", "--die-with-parent", "--new-session"]
    return [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", OWN, *binds, *alone]
