"""The container engine, as far as workspaces need it: docker-py for what it is asked, its streams by our own lines.

Only an engine on this machine is used, since the files are on a folder that is mounted.
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

from divebook.errors import ContainerError, EngineUnavailableError, UnusableEngineError
from divebook.text.ranges import COUNT, SOME
from divebook.workflow.servers import is_memory
from divebook.workspace.shell import DRAIN, STDOUT, EndedCommand, Given, KeptOutput, Listen, pieces_of, shielded
from divebook.workspace.shell import STDERR as RUNNING_STDERR
from divebook.workspace.terminal import end_after

# Streams of the engine: a request over its socket that becomes a connection to a process in a container.
#
# docker-py gives its socket only after it has read the answer's head with a buffer, in which the first output may be
# left; and closing it leaves the connection open below. So the few lines of HTTP are here.


_HEAD = 8
"""Bytes before each piece: which stream, and how long it is."""
STDERR = 2
_PIECE = 1 << 16


class Hijacked:
    """A connection to a process in a container."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

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


# What a command in a container prints, on its way to where it is kept and to who listens.


_MOST_BEGINNING = 2000


class Printed:
    """Takes what comes of both streams."""

    def __init__(self, out: KeptOutput, err: KeptOutput, listen: Listen | None, undecodable: str = "replace") -> None:
        self._kept = (out, err)
        self._listen = listen
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = (make(errors=undecodable), make(errors=undecodable))
        self.beginning = b""
        """Of what it printed, where the engine says why it cannot begin."""

    def feed(self, data: bytes, *, is_error: bool) -> None:
        """Take in what came of a stream."""
        if len(self.beginning) < _MOST_BEGINNING:
            self.beginning += data[:_MOST_BEGINNING]
        self._kept[is_error].feed(data)
        self._hand_on(data, is_error=is_error)

    def finish(self) -> None:
        """Hand on what is left of a stream that ended within a letter."""
        for is_error in (False, True):
            self._hand_on(b"", is_error=is_error, final=True)

    def _hand_on(self, data: bytes, *, is_error: bool, final: bool = False) -> None:
        if self._listen is not None and (text := self._decoders[is_error].decode(data, final=final)):
            self._listen(RUNNING_STDERR if is_error else STDOUT, text)


# The process in a container that ends commands: also where they fled to a session of their own or cleared variables.
#
# Each command has a mark that its processes inherit and cannot shed by accident: a limit that Linux keeps and does not
# apply (RLIMIT_RSS). The guard ends all processes with a mark when it is told to. When its input ends, because the
# process outside was killed, it ends those of all commands that have begun and not ended.


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


# What a container is to be like: its image, what it sees of this machine, and its limits.


WORKDIR = "/workspace"
LABEL = "divebook.workspace"
"""The label of each container that is made here; its value is the folder that is mounted."""
# The first process of a container cannot be killed from inside, and a shell that waits takes in orphans that ended:
# so both go on where a command kills all that it can (test_a_command_that_kills_all_it_can).
_ALIVE = ["/bin/sh", "-c", "while cat >/dev/null; [ $? -gt 128 ]; do :; done"]
"""What keeps a container alive: it waits for what never comes, and ends with who holds its input."""
_KEPT = ["/bin/sh", "-c", "while :; do sleep 3600; done"]


class PublishedPort(NamedTuple):
    """A port of a container that can be reached from outside."""

    inside: int
    outside: int | None = None
    """Of this machine; None for any that is free."""
    protocol: str = "tcp"
    address: str = "127.0.0.1"
    """Of this machine: what is published at others than its loopback is open to a whole network."""


def caller() -> str:
    """Return the user and group of this process, so that what a container writes is its caller's."""
    return f"{os.getuid()}:{os.getgid()}"


@dataclass(frozen=True)
class ContainerPlan:
    """What a container is to be like."""

    image: str
    folder: str
    """On this machine, mounted at `workdir`."""
    workdir: str = WORKDIR
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Further folders on this machine, and where they are mounted: as ``/data``, or only to be read, ``/data:ro``."""
    user: str = field(default_factory=caller)
    memory: str = "1g"
    cpus: float | None = None
    pids: int = 256
    network: str = "none"
    ports: Sequence[PublishedPort] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    is_kept: bool = False
    """Whether it outlives the process that made it."""
    command: Sequence[str] = ()
    """What runs in it besides commands, and ends it by its own end; by default something that waits."""

    def __post_init__(self) -> None:
        needs = (  # an engine takes 0, and nothing, for no limit
            ("memory", is_memory(self.memory), "an amount above 0, such as '512m'"),
            ("cpus", self.cpus is None or SOME.fits(self.cpus), f"{SOME}, or None for all"),
            ("pids", COUNT.fits(self.pids), str(COUNT)),
        )
        for name, holds, must in needs:
            if not holds:
                raise ValueError(f"{name} of a container must be {must}, not {getattr(self, name)!r}")

    def arguments(self) -> dict[str, Any]:
        """Return what the engine is asked for."""
        binds = {self.folder: self.workdir, **self.mounts}
        told: dict[str, Any] = {
            "image": self.image,
            "command": list(self.command) or (_KEPT if self.is_kept else _ALIVE),
            "entrypoint": [],
            "user": self.user,
            "working_dir": self.workdir,
            "network_mode": self.network,
            "volumes": {path: _bind(inside) for path, inside in binds.items()},
            "labels": {**self.labels, LABEL: self.folder},
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "pids_limit": self.pids,
            "mem_limit": self.memory,
            "memswap_limit": self.memory,
            "ports": {f"{port.inside}/{port.protocol}": (port.address, port.outside) for port in self.ports},
        }
        if self.cpus is not None:
            told["nano_cpus"] = int(self.cpus * 1e9)
        if not self.is_kept:
            told |= {"auto_remove": True, "stdin_open": True}
        return told


def _bind(inside: str) -> dict[str, str]:
    path = inside.removesuffix(":ro")
    return {"bind": path, "mode": "rw" if path == inside else "ro"}


T = TypeVar("T")
DEFAULT_URL = "unix:///var/run/docker.sock"
_UNIX = "unix://"
_SECONDS = 60
_NETWORKS = ("none", "host", "bridge", "default")
"""Those that every engine has."""
_ENDING = 15.0
_MOMENT = 0.01
_LOOKS = (0.1, 0.2, 0.4)
"""Seconds between looks at whether a command has ended whose streams something else holds open; the last one recurs."""
_FAILED = b"OCI runtime exec failed"


def engine_url() -> str:
    """Return where the engine listens, as ``DOCKER_HOST`` says."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_URL


def engine_socket(url: str) -> str:
    """Return the path of the socket at which an engine listens; raises `EngineUnavailableError`.

    The library leaves a socket open that nobody answers at, so it is tried here.
    """
    if not url.startswith(_UNIX) or url == _UNIX or "\0" in url:
        raise UnusableEngineError(
            f"the container engine at {url} is not on this machine, and so cannot mount the folder: set DOCKER_HOST "
            f"to a socket, as in {DEFAULT_URL}"
        )
    path = url.removeprefix(_UNIX)
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.connect(path)
        except OSError as error:
            # An engine that restarts leaves its socket where it was, so that only there another attempt is of use.
            try:
                is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
            except OSError:
                is_socket = False
            raise (EngineUnavailableError if is_socket else UnusableEngineError)(_silent(url, error)) from error
    return path


def require_image(image: str) -> None:
    """Raise unless an image is there: `ContainerError`, or `EngineUnavailableError`."""
    engine = Engine()
    try:
        engine.require_image_now(image)
    finally:
        engine.close_now()


def _silent(url: str, error: Exception) -> str:
    return f"no container engine answers at {url}: start it, or set DOCKER_HOST ({error})"


class Engine:
    """The container engine of this machine.

    Parameters
    ----------
    url
        Where it listens; by default what ``DOCKER_HOST`` says, else ``unix:///var/run/docker.sock``.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url or engine_url()
        self._made: Any = None
        self._guards: dict[tuple[str, str | None], Guard] = {}
        """By container and user."""
        self._held: dict[str, Hijacked] = {}
        # Below 2^42 kibibytes, and another range for each process: several may use one container.
        self._marks = itertools.count(random.SystemRandom().randrange(1 << 36, 1 << 42))

    # --- what it is asked ------------------------------------------------------------------------------------------

    async def require_image(self, image: str) -> None:
        """Raise unless an image is there: `ContainerError`, or `EngineUnavailableError`."""
        await asyncio.to_thread(self.require_image_now, image)

    def require_image_now(self, image: str) -> None:
        """Raise unless an image is there, from where nothing is awaited."""
        self._answered(lambda client: client.images.get(image), f"image {image}", f"docker pull {image}")

    async def start(self, plan: ContainerPlan) -> str:
        """Return the id of a new container; raises as `require_image`."""
        await self.require_image(plan.image)
        what = f"a container of {plan.image}"
        if plan.network not in _NETWORKS and not plan.network.startswith("container:"):
            remedy = f"docker network create {plan.network}"
            await self._asked(lambda client: client.networks.get(plan.network), f"network {plan.network}", remedy)
        made: str = (await self._asked(lambda client: client.containers.create(**plan.arguments()), what)).id
        try:
            if not plan.is_kept:  # it ends when this process does, however that ends
                self._held[made] = await self._hijacked(f"containers/{made}/attach?stream=1&stdin=1", {})
            await self._asked(lambda client: client.api.start(made), what)
        except BaseException:
            await self.remove(made)
            raise
        return made

    async def require_running(self, container: str) -> None:
        """Raise `ContainerError` unless a container is there and runs."""
        found = await self._asked(lambda client: client.api.inspect_container(container), f"container {container}")
        if not found["State"]["Running"]:
            status = found["State"]["Status"]
            raise ContainerError(f"container {container} is not running but {status}: docker start {container}")

    async def found(self, labels: Mapping[str, str]) -> str | None:
        """Return the container with some labels, started if it was stopped; None if there is none."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        found = await self._asked(
            lambda client: client.api.containers(all=True, filters={"label": wanted}), "containers"
        )
        if not found:
            return None
        container: str = found[0]["Id"]
        await self._asked(lambda client: client.api.start(container), f"container {container}")
        return container

    async def ports(self, container: str) -> dict[int | str, int]:
        """Return the ports inside that are published (``80``, ``"53/udp"``), and those of this machine."""
        found = await self._asked(lambda client: client.api.inspect_container(container), f"container {container}")
        published: Mapping[str, Any] = found["NetworkSettings"]["Ports"] or {}
        numbers = {name: int(name.removesuffix("/tcp")) if name.endswith("/tcp") else name for name in published}
        return {numbers[name]: int(at[0]["HostPort"]) for name, at in published.items() if at}

    async def remove(self, container: str) -> None:
        """End and remove a container; one that is gone is fine."""
        await self.leave(container)
        with suppress(ContainerError):
            await self._asked(
                lambda client: client.api.remove_container(container, force=True), f"container {container}"
            )

    async def leave(self, container: str) -> None:
        """Let go of a container, which stays if it is one that is kept."""
        held = self._held.pop(container, None)
        for key in [key for key in self._guards if key[0] == container]:
            await self._guards.pop(key).close()
        if held is not None:
            held.close()

    async def close(self) -> None:
        """Let go of the engine; twice is once."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Let go of the engine, from where nothing is awaited."""
        client = self._made
        self._made = None
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
        out: KeptOutput,
        err: KeptOutput,
        stdin: Given = b"",
        listen: Listen | None = None,
        begun: Callable[[int], None] | None = None,
        undecodable: str = "replace",
        user: str | None = None,
        terminal: bool = False,
    ) -> EndedCommand:
        """Run a command in a container; after its time limit or its cancellation nothing that it started is alive.

        A signal that ended it is 128 and its number, as shells and engines say it. `begun` is called once it runs, with
        the number that this machine gives it.

        Parameters
        ----------
        undecodable
            What `listen` gets of bytes that are no UTF-8, as `bytes.decode` names it.
        user
            As whom it runs; by default as whom the container does.
        terminal
            Whether it finds a terminal, which has one stream.

        Raises
        ------
        ContainerError
            The container is not there, or the command cannot run in that folder.
        """
        started = time.monotonic()
        one = _Command(container, next(self._marks), begun)
        one.user = user
        one.terminal = terminal
        guard = self._guards.get((container, user))
        if guard is None:  # one for each user: without capabilities nobody ends what is another's
            guard = self._guards[container, user] = Guard(lambda argv: self._guarding(container, user, argv))
        printed = Printed(out, err, listen, undecodable)
        has_ended = False
        try:
            async with asyncio.timeout(None if seconds is None else max(0.0, started + seconds - time.monotonic())):
                await guard.begin(one.mark)
                options = {"stdin": bool(stdin), "workdir": workdir, "environment": dict(environ)}
                # Whole even where it is cancelled: what has half begun could not be ended.
                await shielded(self._begin(one, marked(one.mark, argv), **options))
                code = await self._followed(one, stdin, printed)
                has_ended = True
                printed.finish()
        except TimeoutError:
            return EndedCommand(-signal.SIGKILL, timed_out=True, seconds=time.monotonic() - started)
        finally:
            try:
                await shielded(guard.done(one.mark) if has_ended else self._end(one, guard))
            finally:  # cancelled once more meanwhile
                if one.connection is not None:
                    one.connection.close()
        if printed.beginning.startswith(_FAILED):
            raise ContainerError(f"cannot run in {workdir}: {printed.beginning.decode(errors='replace').strip()}")
        return EndedCommand(code, timed_out=False, seconds=time.monotonic() - started)

    async def _begin(self, one: _Command, argv: Sequence[str], **options: Any) -> None:
        told = {"user": one.user or "", **options, "tty": one.terminal}
        made = await self._asked(lambda client: client.api.exec_create(one.container, list(argv), **told), one.what)
        one.id = made["Id"]
        one.connection = await self._hijacked(f"exec/{one.id}/start", {"Detach": False, "Tty": one.terminal})

    async def _followed(self, one: _Command, stdin: Given, printed: Printed) -> int:
        """Return the status of a command once it has ended, and what it printed was read."""
        assert one.connection is not None  # noqa: S101 - it has begun
        reading = asyncio.create_task(_read(one.connection, printed, is_plain=one.terminal))
        tasks = [reading]
        if stdin:
            tasks.append(asyncio.create_task(_give(one.connection, stdin, in_terminal=one.terminal)))
        waits = itertools.chain(_LOOKS, itertools.repeat(_LOOKS[-1]))
        status = None
        try:
            while status is None:
                if reading.done():
                    reading.result()  # raises if what it printed could not be kept
                    await asyncio.sleep(_MOMENT)
                else:
                    await asyncio.wait([reading], timeout=next(waits))
                status = await self._status(one)
            await asyncio.wait([reading], timeout=DRAIN)  # something that it left behind may hold its streams
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return status

    async def _status(self, one: _Command) -> int | None:
        """Return how a command ended, which the engine may know a moment after; None if it has not."""
        found = await self._asked(lambda client: client.api.exec_inspect(one.id), one.what)
        if one.begun is not None and found["Pid"]:  # the engine begins it a moment after it was told to
            begun = one.begun
            one.begun = None
            begun(found["Pid"])
        return None if found["Running"] else found["ExitCode"]

    async def _end(self, one: _Command, guard: Guard) -> None:
        """End all processes of a command; a container that ends with us and cannot do that is ended itself.

        The engine may begin a command after it was told to, and the command bears its mark a moment later: what runs
        still is ended again.
        """
        if one.id is None:
            await guard.done(one.mark)
            return
        limit = time.monotonic() + _ENDING
        is_ended = False
        try:
            while not is_ended and time.monotonic() < limit:
                status = await self._status(one)
                is_ended = await guard.end(one.mark) and status is not None
        except (ContainerError, EngineUnavailableError):  # it is gone, and all that ran in it
            return
        if not is_ended and one.container in self._held:
            await self.remove(one.container)

    async def _guarding(self, container: str, user: str | None, argv: Sequence[str]) -> Hijacked:
        one = _Command(container, 0, user=user)
        await self._begin(one, argv, stdin=True)
        assert one.connection is not None  # noqa: S101 - it has begun
        return one.connection

    async def _hijacked(self, path: str, body: Mapping[str, Any]) -> Hijacked:
        version = (await asyncio.to_thread(self._client)).api.api_version
        return await hijacked(self._url.removeprefix(_UNIX), f"/v{version}/{path}", body)

    # --- the library -----------------------------------------------------------------------------------------------

    def _client(self) -> Any:
        """Return the client; raises `EngineUnavailableError`."""
        if self._made is None:
            import docker

            engine_socket(self._url)
            try:
                self._made = docker.DockerClient(base_url=self._url, timeout=_SECONDS, version="auto")
            except (docker.errors.DockerException, OSError) as error:
                raise EngineUnavailableError(_silent(self._url, error)) from error
        return self._made

    async def _asked(self, ask: Callable[[Any], T], what: str, remedy: str = "") -> T:
        """Return the engine's answer to a question about something; raises `ContainerError` for what it refuses."""
        return await asyncio.to_thread(self._answered, ask, what, remedy)

    def _answered(self, ask: Callable[[Any], T], what: str, remedy: str) -> T:
        from docker.errors import APIError, NotFound

        client = self._client()
        try:
            return ask(client)
        except NotFound as error:
            raise ContainerError(f"{what} not found{f': {remedy}' if remedy else ''}") from error
        except APIError as error:
            raise ContainerError(f"{what}: the engine refused: {error.explanation}") from error
        except OSError as error:
            raise EngineUnavailableError(f"the container engine at {self._url} does not answer: {error}") from error


@dataclass
class _Command:
    container: str
    mark: int
    begun: Callable[[int], None] | None = None
    """Whom to tell that it runs; None once that is told."""
    id: str | None = None
    """The engine's; None until it is made."""
    connection: Hijacked | None = None
    user: str | None = None
    terminal: bool = False

    @property
    def what(self) -> str:
        return f"container {self.container}"


async def _give(connection: Hijacked, stdin: Given, *, in_terminal: bool) -> None:
    last = b""
    async for piece in pieces_of(stdin):
        await connection.send(piece)
        last = piece or last
    if in_terminal:  # whose connection is to be read on, and ends both ways
        await connection.send(end_after(last))
    else:
        await connection.send(b"", is_last=True)


async def _read(connection: Hijacked, printed: Printed, *, is_plain: bool) -> None:
    async for stream, piece in connection.plain_pieces() if is_plain else connection.pieces():
        printed.feed(piece, is_error=stream == STDERR)


# Containers that outlive who made them: stopped, begun again, kept as images, measured; found by their labels.


class ContainerUse(NamedTuple):
    """What a container uses now."""

    cpu_percent: float
    """100 is one core."""
    memory_bytes: int
    disk_bytes: int
    """Of what it has written besides folders that are mounted."""


class KeepingEngine(Engine):
    """The container engine, asked for what concerns containers that stay."""

    async def pull(self, image: str) -> None:
        """Have the engine fetch an image; raises `ContainerError` if it cannot."""
        await self._asked(lambda client: client.images.pull(image), f"image {image}")

    async def image_id(self, image: str) -> str:
        """Return the digest of an image; raises `ContainerError` if it is not there."""
        found: str = (await self._asked(lambda client: client.images.get(image), f"image {image}")).id
        return found

    async def version(self) -> str:
        """Return the version of the engine."""
        found: str = (await self._asked(lambda client: client.api.version(), "the engine"))["Version"]
        return found

    async def has_image(self, image: str) -> bool:
        """Return whether an image is there."""
        try:
            await self.image_id(image)
        except ContainerError:
            return False
        return True

    async def write_image(self, image: str, path: Path) -> None:
        """Write an image into a file, which `load_image` has an engine read."""

        def write(client: Any) -> None:
            with path.open("wb") as file:
                file.writelines(client.api.get_image(image))

        await self._asked(write, f"image {image}")

    async def load_image(self, path: Path) -> None:
        """Have the engine read an image of a file."""

        def load(client: Any) -> None:
            with path.open("rb") as file:
                client.images.load(file)

        await self._asked(load, f"the image in {path}")

    async def processes(self, container: str) -> int:
        """Return how many processes run in a container."""
        found = await self._asked(lambda client: client.api.top(container), f"container {container}")
        return len(found["Processes"] or ())

    async def state(self, container: str) -> Mapping[str, Any] | None:
        """Return what the engine says of a container's state (Status, OOMKilled, ...); None if it is gone."""
        try:
            found = await self._asked(lambda client: client.api.inspect_container(container), f"container {container}")
        except ContainerError:
            return None
        told: Mapping[str, Any] = found["State"]
        return told

    async def begin(self, container: str) -> None:
        """Start a container that was stopped; one that runs is fine."""
        await self._asked(lambda client: client.api.start(container), f"container {container}")

    async def stop(self, container: str) -> None:
        """End all that runs in a container, which stays."""
        await self._asked(lambda client: client.api.stop(container, timeout=0), f"container {container}")

    async def keep_as(self, container: str, image: str) -> str:
        """Keep what a container has written as an image, which gets its labels; return the image's digest."""
        repository, _, tag = image.rpartition(":")
        made = await self._asked(
            lambda client: client.api.commit(container, repository=repository, tag=tag, pause=True),
            f"container {container}",
        )
        digest: str = made["Id"]
        return digest

    async def use(self, container: str) -> ContainerUse:
        """Measure a container for about a second."""
        what = f"container {container}"
        told = await self._asked(lambda client: client.api.stats(container, stream=False), what)
        sizes = await self._asked(lambda client: client.api.df()["Containers"] or [], "what the engine holds")
        size = next((found.get("SizeRw", 0) for found in sizes if found["Id"].startswith(container)), 0)
        now = told["cpu_stats"]
        before = told["precpu_stats"]
        spent = now["cpu_usage"]["total_usage"] - before["cpu_usage"]["total_usage"]
        passed = now.get("system_cpu_usage", 0) - before.get("system_cpu_usage", 0)
        cores = now.get("online_cpus") or 1
        memory = told["memory_stats"].get("usage", 0) - told["memory_stats"].get("stats", {}).get("inactive_file", 0)
        return ContainerUse(100 * cores * spent / passed if passed > 0 else 0.0, max(0, memory), size)

    async def labelled(self, labels: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
        """Return the ids of the containers that have some labels, with all labels of each."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        found = await self._asked(
            lambda client: client.api.containers(all=True, filters={"label": wanted}), "containers"
        )
        return {container["Id"]: container["Labels"] for container in found}

    async def labelled_images(self, labels: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
        """Return the digests of the images that have some labels, with all labels of each."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        found = await self._asked(lambda client: client.api.images(filters={"label": wanted}), "images")
        return {image["Id"]: image["Labels"] for image in found}

    async def remove_images(self, labels: Mapping[str, str], *, but: frozenset[str] = frozenset()) -> None:
        """Remove the images that have some labels, but for some digests; one that is in use stays."""
        # The newest first, as they come: one of which others are made can be removed only after them.
        for image in [image for image in await self.labelled_images(labels) if image not in but]:
            with suppress(ContainerError):
                await self.remove_image(image)

    async def remove_image(self, image: str) -> None:
        """Remove an image; raises `ContainerError` for one that is in use."""
        await self._asked(lambda client: client.api.remove_image(image, force=True), f"image {image}")

    async def network(self, name: str, labels: Mapping[str, str]) -> str:
        """Return the name of a network, which is made if it is not there."""
        found = await self._asked(lambda client: client.api.networks(names=[name]), f"network {name}")
        if not any(network["Name"] == name for network in found):
            await self._asked(
                lambda client: client.api.create_network(name, driver="bridge", labels=dict(labels)), f"network {name}"
            )
        return name

    async def labelled_networks(self, labels: Mapping[str, str]) -> list[str]:
        """Return the names of the networks that have some labels."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        found = await self._asked(lambda client: client.api.networks(filters={"label": wanted}), "networks")
        return [network["Name"] for network in found]

    async def remove_network(self, name: str) -> None:
        """Remove a network, unless a container is in it."""
        with suppress(ContainerError):
            await self._asked(lambda client: client.api.remove_network(name), f"network {name}")
