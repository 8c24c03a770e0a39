"""The magics ``%dev_env`` and ``%%dev_env``: the command of that name, whose data are values of Python."""

from __future__ import annotations

import json
import os
import selectors
import shlex
import subprocess
import sys
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from divebook.errors import DevEnvError

# A process of its own, so that commands end for Ctrl+C as in a shell, and the loop of the kernel is not theirs.
_PROGRAM = (sys.executable, "-c", "from divebook.cli.dev_env import main; main()")
_PIECE = 1 << 16


@magics_class
class DevEnvMagics(Magics):
    """The magic of one shell for development environments."""

    @no_var_expand
    @line_cell_magic
    def dev_env(self, line: str, cell: str | None = None) -> Any:
        """Work with development environments, as ``dev_env`` does in a shell; ``%dev_env --help`` lists the commands.

        What is JSON comes as a value (``states = %dev_env list``), a path as a text. ``%%dev_env NAME`` runs the cell
        in the environment NAME.

        Raises
        ------
        DevEnvError
            It ended with another exit code than 0.
        """
        from divebook.notebook.cards import short_errors

        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"%dev_env {line}: {error}") from error
        if cell is not None:
            if len(words) != 1:
                raise UsageError("%%dev_env takes the name of an environment, in which the cell is run")
            words = ["execute", words[0], cell]
        with short_errors():
            return _value(words)


def _value(words: list[str]) -> Any:
    """Return what a command prints as data; what commands of an environment print is shown as it comes."""
    is_shown = "execute" in words or "logs" in words
    code, printed, told = _run(words or ["--help"], is_shown=is_shown and "--json" not in words)
    if code:
        last = told.strip().rpartition("\n")[2].removeprefix("dev_env: ") or "it said nothing"
        raise DevEnvError(f"{last} (exit code {code})")
    try:
        return json.loads(printed)
    except ValueError:
        text = printed.rstrip("\n")
    if text.startswith("/") and "\n" not in text:
        return text
    if text:
        sys.stdout.write(f"{text}\n")
    return None


def _run(words: list[str], *, is_shown: bool) -> tuple[int, str, str]:
    """Return exit code, what was printed and not shown, and what was told."""
    with (
        subprocess.Popen(
            [*_PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running,
        selectors.DefaultSelector() as streams,
    ):
        kept: dict[Any, bytearray] = {running.stdout: bytearray(), running.stderr: bytearray()}
        for stream in kept:
            streams.register(stream, selectors.EVENT_READ)
        try:
            while streams.get_map():
                for key, _ in streams.select():
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        streams.unregister(key.fileobj)
                        continue
                    is_told = key.fileobj is running.stderr
                    if is_told or not is_shown:
                        kept[key.fileobj] += piece
                    if is_told or is_shown:
                        out = sys.stderr if is_told else sys.stdout
                        out.write(piece.decode(errors="replace"))
                        out.flush()
        except BaseException:
            running.terminate()  # it ends its command, and cleans up
            raise
        code = running.wait()
    printed, told = (bytes(kept[stream]).decode(errors="replace") for stream in (running.stdout, running.stderr))
    return code, printed, told
