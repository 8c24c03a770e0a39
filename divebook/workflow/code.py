"""What a person's functions do, as digests: of their source, and of what they use of their own module or notebook.

A function is followed into the functions and classes that its code names, as long as they belong to the same module; a
notebook is one module. The values of plain constants count as part of the functions that read them. Comments and layout
do not count. What cannot be read (C code, methods found through instances, other modules) is left out.
(`tests/workflow/test_code.py`)
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from divebook.text.python import parse_python

CONSTANTS = (int, float, complex, str, bytes, bool, type(None))
_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"})
LABEL = "__divebook_label__"
"""Attribute of what ``@step`` makes of a function: its kind and name."""


class Part(NamedTuple):
    """One function or class."""

    digest: str
    uses: tuple[str, ...]
    """The labels of the parts that its code names."""


def parts_of(roots: Mapping[str, Callable[..., Any]]) -> dict[str, Part]:
    """Return every function and class that the roots reach, by label: ``step parse``, ``function clean``."""
    found: dict[str, Part] = {}
    left: list[tuple[str, Any]] = list(roots.items())
    while left:
        label, thing = left.pop()
        if label not in found:
            used = _used(thing)
            found[label] = Part(_digest(thing), tuple(sorted(used)))
            left += used.items()
    return found


def code_of(roots: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    """Return the digest of every function and class that the roots reach, by label."""
    return {label: part.digest for label, part in sorted(parts_of(roots).items())}


def reaching(parts: Mapping[str, Part], label: str) -> set[str]:
    """Return the labels of the parts that reach one, itself included."""
    found = {label}
    while more := {name for name, part in parts.items() if name not in found and found.intersection(part.uses)}:
        found |= more
    return found


def source_of(function: Any) -> str:
    """Return the source of a function, read once: a file may change after its import."""
    bare = inspect.unwrap(function)
    return _source(getattr(bare, "__code__", bare), bare)


_SOURCES: dict[Any, str] = {}


def _source(key: Any, bare: Any) -> str:
    if key not in _SOURCES:
        try:
            _SOURCES[key] = textwrap.dedent(inspect.getsource(bare))
        except (OSError, TypeError):
            _SOURCES[key] = key.co_code.hex() if isinstance(key, CodeType) else repr(bare)
    return _SOURCES[key]


def _used(thing: Any) -> dict[str, Any]:
    """Return the functions and classes of its own module that a function or class names, by label."""
    own = inspect.unwrap(thing)
    named = {_label(value): value for function in _functions(own) for _, value in _read(function)}
    return {label: value for label, value in named.items() if label and _is_of(inspect.unwrap(value), own.__module__)}


def _label(value: Any) -> str:
    label: str | None = getattr(value, LABEL, None) if callable(value) else None
    if label is not None:
        return label
    if isinstance(value, FunctionType):
        return f"function {value.__qualname__}"
    return f"class {value.__qualname__}" if isinstance(value, type) else ""


def _is_of(value: Any, module: str) -> bool:
    return getattr(value, "__module__", None) == module


def _functions(own: Any) -> list[FunctionType]:
    if isinstance(own, type):
        members = (inspect.unwrap(member) for member in vars(own).values() if callable(member))
        return [member for member in members if isinstance(member, FunctionType)]
    return [own] if isinstance(own, FunctionType) else []


def _read(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the values of the names that a function reads from its module and from the functions around it."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    for name in _names(function.__code__):
        if name in cells:
            try:
                yield name, cells[name].cell_contents
            except ValueError:  # not bound yet
                continue
        elif name in function.__globals__:
            yield name, function.__globals__[name]


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[str, ...]:
    """Return the names that a function, and those inside it, reads from outside."""
    own = {step.argval for step in dis.get_instructions(code) if step.opname in _READS}
    inner = {name for part in code.co_consts if isinstance(part, CodeType) for name in _names(part)}
    return tuple(sorted(own | inner))


def _digest(thing: Any) -> str:
    own = inspect.unwrap(thing)
    constants = {
        name: _constant_text(value)
        for function in _functions(own)
        for name, value in _read(function)
        if isinstance(value, CONSTANTS) or (isinstance(value, tuple | frozenset) and _is_plain(value))
    }
    source = _class_text(own) if isinstance(own, type) else _normal(source_of(thing))
    return _hashed(source, str(sorted(constants.items())))


@functools.lru_cache(maxsize=4096)
def _hashed(source: str, constants: str) -> str:
    return hashlib.sha256(f"{source}\x1f{constants}".encode()).hexdigest()[:16]


def _class_text(cls: type) -> str:
    """Return what a class consists of; Python does not find the source of one that a notebook defines."""
    own = {name: value for name, value in vars(cls).items() if not name.startswith("__")}
    members = {name: value for name, value in own.items() if isinstance(value, CONSTANTS)}
    methods = {function.__qualname__: _normal(source_of(function)) for function in _functions(cls)}
    bases = [base.__qualname__ for base in cls.__mro__[1:]]
    annotations = {name: str(kind) for name, kind in vars(cls).get("__annotations__", {}).items()}
    return f"{bases}{sorted(methods.items())}{sorted(annotations.items())}{_members_text(members)}"


def _members_text(members: dict[str, Any]) -> str:
    """Return what ``repr`` of the sorted items would be."""
    return f"[{', '.join(f'({name!r}, {_constant_text(members[name])})' for name in sorted(members))}]"


def _constant_text(value: Any) -> str:
    """Return the ``repr`` of a constant.

    Python refuses to write an integer of more than 4,300 digits in decimal, because that takes quadratic time. Such
    integers are written in hexadecimal.
    """
    try:
        return repr(value)
    except ValueError:
        if isinstance(value, tuple):
            return f"({', '.join(map(_constant_text, value))})"
        if isinstance(value, int):
            return hex(value)
        raise


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, CONSTANTS)


@functools.lru_cache(maxsize=4096)
def _normal(source: str) -> str:
    """Return source without comments and layout."""
    try:
        return ast.dump(parse_python(source))
    except SyntaxError:  # a lambda in the middle of a line
        return source
