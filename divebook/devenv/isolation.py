"""Isolation of development environments from this machine: the common interface, and the two kinds without a container,
``native`` (a plain folder) and ``virtualenv``.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import posixpath
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

from divebook.devenv.templates import Configuration, Retrying, at_start, is_secret
from divebook.errors import CommandFailedError, DevEnvError, ShellExecutionError
from divebook.text.format import size
from divebook.workspaces import terminal
from divebook.workspaces.local import LocalWorkspace, VirtualenvWorkspace
from divebook.workspaces.shell import Command, ShellResult

State = dict[str, Any]
Artefacts = Mapping[str, Mapping[str, Any]]
"""The saved parts of a checkpoint beside its manifest (such as an image or a lock file), by kind of part."""
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TERM", "TMPDIR")
"""Names of the only variables of this process that commands outside a container inherit."""
ENFORCED = "enforced"
CHECKED = "checked"
ADVISORY = "advisory"
NO_BOUNDARY = "no security boundary: commands run with your user account and can access everything that you can"


class CommandOptions(NamedTuple):
    """Options of one command that runs in an environment: its user, its terminal, and whether it gets the secrets."""

    user: str | None = None
    """User that runs the command; None for the configured user."""
    terminal: tuple[int, int] | None = None
    """Rows and columns of the command's terminal; None to run without a terminal."""
    has_secrets: bool = True
    """True if the command gets the secrets. They are then redacted in its output."""


DEFAULT_OPTIONS = CommandOptions()


@dataclass
class Isolation(ABC):
    """Isolation of one environment from this machine, such as a container. This is the interface that all kinds of
    isolation implement.

    Parameters
    ----------
    folder
        Folder of the environment.
    configuration
        Configuration, resolved when the environment was created.
    state
        Recorded state. `build` and `put_back` return the fields to update in it.
    secrets
        Folder with a file for each secret.
    retrying
        Retries function calls after temporary errors.
    """

    folder: Path
    configuration: Configuration
    state: State
    secrets: Path
    retrying: Retrying

    enforcement: ClassVar[Mapping[str, str]] = {"cpu": ADVISORY, "memory": ADVISORY, "disk": CHECKED}
    """Enforcement of the limits, by name of the limit: ``enforced``, ``checked`` or ``advisory``."""
    warning: ClassVar[str | None] = NO_BOUNDARY

    @property
    def section(self) -> Mapping[str, Any]:
        """Return the part of the environment's configuration that is about this kind of isolation."""
        section: Mapping[str, Any] = self.configuration[self.configuration["isolation_type"]]
        return section

    def text(self, text: str) -> str:
        """Return a text of the configuration with the placeholders ``${secret:NAME}`` and ``${env:NAME}`` replaced by
        their values.
        """
        return at_start(text, self.secrets)

    # --- its life --------------------------------------------------------------------------------------------------

    def plan(self) -> State:
        """Return the fields that `build` reads from the environment's state, such as the path of a folder. They are
        recorded before `build` is called. Raise `DevEnvError` if the configuration cannot be built.
        """
        return {}

    @abstractmethod
    async def build(self) -> State:
        """Create the container, virtual environment or folder of the environment. Return the fields to record in the
        environment's state.
        """

    async def start_container(self) -> None:  # noqa: B027 - many need nothing to be started
        """Start what isolates the environment, for example its container, so that commands can run. Does nothing by
        default.
        """

    async def stop(self) -> None:
        """End all commands of the environment. Also stop its container or similar, if that can be started again."""
        await asyncio.to_thread(end_processes, self.state["id"])

    async def status(self) -> str:
        """Return the current status of the environment. By default this is the recorded status."""
        return str(self.state["status"])

    async def is_gone(self) -> bool:
        """Return True if another program has removed the container or similar, so that the environment can only be
        restored from a checkpoint. False by default.
        """
        return False

    async def remove(self, *, keeps_checkpoints: bool = False) -> None:
        """Remove everything that the environment has outside its folder, such as a container. A second call has no
        effect.

        With `keeps_checkpoints`, the saved state of checkpoints stays.
        """
        _ = keeps_checkpoints
        await asyncio.to_thread(end_processes, self.state["id"])

    async def is_busy(self) -> bool:
        """Return True if any command of the environment is running."""
        return bool(await asyncio.to_thread(marked_processes, self.state["id"]))

    # --- commands --------------------------------------------------------------------------------------------------

    @abstractmethod
    def workspace(self, command_options: CommandOptions = DEFAULT_OPTIONS) -> LocalWorkspace:
        """Return a new workspace that runs commands in the environment with the given options. The caller must enter
        it.
        """

    def command_for(self, command: Command, command_options: CommandOptions) -> Command:
        """Return a command changed so that it runs with the user and the terminal in `command_options`. Raise
        `DevEnvError` if this kind of isolation does not support them.

        By default commands run on this machine as the current user. A helper program provides their terminal.
        """
        if command_options.user not in (None, getpass.getuser(), str(os.getuid())):
            kind = self.state["isolation_type"]
            raise DevEnvError(
                f"--user {command_options.user} cannot be used in {kind} environments, because their commands run with "
                "your user account; use a container"
            )
        if command_options.terminal is None:
            return command
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        # Run by its path and without settings of the user: the program must work in each environment.
        return [sys.executable, "-I", "-S", terminal.__file__, *map(str, command_options.terminal), *words]

    def host_variables(self) -> dict[str, str]:
        """Return those environment variables of this process that commands in the environment inherit."""
        return {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}

    def variables(self) -> dict[str, str]:
        """Return the environment variables that the configuration sets, without those that contain secrets."""
        texts: Mapping[str, str] = self.section.get("env", {})
        plain = {name: self.text(text) for name, text in texts.items() if not is_secret(text)}
        return {MARK: self.state["id"], **plain}

    def secret_variables(self) -> dict[str, str]:
        """Return the environment variables of the configuration that contain secrets, with the current values of the
        secrets.
        """
        texts: Mapping[str, str] = self.section.get("env", {})
        return {name: self.text(text) for name, text in texts.items() if is_secret(text)}

    def secrets_for(self, command_options: CommandOptions) -> Callable[[], Mapping[str, str]] | None:
        """Return a function that returns the environment variables with secrets for a command. Return None if the
        options of the command exclude secrets.
        """
        return self.secret_variables if command_options.has_secrets else None

    @property
    def inherits(self) -> bool:
        """Return True if commands get environment variables from the place where they run, such as those of a
        container's image. False by default.
        """
        return False

    async def memory_kills(self, workspace: LocalWorkspace) -> int:
        """Return the number of processes that were killed because of the memory limit since the environment was
        started. By default 0.
        """
        _ = workspace
        return 0

    # --- checkpoints and use ---------------------------------------------------------------------------------------

    @abstractmethod
    def folders(self) -> dict[str, Path]:
        """Return the folders that checkpoints save. The keys are the names of the folders in a checkpoint."""

    def mounts(self) -> dict[str, Path]:
        """Return the folders of the user, outside the environment, that its commands can write to. The keys are their
        paths in the environment. By default none.
        """
        return {}

    async def keep(self, folder: Path, checkpoint: str) -> list[dict[str, Any]]:
        """Save the rest of the environment for a checkpoint: everything that is not in a folder that `folders` returns,
        for example the file system of a container as an image.

        Returns the saved parts, each a dict with kind, path or image, and sha256.
        """
        _ = folder, checkpoint
        return []

    async def export(self, folder: Path, artefacts: Artefacts) -> list[dict[str, Any]]:
        """Write additional files into a checkpoint, which are needed to restore it on another machine. Return a
        description of each file, for the checkpoint's manifest. By default none.
        """
        _ = folder, artefacts
        return []

    async def require(self, folder: Path, artefacts: Artefacts) -> None:  # noqa: B027 - the caller checks the files
        """Raise `DevEnvError` if a saved part of a checkpoint no longer exists. The environment is not changed."""

    async def put_back(self, folder: Path, artefacts: Artefacts) -> State:
        """Restore what `keep` has saved in a checkpoint, for example a container from its image. Return the fields to
        record in the environment's state.

        Raises
        ------
        NotReplacedError
            The restore failed, and the environment is unchanged.
        DevEnvError, ContainerError
            The restore failed, and the state of the environment is unknown.
        """
        _ = folder, artefacts
        return {}

    async def forget_but(self, remaining: Iterable[Artefacts]) -> None:  # noqa: B027 - folders need no action
        """Remove what `keep` has saved, such as images, for all checkpoints that are not in `remaining`."""

    async def use(self) -> ResourceUsage:
        """Measure the current CPU, memory and disk usage of the environment."""
        cpu, memory = await asyncio.to_thread(use_of_processes, self.state["id"])
        return ResourceUsage(cpu, memory, await asyncio.to_thread(self.disk))

    def disk(self) -> int:
        """Return the size of the environment's files in bytes."""
        return size_of(self.folder)


class NativeIsolation(Isolation):
    """Environment without isolation: a plain folder of this machine, in which commands run as the current user."""

    def plan(self) -> State:
        """Return the fields to record in the environment's state: the path of the working folder, and whether the
        folder is created and deleted with the environment.
        """
        working = Path(os.path.realpath(self.text(self.section["working_dir"])))
        # An environment that owns the folder deletes it. A folder inside its own one is deleted with that anyway.
        owns = not working.exists() and not working.is_relative_to(self.folder)
        return {"working_dir": str(working), "owns_working_dir": owns}

    @property
    def _working(self) -> Path:
        return Path(self.state["working_dir"])

    async def build(self) -> State:
        """Create the working folder of the environment if it is missing. Return an empty dict, because no field of the
        environment's recorded state changes.
        """
        try:
            self._working.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DevEnvError(f"native.working_dir: {self._working} cannot be created: {error}") from error
        return {}

    def workspace(self, command_options: CommandOptions = DEFAULT_OPTIONS) -> LocalWorkspace:
        """Return a workspace that runs commands in the working folder of the environment. The caller must enter it."""
        return LocalWorkspace(self._working, environ=self.variables(), secrets=self.secrets_for(command_options))

    def folders(self) -> dict[str, Path]:
        """Return the working folder, which checkpoints save under the name ``work``."""
        return {"work": self._working}

    def disk(self) -> int:
        """Return the size of the files in the working folder in bytes."""
        return size_of(self._working)


MARK = "DEV_ENV_ID"
"""Environment variable with the id of the environment. All commands have it, so that their processes can be found."""
_SAMPLE = 0.1
_LONGEST = 5.0


class ResourceUsage(NamedTuple):
    """Current CPU, memory and disk usage of an environment."""

    cpu_percent: float
    """CPU usage in percent of one core: 100 is one fully used core."""
    memory_bytes: int
    disk_bytes: int

    def shown(self) -> dict[str, str]:
        """Return CPU, memory and disk usage as texts for people. 1 MB is 10^6 bytes."""
        return {
            "cpu": f"{self.cpu_percent:.1f}%",
            "memory": size(self.memory_bytes),
            "disk": size(self.disk_bytes),
        }

    def as_json(self) -> dict[str, Any]:
        """Return CPU, memory and disk usage for JSON output, as texts for people and as numbers."""
        return {
            **self.shown(),
            "cpu_percent": round(self.cpu_percent, 1),
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
        }


def marked_processes(environment_id: str) -> list[Any]:
    """Return the running processes of an environment. They are recognized by the environment variable `MARK`, which its
    commands get.
    """
    import psutil

    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == environment_id and process.pid != os.getpid():
                processes.append(process)
        except (psutil.Error, OSError):  # it has ended, or belongs to another user
            continue
    return processes


def use_of_processes(environment_id: str) -> tuple[float, int]:
    """Return the CPU usage in percent of one core, measured for 0.1 s, and the memory in bytes of an environment."""
    import psutil

    processes = marked_processes(environment_id)
    started = time.monotonic()
    # Two readings of the CPU times, 0.1 s apart. A process that ends in between must not give a negative result.
    before = _times(processes)
    if processes:
        time.sleep(_SAMPLE)
    cpu_seconds = _times(processes) - before
    memory = 0
    for process in processes:
        try:
            memory += process.memory_info().rss
        except psutil.Error:
            continue
    return (100 * max(0.0, cpu_seconds) / (time.monotonic() - started) if processes else 0.0), memory


def _times(processes: Iterable[Any]) -> float:
    import psutil

    total = 0.0
    for process in processes:
        try:
            # User and system time in seconds.
            total += sum(process.cpu_times()[:2])
        except psutil.Error:
            continue
    return total


def end_processes(environment_id: str) -> None:
    """End all processes of an environment by SIGKILL and wait until they have ended. Processes that cannot be killed,
    because they hang in the kernel, are left.
    """
    import psutil

    processes = marked_processes(environment_id)
    # A process may start others while it is killed, so this repeats until none are left.
    while processes:
        for process in processes:
            try:
                process.kill()
            except psutil.Error:
                continue
        _, alive = psutil.wait_procs(processes, timeout=1)
        if {process.pid for process in alive} == {process.pid for process in processes}:
            return  # they are stuck in the kernel
        processes = marked_processes(environment_id)


def size_of(folder: Path) -> int:
    """Return the total size in bytes of the files in a folder and its subfolders.

    Counting stops after five seconds, so that a huge folder blocks nothing.
    """
    total = 0
    # An explicit stack instead of recursion: folders may be nested very deeply.
    limit = time.monotonic() + _LONGEST
    folders = [str(folder)]
    while folders and time.monotonic() < limit:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # it was removed meanwhile, or may not be read
            continue
    return total


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. Raise `DevEnvError` if the file cannot be read."""
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DevEnvError(f"a checkpoint cannot be read: {error}") from error


# --- virtual environments ---


_PYTHON = re.compile(r"python(3\.\d+)")
LOCK = "lock"
LOCK_FILE = "requirements.txt"


def available_pythons() -> list[str]:
    """Return the versions, such as ``3.12``, of the Python interpreters on the PATH, newest first."""
    versions = set()
    for folder in os.get_exec_path():
        names = (_PYTHON.fullmatch(path.name) for path in Path(folder).glob("python3.*"))
        versions |= {match[1] for match in names if match is not None and shutil.which(match.string)}
    # As numbers: 3.9 is older than 3.12.
    return sorted(versions, key=lambda version: int(version.partition(".")[2]), reverse=True)


class VirtualenvIsolation(Isolation):
    """Isolation of an environment by a Python virtual environment, which lies in the environment's folder beside the
    working folder.
    """

    def plan(self) -> State:
        """Return the path of the virtual environment in a dict, to be recorded in the environment's state. Raise
        `DevEnvError` if its Python version is not available.
        """
        version = self.section["python_version"]
        if shutil.which("uv") is None and shutil.which(f"python{version}") is None:
            versions = ", ".join(available_pythons()) or "none"
            raise DevEnvError(
                f"virtualenv.python_version: Python {version} is not installed (installed: {versions}). To let "
                "divebook download Python versions, install uv"
            )
        return {"virtualenv_path": str(self._path)}

    @property
    def _path(self) -> Path:
        return self.folder / "venv"

    async def build(self) -> State:
        """Create the virtual environment of the environment, and install the packages that its configuration names."""
        (self.folder / "work").mkdir(exist_ok=True)

        async def create() -> None:
            async with self.workspace():
                pass

        try:
            await self.retrying(create)
        except ShellExecutionError as error:
            raise DevEnvError(str(error)) from error
        return {}

    def workspace(self, command_options: CommandOptions = DEFAULT_OPTIONS) -> VirtualenvWorkspace:
        """Return a workspace that runs commands in the working folder, with the programs of the virtual environment.
        The caller must enter it.
        """
        return VirtualenvWorkspace(
            self.folder / "work",
            python=self.section["python_version"],
            packages=self.section.get("packages", ()),
            venv_path=self._path,
            environ=self.variables(),
            secrets=self.secrets_for(command_options),
        )

    def host_variables(self) -> dict[str, str]:
        """Return those environment variables of this process that commands inherit, with the programs of the virtual
        environment first on PATH.
        """
        return self.workspace().activated(super().host_variables())

    def folders(self) -> dict[str, Path]:
        """Return the working folder, which checkpoints save. The virtual environment itself is not saved; `keep` saves
        the list of its packages.
        """
        return {"work": self.folder / "work"}

    async def keep(self, folder: Path, checkpoint: str) -> list[dict[str, Any]]:
        """Save the packages that are installed in the virtual environment, with their versions, as a requirements file
        of a checkpoint. Return its description.
        """
        _ = checkpoint
        text = "".join(f"{line}\n" for line in await self._installed())
        (folder / LOCK_FILE).write_text(text, encoding="utf-8")
        return [{"kind": LOCK, "path": LOCK_FILE, "sha256": sha256(text.encode()).hexdigest()}]

    async def _installed(self) -> list[str]:
        async with self.workspace() as workspace:
            return await workspace.requirements()

    async def put_back(self, folder: Path, artefacts: Artefacts) -> State:
        """Restore the virtual environment of a checkpoint: install exactly the packages in its requirements file.
        Return an empty dict, because no field of the environment's recorded state changes.
        """
        requirements = (folder / artefacts[LOCK]["path"]).read_text("utf-8").splitlines()
        # Most restores need no installation, and thus no network.
        if await self._installed() == requirements:
            return {}

        async def install() -> None:
            async with self.workspace() as workspace:
                await workspace.install(requirements)

        try:
            await self.retrying(install)
        except ShellExecutionError as error:
            raise DevEnvError(str(error)) from error
        installed = await self._installed()
        if installed != requirements:
            other = ", ".join(sorted(set(installed) ^ set(requirements)))
            raise DevEnvError(f"the installed packages differ from the checkpoint: {other}")
        return {}


# --- installation of tools ---


_PYTHON_PACKAGES = {
    *("pytest", "hypothesis", "coverage", "tox", "nox", "mypy", "ruff", "black", "flake8", "pylint", "isort"),
    *("ipython", "ipdb", "pudb", "debugpy", "jupyterlab", "notebook", "pre-commit", "uv", "build", "twine"),
}
"""Tools that are installed by the Python package of the same name."""
_PACKAGES = {"node": "nodejs", "python": "python3", "pip": "python3-pip", "gcc": "gcc", "neovim": "neovim"}
"""Names of system packages, by name of a tool, if the two differ."""
_INSTALLERS = {
    "apk": "apk add --no-cache {}",
    # Containers have no capabilities, so that apt cannot change to its own user for downloads.
    "apt-get": "apt-get -o APT::Sandbox::User=root update -q && apt-get -o APT::Sandbox::User=root install -qy {}",
    "dnf": "dnf install -qy {}",
    "microdnf": "microdnf install -y {}",
}
_TOOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
_ROOT = "0:0"
Run = Callable[..., Awaitable[ShellResult]]


async def install(isolation: Isolation, run: Run) -> list[str]:
    """Install the tools that the configuration of an environment names, such as ``git``. Return a message for each tool
    that could not be installed.

    Virtual environments use pip, containers the first package manager that their image has. Raises `CommandFailedError`
    if an installer fails.
    """
    # {"editors": ["vim"], "languages": ["python"]} -> ["vim", "python"]
    tools = [tool for names in isolation.configuration.get("tools", {}).values() for tool in names]
    valid = [tool for tool in dict.fromkeys(tools) if _TOOL.fullmatch(tool)]
    async with isolation.workspace() as workspace:
        missing = [tool for tool in valid if not await _has(run, workspace, tool)]
        kind = isolation.state["isolation_type"]
        if kind == "virtualenv" and (packages := [tool for tool in missing if tool in _PYTHON_PACKAGES]):
            await _run_installer(run, workspace, "python -m pip install --quiet " + " ".join(packages))
        elif kind == "docker" and missing:
            await _install_in_image(isolation, run, workspace, missing)
        # Looked for again: a package may have another name than its tool, or may be missing in the registry.
        remaining = [tool for tool in missing if not await _has(run, workspace, tool)]
    return [f"the tool {tool!r} is not installed; install it with an init command" for tool in remaining]


async def _has(run: Run, workspace: LocalWorkspace, tool: str) -> bool:
    return not (await run(workspace, f"command -v {tool}")).exit_code


async def _install_in_image(isolation: Isolation, run: Run, workspace: LocalWorkspace, tools: list[str]) -> None:
    """Install tools in a container, as root, by the first known package manager that the container's image has. Do
    nothing if it has none.
    """
    for installer, command in _INSTALLERS.items():
        if await _has(run, workspace, installer):
            command_options = CommandOptions(user=_ROOT)
            async with isolation.workspace(command_options) as as_root:
                packages = " ".join(_PACKAGES.get(tool, tool) for tool in tools)
                await _run_installer(run, as_root, command.format(packages), command_options=command_options)
            return


async def _run_installer(run: Run, workspace: LocalWorkspace, command: str, **options: Any) -> None:
    result = await run(workspace, command, **options)
    if result.exit_code:
        output = (result.stderr.strip() or result.stdout.strip())[-2000:]
        raise CommandFailedError(
            f"the tools cannot be installed: {command!r} failed with exit code {result.exit_code}: {output}"
        )


# --- copies of files into an environment and out of it ---


_PIECE = 1 << 16


async def copy_in(run: Run, source: Path, target: str) -> str:
    """Copy a file or folder of this machine into an environment. Return the path of the copy in the environment.

    The ``tar`` of the environment unpacks the copy, so that modes are kept and its permissions apply. If `target` is an
    existing folder, the copy is placed inside it. Otherwise, `target` is the path of the copy.
    """
    # "/data/copy" -> folder "/data", name "copy", unless "/data/copy" is a folder itself.
    into, name = posixpath.split(target)
    if target.endswith("/") or not (await run(f"test -d {shlex.quote(target)}")).exit_code:
        into = target
        name = _name_of(source)
    with tempfile.TemporaryFile() as file:
        await asyncio.to_thread(_pack, source, name, file)
        folder = shlex.quote(into or ".")
        # ``-o``: the files belong to the user of the environment, not to the ids in the archive.
        await _run_checked(run, f"mkdir -p {folder} && tar -xof - -C {folder}", stdin=_pieces(file))
    return posixpath.join(into, name)


async def copy_out(run: Run, source: str, target: Path) -> Path:
    """Copy a file or folder of an environment to this machine; return the path of the copy.

    `target` is treated as in `copy_in`.
    """
    folder, name = posixpath.split(source.rstrip("/") or "/")
    with _temporary_folder_near(target) as temporary:
        archive = temporary / "archive"
        with archive.open("wb") as file:
            # Output is passed as text. "surrogateescape" keeps bytes that are not UTF-8, so that the archive arrives
            # unchanged.
            def write(stream: str, text: str) -> None:
                if stream == "stdout":
                    file.write(text.encode(errors="surrogateescape"))

            command = f"tar -cf - -C {shlex.quote(folder or '.')} {shlex.quote(name or '.')}"
            await _run_checked(run, command, on_output=write, undecodable="surrogateescape")
        return await asyncio.to_thread(_move_from_archive, archive, name or ".", target)


@contextmanager
def _temporary_folder_near(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, on the same disk, so that files can be moved to `target` by
    renaming.
    """
    folder = target if target.is_dir() else target.parent
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".dev_env-") as temporary:
            yield Path(temporary)
    except FileNotFoundError as error:
        raise DevEnvError(f"there is no folder {folder} on this machine; create it first") from error


async def _run_checked(run: Run, command: str, **options: object) -> None:
    result = await run(command, **options)
    if result.exit_code:
        raise DevEnvError(f"the files cannot be copied: {result.stderr.strip()[-2000:] or 'tar failed'}")


def _name_of(source: Path) -> str:
    return source.resolve().name


def _pack(source: Path, name: str, file: BinaryIO) -> None:
    try:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(source, name)
    except OSError as error:
        raise DevEnvError(f"{source} on this machine cannot be read: {error}") from error
    file.seek(0)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece


def _move_from_archive(archive: Path, name: str, target: Path) -> Path:
    """Extract a tar archive that comes from an environment and is not trusted. Move the file or folder `name` in it to
    `target`; return its final path.
    """
    folder = archive.with_name("files")
    try:
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")  # refuses what would lead out
        source = folder / name
        # An existing folder receives the copy inside. "." and ".." are no names for it, so that their content is merged
        # into it.
        final_path = target / name if target.is_dir() and name not in (".", "..") else target
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, final_path, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.move(source, final_path)
    except (tarfile.TarError, OSError) as error:
        raise DevEnvError(f"the files cannot be written at {target}: {error}") from error
    return final_path
