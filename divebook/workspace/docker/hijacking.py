"""Streams of the engine: a request over its socket that becomes a connection to a process in a container.

docker-py gives its socket only after it has read the answer's head with a buffer, in which the first output may be
left; and closing it leaves the connection open below. So the few lines of HTTP are here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from divebook.errors import EngineUnavailableError

_HEAD = 8
"""Bytes before each piece: which stream, and how long it is."""
STDERR = 2
_PIECE = 1 << 16


class Hijacked:
    """A connection to a process in a container."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        """Give what comes: the number of its stream, and a piece."""
        with suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                head = await self._reader.readexactly(_HEAD)
                yield head[0], await self._reader.readexactly(int.from_bytes(head[4:], "big"))

    async def plain_pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        """Give what comes of a process with a terminal, which has one stream: 1, and a piece."""
        with suppress(ConnectionResetError):
            while piece := await self._reader.read(_PIECE):
                yield 1, piece

    async def send(self, data: bytes, *, is_last: bool = False) -> None:
        """Give the process what it can read; one that does not read on is no fault."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._writer.write(data)
            if is_last:
                self._writer.write_eof()
            await self._writer.drain()

    def close(self) -> None:
        """End the connection; the process does not end by that."""
        self._writer.close()


async def hijacked(socket: str, path: str, body: Mapping[str, Any]) -> Hijacked:
    """Return the connection that a request becomes.

    Raises
    ------
    EngineUnavailableError
        The engine does not answer, or refuses.
    """
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json"
    )
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
        try:
            writer.write(f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
            await _require_switched(reader, path)
        except BaseException:  # cancelled, too
            writer.close()
            raise
    except (OSError, asyncio.IncompleteReadError) as error:
        raise EngineUnavailableError(f"the container engine at {socket} does not answer: {error}") from error
    return Hijacked(reader, writer)


async def _require_switched(reader: asyncio.StreamReader, path: str) -> None:
    answer = await reader.readuntil(b"\r\n\r\n")
    if b" 101 " not in answer.partition(b"\r\n")[0]:
        said = (await reader.read(2000)).decode(errors="replace").strip()
        raise EngineUnavailableError(f"the container engine refused {path}: {said}")
