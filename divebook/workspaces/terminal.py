"""Program that runs another program in a new pseudo-terminal and relays its input and output.

It is run as a file, ``python terminal.py ROWS COLUMNS PROGRAM ...``, and imports nothing of divebook.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

_PIECE = 1 << 16
_END = b"\x04"
"""Control character that ends the input of a terminal when it is typed at the start of a line (Ctrl-D)."""


def end_after(last: bytes) -> bytes:
    """Return the control characters that end the input of a terminal. `last` are the bytes that were typed
    before them.
    """
    # Within a line the first byte only submits that line; a second one ends the input.
    return _END if not last or last[-1:] in b"\n\r\x04" else _END * 2


def main(rows: int, columns: int, words: Sequence[str]) -> int:
    """Run a program in a new pseudo-terminal of the given size. Return its exit code, the negative signal number if a
    signal killed it.
    """
    # Other modules import this one for `end_after`, also on Windows, which has no pseudo-terminals.
    import pty
    import termios

    child, terminal = pty.fork()
    # In the child, descriptors 0, 1 and 2 are the new terminal.
    if child == 0:
        termios.tcsetwinsize(0, (rows, columns))
        try:
            os.execvp(words[0], list(words))  # noqa: S606 - it is what this program is for
        except OSError as error:
            os.write(2, f"{words[0]}: {error.strerror}\n".encode())
            # 127 is the exit code with which a shell reports a command that it cannot run. `_exit` skips clean-up,
            # which only the parent does.
            os._exit(127)
    # Non-blocking: a write to a full terminal stores a part and returns, so that output is still copied. A pidfd
    # becomes readable when its process ends, so that one `select` waits for output, input and the end.
    os.set_blocking(terminal, False)
    _relay(terminal, os.pidfd_open(child))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _relay(terminal: int, program: int) -> None:
    """Copy this process's input to a terminal, and the terminal's output to stdout, until the program in it has ended
    and all its output was copied.
    """
    sources = [terminal, program, 0]
    waiting = b""
    last = b""
    # The terminal is read before the end of the program is considered: its last output may still be in the buffer.
    # Input waits until the terminal is writable: a blocking write would stop the output as well.
    while True:
        ready, writable, _ = select.select(sources, [terminal] if waiting else [], [])
        if terminal in ready:
            piece = _read(terminal)
            if not piece:
                return
            _write(piece)
        # The program has ended and its output is copied. Background processes of it may still hold the terminal open.
        elif program in ready:
            return
        if writable:
            waiting = waiting[os.write(terminal, waiting) :]
        if 0 in ready:
            piece = os.read(0, _PIECE)
            if not piece:
                # A pipe at its end stays readable, so that `select` would return at once for ever.
                sources.remove(0)
                piece = end_after(last)
            waiting = waiting + piece
            last = piece


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, _PIECE)
    except OSError:  # no process has the terminal open any more
        return b""


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    CODE = main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    if CODE < 0:
        with suppress(OSError):  # the handler of SIGKILL cannot be set
            signal.signal(-CODE, signal.SIG_DFL)
        os.kill(os.getpid(), -CODE)
    sys.exit(CODE)
