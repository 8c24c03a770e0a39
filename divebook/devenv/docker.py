"""Environments in containers, which stay until they are destroyed, and are kept as images."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import file_digest, sha256
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from divebook.devenv.isolation import (
    CHECKED,
    ENFORCED,
    USUAL,
    Artefacts,
    CommandManner,
    Isolation,
    ResourceUsage,
    State,
    size_of,
)
from divebook.devenv.templates import checked_name, size_in_bytes
from divebook.errors import (
    ContainerError,
    DevEnvError,
    EngineUnavailableError,
    EnvironmentDeniedError,
    NotReplacedError,
)
from divebook.workspace.docker.engine import WORKDIR, KeepingEngine, PublishedPort
from divebook.workspace.docker.workspace import DockerWorkspace
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.shell import Command

# What a container sees of this machine: folders and ports as templates write them, and which of them it may not.


_FORBIDDEN = ("/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/boot")
_LARGEST_PORT = 65_535
_PORTS = re.compile(r"(?:(?P<at>[^:]*):)??(?:(?P<outside>[\d-]+):)?(?P<inside>[\d-]+)(?:/(?P<protocol>tcp|udp))?")


class Mount(NamedTuple):
    """A folder of this machine that a container sees."""

    source: Path
    target: str
    is_read_only: bool
    is_managed: bool
    """Whether it was made for the environment, and goes with it."""

    @property
    def inside(self) -> str:
        """Return where it is mounted, as `DockerWorkspace` is told."""
        return f"{self.target}:ro" if self.is_read_only else self.target


def mounts_of(volumes: Iterable[str], folder: Path) -> list[Mount]:
    """Return what volumes mean, ``/data:/data:ro`` or ``cache:/cache``; a name is a folder of the environment's own.

    Raises
    ------
    DevEnvError
        One is not written so.
    EnvironmentDeniedError
        A container may not see it.
    """
    return [_mount(volume, folder) for volume in volumes]


def _mount(volume: str, folder: Path) -> Mount:
    written = volume.removesuffix(":rw")
    is_read_only = written.endswith(":ro")
    source, _, target = written.removesuffix(":ro").rpartition(":")
    if not source or not target.startswith("/"):
        raise DevEnvError(f"docker.volumes: {volume!r} is no SOURCE:TARGET with an absolute target, and :ro if wanted")
    target = target.rstrip("/") or "/"
    if not source.startswith(("/", ".", "~")):
        return Mount(folder / "volumes" / checked_name(source, "volume"), target, is_read_only, is_managed=True)
    path = Path(os.path.realpath(Path(source).expanduser()))
    _require_allowed(path, folder, is_read_only=is_read_only)
    return Mount(path, target, is_read_only, is_managed=False)


def _require_allowed(path: Path, folder: Path, *, is_read_only: bool) -> None:
    home = Path(os.path.realpath(Path.home()))
    told = None
    if path in (Path("/"), Path("/var"), home) or any(path.is_relative_to(place) for place in _FORBIDDEN):
        told = "no container may see it"
    elif path.is_relative_to(folder.parent) and not path.is_relative_to(folder):
        told = "it holds other environments"
    elif path.is_relative_to(home) and path.relative_to(home).parts[0].startswith(".") and not is_read_only:
        told = "what is hidden in the home folder may be mounted with :ro only"
    if told is not None and not path.is_relative_to(folder):
        raise EnvironmentDeniedError(f"docker.volumes: {path} cannot be mounted: {told}")


def ports_of(written: Iterable[str]) -> list[PublishedPort]:
    """Return what ports mean, ``8080:80`` or ``0.0.0.0:53:53/udp``; without an address it is this machine's loopback.

    Raises `DevEnvError` for one that is not written so.
    """
    found: dict[tuple[int, str], PublishedPort] = {}
    for text in written:
        match = _PORTS.fullmatch(text)
        if match is None:
            raise DevEnvError(f"docker.ports: {text!r} is no [ADDRESS:][OUTSIDE:]INSIDE, and /tcp or /udp if wanted")
        inside = _range(match["inside"], text)
        outside = _range(match["outside"] or "", text)
        if outside and len(outside) != len(inside):
            raise DevEnvError(f"docker.ports: {text!r} has ranges of different lengths")
        protocol = match["protocol"] or "tcp"
        address = _address(match["at"] or "localhost", text)
        for index, number in enumerate(inside):
            found[number, protocol] = PublishedPort(number, outside[index] if outside else None, protocol, address)
    return [*found.values()]


def _range(text: str, port: str) -> list[int]:
    first, _, last = text.partition("-")
    numbers = list(range(int(first), int(last or first) + 1)) if first else []
    if text and not (numbers and numbers[0] > 0 and numbers[-1] <= _LARGEST_PORT):
        raise DevEnvError(f"docker.ports: {port!r} has no port between 1 and {_LARGEST_PORT}, or a range that falls")
    return numbers


def _address(text: str, port: str) -> str:
    try:
        return "127.0.0.1" if text == "localhost" else str(IPv4Address(text))
    except ValueError as error:
        raise DevEnvError(f"docker.ports: {port!r} has no address of this machine: {error}") from error


# The contents of files of checkpoints, each kept once under its SHA-256, hexadecimal.


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal; raises `DevEnvError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DevEnvError(f"a checkpoint cannot be read: {error}") from error


class KeptContents:
    """The contents that the checkpoints of one environment share.

    Parameters
    ----------
    folder
        Where they lie; made when the first one is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, contents: Mapping[str, bytes]) -> None:
        """Keep contents by their digests; each is there whole, or not at all."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for digest, content in contents.items():
            path = self._folder / digest
            if path.exists():
                continue
            passing = self._folder / f".{secrets.token_hex(8)}"
            opened = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(opened, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            passing.replace(path)

    def get(self, digest: str) -> bytes:
        """Return a content; raises `DevEnvError` if it is missing, or is not what it was."""
        try:
            content = (self._folder / digest).read_bytes()
        except OSError as error:
            raise DevEnvError(f"the content {digest[:12]}... of a checkpoint cannot be read: {error}") from error
        if sha256(content).hexdigest() != digest:
            raise DevEnvError(f"the content {digest[:12]}... of a checkpoint is damaged: take another checkpoint")
        return content

    def forget_but(self, digests: set[str]) -> None:
        """Remove all contents but some, and what a process that was killed has left."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.name not in digests:
                    path.unlink(missing_ok=True)


IMAGE = "image"
_ARCHIVE = "archive"
_ARCHIVE_FILE = "image.tar"
NEVER, MISSING, ALWAYS = "never", "missing", "always"
"""When an image is fetched."""
LABEL = "dev_env"
"""What the labels of containers, images and networks begin with."""
_NO_NETWORK = "none"
_MEMORY = "/sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control"
"""Of both versions of control groups, as a container sees its own."""


class DockerIsolation(Isolation):
    """A container, whose working folder is a folder of the environment, or a volume of the person's own."""

    enforcement: ClassVar[Mapping[str, str]] = {"cpu": ENFORCED, "memory": ENFORCED, "disk": CHECKED}
    warning: ClassVar[str | None] = None
    pull: str = MISSING

    def planned(self) -> State:
        """Return its image; raises `DevEnvError` for what a container may not have."""
        ports_of(self.section.get("ports", ()))
        if self.section.get("ports") and self.section.get("network") == _NO_NETWORK:
            raise DevEnvError("docker.ports: nothing is published of a container without a network: leave out one")
        if any(mount.is_read_only for mount in self._mounts if mount.target == self._workdir):
            raise DevEnvError(f"docker.volumes: {self._workdir} is where commands begin: it cannot be read-only")
        return {"container_id": "", "image": self.text(self.section["image"])}

    @property
    def _workdir(self) -> str:
        return str(self.section.get("workdir", WORKDIR)).rstrip("/")

    @property
    def _mounts(self) -> list[Mount]:
        return mounts_of(map(self.text, self.section.get("volumes", ())), self.folder)

    @property
    def _working(self) -> Path:
        found = [mount.source for mount in self._mounts if mount.target == self._workdir]
        return found[0] if found else self.folder / "work"

    # --- its life --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[KeepingEngine]:
        engine = KeepingEngine()
        try:
            yield engine
        finally:
            await engine.close()

    @property
    def _labels(self) -> dict[str, str]:
        told = {name: str(self.state[name]) for name in ("id", "name", "tenant", "owner")}
        return {f"{LABEL}.{name}": text for name, text in {"root": self._root, **told}.items()}

    @property
    def _root(self) -> str:
        return str(self.folder.parent.parent)

    @property
    def _own(self) -> dict[str, str]:
        return {f"{LABEL}.id": str(self.state["id"])}

    async def build(self) -> State:
        """Make the container of its image, which is fetched if it is not there."""
        image = self.state["image"]
        await self.retrying(lambda: self._fetch(image))
        async with self._engine() as engine:
            digest = await engine.image_id(image)
        return {**await self.retrying(lambda: self._made(image)), "image_digest": digest}

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

    async def _made(self, image: str) -> State:
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
            memory=f"{size_in_bytes(limits['memory'])}b",
            cpus=float(limits["cpu"]),
            pids=self.configuration.get("pids", 256),
            user=self.section.get("user"),
            network=await self._network(),
            mounts={str(mount.source): mount.inside for mount in self._mounts if mount.target != self._workdir},
            ports=ports,
            command=[self.text(word) for word in self.section.get("command", ())],
            labels={**self._labels, f"{LABEL}.made": secrets.token_hex(8)},  # no other is found in its place
        )
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
        root = sha256(str(self.folder.parent).encode()).hexdigest()[:8]
        return f"dev-env-{root}-{self.state['tenant']}"

    async def start(self) -> None:
        """Start the container."""
        async with self._engine() as engine:
            if await self.retrying(lambda: engine.state(self._container)) is None:
                raise DevEnvError(f"the container of {self.state['name']!r} is gone: restore a checkpoint")
            await engine.begin(self._container)

    @property
    def _container(self) -> str:
        return str(self.state["container_id"])

    async def stop(self) -> None:
        """Stop the container, and with it all commands."""
        async with self._engine() as engine:
            await engine.stop(self._container)

    async def status(self) -> str:
        """Return what the engine says of the container; as recorded, where no engine answers."""
        try:
            async with self._engine() as engine:
                found = await engine.state(self._container)
        except EngineUnavailableError:
            return str(self.state["status"])
        if found is None:
            return "error"
        return "running" if found["Running"] else "stopped"

    async def is_gone(self) -> bool:
        """Return whether there is no container any more."""
        async with self._engine() as engine:
            return await engine.state(self._container) is None

    async def remove(self, *, keeps_checkpoints: bool = False) -> None:
        """Remove the containers, the images of checkpoints, and the tenant's network if nobody else is in it."""
        async with self._engine() as engine:
            await self._remove_but(engine, "")
            if not keeps_checkpoints:
                await engine.remove_images(self._own)
            await engine.remove_network(self._network_name)

    async def is_busy(self) -> bool:
        """Return whether something runs in the container besides its first process."""
        async with self._engine() as engine:
            return await engine.processes(self._container) > 1

    async def _remove_but(self, engine: KeepingEngine, kept: str) -> None:
        for container in await engine.labelled(self._own):
            if container != kept:
                await engine.remove(container)

    # --- commands --------------------------------------------------------------------------------------------------

    def workspace(self, manner: CommandManner = USUAL) -> DockerWorkspace:
        """Return the container as a workspace."""
        return DockerWorkspace(
            self._working,
            container=self._container,
            workdir=self._workdir,
            environ=self.variables(),
            secrets=self.secrets_for(manner),
            user=manner.user,
            terminal=manner.terminal,
        )

    def asked(self, command: Command, manner: CommandManner) -> Command:
        """Return a command as it is: the engine has users and terminals."""
        _ = manner
        return command

    def host_variables(self) -> dict[str, str]:
        """Return nothing: commands have the variables of the image."""
        return {}

    @property
    def inherits(self) -> bool:
        """Return whether commands get the variables of the place where they run: those of the image."""
        return True

    async def memory_kills(self, workspace: LocalWorkspace) -> int:
        """Return how many processes its memory limit has ended; the engine tells it of the first process only."""
        found = await workspace.shell.execute(f"cat {_MEMORY} 2>/dev/null")
        told = re.search(r"^oom_kill (\d+)$", found.stdout, re.MULTILINE)
        return int(told[1]) if told is not None else 0

    # --- checkpoints and use ---------------------------------------------------------------------------------------

    def folders(self) -> dict[str, Path]:
        """Return the working folder, if it is the environment's own, and its managed volumes."""
        managed = {f"volumes/{mount.source.name}": mount.source for mount in self._mounts if mount.is_managed}
        return {**({"work": self.folder / "work"} if self._working == self.folder / "work" else {}), **managed}

    def mounts(self) -> dict[str, Path]:
        """Return the folders of the person's own that it may write."""
        own = [mount for mount in self._mounts if not mount.is_managed and not mount.is_read_only]
        return {mount.target: mount.source for mount in own if mount.source.is_dir()}

    async def keep(self, folder: Path, checkpoint: str) -> list[dict[str, Any]]:
        """Keep what the container has written as an image."""
        _ = folder
        async with self._engine() as engine:
            image = f"{self._repository}:{checkpoint}"
            digest = await engine.keep_as(self._container, image)
        return [{"kind": IMAGE, "image": image, "sha256": digest.removeprefix("sha256:")}]

    @property
    def _repository(self) -> str:
        """Return the name of its images; letters that the engine does not take make room for the id."""
        name, tenant = (re.sub(r"[^a-z0-9]+", "-", self.state[key].lower()).strip("-") for key in ("name", "tenant"))
        told = name if name == self.state["name"] else f"{name}-{self.state['id']}"
        return f"dev-env/{tenant}/{told}"

    async def export(self, folder: Path, artefacts: Artefacts) -> list[dict[str, Any]]:
        """Write the image into a file, from which an engine on another machine can load it."""
        async with self._engine() as engine:
            await engine.write_image(str(artefacts[IMAGE]["image"]), folder / _ARCHIVE_FILE)
        return [{"kind": _ARCHIVE, "path": _ARCHIVE_FILE, "sha256": digest_of(folder / _ARCHIVE_FILE)}]

    async def require(self, folder: Path, artefacts: Artefacts) -> None:
        """Raise `DevEnvError` unless the image is there, or can be loaded of the file with it."""
        async with self._engine() as engine:
            try:
                if _ARCHIVE in artefacts and not await engine.has_image(_image(artefacts)):
                    await engine.load_image(folder / artefacts[_ARCHIVE]["path"])
                await engine.image_id(_image(artefacts))
            except ContainerError as error:
                raise DevEnvError(f"the image of the checkpoint is gone: {error}") from error

    async def put_back(self, folder: Path, artefacts: Artefacts) -> State:
        """Make a new container of the image; the old one stops first, and is removed when that is done.

        The old one cannot go on meanwhile: it holds the published ports, and writes into the same folders.
        """
        _ = folder
        async with self._engine() as engine:
            await self._remove_but(engine, self._container)  # a restore that was interrupted has left another one
            old = await engine.state(self._container)
            if old is not None:
                await engine.stop(self._container)
        try:
            made = await self._made(_image(artefacts))
        except ContainerError as error:
            async with self._engine() as engine:
                await self._remove_but(engine, self._container)
                if old is None:
                    raise
                if old["Running"]:
                    await engine.begin(self._container)
            raise NotReplacedError(str(error)) from error
        async with self._engine() as engine:
            await self._remove_but(engine, made["container_id"])
        return made

    async def forget_but(self, kept: Iterable[Artefacts]) -> None:
        """Remove the images of checkpoints that are gone; that of the container stays."""
        async with self._engine() as engine:
            await engine.remove_images(self._own, but=frozenset({*map(_image, kept), self.state["image"]}))

    async def use(self) -> ResourceUsage:
        """Ask the engine what the container uses; its folders count as disk."""
        disk = sum(size_of(folder) for folder in self.folders().values())
        if await self.status() != "running":
            return ResourceUsage(0.0, 0, disk)
        async with self._engine() as engine:
            found = await engine.use(self._container)
        return ResourceUsage(found.cpu_percent, found.memory_bytes, found.disk_bytes + disk)


def _image(artefacts: Artefacts) -> str:
    return f"sha256:{artefacts[IMAGE]['sha256']}"


async def engine_version() -> str:
    """Return the version of the engine; raises `EngineUnavailableError`."""
    engine = KeepingEngine()
    try:
        return await engine.version()
    finally:
        await engine.close()
