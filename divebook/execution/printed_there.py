"""What functions print in another process, on its way to who prints it: streams as programs know them."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class PrintedThere(io.RawIOBase):
    """The lowest layer of a stream, which hands on what is written to it as text.

    Parameters
    ----------
    name, number
        Of the stream in the module ``sys``, and of the descriptor that programs may be given in its place.
    hand_on
        Takes the name and a text.
    """

    def __init__(self, name: str, number: int, hand_on: Callable[[tuple[str, str]], object]) -> None:
        self._name, self._number, self._hand_on = name, number, hand_on
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # bytes may end in the middle of a character

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def fileno(self) -> int:
        """Return what programs are given."""
        return self._number

    def write(self, data: Buffer, /) -> int:
        """Hand on what characters are there."""
        raw = bytes(data)
        if text := self._decoder.decode(raw):
            self._hand_on((self._name, text))
        return len(raw)


def stream_of(printed: PrintedThere) -> io.TextIOWrapper:
    """Return a stream like ``sys.stdout``, by lines; what no encoding has (lone surrogates) is written in ASCII."""
    buffer = io.BufferedWriter(printed)
    return io.TextIOWrapper(buffer, "utf-8", "backslashreplace", newline="\n", line_buffering=True)
