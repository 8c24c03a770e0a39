"""References: expressions that only refer to a value, such as ``state.rows`` or ``inputs.user["name"]``.

The value of a reference is looked up, without the sandbox, however large it is. A crossing to the sandbox takes as long
as a trivial step and copies the whole value. Both ways must give the same
(test_a_reference_means_the_same_with_and_without_the_sandbox). This module alone decides which expressions are
references.

An example: `reference_of` returns ``Reference("state", (Attribute("order"), Item("id")))`` for ``state.order["id"]``.
`Reference.found` then follows the parts, beginning with the value of ``state``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from divebook.events.classes import Instance
from divebook.events.recorded import BigInt, NonFinite, Recorded, TaggedDict
from divebook.scripting.prelude import Context
from divebook.text.names import same_name

NOTHING = object()
"""Result of a lookup that only the sandbox can decide: a missing key, or a value that cannot be passed on as it is."""

_ATOMS = frozenset({type(None), bool, int, float, str, bytes, BigInt, NonFinite})
_PLAIN = _ATOMS | {dict, list, TaggedDict, datetime, date, time, timedelta, Decimal}
"""Types of values that the sandbox returns unchanged."""


class Attribute(NamedTuple):
    """The part ``.name`` of a reference, which reads a key of a mapping."""

    name: str

    def named_in(self, names: Any) -> Attribute:
        """Return the part with the spelling that its name has among variables or inputs."""
        return self if self.name.isascii() else Attribute(_spelt(self.name, names))

    def of(self, value: Any) -> Any:
        """Return what it gives of a value."""
        return _entry(value, self.name, NOTHING)


class Item(NamedTuple):
    """The part ``[key]`` of a reference: a string for a mapping, an integer for a list."""

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
    """The part ``.get(key, default)`` of a reference."""

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
    """Return the key of a mapping that is equal to a name in its normal form, or else the name itself."""
    key = same_name(name, names) if isinstance(names, Mapping) else None
    return name if key is None else key


def _entry(value: Any, key: str, default: Any) -> Any:
    if isinstance(value, Instance):
        value = value.plain()
    return value.get(key, default) if isinstance(value, Mapping) else NOTHING


class Reference(NamedTuple):
    """A reference: a name, and the parts that lead from its value to another one."""

    name: str
    parts: tuple[Part, ...]

    def found(self, names: Mapping[str, Any], context: Context) -> Any:
        """Return the value of the reference, or `NOTHING` if only the sandbox can decide."""
        value = names.get(self.name, NOTHING)
        for number, part in enumerate(self.parts):
            if value is NOTHING:
                return NOTHING
            value = (part.named_in(value) if number == 0 else part).of(value)
        if context is Context.VALUE and isinstance(value, Mapping) and type(value) not in _PLAIN:
            value = dict(value)  # ``$(state)`` as a whole: the state is a mapping of another type
        return value if value is NOTHING or _STAYS[context](value) else NOTHING


def reference_of(tree: ast.Expression | ast.Module) -> Reference | None:
    """Return the reference that an expression consists of; None for any other expression."""
    parts: list[Part] = []
    node: Any = tree.body
    while not isinstance(node, ast.Name):
        part_and_rest = last_part(node)
        if part_and_rest is None:
            return None
        part, node = part_and_rest
        parts.append(part)
    return Reference(node.id, tuple(reversed(parts)))


def last_part(node: Any) -> tuple[Part, ast.expr] | None:
    """Split the last part off an expression: ``a.b["c"]`` is ``Item("c")`` of ``a.b``. Return None without such a part.

    Keys of items and arguments of ``get`` must be constants.
    """
    if isinstance(node, ast.Attribute):
        return Attribute(node.attr), node.value
    if isinstance(node, ast.Subscript):
        key = _constant(node.slice)
        return (Item(key), node.value) if type(key) in (str, int) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        arguments = None if node.keywords else tuple(map(_constant, node.args))
        if arguments and len(arguments) in (1, 2) and type(arguments[0]) is str and NOTHING not in arguments:
            return Get(arguments[0], arguments[1] if len(arguments) > 1 else None), node.func.value
    return None


def _constant(node: ast.expr) -> Any:
    """Return the value of a constant, also of a negative integer; `NOTHING` for other nodes."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        below = _constant(node.operand)
        return -below if type(below) is int else NOTHING
    return node.value if isinstance(node, ast.Constant) and type(node.value) in _ATOMS else NOTHING


def _is_data(value: Any) -> bool:
    """Return True if a value has a plain type. Its parts do not matter for conditions and items."""
    return type(value) in _PLAIN


def _is_recordable(value: Any) -> bool:
    """Return True if a log can hold a value: plain data, or a recorded frame, instance and the like."""
    return type(value) in _PLAIN or isinstance(value, Recorded)


def is_plain(value: Any) -> bool:
    """Return True if a value consists of plain data at all depths. Frames, for example, enter the sandbox as rows."""
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
"""Test for each context: True if the value that was looked up can be used instead of the sandbox's. In the context
`VALUE` it is even better: frames and instances keep their type."""
