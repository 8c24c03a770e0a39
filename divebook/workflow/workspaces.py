"""What a definition declares of workspaces: the files, commands and containers that agents and workflows may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from divebook.errors import DefinitionError, Problem, did_you_mean
from divebook.text import ranges
from divebook.workflow import kinds
from divebook.workflow.stored_form import Definition, require_whole_characters
from divebook.workflow.table import Key, require_numbers

LOCAL, FENCED, VIRTUALENV, DOCKER = WORKSPACE_KINDS = ("local", "fenced", "virtualenv", "docker")
"""Where its commands run: on this machine, in a fence on it, with a Python environment of its own, in a container."""
CONTAINED = frozenset({FENCED, DOCKER})
"""Kinds whose commands reach nothing but the workspace."""
COMMAND_TIMEOUT = 180.0
"""Seconds that a command may take."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MEMORY = re.compile(r"(?=.*[1-9])\d+(\.\d+)?[kmgt]?b?", re.IGNORECASE)
MOST_MEMORY_DIGITS = 16
"""Characters of an amount of memory: enough for exbibytes, in bytes."""
_OF_KINDS = {
    "python": VIRTUALENV,
    "packages": VIRTUALENV,
    "image": DOCKER,
    "hosts": DOCKER,
    "memory": DOCKER,
    "processors": DOCKER,
}


@dataclass(frozen=True, slots=True)
class WorkspaceDefinition(Definition):
    """A place with files and a shell, which agents and workflows name.

    An execution works on a copy of the folder, which is its own, unless `in_place` says otherwise: what it has changed
    is shown, and taken over when a person says so. ``divebook keys Workspace`` says what each of its fields means.

    Examples
    --------
    >>> WorkspaceDefinition("project", folder="src").kind
    'local'
    """

    name: Annotated[
        str, Key("The name that agents, workflows and steps use.", required="workspace name is required", example="app")
    ]
    description: Annotated[str, Key("A description for people.", example="The package to repair")] = ""
    kind: Annotated[
        str,
        Key(
            "Where its commands run: on this machine, in a fence on it without network, with a Python environment of "
            "its own, or in a container without network. Commands of `local` and `virtualenv` may do whatever you may.",
            kind=kinds.Text(choices=WORKSPACE_KINDS, complaint="unknown kind of workspace: {}"),
            example="fenced",
        ),
    ] = LOCAL
    folder: Annotated[
        str | None,
        Key("The folder with its files; without it, each run begins with an empty one.", example="project"),
    ] = None
    in_place: Annotated[
        bool, Key("Whether runs work in that very folder; by default each has a copy, and you take changes over.")
    ] = False
    shell: Annotated[bool, Key("Whether commands may be run; else there are only files.", example="false")] = True
    timeout: Annotated[
        float,
        Key(
            "How long a command may take; 3 minutes by default.",
            kind=kinds.ResponseTimeout(ranges.SOME_SECONDS),
            example="10m",
        ),
    ] = COMMAND_TIMEOUT
    environ: Annotated[Mapping[str, str], Key("Variables of its commands.", example="{LANG: C}")] = field(
        default_factory=dict
    )
    secrets: Annotated[
        Mapping[str, str],
        Key("Variables with secrets, by where they are; hidden in what commands print.", example="{KEY: env://MY_KEY}"),
    ] = field(default_factory=dict)
    exclude: Annotated[
        tuple[str, ...],
        Key("Files that are neither copied nor kept, such as caches.", example="['*.pyc', node_modules]"),
    ] = ()
    snapshots: Annotated[
        bool, Key("Whether the history keeps its files, so that each event knows them and forks get them.")
    ] = True
    python: Annotated[str | None, Key("Of `virtualenv`: the Python to use.", example="'3.12'")] = None
    packages: Annotated[
        tuple[str, ...], Key("Of `virtualenv`: packages that are installed at first.", example="[pytest]")
    ] = ()
    image: Annotated[
        str | None,
        Key("Of `docker`: what its container is made of; it must be on this machine.", example="python:3.12"),
    ] = None
    hosts: Annotated[
        tuple[str, ...],
        Key(
            "Of `docker`: hosts that its commands may reach all the same, with Python in the image; port 443 if it "
            "says no other.",
            example="[pypi.org, '*.pythonhosted.org']",
        ),
    ] = ()
    memory: Annotated[str | None, Key("Of `docker`: how much memory it may use; 1g by default.", example="512m")] = None
    processors: Annotated[
        float | None,
        Key(
            "Of `docker`: how many processors it may use; all by default.",
            kind=kinds.Number(ranges.SOME),
            example="1.5",
        ),
    ] = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            hint = "use letters, digits, - _ and . only, at most 63"
            raise _wrong(f"{self.name!r} cannot be the name of a workspace", "Name", hint)
        if self.kind not in WORKSPACE_KINDS:
            hint = did_you_mean(self.kind, WORKSPACE_KINDS) or f"one of {', '.join(WORKSPACE_KINDS)}"
            raise _wrong(f"unknown kind of workspace: {self.kind}", "Kind", hint)
        for name, kind in _OF_KINDS.items():
            if getattr(self, name) and self.kind != kind:
                key = name.capitalize()
                message = f"{key} of workspace {self.name} has no effect: its Kind is {self.kind}"
                raise _wrong(message, key, f"write Kind: {kind}, or leave {key} out")
        if self.kind == DOCKER and self.image is None:
            raise _wrong(f"workspace {self.name} needs an image for its container", "Image", "add Image: python:3.12")
        if self.in_place and self.folder is None:
            raise _wrong(f"workspace {self.name} works in place, and names no folder", "Folder", "add Folder: .")
        require_numbers(self)
        require_whole_characters(self)
        self._require_amounts()

    def _require_amounts(self) -> None:
        for name in ("exclude", "packages", "hosts"):
            if isinstance(given := getattr(self, name), str):  # its letters would be taken for patterns, or names
                key = name.capitalize()
                raise _wrong(f"{key} of workspace {self.name} is one text: {given!r}", key, f"write [{given!r}]")
        if self.memory is not None and not is_memory(self.memory):
            message = f"workspace {self.name}: {self.memory!r} is no amount of memory above 0"
            raise _wrong(message, "Memory", "write 512m, or 2g")


def is_memory(value: object) -> bool:
    """Return whether a string is an amount of memory above 0: ``512m``."""
    return isinstance(value, str) and len(value) <= MOST_MEMORY_DIGITS and _MEMORY.fullmatch(value) is not None


def _wrong(message: str, key: str, hint: str) -> DefinitionError:
    return DefinitionError([Problem(message, key=key, hint=hint)])
