"""The magics ``%dev_env`` and ``%%dev_env``, which run the shell command ``dev_env`` and return its output as a
value.
"""

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

_PROGRAM = (sys.executable, "-c", "from divebook.cli.dev_env import main; main()")
"""The command runs in a separate process: Ctrl+C ends it as in a shell, and it does not use the kernel's event loop."""
_PIECE = 1 << 16
"""Number of bytes that are read from the process at a time."""


@magics_class
class DevEnvMagics(Magics):
    """The magics ``%dev_env`` and ``%%dev_env`` of one shell."""

    # Without this decorator, IPython would replace ``$HOME`` and ``{name}`` in commands for the environment.
    @no_var_expand
    @line_cell_magic
    def dev_env(self, line: str, cell: str | None = None) -> Any:
        """Work with development environments, as ``dev_env`` does in a shell; ``%dev_env --help`` lists the commands.

        JSON output is returned as a value (``states = %dev_env list``), a path as a string. ``%%dev_env NAME`` runs the
        cell in the environment NAME.

        Raises
        ------
        DevEnvError
            The command ended with an exit code other than 0.
        """
        from divebook.notebook.cells import short_errors

        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"%dev_env {line}: {error}") from error
        # The text of the cell becomes one argument, so that it needs no quotes.
        if cell is not None:
            if len(words) != 1:
                raise UsageError("%%dev_env takes the name of an environment, in which the cell is run")
            words = ["execute", words[0], cell]
        with short_errors():
            return _value_of(words)


def _value_of(words: list[str]) -> Any:
    """Run the shell command ``dev_env`` and return its output as a Python value. Raise `DevEnvError` if the command
    fails.

    JSON output is parsed, a path is returned as a string, and other output is printed. Output of programs inside an
    environment (``execute``, ``logs``) is printed as it arrives.
    """
    # Text of a running program must appear at once. With ``--json`` the same commands return one document at the end.
    is_streamed = ("execute" in words or "logs" in words) and "--json" not in words
    code, output, errors = _run(words or ["--help"], is_streamed=is_streamed)
    if code:
        # The last line of the error output states the cause. The lines before it were printed already.
        last_line = errors.strip().rpartition("\n")[2].removeprefix("dev_env: ") or "it said nothing"
        raise DevEnvError(f"{last_line} (exit code {code})")
    # Some commands print JSON, others a path or a text.
    try:
        return json.loads(output)
    except ValueError:
        text = output.rstrip("\n")
    # One line that begins with a slash is the path of an environment or file.
    if text.startswith("/") and "\n" not in text:
        return text
    if text:
        sys.stdout.write(f"{text}\n")
    return None


def _run(words: list[str], *, is_streamed: bool) -> tuple[int, str, str]:
    """Run the shell command ``dev_env``; return its exit code, its stdout and its stderr.

    The error output is also printed. With `is_streamed` the output is printed as it arrives and not returned. Both
    pipes are read as data arrives, so that the process never blocks on a full pipe.
    """
    with (
        # The command cannot ask the person: a cell has no terminal.
        subprocess.Popen(
            [*_PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
        # `communicate` would return the output only at the end, and reading one pipe after the other could block both
        # sides.
        selectors.DefaultSelector() as streams,
    ):
        buffers: dict[Any, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
        for stream in buffers:
            streams.register(stream, selectors.EVENT_READ)
        try:
            # An unregistered stream has ended. The loop ends with the last one.
            while streams.get_map():
                for key, _ in streams.select():
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        streams.unregister(key.fileobj)
                        continue
                    # Errors are printed and also kept, because the last line becomes the text of `DevEnvError`.
                    is_error = key.fileobj is process.stderr
                    if is_error or not is_streamed:
                        buffers[key.fileobj] += piece
                    if is_error or is_streamed:
                        target = sys.stderr if is_error else sys.stdout
                        # A character of several bytes that is cut between two pieces is shown as a replacement
                        # character.
                        target.write(piece.decode(errors="replace"))
                        target.flush()
        # `BaseException`, so that Ctrl-C ends the command too.
        except BaseException:
            process.terminate()  # it ends its command, and cleans up
            raise
        code = process.wait()
    output = bytes(buffers[process.stdout]).decode(errors="replace")
    errors = bytes(buffers[process.stderr]).decode(errors="replace")
    return code, output, errors
