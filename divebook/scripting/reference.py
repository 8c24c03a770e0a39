"""Expressions that only refer to a value, as ``state.rows`` does: which they are is decided here, and nowhere else.

Such a value is looked up. It never enters the sandbox, however large it is; a crossing takes as long as a trivial step,
and copies all of it (test_a_reference_means_the_same_with_and_without_the_sandbox).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from divebook.events.classes import Instance
from divebook.events.recorded import BigInt, NonFinite, Recorded, TaggedDict
from divebook.scripting.contexts import Context
from divebook.text.names import same_name

NOTHING = object()
"""What an expression refers to where only the sandbox can tell."""

_ATOMS = frozenset({type(None), bool, int, float, str, bytes, BigInt, NonFinite})
_PLAIN = _ATOMS | {dict, list, TaggedDict, datetime, date, time, timedelta, Decimal}
"""Types of values that come out of the sandbox as they went in."""


class Attribute(NamedTuple):
    """``.name``, which on data is a key."""

    name: str

    def named_in(self, names: Any) -> Attribute:
        """Return the part with the spelling that its name has among variables or inputs."""
        return self if self.name.isascii() else Attribute(_spelt(self.name, names))

    def of(self, value: Any) -> Any:
        """Return what it gives of a value."""
        return _entry(value, self.name, NOTHING)


class Item(NamedTuple):
    """``[key]``: a text of a mapping, a whole number of a list."""

    key: str | int

    def named_in(self, names: Any) -> Item:
        """Return the part with the spelling that its key has among variables or inputs."""
        return self if type(self.key) is int or str(self.key).isascii() else Item(_spelt(self.key, names))

    def of(self, value: Any) -> Any:
        """Return what it gives of a value."""
        if type(self.key) is str:
            return _entry(value, self.key, NOTHING)
        is_there = type(value) is list and -len(value) <= self.key < len(value)  # type: ignore[operator]
        return value[self.key] if is_there else NOTHING


class Get(NamedTuple):
    """``.get(key, default)``."""

    key: str
    default: Any

    def named_in(self, names: Any) -> Get:
        """Return the part with the spelling that its key has among variables or inputs."""
        return self if self.key.isascii() else Get(_spelt(self.key, names), self.default)

    def of(self, value: Any) -> Any:
        """Return what it gives of a value."""
        return _entry(value, self.key, self.default)


Part: TypeAlias = Attribute | Item | Get


def _spelt(name: Any, names: Any) -> Any:
    known = same_name(name, names) if isinstance(names, Mapping) else None
    return name if known is None else known


def _entry(value: Any, key: str, default: Any) -> Any:
    if isinstance(value, Instance):
        value = value.plain()
    return value.get(key, default) if isinstance(value, Mapping) else NOTHING


class Reference(NamedTuple):
    """What an expression refers to: a name, and the way from its value."""

    name: str
    parts: tuple[Part, ...]

    def found(self, names: Mapping[str, Any], context: Context) -> Any:
        """Return the value that it refers to, or `NOTHING`."""
        value = names.get(self.name, NOTHING)
        for number, part in enumerate(self.parts):
            if value is NOTHING:
                return NOTHING
            value = (part.named_in(value) if number == 0 else part).of(value)
        if context is Context.VALUE and isinstance(value, Mapping) and type(value) not in _PLAIN:
            value = dict(value)  # all variables: the state is no dict
        return value if value is NOTHING or _STAYS[context](value) else NOTHING


def reference_of(tree: ast.Expression | ast.Module) -> Reference | None:
    """Return what an expression refers to; None if it is anything else than a reference."""
    parts: list[Part] = []
    node: Any = tree.body
    while not isinstance(node, ast.Name):
        found = last_part(node)
        if found is None:
            return None
        part, node = found
        parts.append(part)
    return Reference(node.id, tuple(reversed(parts)))


def last_part(node: Any) -> tuple[Part, ast.expr] | None:
    """Return the last part of a reference, and the expression that it is a part of; None without one."""
    if isinstance(node, ast.Attribute):
        return Attribute(node.attr), node.value
    if isinstance(node, ast.Subscript):
        key = _constant(node.slice)
        return (Item(key), node.value) if type(key) in (str, int) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        given = None if node.keywords else tuple(map(_constant, node.args))
        if given and len(given) in (1, 2) and type(given[0]) is str and NOTHING not in given:
            return Get(given[0], given[1] if len(given) > 1 else None), node.func.value
    return None


def _constant(node: ast.expr) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        below = _constant(node.operand)
        return -below if type(below) is int else NOTHING
    return node.value if isinstance(node, ast.Constant) and type(node.value) in _ATOMS else NOTHING


def _is_data(value: Any) -> bool:
    """Whether a value is of a plain type; what it holds does not matter to who asks."""
    return type(value) in _PLAIN


def _is_recordable(value: Any) -> bool:
    return type(value) in _PLAIN or isinstance(value, Recorded)


def is_plain(value: Any) -> bool:
    """Whether nothing in a value is more than plain data: the sandbox is given the rows of a frame, say."""
    kind = type(value)
    if kind is list:
        return _ATOMS.issuperset(map(type, value)) or all(map(is_plain, value))
    if kind is dict or kind is TaggedDict:
        return _ATOMS.issuperset(map(type, value.values())) or all(map(is_plain, value.values()))
    return kind in _PLAIN


_STAYS: Mapping[Context, Callable[[Any], bool]] = {
    Context.CONDITION: _is_data,
    Context.EACH: _is_data,
    Context.TEMPLATE: is_plain,
    Context.VALUE: _is_recordable,
}
"""By context, whether a value found there is what the sandbox would give, or better than that: frames and instances
stay what they are where a value is handed on."""
