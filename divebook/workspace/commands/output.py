"""What a command prints, within bounds: head and tail in memory, and the whole in a file if that is too long."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import BinaryIO

MakeFile = Callable[[], BinaryIO]
"""Opens the file for the whole of a stream that is too long to be held."""


class KeptOutput:
    r"""The head and the tail of a stream, however much comes.

    Parameters
    ----------
    limit
        Bytes that are held.
    make_file
        Makes the file for the whole; None drops what lies between head and tail.

    Examples
    --------
    >>> kept = KeptOutput(8)
    >>> kept.feed(b"123456"); kept.feed(b"7890")
    >>> kept.text()
    '1234\n[... 2 bytes left out ...]\n7890'
    """

    def __init__(self, limit: int, make_file: MakeFile | None = None) -> None:
        self._half, self._make_file = limit // 2, make_file
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._held = 0
        self._file: BinaryIO | None = None
        self.total = 0
        """Bytes that came."""

    def feed(self, data: bytes) -> None:
        """Take in what came."""
        self.total += len(data)
        if self._make_file is not None and self.total > 2 * self._half:
            self._write(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._held += len(data)
            while self._held - len(self._tail[0]) >= self._half:
                self._held -= len(self._tail.popleft())

    def _write(self, data: bytes) -> None:
        if self._file is None:
            assert self._make_file is not None  # noqa: S101 - whoever calls has looked
            self._file = self._make_file()
            self._file.write(bytes(self._head))  # all that came before: it was held whole
            self._file.writelines(self._tail)
        self._file.write(data)

    @property
    def dropped(self) -> int:
        """How many bytes are not held."""
        return max(0, self.total - len(self._head) - min(self._held, self._half))

    def text(self) -> str:
        """Return what is held; between head and tail it says how much is missing."""
        tail = b"".join(self._tail)
        if self.dropped:
            tail = f"\n[... {self.dropped:,} bytes left out ...]\n".encode() + tail[-self._half :]
        return (bytes(self._head) + tail).decode(errors="replace")

    def close(self) -> str | None:
        """Close the file with the whole, and return its path; None if all is held."""
        if self._file is None:
            return None
        self._file.close()
        return str(self._file.name)
