"""What a template has of those that it extends: each field has its rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from divebook.devenv.configuration import Configuration
from divebook.errors import DevEnvError

DEEPEST = 10
"""Templates in one chain."""

_OWN = ("name", "description", "category", "version", "extends")
_TOOLS = ("editors", "languages", "testing", "debugging")


def resolved(name: str, find: Callable[[str], Configuration]) -> tuple[Configuration, list[str]]:
    """Return what a template says with all that it inherits, and the names of its parents, nearest first.

    Raises `DevEnvError` for a circle or a chain that is too long; what `find` raises for a template that is not there.
    """
    chain, names = [find(name)], [name]
    while (parent := chain[-1].get("extends")) is not None:
        if not isinstance(parent, str):
            raise DevEnvError(f"the template {names[-1]!r}: extends must name one template, not {parent!r}")
        if parent in names:
            raise DevEnvError(f"templates extend each other in a circle: {' -> '.join([*names, parent])}")
        names.append(parent)
        if len(names) > DEEPEST:
            raise DevEnvError(f"more than {DEEPEST} templates extend each other: {' -> '.join(names)}")
        chain.append(find(parent))
    found: Configuration = {}
    for template in reversed(chain):
        found = merged(found, template)
    return found, names[1:]


def merged(parent: Configuration, child: Configuration) -> Configuration:
    """Return what a child says with what it inherits; the schema is checked on the result, not here."""
    inherited = {key: value for key, value in parent.items() if key not in _OWN}
    return _mapping(inherited, child, ())


def _mapping(parent: Mapping[str, Any], child: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    found = dict(parent)
    for key, value in child.items():
        found[key] = _value(found.get(key), value, (*place, key))
    if place[-1:] == ("env",):  # null takes away what was inherited
        return {key: value for key, value in found.items() if value is not None}
    return found


def _value(parent: Any, child: Any, place: tuple[str, ...]) -> Any:
    if isinstance(child, Mapping):
        if set(child) == {"$replace"}:
            return child["$replace"]
        return _mapping(parent if isinstance(parent, Mapping) else {}, child, place)
    if not isinstance(child, list) or not isinstance(parent, list):
        return child
    if place[-1] == "init":
        return [*parent, *child]
    key = _key_of(place)
    return (
        child if key is None else list({**{key(item): item for item in parent}, **{key(x): x for x in child}}.values())
    )


def _key_of(place: tuple[str, ...]) -> Callable[[Any], Hashable] | None:
    """Return by what the items of a list are the same; None if the child's list replaces the parent's."""
    if place == ("tags",) or (place[0] == "tools" and place[-1] in _TOOLS):
        return str
    return {"ports": _port, "volumes": _target, "packages": _project}.get(place[-1])


def _port(text: Any) -> tuple[str, str]:
    """Return the container's port and protocol of ``127.0.0.1:8080:80/tcp``."""
    ports, _, protocol = str(text).partition("/")
    return ports.rpartition(":")[2], protocol or "tcp"


def _target(text: Any) -> str:
    """Return the container's path of ``source:target:ro``."""
    parts = re.sub(r":(ro|rw)$", "", str(text)).rpartition(":")
    return parts[2].rstrip("/") or "/"


def _project(text: Any) -> str:
    """Return the normalised project name of a requirement."""
    name = re.match(r"[A-Za-z0-9._-]+", str(text).strip())
    return re.sub(r"[-_.]+", "-", name.group()).lower() if name else str(text)
