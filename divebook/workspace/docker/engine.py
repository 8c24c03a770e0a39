"""The container engine, as far as workspaces need it: docker-py for what it is asked, its streams by our own lines.

Only an engine on this machine is used, since the files are on a folder that is mounted.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import socket
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from divebook.errors import ContainerError, EngineUnavailableError, UnusableEngineError
from divebook.workspace.commands.output import KeptOutput
from divebook.workspace.commands.running import DRAIN, EndedCommand, Given, Listen, pieces_of
from divebook.workspace.commands.terminal import end_after
from divebook.workspace.docker.guard import Guard, marked
from divebook.workspace.docker.hijacking import STDERR, Hijacked, hijacked
from divebook.workspace.docker.plans import ContainerPlan
from divebook.workspace.docker.printed import Printed
from divebook.workspace.shielding import shielded

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
        client, self._made = self._made, None
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
        started, one = time.monotonic(), _Command(container, next(self._marks), begun)
        one.user, one.terminal = user, terminal
        guard = self._guards.get((container, user))
        if guard is None:  # one for each user: without capabilities nobody ends what is another's
            guard = self._guards[container, user] = Guard(lambda argv: self._guarding(container, user, argv))
        printed, has_ended = Printed(out, err, listen, undecodable), False
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
            begun, one.begun = one.begun, None
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
        limit, is_ended = time.monotonic() + _ENDING, False
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
