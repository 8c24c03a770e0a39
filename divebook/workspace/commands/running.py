"""One command: run to its end, its time limit or its cancellation.

The limit counts from the start. After a time limit or a cancellation nothing that the command started is alive. What a
command that ends by itself leaves in the background lives on until its workspace is left.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import functools
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from divebook.workspace.commands.output import KeptOutput
from divebook.workspace.commands.reaper import KNOWN
from divebook.workspace.commands.reapers import Reapers, Streams
from divebook.workspace.shielding import shielded

DRAIN = 0.2
"""Seconds for what is still to be read of a command that has ended: others may hold its streams open."""
_ENDING = 15.0
_PIECE = 1 << 16
STDOUT, STDERR = "stdout", "stderr"
Listen: TypeAlias = Callable[[str, str], None]
"""Hears what a command prints, as it comes: the name of the stream, and a piece of text."""
Given: TypeAlias = bytes | AsyncIterator[bytes | str]
"""What a command can read: all at once, or pieces as they come."""


@dataclass(frozen=True, slots=True)
class EndedCommand:
    """How a command ended."""

    code: int
    """Its exit status, or the number of the signal that killed it, negative."""
    timed_out: bool
    seconds: float


class WrongFolderError(Exception):
    """The folder in which a command is to run cannot be entered; its argument is an OSError."""


async def run(
    reapers: Reapers,
    argv: Sequence[str],
    *,
    cwd: str,
    environ: Mapping[str, str],
    seconds: float | None,
    out: KeptOutput,
    err: KeptOutput,
    stdin: Given = b"",
    listen: Listen | None = None,
    begun: Callable[[int], None] | None = None,
    undecodable: str = "replace",
) -> EndedCommand:
    """Run a command, and return how it ended.

    Parameters
    ----------
    seconds
        How long it may take; None for as long as it takes.
    out, err
        Take what it prints.
    stdin
        What it can read.
    begun
        Hears that it runs, and the number of its process.
    undecodable
        What `listen` gets of bytes that are no UTF-8, as `bytes.decode` names it.

    Raises
    ------
    WrongFolderError
        It cannot run there.
    OSError
        No process can be started.
    """
    one = _Run(out, err, listen, begun, undecodable)
    return await one.run(functools.partial(reapers.send, argv, cwd, environ), argv[0], cwd, seconds, stdin)


class _Run:
    def __init__(
        self,
        out: KeptOutput,
        err: KeptOutput,
        listen: Listen | None,
        begun: Callable[[int], None] | None,
        undecodable: str,
    ) -> None:
        self._out, self._err, self._listen, self._begun, self._undecodable = out, err, listen, begun, undecodable
        self._control, self._theirs = socket.socketpair()
        self._control.setblocking(False)  # noqa: FBT003 - as it is called
        self._tasks: list[asyncio.Task[None]] = []
        """Those that read what it prints, and perhaps one that gives it what it can read."""

    async def run(
        self, send: Callable[[Streams], None], program: str, cwd: str, seconds: float | None, stdin: Given
    ) -> EndedCommand:
        started = time.monotonic()
        try:
            await self._start(send, stdin)
            timed_out, said = False, b""
            try:
                async with asyncio.timeout(None if seconds is None else max(0.0, started + seconds - time.monotonic())):
                    said = await self._last_word()
            except TimeoutError:
                timed_out = True
            else:
                self._let_live()
                await asyncio.wait(self._tasks[:2], timeout=DRAIN)
                for task in filter(asyncio.Task.done, self._tasks):
                    task.result()  # raises if what it prints could not be kept
            return EndedCommand(self._code(said, program, cwd), timed_out, time.monotonic() - started)
        finally:
            await shielded(self._finish())

    async def _finish(self) -> None:
        """Have everything ended that is left of the command, and wait until its reaper is gone."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)  # means: end everything; a flood ends unread
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_ENDING):
                while await asyncio.get_running_loop().sock_recv(self._control, 64):
                    pass
        except OSError:  # TimeoutError too: it is not to be had
            pass
        finally:
            self._control.close()

    def _let_live(self) -> None:
        """Say that the end of the command is known, and that what it left may live on until the workspace is left."""
        with suppress(OSError):
            self._control.send(KNOWN)

    async def _start(self, send: Callable[[Streams], None], stdin: Given) -> None:
        """Send the command to its reaper, and read on what it prints."""
        given, out, err = os.pipe(), os.pipe(), os.pipe()
        theirs = (given[0], out[1], err[1])
        try:
            # a thread that was left to itself would send what others have been given these numbers for
            await shielded(asyncio.to_thread(send, (*theirs, self._theirs.fileno())))
        except BaseException:
            for end in (given[1], out[0], err[0]):
                os.close(end)
            raise
        finally:
            self._theirs.close()
            for end in theirs:
                os.close(end)
        self._tasks = [
            asyncio.create_task(self._read(out[0], self._out, STDOUT)),
            asyncio.create_task(self._read(err[0], self._err, STDERR)),
        ]
        if stdin:
            self._tasks.append(asyncio.create_task(_write(given[1], stdin)))
        else:
            os.close(given[1])

    def _code(self, said: bytes, program: str, cwd: str) -> int:
        word, _, number = said.decode().strip().partition(" ")
        if word == "status":
            return os.waitstatus_to_exitcode(int(number))
        if word == "cwd":
            raise WrongFolderError(OSError(int(number), os.strerror(int(number)), cwd))
        if word == "error":
            is_missing = int(number) == errno.ENOENT
            told = f"{program}: {'not found' if is_missing else os.strerror(int(number))}\n"
            self._err.feed(told.encode())
            if self._listen is not None:
                self._listen(STDERR, told)
            return 127 if is_missing else 126
        return -signal.SIGKILL  # its time was up, or somebody has ended its reaper

    async def _last_word(self) -> bytes:
        """Return what the reaper says last, of which the command's process id comes first."""
        loop, data = asyncio.get_running_loop(), b""
        while more := await loop.sock_recv(self._control, 64):
            *lines, data = (data + more).split(b"\n")
            for line in lines:
                if not line.startswith(b"pid "):
                    return line
                if self._begun is not None:
                    self._begun(int(line[4:]))
        return b""

    async def _read(self, end: int, kept: KeptOutput, name: str) -> None:
        """Take in a stream to its end."""
        reader = asyncio.StreamReader(limit=4 * _PIECE)
        file = os.fdopen(end, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        decoder = codecs.getincrementaldecoder("utf-8")(errors=self._undecodable)
        try:
            while data := await reader.read(_PIECE):
                kept.feed(data)
                if self._listen is not None and (text := decoder.decode(data)):
                    self._listen(name, text)
            if self._listen is not None and (text := decoder.decode(b"", final=True)):  # it ended within a letter
                self._listen(name, text)
        finally:
            transport.close()


async def pieces_of(given: Given) -> AsyncIterator[bytes]:
    """Give what a command can read, piece by piece; text as UTF-8, as where it is given all at once."""
    if isinstance(given, bytes):
        yield given
        return
    async for piece in given:
        yield piece.encode() if isinstance(piece, str) else piece


async def _write(end: int, given: Given) -> None:
    """Give a command what it can read; one that does not read on is no fault."""
    transport, protocol = await asyncio.get_running_loop().connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(end, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop())
    try:
        async for piece in pieces_of(given):
            writer.write(piece)
            await writer.drain()
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        transport.close()
