"""Workspaces in Docker containers: a mounted folder with the files, and a shell that runs commands in the container."""

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
from divebook.workspaces.docker.engine import LABEL, WORKDIR, ContainerPlan, Engine, PublishedPort
from divebook.workspaces.egress import relay
from divebook.workspaces.egress.proxy import Egress, EgressAnswer
from divebook.workspaces.local import LocalWorkspace
from divebook.workspaces.paths import Root
from divebook.workspaces.shell import CommandRequest, Shell, ShellResult, command_result, output_keeper, without_secrets
from divebook.workspaces.workspace import mount_instructions, several, shell_instructions

_SCRATCH = "/divebook-tmp"


class DockerWorkspace(LocalWorkspace):
    """Workspace with files in a folder of this machine and commands in a container that mounts the folder.

    The container has no network, no capabilities, and the user of this process. The container is removed when the
    workspace is left or this process ends, unless `keep` is True. Paths of files are the paths in the container.

    Parameters
    ----------
    default_path
        The folder, which is created if it does not exist; by default the current folder. Other parameters of
        `LocalWorkspace` are accepted too, except for further folders.
    image
        Image of a new container; it must be on this machine.
    container
        Id or name of a running container, instead of a new one. `default_path` must be mounted in it.
    workdir
        Mount point of the folder.
    keep
        True to keep a new container when the workspace is left. A workspace that is entered later, also in another
        process, finds the container by its folder and image.
    remove
        True to remove the container even if it was passed as `container`.
    memory, cpus, pids
        Limits of all commands together: memory such as ``512m``, processors, processes.
    user
        User of commands, such as ``1000:1000``; by default that of this process. With another user the container
        has no folder of temporary files.
    network
        A network of the engine; by default none.
    allow
        Hosts that programs may reach although the container has no network (``pypi.org``, ``*.pypi.org``). Programs
        reach them through the proxy in ``HTTPS_PROXY``. The image must have Python.
    told
        Function that is called with each `EgressAnswer` of this proxy.
    mounts
        Further folders of this machine with their mount points: ``/data``, or ``/data:ro`` for read-only.
    ports
        Published ports of the container, each with a port on the loopback address of this machine, or None for any free
        port. They need a network. For UDP and for other addresses of this machine, use `PublishedPort`.
    command
        Main program of a new container, with its arguments. The container ends when this program ends. By default, the
        program only waits.
    terminal
        Rows and columns of the terminal in which commands run. All output is then in ``stdout``. By default, commands
        have no terminal.

    Raises
    ------
    ValueError
        There is neither an image nor a container, a limit is invalid, or options contradict each other.
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
        _require(bool(image or container), "a workspace in a container needs image=... or container=...")
        is_new = container is None
        _require(
            (is_new and not keep) or not allow,
            "hosts can be allowed only for a new container without keep=True; remove allow, container or keep",
        )
        _require(user is None or not allow, "allow cannot be combined with user; remove one of them")
        _require(network != "none" or not ports, "a container needs a network to publish ports; set network=...")
        _require(
            not options.get("allowed_paths"), "a container can access only its mounted folder; remove allowed_paths"
        )
        # The folder of temporary files is mounted too, for this user only. An existing container cannot mount it.
        options["enable_tmp_dir"] = options.get("enable_tmp_dir", True) and is_new and not keep and user is None
        super().__init__(default_path, **options)
        self._workdir = workdir
        self._existing = container
        self._keep = keep
        self._remove = remove
        self._engine = engine or Engine()
        self._container: str | None = None
        self._egress = ContainerEgress.to(several(allow, "allow"), told) if allow else None
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
        # A new container runs as the user of its plan. In an existing one, each command must name its user.
        self._command_user = None if is_new else user
        self._terminal = terminal
        self.ports: dict[int | str, int] = {}
        """Ports of this machine by published port of the container (``80``, ``"53/udp"``), while entered."""

    async def require(self) -> None:
        """Raise an error if the workspace cannot be entered, because its container, its image or the container engine
        is missing.

        `ContainerError` for a missing image, `EngineUnavailableError` without an engine.
        """
        try:
            if self._existing is not None:
                await self._engine.require_running(self._existing)
            else:
                await self._engine.require_image(self._plan.image)
        finally:
            # The client of an entered workspace is still needed.
            if not self.is_entered:
                await self._engine.close()

    async def _setup(self) -> None:
        await asyncio.to_thread(self._default.mkdir, parents=True, exist_ok=True)
        self._policy()
        self._require_mounts()
        # {folder of this machine: mount point}
        mounts = {} if self._scratch is None else {self._scratch: _SCRATCH}
        # The socket of the proxy must exist before the container starts, because its folder is mounted.
        if self._egress is not None:
            mounts[await self._egress.start_proxy()] = INSIDE
        self._container = await self._container_for(mounts)
        self.ports = await self._engine.ports(self._container) if self._plan.ports else {}
        self._shell = DockerShell(
            self._engine,
            self._container,
            self._workdir,
            str(self._default),
            scratch=lambda: None if self._scratch is None else (self._scratch, _SCRATCH),
            default_timeout=self._shell_timeout,
            environ=self._environ,
            secrets=self._all_secrets if self._secrets is not None or self._egress is not None else None,
            user=self._command_user,
            terminal=self._terminal,
        )
        if self._egress is not None:
            await self._start_relay(self._egress)

    def _require_mounts(self) -> None:
        for folder in self._plan.mounts:  # the engine would create a missing one, for its own user
            if not os.path.exists(folder):
                raise WorkspaceGoneError(f"{folder} does not exist, but the container needs it; create it first")

    async def _container_for(self, mounts: Mapping[str, str]) -> str:
        """Return the id of the container in which commands run. It is the container that the caller named, or else a
        kept container with the same folder and image, or else a new one.
        """
        if self._existing is not None:
            await self._engine.require_running(self._existing)
            return self._existing
        plan = replace(self._plan, mounts={**self._plan.mounts, **mounts})
        # A kept container is found by its folder and image, so both are labels.
        labels = {**plan.labels, "divebook.image": plan.image}
        container = await self._engine.find({**labels, LABEL: plan.folder}) if self._keep else None
        return container or await self._engine.start_container(replace(plan, labels=labels))

    async def _start_relay(self, egress: ContainerEgress) -> None:
        """Start the relay inside the container, through which programs reach the proxy for network access. Return when
        the relay accepts connections.
        """
        result = await self.shell.execute(egress.command)
        if result.exit_code:
            reason = (
                f"containers of the image {self._plan.image} cannot reach the allowed hosts; this needs Python in the "
                "image"
            )
            raise ContainerError(f"{reason}: {result.stderr.strip()}")

    def _all_secrets(self) -> Mapping[str, str]:
        """Return the environment variables with secret values for commands. With network access, they include the
        address of the proxy, which contains its token.

        The variables are passed to each command, so that the container does not store them.
        """
        secrets = dict(self._secrets()) if self._secrets is not None else {}
        return secrets if self._egress is None else {**self._egress.environ, **secrets}

    def _open_root(self, folder: str) -> Root:
        """Open a folder of this machine, and treat it as if it had its path in the container. Links that commands
        create there are then resolved correctly.
        """
        return Root(folder, name=_SCRATCH if folder == self._scratch else self._workdir, openat2=self._openat2)

    async def _teardown(self) -> None:
        container = self._container
        self._container = None
        try:
            # The shell, which is closed later, ends the commands in a container that stays.
            if container is not None and self._is_removed:
                await self._engine.remove(container)
        finally:
            if self._egress is not None:
                await self._egress.close()
            await self._engine.close()
            await super()._teardown()

    @property
    def _is_removed(self) -> bool:
        return self._remove if self._existing is not None else not self._keep

    async def require_there(self) -> None:
        """Raise `WorkspaceGoneError` if the folder of the workspace no longer exists, `ContainerError` if its container
        is not running.
        """
        await super().require_there()
        assert self._container is not None  # noqa: S101 - it is entered, otherwise `require_there` has raised
        await self._engine.require_running(self._container)

    @property
    def container(self) -> str | None:
        """Id of the workspace's container. None while the workspace is not entered."""
        return self._container

    @property
    def reference(self) -> dict[str, Any]:
        """Data by which the workspace can be created again after a restart of Python: its folder, its image, and the
        container that the caller named, if any.
        """
        fields = {**super().reference, "image": self._plan.image or None, "container": self._existing}
        return {name: value for name, value in fields.items() if value is not None}


def _require(condition: bool, message: str) -> None:  # noqa: FBT001 - what must hold
    if not condition:
        raise ValueError(message)


class DockerEnvironment(DockerWorkspace):
    """A `DockerWorkspace` whose parameters have the names of the pai-agent-sdk, for code written for that SDK.

    Parameters
    ----------
    mount_dir
        `default_path`: the folder of this machine, created if it is missing.
    container_workdir
        `workdir`: its mount point.
    container_id
        `container`: a running container instead of a new one. It takes precedence over `image`.
    image
        Image of a new container.
    cleanup_on_exit
        True to remove a new container when the workspace is left; False means `keep=True`. This parameter never removes
        a container that was passed; `remove=True` of `DockerWorkspace` does.
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


NOTE = "Commands run in a container, which sees of this machine only the mounted folders."


class DockerShell(Shell):
    """Shell that runs commands in a container. Results, errors and time limits are the same as those of `LocalShell`.

    Absolute paths in a command or in `cwd` are those of the container. A relative `cwd` is below `workdir`.

    Parameters
    ----------
    engine, container
        Engine and id of the container.
    workdir, folder
        Working folder in the container, and the folder of this machine that is mounted there.
    scratch
        Returns the folder for output that is too long, and its path in the container; None drops the middle of such
        output.
    user
        User of commands; by default that of the container.
    terminal
        Rows and columns of the terminal of commands; None for no terminal.
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

    async def _run(self, request: CommandRequest) -> ShellResult:
        command = request.command
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        command_text = command if isinstance(command, str) else " ".join(command)
        environ = request.environ
        if self._terminal is not None:  # in an image without stty the terminal has no size
            size = 'stty rows "$1" cols "$2" 2>/dev/null; shift 2; exec "$@"'
            argv = ["/bin/sh", "-c", size, "sh", *map(str, self._terminal), *argv]
        # Docker always adds the variables of the image. Only `env -i` starts a command without them.
        if not request.inherit_env:
            argv = ["env", "-i", *(f"{name}={value}" for name, value in environ.items()), *argv]
            environ = {}
        scratch = self._scratch()
        output_of = output_keeper(self.output_limit, None if scratch is None else scratch[0])
        out = output_of("stdout")
        err = output_of("stderr")
        try:
            outcome = await self._engine.execute(
                self._container,
                argv,
                workdir=self._inside(request.cwd),
                environ=environ,
                seconds=request.seconds,
                out=out,
                err=err,
                stdin=request.stdin,
                listen=request.listen,
                on_start=request.on_start,
                undecodable=request.undecodable,
                user=self._user,
                terminal=self._terminal is not None,
            )
        except (ContainerError, EngineUnavailableError) as error:
            raise ShellExecutionError(without_secrets(command_text), str(error)) from error
        result = command_result(outcome.code, out, err, timed_out=outcome.timed_out, duration=outcome.seconds)
        # Agents open these files with commands, which see the mount point only.
        if scratch is not None:
            host, inside = scratch
            result.stdout_file = _path_inside(result.stdout_file, host, inside)
            result.stderr_file = _path_inside(result.stderr_file, host, inside)
        return result

    def _inside(self, cwd: str | None) -> str:
        """Convert the requested working folder of a command to a path in the container. Raise `PathNotAllowedError` for
        a relative path that leads out of the workspace.
        """
        if cwd is None:
            return self._workdir
        path = posixpath.normpath(posixpath.join(self._workdir, cwd))
        # Absolute paths are those of the container. Only relative ones must stay in the working folder.
        if not cwd.startswith("/") and path != self._workdir and not path.startswith(f"{self._workdir.rstrip('/')}/"):
            raise PathNotAllowedError(cwd, "'..' leads out of the folder", [self._workdir])
        return path

    async def get_context_instructions(self) -> str | None:
        """Return the description of the shell for agents: the mounted folder, the time limit, and the limits of
        commands.
        """
        text = shell_instructions(self._workdir, self.default_timeout, NOTE)
        return f"{mount_instructions(self._folder, self._workdir)}\n\n{text}"

    async def close(self) -> None:
        """Close the connections to the container and end running commands."""
        await self._engine.leave(self._container)


def _path_inside(path: str | None, host: str, inside: str) -> str | None:
    """Convert the path of a file below the folder `host` of this machine to its path in the container, which mounts
    `host` at `inside`. Return None for None.
    """
    return None if path is None else path.replace(host, inside, 1)


# --- network access of one container: a proxy outside, its socket in a mounted folder, and a relay inside ---
#
#     container without a network                                       this process
#     program with HTTPS_PROXY -> relay at 127.0.0.1:3128 -> socket -> proxy -> allowed host
#
# The socket lies in a folder that the container mounts. It is the only way out, and the proxy decides about each host.


INSIDE = "/divebook-egress"
PORT = 3128
_NAMES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class ContainerEgress:
    """Network access of one container that has no network: a proxy on this machine, whose socket lies in a folder that
    the container mounts.

    Parameters
    ----------
    proxy
        The proxy, which must not be started yet.
    """

    def __init__(self, proxy: Egress) -> None:
        self._proxy = proxy
        self.folder: str | None = None
        """Folder of this machine that the container mounts at `INSIDE`; None while closed."""

    @classmethod
    def to(cls, allow: Iterable[str], on_answer: Callable[[EgressAnswer], None]) -> ContainerEgress:
        """Create network access to the hosts in `allow`. `on_answer` is called for each request; see `Egress`."""
        return cls(Egress(allow, on_answer=on_answer))

    async def start_proxy(self) -> str:
        """Start the proxy. Return the folder of this machine that the container must mount at `INSIDE`."""
        self.folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="divebook-egress-")
        # Copied into the mounted folder: the image need not contain divebook.
        await asyncio.to_thread(shutil.copy, relay.__file__, f"{self.folder}/relay.py")
        await self._proxy.listen(f"{self.folder}/proxy")
        return self.folder

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables that make programs in the container use the proxy. They contain the proxy's token."""
        address = f"http://divebook:{self._proxy.token}@127.0.0.1:{PORT}"
        return dict.fromkeys(_NAMES, address)

    @property
    def command(self) -> list[str]:
        """Command line that starts the relay in the container. The image of the container must have Python."""
        return ["python3", "-I", f"{INSIDE}/relay.py", f"{INSIDE}/proxy", str(PORT)]

    async def close(self) -> None:
        """Stop the proxy and delete its folder. Idempotent."""
        await self._proxy.close()
        if self.folder is not None:
            await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder = None
