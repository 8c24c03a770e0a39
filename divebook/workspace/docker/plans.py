"""What a container is to be like: its image, what it sees of this machine, and its limits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from divebook.text.ranges import COUNT, SOME
from divebook.workflow.workspaces import is_memory

WORKDIR = "/workspace"
LABEL = "divebook.workspace"
"""The label of each container that is made here; its value is the folder that is mounted."""
# The first process of a container cannot be killed from inside, and a shell that waits takes in orphans that ended:
# so both go on where a command kills all that it can (test_a_command_that_kills_all_it_can).
_ALIVE = ["/bin/sh", "-c", "while cat >/dev/null; [ $? -gt 128 ]; do :; done"]
"""What keeps a container alive: it waits for what never comes, and ends with who holds its input."""
_KEPT = ["/bin/sh", "-c", "while :; do sleep 3600; done"]


class PublishedPort(NamedTuple):
    """A port of a container that can be reached from outside."""

    inside: int
    outside: int | None = None
    """Of this machine; None for any that is free."""
    protocol: str = "tcp"
    address: str = "127.0.0.1"
    """Of this machine: what is published at others than its loopback is open to a whole network."""


def caller() -> str:
    """Return the user and group of this process, so that what a container writes is its caller's."""
    return f"{os.getuid()}:{os.getgid()}"


@dataclass(frozen=True)
class ContainerPlan:
    """What a container is to be like."""

    image: str
    folder: str
    """On this machine, mounted at `workdir`."""
    workdir: str = WORKDIR
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Further folders on this machine, and where they are mounted: as ``/data``, or only to be read, ``/data:ro``."""
    user: str = field(default_factory=caller)
    memory: str = "1g"
    cpus: float | None = None
    pids: int = 256
    network: str = "none"
    ports: Sequence[PublishedPort] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    is_kept: bool = False
    """Whether it outlives the process that made it."""
    command: Sequence[str] = ()
    """What runs in it besides commands, and ends it by its own end; by default something that waits."""

    def __post_init__(self) -> None:
        needs = (  # an engine takes 0, and nothing, for no limit
            ("memory", is_memory(self.memory), "an amount above 0, such as '512m'"),
            ("cpus", self.cpus is None or SOME.fits(self.cpus), f"{SOME}, or None for all"),
            ("pids", COUNT.fits(self.pids), str(COUNT)),
        )
        for name, holds, must in needs:
            if not holds:
                raise ValueError(f"{name} of a container must be {must}, not {getattr(self, name)!r}")

    def arguments(self) -> dict[str, Any]:
        """Return what the engine is asked for."""
        binds = {self.folder: self.workdir, **self.mounts}
        told: dict[str, Any] = {
            "image": self.image,
            "command": list(self.command) or (_KEPT if self.is_kept else _ALIVE),
            "entrypoint": [],
            "user": self.user,
            "working_dir": self.workdir,
            "network_mode": self.network,
            "volumes": {path: _bind(inside) for path, inside in binds.items()},
            "labels": {**self.labels, LABEL: self.folder},
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "pids_limit": self.pids,
            "mem_limit": self.memory,
            "memswap_limit": self.memory,
            "ports": {f"{port.inside}/{port.protocol}": (port.address, port.outside) for port in self.ports},
        }
        if self.cpus is not None:
            told["nano_cpus"] = int(self.cpus * 1e9)
        if not self.is_kept:
            told |= {"auto_remove": True, "stdin_open": True}
        return told


def _bind(inside: str) -> dict[str, str]:
    path = inside.removesuffix(":ro")
    return {"bind": path, "mode": "rw" if path == inside else "ro"}
