"""Limits of resources: sets of them by name, and what a template's own limits come to with one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divebook.devenv.configuration import Configuration, checked_name
from divebook.errors import DevEnvError

DEFAULT = "default"
_BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "minimal": {"resource_limits": {"cpu": "0.5", "memory": "256m", "disk": "1g"}},
    DEFAULT: {"resource_limits": {"cpu": "1.0", "memory": "1024m", "disk": "10g"}},
    "standard": {"resource_limits": {"cpu": "1.0", "memory": "1024m", "disk": "10g"}},
    "high-resource": {"resource_limits": {"cpu": "4.0", "memory": "8192m", "disk": "50g"}},
}
_LIMITS, _MORE = ("cpu", "memory", "disk"), ("pids", "timeout")
_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def profile_of(name: str, folder: Path) -> Mapping[str, Any]:
    """Return a profile, a file of the folder before one that is built in.

    It has ``resource_limits`` and perhaps ``pids``, the most processes in a container, and ``timeout``, the most
    seconds of a command. Raises `DevEnvError` for a profile that is not there, or whose file is no profile.
    """
    path = folder / f"{checked_name(name, 'profile')}.json"
    if path.is_file():
        return _read(path)
    if name not in _BUILT_IN:
        raise DevEnvError(f"there is no resource profile {name!r}; known are {', '.join(profile_names(folder))}")
    return _BUILT_IN[name]


def profile_names(folder: Path) -> list[str]:
    """Return the names of all profiles, sorted."""
    return sorted({*_BUILT_IN, *(found.stem for found in folder.glob("*.json"))})


def _read(path: Path) -> Mapping[str, Any]:
    try:
        said = json.loads(path.read_text("utf-8"))
        limits = {str(key): str(value) for key, value in said["resource_limits"].items()}
        unknown = {*(set(limits) - set(_LIMITS)), *(set(said) - {"name", "description", "resource_limits", *_MORE})}
        if unknown:
            raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")  # noqa: TRY301 - told below with the file
        for key, text in limits.items():
            _require_some(key, float(text) if key == "cpu" else size_in_bytes(text))
        more = {key: _require_some(key, float(said[key])) for key in _MORE if key in said}
        return {"resource_limits": limits, **more}  # noqa: TRY300 - what is read is returned
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DevEnvError(
            f"{path} is no profile: it needs an object 'resource_limits' of cpu, memory and disk ({error})"
        ) from error


def _require_some(key: str, number: float) -> float:
    if not number > 0:
        raise ValueError(f"{key} must be above 0, not {number:g}")
    return number


def limited(configuration: Configuration, profile: Mapping[str, Any], *, is_named: bool) -> Configuration:
    """Return a configuration with a profile's limits: a named one wins over the template's, others fill gaps."""
    own, limits = configuration.get("resource_limits", {}), profile["resource_limits"]
    gaps = _BUILT_IN[DEFAULT]["resource_limits"]
    return {**configuration, "resource_limits": {**gaps, **own, **limits} if is_named else {**gaps, **limits, **own}}


def more_limits(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of a profile that no template has: ``pids`` and ``timeout``."""
    return {key: profile[key] for key in _MORE if key in profile}


def size_in_bytes(text: str) -> int:
    """Return the bytes of ``256m``: powers of 1024, and bytes where there is no letter."""
    letter = text[-1].lower()
    number, power = (text[:-1], _POWERS[letter]) if letter in _POWERS else (text, 0)
    return int(float(number) * 1024**power)
