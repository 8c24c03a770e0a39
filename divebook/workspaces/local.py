"""Workspaces on this machine: plain, with a Python environment, fenced (bubblewrap sandbox), or without commands."""

from __future__ import annotations

import asyncio
import functools
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
from divebook.workspaces.files import LocalFileOperator
from divebook.workspaces.paths import Guard, PathPolicy, Root
from divebook.workspaces.resources import ResourceFactory, SavedResources
from divebook.workspaces.shell import (
    DEFAULT_TIMEOUT,
    NEEDED,
    CommandRequest,
    LocalShell,
    Reapers,
    Shell,
    inherited_environ,
)
from divebook.workspaces.workspace import Workspace, file_instructions, several, shell_instructions

NO_FENCE = "Commands run as the user of this machine and may reach beyond the directory: a local shell is no sandbox."


class LocalWorkspace(Workspace):
    """Workspace on this machine: the files of one or several folders, and commands that run as the current user.

    Commands may do whatever the user of this process may do. If you need a security boundary, use `FencedWorkspace` or
    `DockerWorkspace`.

    Parameters
    ----------
    default_path
        Folder to which relative paths refer, and in which commands start; by default the current folder. It must exist.
    allowed_paths
        Further folders whose files may be accessed.
    shell_timeout
        Time limit in seconds of commands for which the caller sets none.
    tmp_base_dir
        Folder in which the folder of temporary files is created.
    enable_tmp_dir
        True to create a folder of temporary files.
    environ, secrets
        Variables of all commands. The values of `secrets` are redacted in their output.
    openat2
        True if the system call `openat2` of the Linux kernel resolves paths; by default if the kernel supports it.
    guard
        Function that can refuse access to files of the folders; see `divebook.workspaces.paths.PathPolicy`. It does not
        apply to commands.

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
        self._default = Path(default_path or Path.cwd()).resolve()
        self._allowed = [Path(path).resolve() for path in several(allowed_paths, "allowed_paths")]
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
        """Open all folders of the workspace, and create its file operator and its folder of temporary files. Return the
        policy that allows exactly these folders.
        """
        # The temporary folder is made last, so that an error about another folder leaves nothing on the disk.
        if not os.path.isdir(self._default):
            raise WorkspaceGoneError(f"the folder {self._default} of a workspace does not exist; create it first")
        if self._has_tmp and self._tmp_base is not None and not os.path.isdir(self._tmp_base):
            raise WorkspaceGoneError(f"tmp_base_dir {self._tmp_base} of a workspace does not exist; create it first")
        policy = PathPolicy(self._open_root(str(self._default)), guard=self._guard)
        files = LocalFileOperator(policy)
        files.describe = functools.partial(_describe_files, files)
        # Assigned before the other folders are opened: if one of them fails, leaving the workspace closes the policy.
        self._file_operator = files
        for folder in self._allowed:
            if not folder.is_dir():
                raise WorkspaceGoneError(f"the allowed folder {folder} of a workspace does not exist; create it first")
            if folder != self._default:
                policy.add(self._open_root(str(folder)))
        if self._has_tmp:
            self._scratch = os.path.realpath(tempfile.mkdtemp(prefix="divebook-", dir=self._tmp_base))
            scratch = self._open_root(self._scratch)
            policy.add(scratch)
            files.tmp_dir = scratch.name
        return policy

    def _open_root(self, folder: str) -> Root:
        """Open a folder of the workspace. Subclasses override this if commands see the folder under another path."""
        return Root(folder, openat2=self._openat2)

    def _make_shell(self, policy: PathPolicy) -> Shell:
        """Create the shell that runs the commands of the workspace. Subclasses create other kinds of shells."""
        return self._shell_with(policy, None)

    def _shell_with(
        self,
        policy: PathPolicy,
        reapers: Reapers | None,
        *,
        activate: Callable[[Mapping[str, str]], dict[str, str]] = dict,
        note: str = NO_FENCE,
    ) -> LocalShell:
        """Create a shell whose commands are started by the helper process of `reapers`. For None, create a helper
        process for this shell.

        Parameters
        ----------
        activate
            Changes the environment variables that commands inherit from this process.
        note
            Text about the limits of commands, for agents.
        """
        shell = LocalShell(
            policy.folder,
            reapers=reapers,
            scratch=lambda: self._scratch,
            default_timeout=self._shell_timeout,
            environ=self._environ,
            secrets=self._secrets,
        )
        shell.inherited = lambda: activate(inherited_environ())
        shell.description = shell_instructions(policy.default.name, shell.default_timeout, note)
        return shell

    async def _teardown(self) -> None:
        # Reset first, so that no command that is started meanwhile writes into the folder.
        scratch = self._scratch
        self._scratch = None
        if scratch is not None:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    @property
    def root(self) -> Root:
        """Folder with the files of the workspace; raises `WorkspaceNotEnteredError`."""
        if not isinstance(self._file_operator, LocalFileOperator):
            raise WorkspaceNotEnteredError(
                "Environment not entered: the folder of a workspace is available only inside `async with workspace:`"
            )
        return self._file_operator.policy.default

    @property
    def reference(self) -> dict[str, Any]:
        """Data by which the workspace can be created again after a restart of Python: its folder."""
        return {"folder": str(self._default)}


LocalEnvironment = LocalWorkspace
"""Alias of `LocalWorkspace`, for code written for the pai-agent-sdk."""


def _describe_files(files: LocalFileOperator) -> str:
    """Return a description of the workspace's files for agents: each folder with a tree of its content."""
    folders = [root.name for root in files.policy.roots if root.name != files.tmp_dir]
    return file_instructions(files.disk, folders, files.tmp_dir)


# --- a workspace with its own Python environment, created by uv if available, else by venv and pip ---


_READY = "divebook-ready"
"""File that is written when all packages are installed. A Python environment without this file is created again."""


class VirtualenvWorkspace(LocalWorkspace):
    """Workspace on this machine whose commands use a Python virtual environment of the workspace.

    The virtual environment is stored next to the folder, and remains when the workspace is left.

    Parameters
    ----------
    default_path
        The folder, as in `LocalWorkspace`. All other parameters of `LocalWorkspace` are accepted too.
    python
        A version (``3.12``) or path of Python; by default that of this process.
    packages
        Packages to install into a new environment.
    venv_path
        Folder of the virtual environment; by default next to the folder of the workspace, with the name of that folder
        and ``.venv``.
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
        self._python = python
        self._packages = several(packages, "packages")
        default_venv = self._default.with_name(f"{self._default.name}.venv")
        self.venv_path = default_venv if venv_path is None else Path(venv_path)

    async def _setup(self) -> None:
        await super()._setup()
        # An environment of an earlier workspace with the same folder is used again.
        if not await asyncio.to_thread((self.venv_path / _READY).exists):
            await self._make()

    async def _make(self) -> None:
        """Create the virtual environment and install the packages of the workspace in it."""
        # What an interrupted installation left is removed. Only a complete environment has the file `_READY`.
        await asyncio.to_thread(shutil.rmtree, self.venv_path, ignore_errors=True)
        folder = str(self.venv_path)
        uv = shutil.which("uv")
        if uv is not None:
            create = [uv, "venv", "--quiet", *(["--python", self._python] if self._python else []), folder]
            install = [uv, "pip", "install", "--quiet", "--python", f"{folder}/bin/python", *self._packages]
        else:
            create = [_interpreter(self._python), "-m", "venv", folder]
            install = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", *self._packages]
        for command in (create, install) if self._packages else (create,):
            result = await self.shell.execute(command, timeout=float("inf"))
            if result.exit_code:
                output = result.stderr.strip()[-2000:] or result.stdout.strip()[-2000:]
                raise ShellExecutionError(
                    " ".join(command), f"the virtual environment {folder} cannot be created: {output}"
                )
        await asyncio.to_thread((self.venv_path / _READY).touch)

    async def requirements(self) -> list[str]:
        """Return the packages that are installed in the virtual environment, with versions, in the form that `install`
        accepts.
        """
        return (await self._pip(["freeze", "--all"], "freeze")).splitlines()

    async def install(self, requirements: Sequence[str]) -> None:
        """Install exactly these packages in the virtual environment, and remove all others. Raises
        `ShellExecutionError`.
        """
        # `requirements` lists dependencies too, so that everything else is to be removed.
        extra = sorted(
            {project_name(line) for line in await self.requirements()} - set(map(project_name, requirements))
        )
        if requirements:
            await self._pip(["install", "--quiet", *requirements], "install")
        if extra:
            await self._pip(["uninstall", "--quiet", "--yes", *extra], "uninstall")

    async def _pip(self, words: Sequence[str], verb: str) -> str:
        """Run a pip command for the virtual environment, by uv if uv is available. Return its output; raise
        `ShellExecutionError` if it fails.
        """
        python = f"{self.venv_path}/bin/python"
        uv = shutil.which("uv")
        # uv always lists all packages and does not ask before it removes some, and so lacks these options of pip.
        options = [word for word in words[1:] if word not in ("--all", "--yes")]
        command = [python, "-m", "pip", *words] if uv is None else [uv, "pip", verb, "--python", python, *options]
        result = await self.shell.execute(command, timeout=float("inf"))
        if result.exit_code:
            output = result.stderr.strip()[-2000:] or result.stdout.strip()[-2000:]
            raise ShellExecutionError(
                " ".join(command), f"the virtual environment {self.venv_path} cannot be changed: {output}"
            )
        return result.stdout

    def _make_shell(self, policy: PathPolicy) -> Shell:
        return self._shell_with(policy, None, activate=self.activated)

    def activated(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return a copy of environment variables in which the virtual environment is activated, so that its programs
        are found first.
        """
        programs = f"{self.venv_path}/bin"
        # PYTHONHOME would make the Python of the environment load the library of another one.
        variables = {name: value for name, value in environ.items() if name != "PYTHONHOME"}
        path = variables.get("PATH", "")
        return {**variables, "VIRTUAL_ENV": str(self.venv_path), "PATH": f"{programs}:{path}" if path else programs}

    @property
    def reference(self) -> dict[str, Any]:
        """Data by which the workspace can be created again after a restart of Python: its folder, and the folder of its
        virtual environment.
        """
        return {**super().reference, "virtualenv_path": str(self.venv_path)}


def project_name(requirement: str) -> str:
    """Return the normalized project name of a Python requirement such as ``Foo_Bar>=1``."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    return re.sub(r"[-_.]+", "-", match.group()).lower() if match else requirement


def _interpreter(python: str | None) -> str:
    """Return the path of the interpreter for a Python version such as ``3.12``; for None, that of this process. Raise
    `ShellExecutionError` if the version is not installed.
    """
    if python is None:
        return sys.executable
    program = shutil.which(python) or shutil.which(f"python{python}")
    if program is None:
        raise ShellExecutionError(
            "", f"Python {python} is not installed; install it, or install uv, which can download Python versions"
        )
    return program


# --- a workspace whose commands run in a fence (bubblewrap): they write its folder only and reach no network ---
#
# Commands in the fence see only mounted folders: system programs and libraries, this Python, and the workspace. A Unix
# socket accepts connections through a read-only mount too, so no socket may lie in a mounted folder. Folders of
# services (``/run``, ``/var``, ``/tmp``) and home folders are therefore not mounted, and sockets elsewhere are hidden.


PROGRAM = "bwrap"
"""Name of the program (bubblewrap) that creates the sandbox of a fenced workspace."""
PRIVATE_TMP = "/tmp"  # noqa: S108 - not this machine's: a new one in the fence
"""Path of the folder for temporary files that each sandbox has for itself, empty at first."""
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
    # Processors, which programs count before they start threads.
    "/sys/devices/system",
)
"""Folders that commands in the sandbox can read: programs, libraries and their data."""
SETTINGS = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts"),
    *("group", "host.conf", "hosts", "inputrc", "java", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias"),
    *("locale.conf", "localtime", "magic", "mime.types", "nsswitch.conf", "os-release", "passwd"),
    *("pki/ca-trust", "pki/tls/certs", "protocols", "python3", "R", "services", "shells", "ssl/certs"),
    *("ssl/openssl.cnf", "terminfo", "timezone"),
)
"""Names in ``/etc`` that commands in the sandbox can read. They exclude keys and passwords (``ssl/private``)."""
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables with paths of certificates. Libraries load the certificates even without a network."""
OUTSIDE = frozenset(
    {
        *("CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DISPLAY", "DOCKER_HOST"),
        *("GNOME_KEYRING_CONTROL", "GPG_AGENT_INFO", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", "PULSE_SERVER"),
        *("SESSION_MANAGER", "SSH_AGENT_PID", "SSH_AUTH_SOCK", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR"),
    }
)
"""Environment variables that lead to services outside the sandbox. Variables whose value is a socket are
removed, too.
"""
NOTE = (
    "Commands run in a fence: they can write this directory only, read the machine's programs and libraries but no "
    "other files, and reach no network and no service of this machine."
)
_UNIX_SOCKETS = Path("/proc/net/unix")


class FencedWorkspace(LocalWorkspace):
    """Workspace on this machine whose commands run in a sandbox, where they can write only the workspace's folders.

    The sandbox ("fence") is created by bubblewrap. Commands reach no network and no service of this machine.

    All commands of the workspace share one sandbox. They can read system programs and libraries, this Python, and the
    Python that a virtual environment in the workspace refers to. They have an empty ``/tmp``, and see no other
    processes, no home folder and no Unix socket of other programs. The sandbox needs the program ``bwrap`` (Debian:
    bubblewrap) and a system that lets users create namespaces. Parameters are those of `LocalWorkspace`.
    """

    kind: ClassVar[str] = "fenced"

    def _make_shell(self, policy: PathPolicy) -> Shell:
        program = shutil.which(PROGRAM)
        if program is None:
            raise ShellExecutionError(
                "", f"a fenced workspace needs the program {PROGRAM}; install bubblewrap, or use a container"
            )
        fence = _Fence(program, [root.path for root in policy.roots])
        reapers = Reapers(fence.command, fence.require_closed)
        return self._shell_with(policy, reapers, activate=_without_services, note=NOTE)


def _without_services(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of environment variables for commands in the sandbox. Variables that lead to services outside the
    sandbox, such as sockets, are left out.
    """
    return {name: value for name, value in environ.items() if name not in OUTSIDE and not _is_socket(value)}


def _is_socket(value: str) -> bool:
    """Return True if the value of an environment variable is the address of a Unix socket, such as ``unix:path`` or
    ``path,more``.
    """
    if value.startswith(("unix:", "unix-abstract:")):
        return True
    # ``/run/user/1/pulse,more`` -> ``/run/user/1/pulse``.
    path = value.partition(",")[0]
    return path.startswith("/") and "\0" not in path and _special(path) is not None


class _Fence:
    """Builder of the command line that starts the sandbox of a fenced workspace: its mounts, and the sockets of other
    programs that it hides.

    Parameters
    ----------
    program
        Path of the program ``bwrap``.
    writable
        Folders that commands may write.
    """

    def __init__(self, program: str, writable: Sequence[str]) -> None:
        self._program = program
        self._writable = list(writable)
        self._mounted: list[str] = []
        """Paths of all folders that commands can read or write."""
        self._hidden: dict[str, tuple[int, int]] | None = None
        """Device and inode of each hidden socket, by path; None before the first command."""
        self._searched: set[tuple[str, str]] = set()
        """Sockets bound by a relative path that were already searched for, as pairs of number and path."""
        self._relative: list[str] = []
        """Paths of files that may be sockets bound by a relative path."""

    def command(self) -> list[str]:
        """Return the command line that starts the sandbox. It hides all sockets that exist now in the mounted
        folders.
        """
        self._mounted = [*_mounts(self._writable), *self._writable]
        # A folder that commands may write is searched for pipes as well, and for sockets of other network namespaces.
        paths = [*_special_files(self._writable), *self._sockets_of_others()]
        signs = {path: _special(path) for path in paths}
        # A path without a sign has disappeared in the meantime.
        self._hidden = {path: sign for path, sign in signs.items() if sign is not None}
        masks = [part for path in self._hidden for part in ("--ro-bind", os.devnull, path)]
        return [*_fence(self._program, self._writable), *masks]

    def require_closed(self) -> None:
        """Raise an error if another program has created a socket in the mounted folders after the sandbox was started,
        because the sandbox cannot hide it any more.

        Raises
        ------
        ShellExecutionError
            A program has created a socket after the first command. Commands could reach beyond the fence through it.
        """
        if self._hidden is None:
            return
        for path in self._sockets_of_others():
            if self._hidden.get(path) != _special(path):
                raise ShellExecutionError(
                    "",
                    f"another program has created the Unix socket {path}, and commands in the fence could connect to "
                    "it; remove the socket, or leave the workspace and enter it again to hide the socket",
                )

    def _sockets_of_others(self) -> list[str]:
        """Return the paths of the sockets in the folders of the sandbox that programs outside the sandbox have created.

        Sockets of commands in the fence are not included: those are in another network namespace.
        """
        bound = _bound_sockets()
        absolute = []
        for path in sorted(path for _, path in bound if path.startswith("/")):
            real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if any(_is_beneath(real, folder) for folder in self._mounted):
                absolute.append(real)
        # A path that was relative when it was bound says only how the file is named. Looking for it takes seconds in
        # folders of the system, so it is done once for each such socket.
        relative = {(number, path) for number, path in bound if not path.startswith(("/", "@"))}
        if not relative <= self._searched:
            names = {os.path.basename(path) for _, path in relative}
            self._relative = [path for path in _special_files(self._mounted) if os.path.basename(path) in names]
            self._searched = relative
        return [path for path in (*absolute, *self._relative) if _special(path) is not None]


def _bound_sockets() -> set[tuple[str, str]]:
    """Return inode number and path of each Unix socket that has a name, in the network namespace of this process.

    The path is the text with which the socket was bound. For a socket without a file it begins with ``@``.
    """
    # A row: ``Num RefCount Protocol Flags Type St Inode Path``. A socket without a name has no eighth field.
    rows = (line.split(None, 7) for line in os.fsdecode(_UNIX_SOCKETS.read_bytes()).split("\n")[1:])
    return {(row[6], row[7]) for row in rows if len(row) == 8}


def _special(path: str) -> tuple[int, int] | None:
    """Return device and inode of a Unix socket or named pipe, which identify it. Return None for other files and
    missing paths.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return None
    is_special = stat.S_ISSOCK(status.st_mode) or stat.S_ISFIFO(status.st_mode)
    return (status.st_dev, status.st_ino) if is_special else None


def _special_files(folders: Iterable[str]) -> Iterator[str]:
    """Yield the paths of all sockets and named pipes below the given folders. Folders that cannot be read are
    skipped.
    """
    queue = list(folders)
    while queue:
        try:
            entries = os.scandir(queue.pop())
        except OSError:  # a file, one that is gone, or one that the commands cannot read either
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    queue.append(entry.path)
                elif not entry.is_symlink() and not entry.is_file(follow_symlinks=False):
                    yield entry.path


def _is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _fence(program: str, writable: Sequence[str]) -> list[str]:
    """Return the first part of the command line that starts a sandbox: its namespaces and mounts. The caller adds the
    options that hide sockets.
    """
    readable = _mounts(writable)
    mounts = [part for path in readable for part in ("--ro-bind", path, path)]
    # Links on the way to a mounted path are created in the sandbox, such as ``/bin -> usr/bin``, unless a mounted
    # folder contains them.
    paths = [*SYSTEM, *NEEDED, *_pythons(writable), *_named_certificates()]
    links = dict(link for path in paths for link in _links_to(path))
    symlinks: list[str] = []
    for link, target in links.items():
        if not any(_is_beneath(link, folder) for folder in (*readable, *writable)):
            symlinks += ["--symlink", target, link]
    binds = [part for path in writable for part in ("--bind", path, path)]
    # Root has no capabilities in the fence, and so cannot remount anything to write it or to uncover a hidden socket.
    namespaces = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    private_mounts = ["--dev", "/dev", "--proc", "/proc", "--tmpfs", PRIVATE_TMP]
    home = os.path.expanduser("~")  # empty, but programs expect that it exists
    if home.startswith("/") and not any(_is_beneath(home, folder) for folder in (*readable, *links, "/dev", "/proc")):
        private_mounts += ["--dir", home]
    # The program mounts in the order of its options: the empty ``/tmp`` comes before folders that may lie in it.
    return [program, *private_mounts, *mounts, *symlinks, *binds, "--remount-ro", "/", *namespaces]


def _mounts(writable: Sequence[str]) -> list[str]:
    """Return the real paths that the sandbox mounts read-only: system folders, Python installations and certificates.
    Paths inside a returned folder are left out, because they are mounted with it.
    """
    paths = [*SYSTEM, *(f"/etc/{name}" for name in SETTINGS), *NEEDED, *_pythons(writable), *_named_certificates()]
    # Sorted, so that a folder comes before the paths inside it.
    real = sorted({os.path.realpath(path) for path in paths if os.path.exists(path)})
    outer: list[str] = []
    for path in real:
        if path != "/" and not any(_is_beneath(path, folder) for folder in outer):
            outer.append(path)
    return outer


def _named_certificates() -> list[str]:
    return [value for name in CERTIFICATES if (value := os.environ.get(name, "")).startswith("/")]


def _pythons(folders: Sequence[str]) -> Iterator[str]:
    """Yield the folders of the Python installations on which the virtual environments in `folders` are based. The
    sandbox must mount them, so that these environments work.

    These are only folders of programs and libraries: a command may have written the settings of the virtual
    environment, and must not cause other folders to be mounted.
    """
    for folder in folders:
        for settings in sorted(Path(folder).glob("*/pyvenv.cfg")):
            try:
                lines = settings.read_text("utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                continue
            for line in lines:
                # The line ``home = /usr/bin`` names the folder of the Python program.
                key, _, value = line.partition("=")
                home = Path(value.strip())
                if key.strip() == "home" and _is_python(home):
                    yield from (str(home.parent / name) for name in ("bin", "lib", "lib64", "include"))


def _is_python(home: Path) -> bool:
    """Return True if a folder is the folder ``bin`` of a Python installation."""
    prefix = home.parent
    has_library = any(prefix.glob("lib/python3*/os.py"))
    return home.name == "bin" and has_library and any(prefix.glob("bin/python3*"))


def _links_to(path: str) -> Iterator[tuple[str, str]]:
    """Yield each symbolic link that is followed when a path is opened, with the target of the link."""
    queue = [part for part in reversed(path.split("/")) if part]
    folder = "/"
    for _ in range(256):  # more than any path that can be opened has
        if not queue:
            return
        name = queue.pop()
        if name == "..":
            folder = os.path.dirname(folder)
            continue
        current = os.path.join(folder, name)
        if not os.path.islink(current):
            folder = current
            continue
        target = os.readlink(current)
        yield current, target
        # A relative target starts at the folder of the link.
        folder = "/" if target.startswith("/") else folder
        queue += [part for part in reversed(target.split("/")) if part not in ("", ".")]


# --- a workspace without commands, for definitions with ``Shell: false`` ---


class FilesWorkspace(LocalWorkspace):
    """Workspace on this machine that has files but no commands, for definitions with ``Shell: false``."""

    kind: ClassVar[str] = "files"

    def _make_shell(self, policy: PathPolicy) -> Shell:  # noqa: ARG002 - no command starts in any folder
        return _NoShell()


class _NoShell(Shell):
    async def _run(self, request: CommandRequest) -> NoReturn:
        command = request.command if isinstance(request.command, str) else " ".join(request.command)
        raise ShellExecutionError(command, "the workspace cannot run commands, because its definition has Shell: false")

    async def close(self) -> None:
        """Return without doing anything: this shell never starts a process that would have to be ended."""
