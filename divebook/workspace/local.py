"""A workspace on this machine: a folder, and commands that run as the person whose process this is."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from divebook.errors import ShellExecutionError, WorkspaceGoneError, WorkspaceNotEnteredError
from divebook.workspace.files import LocalFileOperator
from divebook.workspace.paths import Guard, PathPolicy, Root
from divebook.workspace.resources import ResourceFactory, SavedResources
from divebook.workspace.shell import DEFAULT_TIMEOUT, NEEDED, AskedCommand, LocalShell, Reapers, Shell
from divebook.workspace.workspace import Workspace, file_instructions, several, shell_instructions

NO_FENCE = "Commands run as the user of this machine and may reach beyond the directory: a local shell is no sandbox."


class _Files(LocalFileOperator):
    """The files of a local workspace, which are told to agents as a tree."""

    async def get_context_instructions(self) -> str | None:
        folders = [root.name for root in self.policy.roots if root.name != self.tmp_dir]
        return await asyncio.to_thread(file_instructions, self.disk, folders, self.tmp_dir)


class ToldShell(LocalShell):
    """The shell of a local workspace."""

    note = NO_FENCE
    folder = ""
    _activated: Callable[[Mapping[str, str]], dict[str, str]] = dict

    def activate(self, activated: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        """Have the variables that commands inherit changed."""
        self._activated = activated

    def _inherited(self) -> dict[str, str]:
        return self._activated(super()._inherited())

    async def get_context_instructions(self) -> str | None:
        """Return the folder, the limit of time, and what bounds commands."""
        return shell_instructions(self.folder, self.default_timeout, self.note)


class LocalWorkspace(Workspace):
    """Files of folders on this machine, and commands that run there.

    Commands may do whatever the person may do whose process this is: that is no security boundary. For one, see
    `FencedWorkspace` and `DockerWorkspace`.

    Parameters
    ----------
    default_path
        The folder that relative paths are of, and in which commands start; by default the current one. It must exist.
    allowed_paths
        Other folders whose files may be reached.
    shell_timeout
        Seconds that a command may take which says nothing else.
    tmp_base_dir
        Where the folder for what is passing is made.
    enable_tmp_dir
        Whether there is such a folder.
    environ, secrets
        Variables of all commands; those of `secrets` are hidden in what they print.
    openat2
        Whether the kernel opens files; by default if it can.
    guard
        Refuses files of the folders all the same; see `divebook.workspace.paths.PathPolicy`. Commands do not ask it.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> async def listed(folder):
    ...     async with LocalWorkspace(default_path=folder) as workspace:
    ...         await workspace.file_operator.write_file("a.txt", "text")
    ...         return (await workspace.shell.execute("ls")).stdout.split()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(listed(folder))
    ['a.txt']
    """

    kind: ClassVar[str] = "local"

    def __init__(
        self,
        default_path: str | Path | None = None,
        *,
        allowed_paths: Sequence[str | Path] = (),
        shell_timeout: float = DEFAULT_TIMEOUT,
        tmp_base_dir: str | Path | None = None,
        enable_tmp_dir: bool = True,
        environ: Mapping[str, str] | None = None,
        secrets: Callable[[], Mapping[str, str]] | None = None,
        resource_state: SavedResources | None = None,
        resource_factories: Mapping[str, ResourceFactory] | None = None,
        openat2: bool | None = None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__(resource_state, resource_factories)
        self._default, self._allowed = (
            Path(default_path or Path.cwd()).resolve(),
            [Path(path).resolve() for path in several(allowed_paths, "allowed_paths")],
        )
        self._shell_timeout = shell_timeout
        self._environ = environ
        self._secrets = secrets
        self._tmp_base = tmp_base_dir
        self._has_tmp = enable_tmp_dir
        self._openat2 = openat2
        self._guard = guard
        self._scratch: str | None = None

    async def _setup(self) -> None:
        policy = self._policy()
        self._shell = self._make_shell(policy)

    def _policy(self) -> PathPolicy:
        """Return the folders that may be reached, with that for what is passing; its files are there by then."""
        if not os.path.isdir(self._default):
            raise WorkspaceGoneError(f"the folder {self._default} of a workspace is not there: make it first")
        if self._has_tmp and self._tmp_base is not None and not os.path.isdir(self._tmp_base):
            raise WorkspaceGoneError(f"tmp_base_dir {self._tmp_base} of a workspace is not there: make it first")
        policy = PathPolicy(self._rooted(str(self._default)), guard=self._guard)
        self._file_operator = files = _Files(policy)
        for folder in self._allowed:
            if not folder.is_dir():
                raise WorkspaceGoneError(f"the allowed folder {folder} of a workspace is not there: make it first")
            if folder != self._default:
                policy.add(self._rooted(str(folder)))
        if self._has_tmp:
            self._scratch = os.path.realpath(tempfile.mkdtemp(prefix="divebook-", dir=self._tmp_base))
            scratch = self._rooted(self._scratch)
            policy.add(scratch)
            files.tmp_dir = scratch.name
        return policy

    def _rooted(self, folder: str) -> Root:
        """Return a folder that may be reached; other kinds give it another name."""
        return Root(folder, openat2=self._openat2)

    def _make_shell(self, policy: PathPolicy) -> Shell:
        """Return the shell; other kinds of workspaces on this machine have others."""
        return self._shell_with(policy, None)

    def _shell_with(self, policy: PathPolicy, reapers: Reapers | None) -> ToldShell:
        """Return a shell whose commands are run by some reapers; None for those of its own."""
        shell = ToldShell(
            policy.folder,
            reapers=reapers,
            scratch=lambda: self._scratch,
            default_timeout=self._shell_timeout,
            environ=self._environ,
            secrets=self._secrets,
        )
        shell.folder = policy.default.name
        return shell

    async def _teardown(self) -> None:
        scratch = self._scratch
        self._scratch = None
        if scratch is not None:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    @property
    def root(self) -> Root:
        """The folder with its files."""
        if not isinstance(self._file_operator, LocalFileOperator):
            raise WorkspaceNotEnteredError("Environment not entered: a workspace has a folder while it is entered")
        return self._file_operator.policy.default

    @property
    def reference(self) -> dict[str, Any]:
        """The folder."""
        return {"folder": str(self._default)}


LocalEnvironment = LocalWorkspace
"""The name of `LocalWorkspace` in the pai-agent-sdk."""


# A workspace with a Python environment of its own: made by uv where that is found, and else by venv and pip.


_READY = "divebook-ready"
"""A file in the environment, once all is installed: one that was left half made is made anew."""


class VirtualenvWorkspace(LocalWorkspace):
    """Files of folders on this machine, and commands with a Python environment of their own.

    The environment lies beside the folder and stays, so that it is there when the workspace is entered again.

    Parameters
    ----------
    default_path
        The folder, as of `LocalWorkspace`, whose other parameters it has too.
    python
        The Python to use: a version (``3.12``) or a path; by default this one.
    packages
        What is installed into it at first.
    venv_path
        Where it lies; by default beside the folder, under its name and ``.venv``.
    """

    kind: ClassVar[str] = "virtualenv"

    def __init__(
        self,
        default_path: str | Path | None = None,
        *,
        python: str | None = None,
        packages: Sequence[str] = (),
        venv_path: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(default_path, **options)
        self._python, self._packages = python, several(packages, "packages")
        self.venv_path = (
            Path(venv_path) if venv_path is not None else self._default.with_name(f"{self._default.name}.venv")
        )

    async def _setup(self) -> None:
        await super()._setup()
        if not await asyncio.to_thread((self.venv_path / _READY).exists):
            await self._make()

    async def _make(self) -> None:
        """Make the environment, and install what is to be there."""
        await asyncio.to_thread(shutil.rmtree, self.venv_path, ignore_errors=True)
        place = str(self.venv_path)
        uv = shutil.which("uv")
        if uv is not None:
            made = [uv, "venv", "--quiet", *(["--python", self._python] if self._python else []), place]
            install = [uv, "pip", "install", "--quiet", "--python", f"{place}/bin/python", *self._packages]
        else:
            made = [_interpreter(self._python), "-m", "venv", place]
            install = [f"{place}/bin/python", "-m", "pip", "install", "--quiet", *self._packages]
        for command in (made, install) if self._packages else (made,):
            found = await self.shell.execute(command, timeout=float("inf"))
            if found.exit_code:
                told = found.stderr.strip()[-2000:] or found.stdout.strip()[-2000:]
                raise ShellExecutionError(" ".join(command), f"the environment {place} cannot be made: {told}")
        await asyncio.to_thread((self.venv_path / _READY).touch)

    async def requirements(self) -> list[str]:
        """Return what is installed, a requirement each: `install` of these has the same again."""
        return (await self._pip(["freeze", "--all"], "freeze")).splitlines()

    async def install(self, requirements: Sequence[str]) -> None:
        """Have these requirements installed, and nothing else; raises `ShellExecutionError`."""
        extra = sorted({_project(line) for line in await self.requirements()} - set(map(_project, requirements)))
        if requirements:
            await self._pip(["install", "--quiet", *requirements], "install")
        if extra:
            await self._pip(["uninstall", "--quiet", "--yes", *extra], "uninstall")

    async def _pip(self, words: Sequence[str], verb: str) -> str:
        """Return what pip prints, or uv in its place."""
        python = f"{self.venv_path}/bin/python"
        uv = shutil.which("uv")
        own = [word for word in words[1:] if word not in ("--all", "--yes")]
        command = [python, "-m", "pip", *words] if uv is None else [uv, "pip", verb, "--python", python, *own]
        found = await self.shell.execute(command, timeout=float("inf"))
        if found.exit_code:
            told = found.stderr.strip()[-2000:] or found.stdout.strip()[-2000:]
            raise ShellExecutionError(" ".join(command), f"the environment {self.venv_path} cannot be changed: {told}")
        return found.stdout

    def _make_shell(self, policy: PathPolicy) -> ToldShell:
        shell = self._shell_with(policy, None)
        shell.activate(self.activated)
        return shell

    def activated(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of commands with the environment in front."""
        programs = f"{self.venv_path}/bin"
        told = {name: value for name, value in environ.items() if name != "PYTHONHOME"}
        path = told.get("PATH", "")
        return {**told, "VIRTUAL_ENV": str(self.venv_path), "PATH": f"{programs}:{path}" if path else programs}

    @property
    def reference(self) -> dict[str, Any]:
        """The folder, and where its environment lies."""
        return {**super().reference, "virtualenv_path": str(self.venv_path)}


def _project(requirement: str) -> str:
    """Return the name that a requirement begins with, as indexes compare names."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found.group()).lower() if found else requirement


def _interpreter(python: str | None) -> str:
    """Return the program of a Python; raises `ShellExecutionError` for a version that is not there."""
    if python is None:
        return sys.executable
    found = shutil.which(python) or shutil.which(f"python{python}")
    if found is None:
        raise ShellExecutionError("", f"there is no Python {python} here: install it, or uv, which can")
    return found


# Workspace whose commands run in a fence on this machine (bubblewrap): they write its folder only, reach no network.
#
# The fence shows commands only what is mounted: system programs and libraries, this Python, and the workspace. A Unix
# socket can be connected to through a read-only mount too, so none may lie in what is mounted: folders of services
# (``/run``, ``/var``, ``/tmp``) and home folders are left out, and sockets elsewhere are hidden.


PROGRAM, OWN = "bwrap", "/tmp"  # noqa: S108 - the fence's own
"""The program that makes the fence, and the folder of which a fence has one of its own."""
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
    # Processors, which programs count before they start threads.
    "/sys/devices/system",
)
"""Folders that commands can read: programs, libraries and their data."""
SETTINGS = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts"),
    *("group", "host.conf", "hosts", "inputrc", "java", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias"),
    *("locale.conf", "localtime", "magic", "mime.types", "nsswitch.conf", "os-release", "passwd"),
    *("pki/ca-trust", "pki/tls/certs", "protocols", "python3", "R", "services", "shells", "ssl/certs"),
    *("ssl/openssl.cnf", "terminfo", "timezone"),
)
"""Files and folders of ``/etc`` that commands can read. Keys and passwords are in others, such as ``ssl/private``."""
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that name certificates, which libraries load although no network is there."""
OUTSIDE = frozenset(
    {
        *("CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DISPLAY", "DOCKER_HOST"),
        *("GNOME_KEYRING_CONTROL", "GPG_AGENT_INFO", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", "PULSE_SERVER"),
        *("SESSION_MANAGER", "SSH_AGENT_PID", "SSH_AUTH_SOCK", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR"),
    }
)
"""Variables that lead to services outside of the fence; others whose value is a socket go too."""
NOTE = (
    "Commands run in a fence: they can write this directory only, read the machine's programs and libraries but no "
    "other files, and reach no network and no service of this machine."
)
_UNIX_SOCKETS = Path("/proc/net/unix")


class FencedWorkspace(LocalWorkspace):
    """Files of folders on this machine, and commands that write nothing else and reach no network and no service.

    One fence holds all commands of the workspace. System programs and libraries and this Python are there to be read;
    a Python that a virtual environment in the workspace names is, too. ``/tmp`` is its own and empty, and it sees no
    other processes, no home folder and no Unix socket of others. It needs the program ``bwrap`` (Debian: bubblewrap)
    and a system that lets users make namespaces. Parameters are those of `LocalWorkspace`.
    """

    kind: ClassVar[str] = "fenced"

    def _make_shell(self, policy: PathPolicy) -> ToldShell:
        program = shutil.which(PROGRAM)
        if program is None:
            raise ShellExecutionError(
                "", f"a fence needs the program {PROGRAM}: install bubblewrap, or use a container"
            )
        fence = _Fence(program, [root.path for root in policy.roots])
        shell = self._shell_with(policy, Reapers(fence.command, fence.require_closed))
        shell.activate(_without_services)
        shell.note = NOTE
        return shell


def _without_services(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those that lead to services outside of the fence."""
    return {name: value for name, value in environ.items() if name not in OUTSIDE and not _is_socket(value)}


def _is_socket(value: str) -> bool:
    """Return whether the value of a variable is the address of a Unix socket, as ``unix:path`` or ``path,more``."""
    if value.startswith(("unix:", "unix-abstract:")):
        return True
    path = value.partition(",")[0]
    return path.startswith("/") and "\0" not in path and _special(path) is not None


class _Fence:
    """What a fence mounts, and the sockets that it hides.

    Parameters
    ----------
    program
        The program that makes it.
    writable
        Folders that commands may write.
    """

    def __init__(self, program: str, writable: Sequence[str]) -> None:
        self._program = program
        self._writable = list(writable)
        self._mounted: list[str] = []
        """Folders that commands can read or write."""
        self._hidden: dict[str, tuple[int, int]] | None = None
        """By path, device and inode of each socket that is hidden; None before the first command."""
        self._searched: set[tuple[str, str]] = set()
        """Sockets with relative paths that were looked for, by number and name."""
        self._relative: list[str] = []
        """Files that may be theirs."""

    def command(self) -> list[str]:
        """Return the program and its arguments, for the sockets that exist now."""
        self._mounted = [*_mounts(self._writable), *self._writable]
        # A folder that commands may write is searched for pipes as well, and for sockets of other network namespaces.
        found = [*_special_files(self._writable), *self._sockets_of_others()]
        self._hidden = {path: sign for path in found if (sign := _special(path)) is not None}
        masks = [part for path in self._hidden for part in ("--ro-bind", os.devnull, path)]
        return [*_fence(self._program, self._writable), *masks]

    def require_closed(self) -> None:
        """Raise unless all sockets of other programs that lie in the fence are hidden.

        Raises
        ------
        ShellExecutionError
            A program has made one after the first command. It would reach beyond the fence.
        """
        if self._hidden is None:
            return
        for path in self._sockets_of_others():
            if self._hidden.get(path) != _special(path):
                raise ShellExecutionError(
                    "",
                    f"another program has made the Unix socket {path}, which commands in the fence could connect to: "
                    "remove it, or leave the workspace and enter it again, which hides it",
                )

    def _sockets_of_others(self) -> list[str]:
        """Return the sockets that programs outside have bound in the mounted folders.

        Those that commands in the fence have bound are not among them: they are in another network namespace.
        """
        bound = _bound_sockets()
        found = []
        for path in sorted(path for _, path in bound if path.startswith("/")):
            real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if any(_is_beneath(real, place) for place in self._mounted):
                found.append(real)
        # A path that was relative when it was bound says only how the file is named. Looking for it takes seconds in
        # folders of the system, so it is done once for each such socket.
        relative = {(number, path) for number, path in bound if not path.startswith(("/", "@"))}
        if not relative <= self._searched:
            names = {os.path.basename(path) for _, path in relative}
            self._relative = [path for path in _special_files(self._mounted) if os.path.basename(path) in names]
            self._searched = relative
        return [path for path in (*found, *self._relative) if _special(path) is not None]


def _bound_sockets() -> set[tuple[str, str]]:
    """Return number and name of all Unix sockets of this network namespace that have one: a path as it was written.

    The name of one that is bound to no file begins with ``@``.
    """
    rows = (line.split(None, 7) for line in os.fsdecode(_UNIX_SOCKETS.read_bytes()).split("\n")[1:])
    return {(row[6], row[7]) for row in rows if len(row) == 8}


def _special(path: str) -> tuple[int, int] | None:
    """Return device and inode of a socket or named pipe; None for anything else."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    is_special = stat.S_ISSOCK(found.st_mode) or stat.S_ISFIFO(found.st_mode)
    return (found.st_dev, found.st_ino) if is_special else None


def _special_files(folders: Iterable[str]) -> Iterator[str]:
    """Give the sockets and named pipes below folders."""
    left = list(folders)
    while left:
        try:
            entries = os.scandir(left.pop())
        except OSError:  # a file, one that is gone, or one that the commands cannot read either
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif not entry.is_symlink() and not entry.is_file(follow_symlinks=False):
                    yield entry.path


def _is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _fence(program: str, writable: Sequence[str]) -> list[str]:
    """Return the program that makes the fence, and its arguments."""
    shown = _mounts(writable)
    mounts = [part for path in shown for part in ("--ro-bind", path, path)]
    needed = [*SYSTEM, *NEEDED, *_pythons(writable), *_named_certificates()]
    links = dict(link for path in needed for link in _links_to(path))
    symlinks = [
        part
        for link, target in links.items()
        if not any(_is_beneath(link, place) for place in (*shown, *writable))
        for part in ("--symlink", target, link)
    ]
    binds = [part for path in writable for part in ("--bind", path, path)]
    # Without its capabilities root cannot mount anything again, for writing or to uncover what is hidden.
    alone = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    own = ["--dev", "/dev", "--proc", "/proc", "--tmpfs", OWN]
    home = os.path.expanduser("~")  # empty, but programs expect that it exists
    if home.startswith("/") and not any(_is_beneath(home, place) for place in (*shown, *links, "/dev", "/proc")):
        own += ["--dir", home]
    return [program, *own, *mounts, *symlinks, *binds, "--remount-ro", "/", *alone]


def _mounts(writable: Sequence[str]) -> list[str]:
    """Return what is mounted for reading: real paths, those around others only."""
    wanted = [*SYSTEM, *(f"/etc/{name}" for name in SETTINGS), *NEEDED, *_pythons(writable), *_named_certificates()]
    real = sorted({os.path.realpath(path) for path in wanted if os.path.exists(path)})
    outer: list[str] = []
    for path in real:
        if path != "/" and not any(_is_beneath(path, place) for place in outer):
            outer.append(path)
    return outer


def _named_certificates() -> list[str]:
    return [value for name in CERTIFICATES if (value := os.environ.get(name, "")).startswith("/")]


def _pythons(folders: Sequence[str]) -> Iterator[str]:
    """Give the folders of Pythons that virtual environments directly in some folders are made of.

    Only programs and libraries, for a command may have written what the environment says of its Python.
    """
    for folder in folders:
        for settings in sorted(Path(folder).glob("*/pyvenv.cfg")):
            try:
                lines = settings.read_text("utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                continue
            homes = [
                value.strip() for name, _, value in (line.partition("=") for line in lines) if name.strip() == "home"
            ]
            for home in homes:
                prefix = Path(home).parent
                if (
                    Path(home).name == "bin"
                    and any(prefix.glob("lib/python3*/os.py"))
                    and any(prefix.glob("bin/python3*"))
                ):
                    yield from (str(prefix / name) for name in ("bin", "lib", "lib64", "include"))


def _links_to(path: str) -> Iterator[tuple[str, str]]:
    """Give the symbolic links on the way to a path, each with its target."""
    left = [part for part in reversed(path.split("/")) if part]
    place = "/"
    for _ in range(256):  # more than any path that can be opened has
        if not left:
            return
        name = left.pop()
        if name == "..":
            place = os.path.dirname(place)
            continue
        here = os.path.join(place, name)
        if not os.path.islink(here):
            place = here
            continue
        target = os.readlink(here)
        yield here, target
        place = "/" if target.startswith("/") else place
        left += [part for part in reversed(target.split("/")) if part not in ("", ".")]


# A workspace without commands: the files of a folder, for definitions that say ``Shell: false``.


class FilesWorkspace(LocalWorkspace):
    """Files of folders on this machine. It starts no program, so it also has no container and installs no packages."""

    kind: ClassVar[str] = "files"

    def _make_shell(self, policy: PathPolicy) -> Shell:  # noqa: ARG002 - no command starts in any folder
        return _NoShell()


class _NoShell(Shell):
    async def _run(self, asked: AskedCommand) -> NoReturn:
        command = asked.command if isinstance(asked.command, str) else " ".join(asked.command)
        raise ShellExecutionError(command, "the workspace has files only: its definition says Shell: false")

    async def close(self) -> None:
        """Do nothing: no program runs."""
