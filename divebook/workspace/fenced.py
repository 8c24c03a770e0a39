"""Workspace whose commands run in a fence on this machine (bubblewrap): they write its folder only, reach no network.

The fence shows commands only what is mounted: system programs and libraries, this Python, and the workspace. A Unix
socket can be connected to through a read-only mount too, so none may lie in what is mounted: folders of services
(``/run``, ``/var``, ``/tmp``) and home folders are left out, and sockets elsewhere are hidden.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from divebook.errors import ShellExecutionError
from divebook.workspace.commands.reapers import NEEDED, Reapers
from divebook.workspace.local import LocalWorkspace, ToldShell
from divebook.workspace.policy import PathPolicy

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
        self._program, self._writable = program, list(writable)
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
    left, place = [part for part in reversed(path.split("/")) if part], "/"
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
