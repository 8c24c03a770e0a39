"""Development environments in Docker containers, which exist until the environment is destroyed.

Checkpoints save the container as an image.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from divebook.devenv.isolation import (
    CHECKED,
    DEFAULT_OPTIONS,
    ENFORCED,
    Artefacts,
    CommandOptions,
    Isolation,
    ResourceUsage,
    State,
    digest_of,
    size_of,
)
from divebook.devenv.templates import checked_name
from divebook.errors import (
    ContainerError,
    DevEnvError,
    EngineUnavailableError,
    EnvironmentDeniedError,
    NotReplacedError,
)
from divebook.text.format import parse_size
from divebook.workspaces.docker.engine import WORKDIR, PersistentEngine, PublishedPort
from divebook.workspaces.docker.workspace import DockerWorkspace
from divebook.workspaces.local import LocalWorkspace
from divebook.workspaces.shell import Command

IMAGE = "image"
_ARCHIVE = "archive"
_ARCHIVE_FILE = "image.tar"
# When an image is fetched.
NEVER = "never"
MISSING = "missing"
ALWAYS = "always"
LABEL = "dev_env"
"""Prefix of the label names of all containers, images and networks that belong to environments."""
_NO_NETWORK = "none"
_MEMORY = "/sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control"
"""Files of a container with the number of processes that its memory limit has killed, for cgroup versions 2 and 1."""


class DockerIsolation(Isolation):
    """Isolation of an environment by a Docker container. The container mounts its working folder, which is a folder of
    the environment or of the user.
    """

    enforcement: ClassVar[Mapping[str, str]] = {"cpu": ENFORCED, "memory": ENFORCED, "disk": CHECKED}
    warning: ClassVar[str | None] = None
    pull: str = MISSING

    def plan(self) -> State:
        """Return the fields of the environment's state to record before the container is created, such as the name of
        its image. Raise `DevEnvError` if settings contradict each other.
        """
        # Called for its errors, before anything is built.
        ports_of(self.section.get("ports", ()))
        if self.section.get("ports") and self.section.get("network") == _NO_NETWORK:
            raise DevEnvError(
                "docker.ports: a container without a network cannot publish ports; remove docker.ports, or set "
                "docker.network"
            )
        if any(mount.is_read_only for mount in self._mounts if mount.target == self._workdir):
            raise DevEnvError(f"docker.volumes: {self._workdir} is the working folder and cannot be read-only")
        return {"container_id": "", "image": self.text(self.section["image"])}

    @property
    def _workdir(self) -> str:
        return str(self.section.get("workdir", WORKDIR)).rstrip("/")

    @property
    def _mounts(self) -> list[Mount]:
        return mounts_of(map(self.text, self.section.get("volumes", ())), self.folder)

    @property
    def _working(self) -> Path:
        # A volume that is mounted at the working folder takes the place of the environment's own folder.
        sources = [mount.source for mount in self._mounts if mount.target == self._workdir]
        return sources[0] if sources else self.folder / "work"

    # --- its life --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[PersistentEngine]:
        engine = PersistentEngine()
        try:
            yield engine
        finally:
            await engine.close()

    @property
    def _labels(self) -> dict[str, str]:
        # {"dev_env.root": "/work", "dev_env.id": "env-1f...", "dev_env.name": "app", ...}
        labels = {name: str(self.state[name]) for name in ("id", "name", "tenant", "owner")}
        return {f"{LABEL}.{name}": text for name, text in {"root": self._root, **labels}.items()}

    @property
    def _root(self) -> str:
        # ROOT/.dev_env_state/NAME -> ROOT
        return str(self.folder.parent.parent)

    @property
    def _own_labels(self) -> dict[str, str]:
        return {f"{LABEL}.id": str(self.state["id"])}

    async def build(self) -> State:
        """Fetch the image if the option `pull` says so, and create the container. Return the fields to record in the
        environment's state.
        """
        image = self.state["image"]
        # The digest is recorded, since the tag of an image may later stand for another image.
        await self.retrying(lambda: self._fetch(image))
        async with self._engine() as engine:
            digest = await engine.image_id(image)
        return {**await self.retrying(lambda: self._create_container(image)), "image_digest": digest}

    async def _fetch(self, image: str) -> None:
        async with self._engine() as engine:
            if self.pull == ALWAYS:
                await engine.pull(image)
                return
            try:
                await engine.require_image(image)
            except ContainerError:
                if self.pull == NEVER:
                    raise
                await engine.pull(image)

    async def _create_container(self, image: str) -> State:
        limits: Mapping[str, str] = self.configuration["resource_limits"]
        for mount in self._mounts:
            if mount.is_managed:
                mount.source.mkdir(parents=True, exist_ok=True)
        ports = ports_of(self.section.get("ports", ()))
        workspace = DockerWorkspace(
            self._working,
            image=image,
            workdir=self._workdir,
            keep=True,
            memory=f"{parse_size(limits['memory'])}b",
            cpus=float(limits["cpu"]),
            pids=self.configuration.get("pids", 256),
            user=self.section.get("user"),
            network=await self._network(),
            mounts={str(mount.source): mount.inside for mount in self._mounts if mount.target != self._workdir},
            ports=ports,
            command=[self.text(word) for word in self.section.get("command", ())],
            # `keep` makes the workspace reuse a container with the same labels. A random label prevents this.
            labels={**self._labels, f"{LABEL}.made": secrets.token_hex(8)},  # no other is found in its place
        )
        # Entering creates the container. Because of `keep`, it stays when the workspace is left.
        async with workspace:
            return {"container_id": workspace.container, "image": image, "ports": workspace.ports}

    async def _network(self) -> str:
        if self.section.get("network") == _NO_NETWORK:
            return _NO_NETWORK
        async with self._engine() as engine:
            labels = {f"{LABEL}.root": self._root, f"{LABEL}.tenant": self.state["tenant"]}
            return await engine.network(self._network_name, labels)

    @property
    def _network_name(self) -> str:
        # Roots that share an engine have networks of their own.
        root = sha256(str(self.folder.parent).encode()).hexdigest()[:8]
        return f"dev-env-{root}-{self.state['tenant']}"

    async def start_container(self) -> None:
        """Start the environment's container, so that commands can run in it."""
        async with self._engine() as engine:
            if await self.retrying(lambda: engine.state(self._container)) is None:
                raise DevEnvError(f"the container of {self.state['name']!r} no longer exists; restore a checkpoint")
            await engine.begin(self._container)

    @property
    def _container(self) -> str:
        return str(self.state["container_id"])

    async def stop(self) -> None:
        """Stop the container, and with it all commands that run in the container."""
        async with self._engine() as engine:
            await engine.stop(self._container)

    async def status(self) -> str:
        """Return the current status of the container. If the container engine does not answer, return the recorded
        status.
        """
        try:
            async with self._engine() as engine:
                container = await engine.state(self._container)
        except EngineUnavailableError:
            return str(self.state["status"])
        if container is None:
            return "error"
        return "running" if container["Running"] else "stopped"

    async def is_gone(self) -> bool:
        """Return True if the container no longer exists at the container engine."""
        async with self._engine() as engine:
            return await engine.state(self._container) is None

    async def remove(self, *, keeps_checkpoints: bool = False) -> None:
        """Remove the environment's containers and the images of its checkpoints. The network of the tenant is removed
        if nothing else uses it.
        """
        async with self._engine() as engine:
            # No container has the id "", so that all are removed, also remains of an interrupted restore.
            await self._remove_but(engine, "")
            if not keeps_checkpoints:
                await engine.remove_images(self._own_labels)
            await engine.remove_network(self._network_name)

    async def is_busy(self) -> bool:
        """Return True if a command runs in the container, that is, a process in addition to the container's
        first one.
        """
        async with self._engine() as engine:
            return await engine.processes(self._container) > 1

    async def _remove_but(self, engine: PersistentEngine, keep: str) -> None:
        for container in await engine.labelled(self._own_labels):
            if container != keep:
                await engine.remove(container)

    # --- commands --------------------------------------------------------------------------------------------------

    def workspace(self, command_options: CommandOptions = DEFAULT_OPTIONS) -> DockerWorkspace:
        """Return a workspace whose commands run in the container. The caller must enter it."""
        return DockerWorkspace(
            self._working,
            container=self._container,
            workdir=self._workdir,
            environ=self.variables(),
            secrets=self.secrets_for(command_options),
            user=command_options.user,
            terminal=command_options.terminal,
        )

    def command_for(self, command: Command, command_options: CommandOptions) -> Command:
        """Return the command unchanged: the options for user and terminal are passed to the container engine
        instead.
        """
        _ = command_options
        return command

    def host_variables(self) -> dict[str, str]:
        """Return an empty dict: commands in the container get no environment variables of this process."""
        return {}

    @property
    def inherits(self) -> bool:
        """Return True: commands get the environment variables that the image sets."""
        return True

    async def memory_kills(self, workspace: LocalWorkspace) -> int:
        """Return the number of processes in the container that were killed because of the memory limit.

        The count is read from the control group, because the engine reports the first process of the container only.
        """
        # The files have lines such as ``oom_kill 2``.
        counters = await workspace.shell.execute(f"cat {_MEMORY} 2>/dev/null")
        match = re.search(r"^oom_kill (\d+)$", counters.stdout, re.MULTILINE)
        return int(match[1]) if match is not None else 0

    # --- checkpoints and use ---------------------------------------------------------------------------------------

    def folders(self) -> dict[str, Path]:
        """Return the folders that checkpoints save: the volumes that the environment manages, and the working folder
        unless it is a folder of the user.
        """
        managed = {f"volumes/{mount.source.name}": mount.source for mount in self._mounts if mount.is_managed}
        own_folder = self.folder / "work"
        return {"work": own_folder, **managed} if self._working == own_folder else managed

    def mounts(self) -> dict[str, Path]:
        """Return the folders of the user that the container can write to. The keys are their paths in the container."""
        writable = [mount for mount in self._mounts if not mount.is_managed and not mount.is_read_only]
        return {mount.target: mount.source for mount in writable if mount.source.is_dir()}

    async def keep(self, folder: Path, checkpoint: str) -> list[dict[str, Any]]:
        """Save the file system of the container as an image, for a checkpoint. Return a description of the image, for
        the checkpoint's manifest.
        """
        _ = folder
        async with self._engine() as engine:
            image = f"{self._repository}:{checkpoint}"
            digest = await engine.keep_as(self._container, image)
        return [{"kind": IMAGE, "image": image, "sha256": digest.removeprefix("sha256:")}]

    @property
    def _repository(self) -> str:
        """Return the repository name under which the images of the environment's checkpoints are stored.

        Engines accept lower-case letters and digits only. If the name has other letters, the id of the environment is
        added, so that two names never share a repository.
        """
        name, tenant = (re.sub(r"[^a-z0-9]+", "-", self.state[key].lower()).strip("-") for key in ("name", "tenant"))
        label = name if name == self.state["name"] else f"{name}-{self.state['id']}"
        return f"dev-env/{tenant}/{label}"

    async def export(self, folder: Path, artefacts: Artefacts) -> list[dict[str, Any]]:
        """Write the image of a checkpoint into a file, so that the container engine of another machine can load it.
        Return a description of the file, for the checkpoint's manifest.
        """
        async with self._engine() as engine:
            await engine.write_image(str(artefacts[IMAGE]["image"]), folder / _ARCHIVE_FILE)
        return [{"kind": _ARCHIVE, "path": _ARCHIVE_FILE, "sha256": digest_of(folder / _ARCHIVE_FILE)}]

    async def require(self, folder: Path, artefacts: Artefacts) -> None:
        """Raise `DevEnvError` if the image of a checkpoint neither exists nor can be loaded from its exported file."""
        async with self._engine() as engine:
            try:
                # The file is loaded only on a machine, or after a cleanup, where the image is missing.
                if _ARCHIVE in artefacts and not await engine.has_image(_image(artefacts)):
                    await engine.load_image(folder / artefacts[_ARCHIVE]["path"])
                await engine.image_id(_image(artefacts))
            except ContainerError as error:
                raise DevEnvError(f"the image of the checkpoint no longer exists: {error}") from error

    async def put_back(self, folder: Path, artefacts: Artefacts) -> State:
        """Restore the state of a checkpoint: replace the container by a new one that is created from the image of the
        checkpoint.

        The old container cannot run meanwhile: it holds the published ports and writes into the same folders. If the
        new container cannot be created, the old one is started again and `NotReplacedError` is raised.
        """
        _ = folder
        async with self._engine() as engine:
            await self._remove_but(engine, self._container)  # a restore that was interrupted has left another one
            old = await engine.state(self._container)
            # Stopped now, removed last: if the new container cannot be created, the old one is still there.
            if old is not None:
                await engine.stop(self._container)
        try:
            container = await self._create_container(_image(artefacts))
        except ContainerError as error:
            async with self._engine() as engine:
                await self._remove_but(engine, self._container)
                if old is None:
                    raise
                if old["Running"]:
                    await engine.begin(self._container)
            raise NotReplacedError(str(error)) from error
        async with self._engine() as engine:
            await self._remove_but(engine, container["container_id"])
        return container

    async def forget_but(self, remaining: Iterable[Artefacts]) -> None:
        """Remove the images of all checkpoints that are not in `remaining`. The image of the current container
        is kept.
        """
        async with self._engine() as engine:
            await engine.remove_images(self._own_labels, but=frozenset({*map(_image, remaining), self.state["image"]}))

    async def use(self) -> ResourceUsage:
        """Measure CPU, memory and disk usage of the container. The disk usage includes the folders of the
        environment.
        """
        disk = sum(size_of(folder) for folder in self.folders().values())
        if await self.status() != "running":
            return ResourceUsage(0.0, 0, disk)
        async with self._engine() as engine:
            usage = await engine.use(self._container)
        # The engine does not count mounted folders.
        return ResourceUsage(usage.cpu_percent, usage.memory_bytes, usage.disk_bytes + disk)


def _image(artefacts: Artefacts) -> str:
    return f"sha256:{artefacts[IMAGE]['sha256']}"


async def engine_version() -> str:
    """Return the version of the container engine. Raise `EngineUnavailableError` if no engine answers."""
    engine = PersistentEngine()
    try:
        return await engine.version()
    finally:
        await engine.close()


_FORBIDDEN = ("/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/boot")
_LARGEST_PORT = 65_535
# Matches "80", "8080:80", "0.0.0.0:8080:80", "8000-8002:80-82" and "127.0.0.1:53:53/udp".
_PORTS = re.compile(r"(?:(?P<at>[^:]*):)??(?:(?P<outside>[\d-]+):)?(?P<inside>[\d-]+)(?:/(?P<protocol>tcp|udp))?")


class Mount(NamedTuple):
    """A folder of this machine that a container mounts, with its path in the container."""

    source: Path
    target: str
    is_read_only: bool
    is_managed: bool
    """True if the folder is a named volume, which is created for the environment and deleted with it."""

    @property
    def inside(self) -> str:
        """Return the path of the mount in the container, as `DockerWorkspace` expects it: followed by ``:ro`` if it is
        read-only.
        """
        return f"{self.target}:ro" if self.is_read_only else self.target


def mounts_of(volumes: Iterable[str], folder: Path) -> list[Mount]:
    """Parse the configured volumes of an environment, such as ``/data:/data:ro`` or ``cache:/cache``. Return a `Mount`
    for each.

    A source without a slash is the name of a volume: a folder that the environment creates and deletes.

    Raises
    ------
    DevEnvError
        The syntax of a volume is wrong.
    EnvironmentDeniedError
        A container must not mount a folder.
    """
    return [_mount(volume, folder) for volume in volumes]


def _mount(volume: str, folder: Path) -> Mount:
    text = volume.removesuffix(":rw")
    is_read_only = text.endswith(":ro")
    source, _, target = text.removesuffix(":ro").rpartition(":")
    if not source or not target.startswith("/"):
        raise DevEnvError(
            f"docker.volumes: invalid volume {volume!r}; write SOURCE:TARGET or SOURCE:TARGET:ro, with an absolute "
            "TARGET"
        )
    target = target.rstrip("/") or "/"
    # "cache:/cache" -> a folder of the environment; "./data:/data" and "/srv/data:/data" -> folders of the user.
    if not source.startswith(("/", ".", "~")):
        return Mount(folder / "volumes" / checked_name(source, "volume"), target, is_read_only, is_managed=True)
    path = Path(os.path.realpath(Path(source).expanduser()))
    _require_allowed(path, folder, is_read_only=is_read_only)
    return Mount(path, target, is_read_only, is_managed=False)


def _require_allowed(path: Path, folder: Path, *, is_read_only: bool) -> None:
    """Raise `EnvironmentDeniedError` if a folder of this machine is one that containers must not mount, such as the
    home folder.
    """
    home = Path(os.path.realpath(Path.home()))
    reason = None
    # Links were resolved before, so that a link cannot hide a forbidden folder.
    if path in (Path("/"), Path("/var"), home) or any(path.is_relative_to(forbidden) for forbidden in _FORBIDDEN):
        reason = "containers must not access it"
    elif path.is_relative_to(folder.parent) and not path.is_relative_to(folder):
        reason = "it contains other environments"
    elif path.is_relative_to(home) and path.relative_to(home).parts[0].startswith(".") and not is_read_only:
        reason = "hidden folders in the home folder can only be mounted read-only, with :ro"
    # The environment's own folder is allowed wherever the root lies.
    if reason is not None and not path.is_relative_to(folder):
        raise EnvironmentDeniedError(f"docker.volumes: {path} cannot be mounted: {reason}")


def ports_of(texts: Iterable[str]) -> list[PublishedPort]:
    """Parse the configured ports of an environment, such as ``8080:80`` or ``0.0.0.0:53:53/udp``. Return a
    `PublishedPort` for each.

    A port without an address is published on the loopback interface only. Raises `DevEnvError` for wrong syntax.
    """
    ports: dict[tuple[int, str], PublishedPort] = {}
    for text in texts:
        match = _PORTS.fullmatch(text)
        if match is None:
            raise DevEnvError(f"docker.ports: invalid port {text!r}; write [ADDRESS:][OUTSIDE:]INSIDE[/tcp or /udp]")
        inside = _range(match["inside"], text)
        outside = _range(match["outside"] or "", text)
        if outside and len(outside) != len(inside):
            raise DevEnvError(f"docker.ports: {text!r} has ranges of different lengths")
        protocol = match["protocol"] or "tcp"
        address = _address(match["at"] or "localhost", text)
        for index, number in enumerate(inside):
            # A later entry for the same port of the container replaces an earlier one, as in the merge of templates.
            ports[number, protocol] = PublishedPort(number, outside[index] if outside else None, protocol, address)
    return [*ports.values()]


def _range(text: str, port: str) -> list[int]:
    # "8000-8002" -> [8000, 8001, 8002]; "80" -> [80]; "" -> [] (any free port).
    first, _, last = text.partition("-")
    numbers = list(range(int(first), int(last or first) + 1)) if first else []
    if text and not (numbers and numbers[0] > 0 and numbers[-1] <= _LARGEST_PORT):
        raise DevEnvError(
            f"docker.ports: invalid port {port!r}; ports are numbers from 1 to {_LARGEST_PORT}, and a range starts "
            "with the smaller number"
        )
    return numbers


def _address(text: str, port: str) -> str:
    try:
        return "127.0.0.1" if text == "localhost" else str(IPv4Address(text))
    except ValueError as error:
        raise DevEnvError(f"docker.ports: {port!r} has an invalid address: {error}") from error
