"""Client of the container engine (Docker): containers, images, networks, and commands in containers.

Requests use docker-py; the streams of commands use a few lines of HTTP in this file. Only an engine on this machine is
supported, because containers mount folders of this machine.
"""

from __future__ import annotations

import asyncio
import codecs
import itertools
import json
import os
import random
import signal
import socket
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from divebook.definitions.resources import is_memory
from divebook.errors import ContainerError, EngineUnavailableError, UnusableEngineError
from divebook.text.format import parse_size
from divebook.text.ranges import COUNT, SOME
from divebook.workspaces.shell import (
    DRAIN,
    STDOUT,
    CommandInput,
    CommandOutcome,
    OutputBuffer,
    OutputListener,
    pieces_of,
    shielded,
)
from divebook.workspaces.shell import STDERR as RUNNING_STDERR
from divebook.workspaces.terminal import end_after

T = TypeVar("T")
DEFAULT_URL = "unix:///var/run/docker.sock"
_UNIX = "unix://"
# Seconds that docker-py waits for an answer.
_SECONDS = 60
_NETWORKS = ("none", "host", "bridge", "default")
"""Names of networks that every container engine has."""
_ENDING = 15.0
_SHORT_PAUSE = 0.01
_CHECK_INTERVALS = (0.1, 0.2, 0.4)
"""Seconds between checks whether a command has ended that keeps its streams open. The last pause repeats."""
_FAILED = b"OCI runtime exec failed"


def engine_url() -> str:
    """Return the address of the container engine: the environment variable ``DOCKER_HOST`` if it is set, else the
    default socket.
    """
    return os.environ.get("DOCKER_HOST") or DEFAULT_URL


def engine_socket(url: str) -> str:
    """Return the path of the container engine's socket on this machine. Raise `EngineUnavailableError` if no engine
    answers there, or if the address is not a local socket.

    docker-py leaves a socket open if nothing answers, so the connection is tested here first.
    """
    if not url.startswith(_UNIX) or url == _UNIX or "\0" in url:
        raise UnusableEngineError(
            f"the container engine at {url} is not on this machine, so it cannot mount the folder; set DOCKER_HOST "
            f"to a Unix socket such as {DEFAULT_URL}"
        )
    path = url.removeprefix(_UNIX)
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError as error:
            # An engine that restarts leaves its socket file. Only in that case another attempt can succeed.
            try:
                is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
            except OSError:
                is_socket = False
            raise (EngineUnavailableError if is_socket else UnusableEngineError)(
                _unreachable_text(url, error)
            ) from error
    return path


def require_image(image: str) -> None:
    """Raise `ContainerError` if an image is not on this machine, `EngineUnavailableError` if no container engine
    answers. Blocks.
    """
    engine = Engine()
    try:
        engine.require_image_now(image)
    finally:
        engine.close_now()


def _unreachable_text(url: str, error: Exception) -> str:
    return f"no container engine answers at {url} ({error}); start the engine, or set DOCKER_HOST"


class Engine:
    """Client of the container engine of this machine. A container that it starts ends with this process, unless its
    plan says that the container is kept.

    Parameters
    ----------
    url
        Address of the container engine; by default ``DOCKER_HOST``, else ``unix:///var/run/docker.sock``.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url or engine_url()
        self._open_client: Any = None
        self._guards: dict[tuple[str, str | None], Guard] = {}
        """Guard processes, which end commands in a container, by id of the container and user."""
        self._input_connections: dict[str, ProcessStream] = {}
        # Marks of commands: below 2^42 KiB, in a random range for each process, since several may use one container.
        self._marks = itertools.count(random.SystemRandom().randrange(1 << 36, 1 << 42))

    # --- containers ------------------------------------------------------------------------------------------------

    async def require_image(self, image: str) -> None:
        """Raise `ContainerError` if an image is not on this machine. Raise `EngineUnavailableError` if no container
        engine answers.
        """
        await asyncio.to_thread(self.require_image_now, image)

    def require_image_now(self, image: str) -> None:
        """Raise `ContainerError` if an image is not on this machine, like `require_image`. Blocks the thread; for code
        outside an event loop.
        """
        self._request_now(lambda client: client.images.get(image), f"image {image}", f"docker pull {image}")

    async def start_container(self, plan: ContainerPlan) -> str:
        """Create a container and start it; return its id. Raises the errors of `require_image`."""
        await self.require_image(plan.image)
        subject = f"a container of {plan.image}"
        if plan.network not in _NETWORKS and not plan.network.startswith("container:"):
            remedy = f"docker network create {plan.network}"
            await self._request(lambda client: client.networks.get(plan.network), f"network {plan.network}", remedy)
        container: str = (await self._request(lambda client: client.containers.create(**plan.arguments()), subject)).id
        try:
            if not plan.is_kept:  # the container ends when this connection closes, even if this process is killed
                self._input_connections[container] = await self._open_stream(
                    f"containers/{container}/attach?stream=1&stdin=1", {}
                )
            await self._request(lambda client: client.api.start(container), subject)
        except BaseException:
            await self.remove(container)
            raise
        return container

    async def require_running(self, container: str) -> None:
        """Raise `ContainerError` if a container does not exist or is not running."""
        details = await self._request(lambda client: client.api.inspect_container(container), f"container {container}")
        if not details["State"]["Running"]:
            status = details["State"]["Status"]
            raise ContainerError(
                f"container {container} is not running, its status is {status}; run `docker start {container}`"
            )

    async def find(self, labels: Mapping[str, str]) -> str | None:
        """Return the id of a container that has all of the labels. If it was stopped, start it. Return None if no
        container has them.
        """
        filters = [f"{name}={value}" for name, value in labels.items()]
        containers = await self._request(
            lambda client: client.api.containers(all=True, filters={"label": filters}), "containers"
        )
        if not containers:
            return None
        container: str = containers[0]["Id"]
        await self._request(lambda client: client.api.start(container), f"container {container}")
        return container

    async def ports(self, container: str) -> dict[int | str, int]:
        """Return the port of this machine for each published port of a container. The keys are ports of the container,
        such as ``80`` or ``"53/udp"``.
        """
        details = await self._request(lambda client: client.api.inspect_container(container), f"container {container}")
        # {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "49153"}], "81/tcp": None} -> {80: 49153}
        published: Mapping[str, Any] = details["NetworkSettings"]["Ports"] or {}
        numbers = {name: int(name.removesuffix("/tcp")) if name.endswith("/tcp") else name for name in published}
        return {numbers[name]: int(at[0]["HostPort"]) for name, at in published.items() if at}

    async def remove(self, container: str) -> None:
        """End and remove a container. Does nothing if the container does not exist."""
        await self.leave(container)
        with suppress(ContainerError):
            await self._request(
                lambda client: client.api.remove_container(container, force=True), f"container {container}"
            )

    async def leave(self, container: str) -> None:
        """Close the connections of this client to a container. The container then ends, unless it was created to be
        kept.
        """
        connection = self._input_connections.pop(container, None)
        # The guards first: they end commands that still run, also in a container that is kept.
        for key in [key for key in self._guards if key[0] == container]:
            await self._guards.pop(key).close()
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Close the docker-py client. Idempotent."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Close the docker-py client. Blocks; for code outside an event loop."""
        client = self._open_client
        self._open_client = None
        if client is not None:
            client.close()

    # --- commands --------------------------------------------------------------------------------------------------

    async def execute(
        self,
        container: str,
        argv: Sequence[str],
        *,
        workdir: str,
        environ: Mapping[str, str],
        seconds: float | None,
        out: OutputBuffer,
        err: OutputBuffer,
        stdin: CommandInput = b"",
        listen: OutputListener | None = None,
        on_start: Callable[[int], None] | None = None,
        undecodable: str = "replace",
        user: str | None = None,
        terminal: bool = False,
    ) -> CommandOutcome:
        """Run a command in a container. Return its exit code, its duration, and whether it reached the time limit.

        After a time limit or a cancellation no process of the command is alive.

        If a signal ended the command, its exit code is 128 plus the number of the signal, as shells and engines report
        it. `on_start` is called with the command's process id on this machine when it runs.

        Parameters
        ----------
        undecodable
            Treatment of bytes that are not UTF-8 in the text for `listen`: an error handler of `bytes.decode`.
        user
            User of the command; by default the user of the container.
        terminal
            Whether the command has a terminal, with a single output stream.

        Raises
        ------
        ContainerError
            The container does not exist, or the command cannot run in `workdir`.
        """
        started = time.monotonic()
        command = _Command(container, next(self._marks), on_start)
        command.user = user
        command.terminal = terminal
        guard = self._guards.get((container, user))
        if guard is None:  # one for each user: without capabilities a user can end only processes of the same user
            guard = self._guards[container, user] = Guard(lambda argv: self._start_guard(container, user, argv))
        output = CommandOutput(out, err, listen, undecodable)
        has_ended = False
        try:
            async with asyncio.timeout(None if seconds is None else max(0.0, started + seconds - time.monotonic())):
                # Registered before the command exists: if this process is killed in between, the guard ends the
                # command.
                await guard.register(command.mark)
                options = {"stdin": bool(stdin), "workdir": workdir, "environment": dict(environ)}
                # Shielded from a cancellation: a command that is half started could not be ended.
                await shielded(self._begin(command, marked(command.mark, argv), **options))
                code = await self._wait_for(command, stdin, output)
                has_ended = True
                output.finish()
        # The code is that of a local command that was killed. `finally` ends the processes before this returns.
        except TimeoutError:
            return CommandOutcome(-signal.SIGKILL, timed_out=True, seconds=time.monotonic() - started)
        finally:
            try:
                await shielded(guard.unregister(command.mark) if has_ended else self._end(command, guard))
            finally:  # even if it is cancelled once more meanwhile
                if command.connection is not None:
                    command.connection.close()
        if output.beginning.startswith(_FAILED):
            raise ContainerError(
                f"the command cannot run in folder {workdir}: {output.beginning.decode(errors='replace').strip()}"
            )
        return CommandOutcome(code, timed_out=False, seconds=time.monotonic() - started)

    async def _begin(self, command: _Command, argv: Sequence[str], **options: Any) -> None:
        settings = {"user": command.user or "", **options, "tty": command.terminal}
        answer = await self._request(
            lambda client: client.api.exec_create(command.container, list(argv), **settings), command.subject
        )
        command.id = answer["Id"]
        command.connection = await self._open_stream(
            f"exec/{command.id}/start", {"Detach": False, "Tty": command.terminal}
        )

    async def _wait_for(self, command: _Command, stdin: CommandInput, output: CommandOutput) -> int:
        """Forward input to a command, and its output to the receiver `output`, until the command has ended. Return its
        exit status.
        """
        assert command.connection is not None  # noqa: S101 - it has begun
        reading = asyncio.create_task(_read(command.connection, output, is_plain=command.terminal))
        tasks = [reading]
        if stdin:
            tasks.append(asyncio.create_task(_send_input(command.connection, stdin, in_terminal=command.terminal)))
        # The engine does not report the end of a command, so that its status is requested again and again.
        pauses = itertools.chain(_CHECK_INTERVALS, itertools.repeat(_CHECK_INTERVALS[-1]))
        status = None
        try:
            while status is None:
                # The end of the output usually means the end of the command, so the next check follows soon.
                if reading.done():
                    reading.result()  # raises if the output could not be stored
                    await asyncio.sleep(_SHORT_PAUSE)
                else:
                    await asyncio.wait([reading], timeout=next(pauses))
                status = await self._status(command)
            await asyncio.wait([reading], timeout=DRAIN)  # background processes may hold its streams open
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return status

    async def _status(self, command: _Command) -> int | None:
        """Return the exit status of a command, None while it runs. The container engine may report the end of the
        command slightly late.
        """
        details = await self._request(lambda client: client.api.exec_inspect(command.id), command.subject)
        if command.on_start is not None and details["Pid"]:  # the engine starts it a moment after the request
            on_start = command.on_start
            command.on_start = None
            on_start(details["Pid"])
        return None if details["Running"] else details["ExitCode"]

    async def _end(self, command: _Command, guard: Guard) -> None:
        """End all processes of a command in a container. If that fails, remove the container to end them, unless the
        container is to be kept.

        The engine may start a command after the request was cancelled, and the command sets its mark a moment later.
        Therefore this repeats until the command has ended and no process with its mark is left.
        """
        # The command was never created, so there is nothing to end.
        if command.id is None:
            await guard.unregister(command.mark)
            return
        limit = time.monotonic() + _ENDING
        is_ended = False
        try:
            while not is_ended and time.monotonic() < limit:
                status = await self._status(command)
                is_ended = await guard.end(command.mark) and status is not None
        except (ContainerError, EngineUnavailableError):  # the container is gone with all its processes
            return
        if not is_ended and command.container in self._input_connections:
            await self.remove(command.container)

    async def _start_guard(self, container: str, user: str | None, argv: Sequence[str]) -> ProcessStream:
        """Start a guard process (see `Guard`), a shell script, in a container. Return the connection to its input and
        output.
        """
        command = _Command(container, 0, user=user)
        await self._begin(command, argv, stdin=True)
        assert command.connection is not None  # noqa: S101 - it has begun
        return command.connection

    async def _open_stream(self, path: str, body: Mapping[str, Any]) -> ProcessStream:
        version = (await asyncio.to_thread(self._client)).api.api_version
        return await open_stream(self._url.removeprefix(_UNIX), f"/v{version}/{path}", body)

    # --- docker-py -------------------------------------------------------------------------------------------------

    def _client(self) -> Any:
        """Return the docker-py client, created on the first call; raises `EngineUnavailableError`. Blocks."""
        if self._open_client is None:
            import docker

            engine_socket(self._url)
            try:
                self._open_client = docker.DockerClient(base_url=self._url, timeout=_SECONDS, version="auto")
            except (docker.errors.DockerException, OSError) as error:
                raise EngineUnavailableError(_unreachable_text(self._url, error)) from error
        return self._open_client

    async def _request(self, request: Callable[[Any], T], subject: str, remedy: str = "") -> T:
        """Send a request to the container engine in a thread and return the result.

        Raises `ContainerError` if the engine refuses.

        Parameters
        ----------
        request
            Function that sends the request with the client.
        subject
            Object of the request, for errors.
        remedy
            Command that fixes "not found", for errors.
        """
        return await asyncio.to_thread(self._request_now, request, subject, remedy)

    def _request_now(self, request: Callable[[Any], T], subject: str, remedy: str) -> T:
        from docker.errors import APIError, NotFound

        client = self._client()
        try:
            return request(client)
        # A subclass of APIError.
        except NotFound as error:
            raise ContainerError(f"{subject} not found{f'; run `{remedy}`' if remedy else ''}") from error
        except APIError as error:
            raise ContainerError(f"{subject}: the container engine refused the request: {error.explanation}") from error
        except OSError as error:
            raise EngineUnavailableError(f"the container engine at {self._url} does not answer: {error}") from error


@dataclass
class _Command:
    """A command that runs in a container, with its id and connection at the container engine."""

    container: str
    mark: int
    on_start: Callable[[int], None] | None = None
    """Callback that gets the command's process id; None after it was called."""
    id: str | None = None
    """Id of the command at the container engine; None until the engine has created the command."""
    connection: ProcessStream | None = None
    user: str | None = None
    terminal: bool = False

    @property
    def subject(self) -> str:
        """Name of the container in which the command runs, as text for error messages."""
        return f"container {self.container}"


async def _send_input(connection: ProcessStream, stdin: CommandInput, *, in_terminal: bool) -> None:
    last = b""
    async for piece in pieces_of(stdin):
        await connection.send(piece)
        last = piece or last
    if in_terminal:  # closing one direction would close both, and output must still be read
        await connection.send(end_after(last))
    else:
        await connection.send(b"", is_last=True)


async def _read(connection: ProcessStream, output: CommandOutput, *, is_plain: bool) -> None:
    async for stream, piece in connection.plain_pieces() if is_plain else connection.pieces():
        output.feed(piece, is_error=stream == STDERR)


# --- streams of the engine: an HTTP request that becomes a connection to a process in a container ---
#
# docker-py returns its socket only after it has read the head of the answer through a buffer, which may have taken the
# first output too. Closing that socket also leaves the connection open. Therefore the few lines of HTTP are here.


_HEAD = 8
"""Size in bytes of the header of each piece of output. The header has the number of the stream and the length."""
STDERR = 2
_PIECE = 1 << 16


class ProcessStream:
    """Stream connection to the input and output of a process in a container."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield pieces of the process's output. Each comes with the number of its stream: 1 for stdout, 2 for
        stderr.
        """
        with suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                # Header: number of the stream, three zero bytes, length of the piece (four bytes, big-endian).
                head = await self._reader.readexactly(_HEAD)
                yield head[0], await self._reader.readexactly(int.from_bytes(head[4:], "big"))

    async def plain_pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield pieces of the output of a process that has a terminal. Such a process has a single output stream, with
        the number 1.
        """
        with suppress(ConnectionResetError):
            while piece := await self._reader.read(_PIECE):
                yield 1, piece

    async def send(self, data: bytes, *, is_last: bool = False) -> None:
        """Send input to the process. A process that does not read any more is not an error."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._writer.write(data)
            if is_last:
                self._writer.write_eof()
            await self._writer.drain()

    def close(self) -> None:
        """Close the connection. The process continues."""
        self._writer.close()


async def open_stream(socket: str, path: str, body: Mapping[str, Any]) -> ProcessStream:
    """Send an HTTP request to the container engine that turns the connection into a stream of raw data ("hijacking").
    Return the stream.

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
    return ProcessStream(reader, writer)


async def _require_switched(reader: asyncio.StreamReader, path: str) -> None:
    answer = await reader.readuntil(b"\r\n\r\n")
    # Status 101: the connection is now a plain stream. Any other answer is an error with a text.
    if b" 101 " not in answer.partition(b"\r\n")[0]:
        reason = (await reader.read(2000)).decode(errors="replace").strip()
        raise EngineUnavailableError(f"the container engine refused the request {path}: {reason}")


_MOST_BEGINNING = 2000


class CommandOutput:
    """Receiver of the output of a command in a container. It stores the output in buffers and forwards the text to a
    callback.
    """

    def __init__(
        self, out: OutputBuffer, err: OutputBuffer, listen: OutputListener | None, undecodable: str = "replace"
    ) -> None:
        self._buffers = (out, err)
        self._listen = listen
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = (make(errors=undecodable), make(errors=undecodable))
        self.beginning = b""
        """First bytes of the output. If a command cannot start, the engine reports the reason there."""

    def feed(self, data: bytes, *, is_error: bool) -> None:
        """Add the next bytes of the command's stdout, or of its stderr with `is_error`."""
        if len(self.beginning) < _MOST_BEGINNING:
            self.beginning += data[:_MOST_BEGINNING]
        self._buffers[is_error].feed(data)
        self._forward(data, is_error=is_error)

    def finish(self) -> None:
        """Forward the bytes that are left if an output stream ended in the middle of a UTF-8 character."""
        for is_error in (False, True):
            self._forward(b"", is_error=is_error, final=True)

    def _forward(self, data: bytes, *, is_error: bool, final: bool = False) -> None:
        if self._listen is None:
            return
        text = self._decoders[is_error].decode(data, final=final)
        if text:
            self._listen(RUNNING_STDERR if is_error else STDOUT, text)


# --- the guard: a process in a container that ends commands, even in other sessions or with cleared variables ---
#
# Each command has a mark that its descendants inherit and do not lose by accident: the limit RLIMIT_RSS, which Linux
# stores but does not apply. Example: a command gets the mark 4711. It starts a server in a new session and ends. The
# guard finds the server in ``/proc/*/limits`` by its limit of 4711 KiB, and ends it on request. When the input of the
# guard ends, because the process outside was killed, it ends the processes of all commands that have not ended.


PATIENCE = 5.0
"""Seconds that the guard process may take to end the processes of a command."""
_TRIES = 3
_KIB = 1024
# Only built-in commands of the shell, so that a round starts no process. A mark is gone when five rounds in succession
# do not find it: within one round a process may start another one behind the point that the round has reached.
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
    """Return a command line that runs `argv` with a mark, by which the guard process finds all processes of the
    command. The mark is the number `mark`, set as a resource limit that child processes inherit.

    A shell sets the mark. It reports a missing program and then exits with 127.
    """
    return ["/bin/sh", "-c", 'ulimit -m "$1" && shift && exec "$@"', "sh", str(mark), *argv]


class Guard:
    """A helper process in a container that can end a command with all its processes, even if they left the command's
    session.

    The guard is started for the first command, and again if a command has killed it.
    """

    def __init__(self, start: Callable[[Sequence[str]], Awaitable[ProcessStream]]) -> None:
        self._start = start
        self._connection: ProcessStream | None = None
        self._lock = asyncio.Lock()
        self._live: set[int] = set()
        self._replies: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None

    async def register(self, mark: int) -> None:
        """Register a command, identified by its mark (see `marked`), at the guard process. The guard ends the command's
        processes if this Python process dies.
        """
        async with self._lock:
            self._live.add(mark)
            await self._send(f"begin {mark}")

    async def unregister(self, mark: int) -> None:
        """Remove a command that has ended from the guard process. Processes that it left in the background continue."""
        async with self._lock:
            self._live.discard(mark)
            if self._connection is not None:
                await self._connection.send(f"done {mark}\n".encode())

    async def end(self, mark: int) -> bool:
        """End all processes of the command with this mark (see `marked`). Return True if the guard process reports that
        they have ended, False if it does not answer.
        """
        async with self._lock:
            # First of all: a guard that is started again below must not get the mark as a running command.
            self._live.discard(mark)
            for _ in range(_TRIES):
                try:
                    await self._send(f"end {mark}")
                    async with asyncio.timeout(PATIENCE):
                        reply = await self._replies.get()
                except (TimeoutError, EngineUnavailableError):
                    reply = b""
                if reply == b"ended\n":
                    return True
                # No answer: a command may have ended the guard. If not, "quit" ends it and leaves other commands alone.
                if self._connection is not None:
                    await self._connection.send(b"quit\n")
                self._drop()
            return False

    async def _send(self, line: str) -> None:
        if self._reading is not None and self._reading.done():
            self._drop()
        if self._connection is None:
            self._connection = await self._start(COMMAND)
            self._reading = asyncio.create_task(self._read(self._connection))
            # A new guard does not know the commands that still run.
            for mark in self._live:
                await self._connection.send(f"begin {mark}\n".encode())
        await self._connection.send(f"{line}\n".encode())

    async def _read(self, connection: ProcessStream) -> None:
        async for _, piece in connection.pieces():
            self._replies.put_nowait(piece)
        # Wakes `end`, which may wait for a reply of the guard that has ended.
        self._replies.put_nowait(b"")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._replies = asyncio.Queue()

    async def close(self) -> None:
        """End the guard process in the container. Before it ends, it ends all commands that are still registered. A
        second call has no effect.
        """
        async with self._lock:
            reading = self._reading
            self._drop()
            if reading is not None:
                await asyncio.gather(reading, return_exceptions=True)


# --- plan of a container: image, mounts and limits ---


WORKDIR = "/workspace"
LABEL = "divebook.workspace"
"""Name of the label that each container has which divebook creates; the value is the mounted folder."""
# The first process of a container cannot be killed from inside, and a waiting shell reaps orphans. A command that kills
# everything it can therefore does not end the container (test_a_command_that_kills_all_it_can).
_UNTIL_INPUT_ENDS = ["/bin/sh", "-c", "while cat >/dev/null; [ $? -gt 128 ]; do :; done"]
"""First program of a container that is not kept. It ends when the connection to its input is closed."""
_SLEEP = ["/bin/sh", "-c", "while :; do sleep 3600; done"]


class PublishedPort(NamedTuple):
    """A port of a container that can be reached through a port of this machine."""

    inside: int
    outside: int | None = None
    """Port of this machine; None for any free port."""
    protocol: str = "tcp"
    address: str = "127.0.0.1"
    """Address of this machine. With another address than the loopback, other machines can reach the port."""


def caller() -> str:
    """Return user id and group id of this process as ``uid:gid``, so that files which commands in a container write
    belong to the current user.
    """
    return f"{os.getuid()}:{os.getgid()}"


@dataclass(frozen=True)
class ContainerPlan:
    """All settings of a container to create: image, mounts, limits, network and labels."""

    image: str
    folder: str
    """Folder of this machine that is mounted at `workdir`."""
    workdir: str = WORKDIR
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Mount points in the container of further folders of this machine: ``/data``, or ``/data:ro`` for read-only."""
    user: str = field(default_factory=caller)
    memory: str = "1g"
    cpus: float | None = None
    pids: int = 256
    network: str = "none"
    ports: Sequence[PublishedPort] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    is_kept: bool = False
    """True if the container outlives the process that created it."""
    command: Sequence[str] = ()
    """First program of the container, which ends with that program; by default a program that waits."""

    def __post_init__(self) -> None:
        needs = (  # for an engine, 0 and an empty value mean no limit
            ("memory", is_memory(self.memory), "a size above 0, such as '512m'"),
            ("cpus", self.cpus is None or SOME.fits(self.cpus), f"{SOME}, or None for all CPUs"),
            ("pids", COUNT.fits(self.pids), str(COUNT)),
        )
        for name, is_valid, expectation in needs:
            if not is_valid:
                raise ValueError(f"{name} of a container must be {expectation}, not {getattr(self, name)!r}")

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of docker-py's ``containers.create``."""
        binds = {self.folder: self.workdir, **self.mounts}
        # As a number: docker-py refuses the letter t.
        memory = parse_size(self.memory)
        options: dict[str, Any] = {
            "image": self.image,
            "command": list(self.command) or (_SLEEP if self.is_kept else _UNTIL_INPUT_ENDS),
            # An entry point of the image would get the command as its arguments.
            "entrypoint": [],
            "user": self.user,
            "working_dir": self.workdir,
            "network_mode": self.network,
            "volumes": {path: _bind(inside) for path, inside in binds.items()},
            "labels": {**self.labels, LABEL: self.folder},
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "pids_limit": self.pids,
            "mem_limit": memory,
            # Equal limits mean that no swap is available.
            "memswap_limit": memory,
            "ports": {f"{port.inside}/{port.protocol}": (port.address, port.outside) for port in self.ports},
        }
        if self.cpus is not None:
            options["nano_cpus"] = int(self.cpus * 1e9)
        if not self.is_kept:
            options |= {"auto_remove": True, "stdin_open": True}
        return options


def _bind(inside: str) -> dict[str, str]:
    path = inside.removesuffix(":ro")
    return {"bind": path, "mode": "rw" if path == inside else "ro"}


# --- containers that outlive their creator: stopped, started again, saved as images, measured; found by labels ---


class ContainerUse(NamedTuple):
    """Current CPU, memory and disk usage of a container."""

    cpu_percent: float
    """CPU usage in percent of one core: 100 is one fully used core."""
    memory_bytes: int
    disk_bytes: int
    """Size in bytes of the files that were written outside mounted folders."""


class PersistentEngine(Engine):
    """Client of the container engine that can also store, list and remove containers, images and networks that outlive
    this process.
    """

    async def pull(self, image: str) -> None:
        """Fetch an image from its registry; raises `ContainerError` on failure."""
        await self._request(lambda client: client.images.pull(image), f"image {image}")

    async def image_id(self, image: str) -> str:
        """Return the digest of an image, which identifies its content. Raise `ContainerError` if the image is not on
        this machine.
        """
        digest: str = (await self._request(lambda client: client.images.get(image), f"image {image}")).id
        return digest

    async def version(self) -> str:
        """Return the version of the container engine."""
        version: str = (await self._request(lambda client: client.api.version(), "the engine"))["Version"]
        return version

    async def has_image(self, image: str) -> bool:
        """Return True if an image exists on this machine."""
        try:
            await self.image_id(image)
        except ContainerError:
            return False
        return True

    async def write_image(self, image: str, path: Path) -> None:
        """Save an image into a file in the format of ``docker save``, for `load_image`."""

        def write(client: Any) -> None:
            with path.open("wb") as file:
                file.writelines(client.api.get_image(image))

        await self._request(write, f"image {image}")

    async def load_image(self, path: Path) -> None:
        """Load an image from a file into the container engine."""

        def load(client: Any) -> None:
            with path.open("rb") as file:
                client.images.load(file)

        await self._request(load, f"the image in {path}")

    async def processes(self, container: str) -> int:
        """Return the number of running processes in a container."""
        answer = await self._request(lambda client: client.api.top(container), f"container {container}")
        return len(answer["Processes"] or ())

    async def state(self, container: str) -> Mapping[str, Any] | None:
        """Return the state of a container as the container engine reports it (Status, OOMKilled, ...). Return None if
        the container does not exist.
        """
        try:
            details = await self._request(
                lambda client: client.api.inspect_container(container), f"container {container}"
            )
        except ContainerError:
            return None
        state: Mapping[str, Any] = details["State"]
        return state

    async def begin(self, container: str) -> None:
        """Start a container that was stopped. Does nothing if the container is running."""
        await self._request(lambda client: client.api.start(container), f"container {container}")

    async def stop(self, container: str) -> None:
        """Stop a container by ending all its processes. The container still exists."""
        await self._request(lambda client: client.api.stop(container, timeout=0), f"container {container}")

    async def keep_as(self, container: str, image: str) -> str:
        """Save the file system of a container as a new image called `image`, which gets the container's labels.

        Return the digest of the image.
        """
        # dev-env/default/app:before -> dev-env/default/app, before
        repository, _, tag = image.rpartition(":")
        answer = await self._request(
            lambda client: client.api.commit(container, repository=repository, tag=tag, pause=True),
            f"container {container}",
        )
        digest: str = answer["Id"]
        return digest

    async def use(self, container: str) -> ContainerUse:
        """Measure the resource usage of a container. Takes about a second."""
        subject = f"container {container}"
        stats = await self._request(lambda client: client.api.stats(container, stream=False), subject)
        sizes = await self._request(lambda client: client.api.df()["Containers"] or [], "disk usage of the engine")
        size = next((each.get("SizeRw", 0) for each in sizes if each["Id"].startswith(container)), 0)
        now = stats["cpu_stats"]
        before = stats["precpu_stats"]
        # The engine reports two readings about a second apart. The differences give the current usage, as in `docker
        # stats`.
        used_time = now["cpu_usage"]["total_usage"] - before["cpu_usage"]["total_usage"]
        total_time = now.get("system_cpu_usage", 0) - before.get("system_cpu_usage", 0)
        cores = now.get("online_cpus") or 1
        # As in `docker stats`, file contents that the kernel can drop from its cache do not count.
        memory = stats["memory_stats"].get("usage", 0) - stats["memory_stats"].get("stats", {}).get("inactive_file", 0)
        return ContainerUse(100 * cores * used_time / total_time if total_time > 0 else 0.0, max(0, memory), size)

    async def labelled(self, labels: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
        """Return the containers that have all of the given labels, as a dict from the container's id to all its
        labels.
        """
        filters = [f"{name}={value}" for name, value in labels.items()]
        containers = await self._request(
            lambda client: client.api.containers(all=True, filters={"label": filters}), "containers"
        )
        return {container["Id"]: container["Labels"] for container in containers}

    async def labelled_images(self, labels: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
        """Return the images that have all of the given labels, as a dict from the image's digest to all its labels."""
        filters = [f"{name}={value}" for name, value in labels.items()]
        answer = await self._request(lambda client: client.api.images(filters={"label": filters}), "images")
        return {image["Id"]: image["Labels"] for image in answer}

    async def remove_images(self, labels: Mapping[str, str], *, but: frozenset[str] = frozenset()) -> None:
        """Remove the images that have all of the given labels. Images with digests in `but`, and images in use, are
        kept.
        """
        # In the order of the answer, newest first: an image can be removed only after the images based on it.
        for image in [image for image in await self.labelled_images(labels) if image not in but]:
            with suppress(ContainerError):
                await self.remove_image(image)

    async def remove_image(self, image: str) -> None:
        """Remove an image. Raise `ContainerError` if a container uses it."""
        await self._request(lambda client: client.api.remove_image(image, force=True), f"image {image}")

    async def network(self, name: str, labels: Mapping[str, str]) -> str:
        """Create a network with this name and these labels, unless a network of this name exists. Return the name."""
        networks = await self._request(lambda client: client.api.networks(names=[name]), f"network {name}")
        # The engine also returns networks whose names only contain the name.
        if not any(network["Name"] == name for network in networks):
            await self._request(
                lambda client: client.api.create_network(name, driver="bridge", labels=dict(labels)), f"network {name}"
            )
        return name

    async def labelled_networks(self, labels: Mapping[str, str]) -> list[str]:
        """Return the names of the networks that have all of the given labels."""
        filters = [f"{name}={value}" for name, value in labels.items()]
        answer = await self._request(lambda client: client.api.networks(filters={"label": filters}), "networks")
        return [network["Name"] for network in answer]

    async def remove_network(self, name: str) -> None:
        """Remove a network, unless a container uses it."""
        with suppress(ContainerError):
            await self._request(lambda client: client.api.remove_network(name), f"network {name}")
