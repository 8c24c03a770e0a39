"""The process in a container that ends commands: also where they fled to a session of their own or cleared variables.

Each command has a mark that its processes inherit and cannot shed by accident: a limit that Linux keeps and does not
apply (RLIMIT_RSS). The guard ends all processes with a mark when it is told to. When its input ends, because the
process outside was killed, it ends those of all commands that have begun and not ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from divebook.errors import EngineUnavailableError
from divebook.workspace.docker.hijacking import Hijacked

PATIENCE = 5.0
"""Seconds for the processes of a command to end."""
_TRIES = 3
_KIB = 1024
# Only what the shell itself can do, so that a look costs no process; a mark is gone when it was not seen in five looks
# one after the other, since a process may hand over to the next between two names.
_SCRIPT = f"""
end() {{
  empty=0; round=0
  while [ $empty -lt 5 ] && [ $round -lt 5000 ]; do
    found=; round=$((round+1))
    for p in /proc/[0-9]*; do
      while read -r a b c soft hard rest; do
        if [ "$a $b $c" = "Max resident set" ]; then
          [ "$hard" = "$1" ] && kill -9 "${{p#/proc/}}" && found=1
          break
        fi
      done < "$p/limits"
    done 2>/dev/null
    if [ -n "$found" ]; then empty=0; else empty=$((empty+1)); fi
  done
  [ $empty -ge 5 ]
}}
live=" "
while read -r word mark; do
  case "$word" in
    begin) live="$live$mark " ;;
    quit) exit 0 ;;
    done) live="${{live%%" $mark "*}} ${{live#*" $mark "}}" ;;
    end) if end $((mark*{_KIB})); then echo ended; else echo left; fi ;;
  esac
done
for mark in $live; do end $((mark*{_KIB})); done
"""
COMMAND = ("/bin/sh", "-c", _SCRIPT)


def marked(mark: int, argv: Sequence[str]) -> list[str]:
    """Return a command with its mark. A shell is in front: of a missing program it says so, with 127."""
    return ["/bin/sh", "-c", 'ulimit -m "$1" && shift && exec "$@"', "sh", str(mark), *argv]


class Guard:
    """The guard of one container; it is started with the first command, and again where a command has ended it."""

    def __init__(self, start: Callable[[Sequence[str]], Awaitable[Hijacked]]) -> None:
        self._start = start
        self._connection: Hijacked | None = None
        self._lock = asyncio.Lock()
        self._live: set[int] = set()
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None

    async def begin(self, mark: int) -> None:
        """Have a command ended if this process is."""
        async with self._lock:
            self._live.add(mark)
            await self._tell(f"begin {mark}")

    async def done(self, mark: int) -> None:
        """Have nothing more to do with a command: what it left behind on purpose lives on."""
        async with self._lock:
            self._live.discard(mark)
            if self._connection is not None:
                await self._connection.send(f"done {mark}\n".encode())

    async def end(self, mark: int) -> bool:
        """End all processes of a command; return whether they have."""
        async with self._lock:
            self._live.discard(mark)
            for _ in range(_TRIES):
                try:
                    await self._tell(f"end {mark}")
                    async with asyncio.timeout(PATIENCE):
                        said = await self._said.get()
                except (TimeoutError, EngineUnavailableError):
                    said = b""
                if said == b"ended\n":
                    return True
                if self._connection is not None:  # a command may have ended it; if not, other commands go on
                    await self._connection.send(b"quit\n")
                self._drop()
            return False

    async def _tell(self, line: str) -> None:
        if self._reading is not None and self._reading.done():
            self._drop()
        if self._connection is None:
            self._connection = await self._start(COMMAND)
            self._reading = asyncio.create_task(self._read(self._connection))
            for mark in self._live:
                await self._connection.send(f"begin {mark}\n".encode())
        await self._connection.send(f"{line}\n".encode())

    async def _read(self, connection: Hijacked) -> None:
        async for _, piece in connection.pieces():
            self._said.put_nowait(piece)
        self._said.put_nowait(b"")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._said = asyncio.Queue()

    async def close(self) -> None:
        """End the guard, and with it all commands that have not ended; twice is once."""
        async with self._lock:
            reading = self._reading
            self._drop()
            if reading is not None:
                await asyncio.gather(reading, return_exceptions=True)
