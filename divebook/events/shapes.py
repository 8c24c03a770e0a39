"""Whether a payload's fields hold what they are declared to hold; asked of logs that come from outside."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from divebook.events.catalog import PathBranched, Payload

_HINTS: dict[Any, dict[str, Any]] = {}
"""The declared types of the fields, by class."""


def wrong_field(payload: Payload) -> str | None:
    """Return which field holds something else than it should, and what; None if all is well.

    Examples
    --------
    >>> from divebook.events.catalog import ExecutionStarted
    >>> wrong_field(ExecutionStarted("greet", inputs=["Ada"]))
    'inputs must be a mapping, got a list'
    """
    for name, hint in _hints(type(payload)).items():
        value = getattr(payload, name)
        if not _fits(value, hint):
            return f"{name} must be {_described(hint)}, got {_kind(value)}"
    if isinstance(payload, PathBranched):
        return _wrong_path(payload)
    return None


def _wrong_path(payload: PathBranched) -> str | None:
    for index, new_path in enumerate(payload.new_paths):
        for key in ("id", "current_step"):
            if not isinstance(new_path.get(key), str):
                return f"new_paths[{index}].{key} must be text, got {_kind(new_path.get(key))}"
    return None


def _hints(kind: Any) -> dict[str, Any]:
    if kind not in _HINTS:
        hints = get_type_hints(kind)
        _HINTS[kind] = {field.name: hints[field.name] for field in fields(kind)}
    return _HINTS[kind]


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin is Literal:
        return value in arguments
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, arguments[0]) and _fits(item, arguments[1]) for key, item in value.items()
        )
    if origin is Sequence:
        return isinstance(value, list | tuple) and all(_fits(item, arguments[0]) for item in value)
    if is_dataclass(hint):
        return type(value) is hint and all(_fits(getattr(value, name), kind) for name, kind in _hints(hint).items())
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return isinstance(value, hint)


def _described(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_described(choice) for choice in arguments)
    if origin is Mapping:
        return "a mapping" if arguments[1] is Any else "a mapping to whole numbers"
    if origin is Sequence:
        return f"a list, each entry {_described(arguments[0])}"
    names = {str: "text", int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null"}
    return names.get(hint, "a change of a variable")


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    names = {dict: "a mapping", list: "a list", tuple: "a list", bool: "true or false", int: "a whole number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
