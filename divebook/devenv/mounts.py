"""What a container sees of this machine: folders and ports as templates write them, and which of them it may not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from divebook.devenv.configuration import checked_name
from divebook.errors import DevEnvError, EnvironmentDeniedError
from divebook.workspace.docker.plans import PublishedPort

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
        inside, outside = _range(match["inside"], text), _range(match["outside"] or "", text)
        if outside and len(outside) != len(inside):
            raise DevEnvError(f"docker.ports: {text!r} has ranges of different lengths")
        protocol, address = match["protocol"] or "tcp", _address(match["at"] or "localhost", text)
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
