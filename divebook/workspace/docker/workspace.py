"""A workspace in a container: files on a folder that is mounted, and commands that see little else of this machine."""

from __future__ import annotations

import asyncio
import os
import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from divebook.errors import (
    ContainerError,
    EngineUnavailableError,
    PathNotAllowedError,
    ShellExecutionError,
    WorkspaceGoneError,
)
from divebook.workspace.docker.engine import LABEL, WORKDIR, ContainerPlan, Engine, PublishedPort
from divebook.workspace.egress import door
from divebook.workspace.egress.proxy import Egress, EgressAnswer
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.paths import Root
from divebook.workspace.shell import AskedCommand, Shell, ShellResult, made_result, output_keeper, without_secrets
from divebook.workspace.workspace import mount_instructions, several, shell_instructions

# The shell of a container: commands run inside, with the semantics of the local one.


NOTE = "Commands run in a container, which sees of this machine only the mounted folders."


class DockerShell(Shell):
    """Runs commands in a container.

    What is absolute in a command or in `cwd` is the container's own; a relative `cwd` is below `workdir`.

    Parameters
    ----------
    engine, container
        Where commands run.
    workdir, folder
        Where they begin, and the folder of this machine that is mounted there.
    scratch
        Returns the folder for output that is too long, and its name inside; None drops what is in its middle.
    user
        As whom commands run; by default as whom the container does.
    terminal
        The rows and columns of the terminal that commands find; None for none.
    """

    def __init__(
        self,
        engine: Engine,
        container: str,
        workdir: str,
        folder: str,
        *,
        scratch: Callable[[], tuple[str, str] | None] = lambda: None,
        user: str | None = None,
        terminal: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._user = user
        self._terminal = terminal
        self._engine = engine
        self._container = container
        self._workdir = workdir
        self._folder = folder
        self._scratch = scratch

    async def _run(self, asked: AskedCommand) -> ShellResult:
        command = asked.command
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        shown = command if isinstance(command, str) else " ".join(command)
        environ = asked.environ
        if self._terminal is not None:  # an image without stty has a terminal of no size
            size = 'stty rows "$1" cols "$2" 2>/dev/null; shift 2; exec "$@"'
            argv = ["/bin/sh", "-c", size, "sh", *map(str, self._terminal), *argv]
        if not asked.inherit_env:
            argv = ["env", "-i", *(f"{name}={value}" for name, value in environ.items()), *argv]
            environ = {}
        scratch = self._scratch()
        kept = output_keeper(self.output_limit, None if scratch is None else scratch[0])
        out = kept("stdout")
        err = kept("stderr")
        try:
            ended = await self._engine.execute(
                self._container,
                argv,
                workdir=self._inside(asked.cwd),
                environ=environ,
                seconds=asked.seconds,
                out=out,
                err=err,
                stdin=asked.stdin,
                listen=asked.listen,
                begun=asked.begun,
                undecodable=asked.undecodable,
                user=self._user,
                terminal=self._terminal is not None,
            )
        except (ContainerError, EngineUnavailableError) as error:
            raise ShellExecutionError(without_secrets(shown), str(error)) from error
        result = made_result(ended.code, out, err, timed_out=ended.timed_out, duration=ended.seconds)
        if scratch is not None:
            result.stdout_file, result.stderr_file = (
                None if path is None else path.replace(*scratch, 1) for path in (result.stdout_file, result.stderr_file)
            )
        return result

    def _inside(self, cwd: str | None) -> str:
        """Return the folder in which a command begins."""
        if cwd is None:
            return self._workdir
        path = posixpath.normpath(posixpath.join(self._workdir, cwd))
        if not cwd.startswith("/") and path != self._workdir and not path.startswith(f"{self._workdir.rstrip('/')}/"):
            raise PathNotAllowedError(cwd, "leads above the root by ..", [self._workdir])
        return path

    async def get_context_instructions(self) -> str | None:
        """Return the folder with its mount, the limit of time, and what bounds commands."""
        told = shell_instructions(self._workdir, self.default_timeout, NOTE)
        return f"{mount_instructions(self._folder, self._workdir)}\n\n{told}"

    async def close(self) -> None:
        """Let go of the container, with what its commands have not ended."""
        await self._engine.leave(self._container)


# The way out of one container: the proxy outside, its socket in a folder that is mounted, and the door inside.


INSIDE = "/divebook-egress"
PORT = 3128
_NAMES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class Outlet:
    """A proxy, and the folder with its socket.

    Parameters
    ----------
    proxy
        Answers what comes.
    """

    def __init__(self, proxy: Egress) -> None:
        self._proxy = proxy
        self.folder: str | None = None
        """On this machine, to be mounted at `INSIDE`."""

    @classmethod
    def to(cls, allow: Iterable[str], told: Callable[[EgressAnswer], None]) -> Outlet:
        """Return one that leads to some hosts; see `Egress`."""
        return cls(Egress(allow, told=told))

    async def open(self) -> str:
        """Listen; return the folder that is to be mounted."""
        self.folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="divebook-egress-")
        await asyncio.to_thread(shutil.copy, door.__file__, f"{self.folder}/door.py")
        await self._proxy.start(f"{self.folder}/proxy")
        return self.folder

    @property
    def environ(self) -> dict[str, str]:
        """The variables that lead programs to the door; they hold the token."""
        address = f"http://divebook:{self._proxy.token}@127.0.0.1:{PORT}"
        return dict.fromkeys(_NAMES, address)

    @property
    def command(self) -> list[str]:
        """What runs the door inside; the image must have Python."""
        return ["python3", "-I", f"{INSIDE}/door.py", f"{INSIDE}/proxy", str(PORT)]

    async def close(self) -> None:
        """End the proxy; twice is once."""
        await self._proxy.close()
        if self.folder is not None:
            await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder = None


_SCRATCH = "/divebook-tmp"


class DockerWorkspace(LocalWorkspace):
    """Files of a folder on this machine, and commands in a container in which that is mounted.

    The container has no network, no capabilities, and the user of this process. It is removed when the workspace is
    left, and ends with this process however that ends, unless it is to be kept. Paths of files are those inside.

    Parameters
    ----------
    default_path
        The folder, made if it is not there; by default the current one. What `LocalWorkspace` says of further
        parameters holds, but for other folders.
    image
        What a new container is made of; it must be on this machine.
    container
        The id or name of a container that runs, instead of a new one; `default_path` must be mounted there already.
    workdir
        Where the folder is mounted.
    keep
        Whether a new container stays: entered again, also by another process, the workspace finds it by its folder
        and image.
    remove
        Whether a container that was brought is removed all the same.
    memory, cpus, pids
        What all commands together may use: as ``512m``, processors, processes.
    user
        As whom commands run, as ``1000:1000``; by default as this process's user. Another one has no folder for what
        is passing.
    network
        A network of the engine's; by default there is none.
    allow
        Hosts that may be reached without a network (``pypi.org``, ``*.pypi.org``), by a proxy that programs are told of
        by ``HTTPS_PROXY``; the image must have Python.
    told
        Called with each answer of that proxy.
    mounts
        Further folders of this machine, and where a new container has them: as ``/data``, or ``/data:ro`` to be read.
    ports
        Ports inside, and the ports of this machine's loopback that lead to them, None for any; needs a network.
        For UDP, and other addresses of this machine: `PublishedPort`.
    command
        The program, with its words, that a new container runs, and with which it ends; by default it waits.
    terminal
        The rows and columns of the terminal that commands find, whose one stream is ``stdout``; by default none.

    Raises
    ------
    ValueError
        There is neither an image nor a container, a limit is none, or what is asked for does not go together.
    """

    kind: ClassVar[str] = "docker"

    def __init__(
        self,
        default_path: str | Path | None = None,
        *,
        image: str | None = None,
        container: str | None = None,
        workdir: str = WORKDIR,
        keep: bool = False,
        remove: bool = False,
        memory: str = "1g",
        cpus: float | None = None,
        pids: int = 256,
        user: str | None = None,
        network: str = "none",
        allow: Sequence[str] = (),
        told: Callable[[EgressAnswer], None] = lambda _: None,
        mounts: Mapping[str, str] | None = None,
        ports: Mapping[int, int | None] | Sequence[PublishedPort] = (),
        labels: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        terminal: tuple[int, int] | None = None,
        engine: Engine | None = None,
        **options: Any,
    ) -> None:
        _require(bool(image or container), "a workspace in a container needs an image or a container")
        is_new = container is None
        _require((is_new and not keep) or not allow, "only a new container that is not kept can have hosts allowed")
        _require(user is None or not allow, "hosts are allowed for this process's user only: leave out user")
        _require(network != "none" or not ports, "ports are published of a container with a network: name one")
        _require(not options.get("allowed_paths"), "a container sees its one folder only: leave out allowed_paths")
        # A folder for what is passing is mounted as well, for this user only; a container that is there cannot have it.
        options["enable_tmp_dir"] = options.get("enable_tmp_dir", True) and is_new and not keep and user is None
        super().__init__(default_path, **options)
        self._workdir = workdir
        self._brought = container
        self._keep = keep
        self._remove = remove
        self._engine = engine or Engine()
        self._container: str | None = None
        self._outlet = Outlet.to(several(allow, "allow"), told) if allow else None
        self._plan = ContainerPlan(
            image or "",
            str(self._default),
            workdir,
            memory=memory,
            cpus=cpus,
            pids=pids,
            network=network,
            mounts=dict(mounts or {}),
            ports=[PublishedPort(*pair) for pair in ports.items()] if isinstance(ports, Mapping) else tuple(ports),
            labels=dict(labels or {}),
            is_kept=keep,
            command=tuple(command),
        )
        if user is not None:
            self._plan = replace(self._plan, user=user)
        self._command_user = None if is_new else user
        self._terminal = terminal
        self.ports: dict[int | str, int] = {}
        """Ports inside that are published (``80``, ``"53/udp"``), and those of this machine, while it is entered."""

    async def require(self) -> None:
        """Raise unless it can be entered: `ContainerError` without its image, `EngineUnavailableError`."""
        try:
            if self._brought is not None:
                await self._engine.require_running(self._brought)
            else:
                await self._engine.require_image(self._plan.image)
        finally:
            if not self.is_entered:
                await self._engine.close()

    async def _setup(self) -> None:
        await asyncio.to_thread(self._default.mkdir, parents=True, exist_ok=True)
        self._policy()
        self._require_mounts()
        mounts = {} if self._scratch is None else {self._scratch: _SCRATCH}
        if self._outlet is not None:
            mounts[await self._outlet.open()] = INSIDE
        self._container = await self._running(mounts)
        self.ports = await self._engine.ports(self._container) if self._plan.ports else {}
        self._shell = DockerShell(
            self._engine,
            self._container,
            self._workdir,
            str(self._default),
            scratch=lambda: None if self._scratch is None else (self._scratch, _SCRATCH),
            default_timeout=self._shell_timeout,
            environ=self._environ,
            secrets=self._all_secrets if self._secrets is not None or self._outlet is not None else None,
            user=self._command_user,
            terminal=self._terminal,
        )
        if self._outlet is not None:
            await self._open_door(self._outlet)

    def _require_mounts(self) -> None:
        for folder in self._plan.mounts:  # the engine would make it, for its own user
            if not os.path.exists(folder):
                raise WorkspaceGoneError(f"{folder} is not there, which a container is to have: make it first")

    async def _running(self, mounts: Mapping[str, str]) -> str:
        """Return the container in which commands run."""
        if self._brought is not None:
            await self._engine.require_running(self._brought)
            return self._brought
        plan = replace(self._plan, mounts={**self._plan.mounts, **mounts})
        labels = {**plan.labels, "divebook.image": plan.image}
        found = await self._engine.found({**labels, LABEL: plan.folder}) if self._keep else None
        return found or await self._engine.start(replace(plan, labels=labels))

    async def _open_door(self, outlet: Outlet) -> None:
        """Start the door inside, which is open when its command has ended."""
        found = await self.shell.execute(outlet.command)
        if found.exit_code:
            told = f"the image {self._plan.image} cannot open the way to its hosts, which needs Python"
            raise ContainerError(f"{told}: {found.stderr.strip()}")

    def _all_secrets(self) -> Mapping[str, str]:
        """Return what commands get and must not be shown, looked up for each of them: the container has none of it."""
        found = dict(self._secrets()) if self._secrets is not None else {}
        return found if self._outlet is None else {**self._outlet.environ, **found}

    def _rooted(self, folder: str) -> Root:
        """Return a folder under its name inside, by which links are made there."""
        return Root(folder, name=_SCRATCH if folder == self._scratch else self._workdir, openat2=self._openat2)

    async def _teardown(self) -> None:
        container = self._container
        self._container = None
        try:
            if container is not None and self._is_removed:
                await self._engine.remove(container)
        finally:
            if self._outlet is not None:
                await self._outlet.close()
            await self._engine.close()
            await super()._teardown()

    @property
    def _is_removed(self) -> bool:
        return self._remove if self._brought is not None else not self._keep

    async def require_there(self) -> None:
        """Raise unless its folder is still there (`WorkspaceGoneError`), and its container runs (`ContainerError`)."""
        await super().require_there()
        assert self._container is not None  # noqa: S101 - it is entered, as its folder is known
        await self._engine.require_running(self._container)

    @property
    def container(self) -> str | None:
        """The id of the container, while it is entered."""
        return self._container

    @property
    def reference(self) -> dict[str, Any]:
        """The folder, its image, and the container by which commands are run, if that outlives this process."""
        told = {**super().reference, "image": self._plan.image or None, "container": self._brought}
        return {name: value for name, value in told.items() if value is not None}


def _require(holds: bool, told: str) -> None:  # noqa: FBT001 - what must hold
    if not holds:
        raise ValueError(told)


class DockerEnvironment(DockerWorkspace):
    """A `DockerWorkspace` with the parameters that the pai-agent-sdk has.

    Parameters
    ----------
    mount_dir
        `default_path`: the folder of this machine, made if it is not there.
    container_workdir
        `workdir`: where the container has it.
    container_id
        `container`: one that runs, instead of a new one; it wins over `image`.
    image
        What a new container is made of.
    cleanup_on_exit
        Whether a new container is removed when the workspace is left; False is `keep=True`. A container that was
        brought is never removed by this; `remove=True` of `DockerWorkspace` does that.
    **options
        Further parameters of `DockerWorkspace`.

    Raises
    ------
    ValueError
        There is neither an image nor a container.
    """

    def __init__(
        self,
        mount_dir: str | Path | None = None,
        *,
        container_workdir: str = WORKDIR,
        container_id: str | None = None,
        image: str | None = None,
        cleanup_on_exit: bool = True,
        **options: Any,
    ) -> None:
        keep = container_id is None and not cleanup_on_exit
        super().__init__(
            mount_dir, image=image, container=container_id, workdir=container_workdir, keep=keep, **options
        )
