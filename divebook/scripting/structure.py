"""Expressions that only put values together: ``[state.a, state.b]``, ``{"rows": state.frame}``, ``a if test else b``.

Their parts are evaluated one by one and put together outside of the sandbox. A frame, an instance or an enum member
that a part refers to stays what it is; inside the sandbox it would become rows, a mapping or a plain value. Parts that
compute something, and the tests of choices, run in the sandbox. A node that cannot be put together here, because a
value is of another type than expected, is evaluated as a whole in the sandbox, which raises the errors of Python.

A comprehension is put together here only if something that it reads is more than plain data: otherwise one crossing to
the sandbox gives the same. What is done here has the limits of the sandbox (`Work`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast

from divebook.errors import ScriptLimitError
from divebook.scripting.prelude import NOTHING, Attribute, Context, Get, Item, last_part, ran_too_long, reference_of

MAX_TURNS = 1_000_000
"""Turns of loops, and looks at parts, in one expression: it takes about as much memory as the sandbox may."""

MAX_COPIES = 10_000_000
"""Items that one expression may copy from lists and mappings into others; a copy takes 8 bytes for each."""


class Evaluate(Protocol):
    """Evaluates one expression in a context with some names."""

    def __call__(self, context: Context, text: str, names: Mapping[str, Any]) -> Any:
        """Return its value, looked up or from the sandbox; nothing is put together outside of it."""


class Parts(NamedTuple):
    """What is done with the parts of an expression."""

    evaluate: Evaluate
    is_plain: Callable[[str, Mapping[str, Any]], bool]
    """Return whether all data that a part reads is plain."""


class Work:
    """Work of expressions that are evaluated together, as far as it is done outside of the sandbox.

    Parameters
    ----------
    seconds
        Limit of time.
    clock
        Returns seconds.
    """

    __slots__ = ("_clock", "_copies", "_ends", "_seconds", "_turns")

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock, self._ends = seconds, clock, clock() + seconds
        self._turns = self._copies = 0

    def turn(self) -> None:
        """Count a turn of a loop, or a crossing to the sandbox; raises `ScriptLimitError`."""
        self._turns += 1
        if self._clock() > self._ends:
            raise ScriptLimitError(ran_too_long(self._seconds))
        if self._turns > MAX_TURNS:
            raise ScriptLimitError(f"an expression went through more than {MAX_TURNS:,} items; do less in one script")

    def copy(self, items: int) -> None:
        """Count copies of items before they are made; raises `ScriptLimitError`."""
        self._copies += items
        if self._copies > MAX_COPIES:
            raise ScriptLimitError(f"an expression copied more than {MAX_COPIES:,} items; do less in one script")


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use, and the evaluation of its parts."""

    context: Context
    names: Mapping[str, Any]
    parts: Parts
    work: Work

    @property
    def of_parts(self) -> Scope:
        """The scope of the parts of a value: they are handed on as they are."""
        return self if self.context is Context.VALUE else replace(self, context=Context.VALUE)

    def with_name(self, name: str, value: Any) -> Scope:
        """Return the scope inside a loop."""
        return replace(self, names={**self.names, name: value})

    def is_plain(self, text: str) -> bool:
        """Return whether all that an expression reads is plain data."""
        return self.parts.is_plain(text, self.names)

    def value_of(self, text: str) -> Any:
        """Return the value of an expression, looked up or evaluated in the sandbox."""
        self.work.turn()
        return self.parts.evaluate(self.context, text, self.names)

    def holds(self, test: str) -> bool:
        """Return the truth of an expression."""
        self.work.turn()
        return bool(self.parts.evaluate(Context.CONDITION, f"bool({test})", self.names))


class Structure(Protocol):
    """One node of an expression."""

    def value(self, scope: Scope) -> Any:
        """Return its value, or `NOTHING` if only the sandbox can evaluate it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its text, which is evaluated as a whole where its structure gives no value."""

    structure: Structure
    text: str

    def value(self, scope: Scope) -> Any:
        """Return its value."""
        value = self.structure.value(scope)
        return scope.value_of(self.text) if value is NOTHING else value


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A part that is evaluated as a whole: looked up if it is a reference, in the sandbox if not."""

    text: str
    constant: Any = NOTHING
    """Its value, if it is written out."""

    def value(self, scope: Scope) -> Any:
        return scope.value_of(self.text) if self.constant is NOTHING else self.constant


@dataclass(frozen=True, slots=True)
class _List:
    """Items of a list or tuple; of a starred one, the items of its value."""

    items: tuple[tuple[bool, Structure], ...]

    def value(self, scope: Scope) -> Any:
        made: list[Any] = []
        for is_starred, item in self.items:
            value = item.value(scope.of_parts)
            if not is_starred:
                made.append(value)
                continue
            if type(value) is not list:
                return NOTHING
            scope.work.copy(len(value))
            made += value
        return made


@dataclass(frozen=True, slots=True)
class _Dict:
    """Entries of a mapping; without a key, all entries of a value."""

    entries: tuple[tuple[Structure | None, Structure], ...]

    def value(self, scope: Scope) -> Any:
        made: dict[Any, Any] = {}
        for key, item in self.entries:
            name = "" if key is None else key.value(scope.of_parts)
            value = item.value(scope.of_parts)
            if not _is_key(name) or (key is None and type(value) is not dict):
                return NOTHING
            if key is None:
                scope.work.copy(len(value))
                made.update(value)
            else:
                made[name] = value
        return made


def _is_key(value: Any) -> bool:
    return isinstance(value, str | int | float)


@dataclass(frozen=True, slots=True)
class _Choice:
    """``then if test else other``; the part that is not chosen is not evaluated."""

    test: str
    then: Structure
    other: Structure

    def value(self, scope: Scope) -> Any:
        return (self.then if scope.holds(self.test) else self.other).value(scope)


@dataclass(frozen=True, slots=True)
class _Part:
    """``.name``, ``[key]`` or ``.get(key)`` of a value that is no reference."""

    whole: Structure
    part: Attribute | Item | Get

    def value(self, scope: Scope) -> Any:
        return self.part.of(self.whole.value(scope.of_parts))


@dataclass(frozen=True, slots=True)
class _ComputedItem:
    """``[key]`` of a value, where the key is computed."""

    whole: Structure
    key: Structure

    def value(self, scope: Scope) -> Any:
        whole = self.whole.value(scope.of_parts)
        key = self.key.value(scope.of_parts)
        return Item(key).of(whole) if type(key) in (str, int) else NOTHING


@dataclass(frozen=True, slots=True)
class _Slice:
    """``[first:last:step]`` of a list."""

    whole: Structure
    bounds: tuple[Structure | None, ...]

    def value(self, scope: Scope) -> Any:
        whole = self.whole.value(scope.of_parts)
        bounds = [None if bound is None else bound.value(scope.of_parts) for bound in self.bounds]
        is_sound = type(whole) is list and all(bound is None or type(bound) is int for bound in bounds)
        if not is_sound or bounds[2] == 0:
            return NOTHING
        part = slice(*bounds)
        scope.work.copy(len(range(len(whole))[part]))
        return whole[part]


@dataclass(frozen=True, slots=True)
class _Sum:
    """Lists, one after the other."""

    parts: tuple[Structure, ...]

    def value(self, scope: Scope) -> Any:
        made: list[Any] = []
        for part in self.parts:
            value = part.value(scope.of_parts)
            if type(value) is not list:
                return NOTHING
            scope.work.copy(len(value))
            made += value
        return made


@dataclass(frozen=True, slots=True)
class _Loop:
    """``for name in items if test`` of a comprehension."""

    name: str
    items: Structure
    tests: str
    """An expression that says of each item whether it passes all tests; empty without any."""

    def turns(self, scope: Scope) -> Iterator[Scope]:
        """Yield the scope of each turn."""
        items = self.items.value(scope)
        if type(items) is not list:
            raise _NoListError
        passes = scope.value_of(self.tests) if self.tests else [True] * len(items)
        for item, is_taken in zip(items, passes, strict=True):
            scope.work.turn()
            if is_taken:
                yield scope.with_name(self.name, item)


class _NoListError(Exception):
    """A loop goes over something else than a list."""


@dataclass(frozen=True, slots=True)
class _Comprehension:
    """``[item for ...]``, or with a key ``{key: item for ...}``."""

    text: str
    key: Structure | None
    item: Structure
    loops: tuple[_Loop, ...]

    def value(self, scope: Scope) -> Any:
        if scope.is_plain(self.text):
            return NOTHING
        turns = _nested(self.loops, scope.of_parts)
        try:
            if self.key is None:
                return [self.item.value(turn) for turn in turns]
            pairs = [(self.key.value(turn), self.item.value(turn)) for turn in turns]
        except _NoListError:
            return NOTHING
        return dict(pairs) if all(_is_key(key) for key, _ in pairs) else NOTHING


def _nested(loops: Sequence[_Loop], scope: Scope) -> Iterator[Scope]:
    """Yield the scope of each turn of nested loops."""
    if not loops:
        yield scope
        return
    loop, *inner = loops
    for turn in loop.turns(scope):
        yield from _nested(inner, turn)


def structure_of(source: str, tree: ast.Expression) -> Structure | None:
    """Return the structure of an expression; None for one that is evaluated as a whole."""
    node = _Builder(source).of(tree.body)
    return node.structure if isinstance(node, Node) else None


class _Builder:
    """Makes the structures of one expression's nodes.

    A node without a name in it, such as ``[1, 2 + 3]``, is one leaf, which crosses to the sandbox once.
    """

    def __init__(self, source: str) -> None:
        # The positions of a tree count bytes. `ast.get_source_segment` splits the whole source for each node.
        self._lines = [line.encode() for line in source.split("\n")]

    def of(self, node: ast.expr) -> Structure:
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, type(None))):
            return _Leaf("", node.value)
        has_name = any(isinstance(part, ast.Name) for part in ast.walk(node))
        is_reference = reference_of(ast.Expression(node)) is not None
        text = self._text(node)
        structure = self._composed(node) if has_name and not is_reference else None
        return _Leaf(text) if structure is None else Node(structure, text)

    def _text(self, node: ast.expr) -> str:
        first = node.lineno - 1
        last = cast(int, node.end_lineno) - 1
        if first == last:
            return self._lines[first][node.col_offset : node.end_col_offset].decode()
        inner = self._lines[first + 1 : last]
        edges = self._lines[first][node.col_offset :], self._lines[last][: node.end_col_offset]
        return b"\n".join((edges[0], *inner, edges[1])).decode()

    def _composed(self, node: ast.expr) -> Structure | None:
        known = last_part(node)
        if known is not None:
            part, whole = known
            inner = self.of(whole)
            return None if isinstance(inner, _Leaf) else _Part(inner, part)
        compose = _COMPOSED.get(type(node))
        return None if compose is None else compose(self, node)

    def listed(self, node: ast.List | ast.Tuple) -> Structure:
        is_starred = [isinstance(item, ast.Starred) for item in node.elts]
        items = [item.value if isinstance(item, ast.Starred) else item for item in node.elts]
        return _List(tuple(zip(is_starred, map(self.of, items), strict=True)))

    def mapping(self, node: ast.Dict) -> Structure:
        pairs = zip(node.keys, node.values, strict=True)
        return _Dict(tuple((None if key is None else self.of(key), self.of(value)) for key, value in pairs))

    def call(self, node: ast.Call) -> Structure | None:
        """Return the structure of ``dict(a=state.a)``; other calls are left to the sandbox."""
        names = [word.arg for word in node.keywords]
        if not (isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args and all(names)):
            return None
        return _Dict(tuple((_Leaf("", word.arg), self.of(word.value)) for word in node.keywords))

    def choice(self, node: ast.IfExp) -> Structure:
        return _Choice(self._text(node.test), self.of(node.body), self.of(node.orelse))

    def first_of(self, node: ast.BoolOp) -> Structure:
        *others, last = node.values
        structure = self.of(last)
        # Each value but the last is evaluated twice, which an expression allows, as it has no effects.
        for value in reversed(others):
            chosen = self.of(value)
            is_or = isinstance(node.op, ast.Or)
            structure = _Choice(self._text(value), *((chosen, structure) if is_or else (structure, chosen)))
        return structure

    def sum(self, node: ast.BinOp) -> Structure | None:
        parts: list[ast.expr] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
            parts.append(left.right)
            left = left.left
        parts.append(left)
        are_tuples = {isinstance(part, ast.Tuple) for part in parts}
        # A tuple becomes a list here, and Python adds no list to a tuple.
        return _Sum(tuple(map(self.of, reversed(parts)))) if len(parts) > 1 and len(are_tuples) == 1 else None

    def item(self, node: ast.Subscript) -> Structure:
        whole = self.of(node.value)
        if not isinstance(node.slice, ast.Slice):
            return _ComputedItem(whole, self.of(node.slice))
        bounds = (node.slice.lower, node.slice.upper, node.slice.step)
        return _Slice(whole, tuple(None if bound is None else self.of(bound) for bound in bounds))

    def comprehension(self, node: ast.ListComp | ast.DictComp) -> Structure | None:
        key, item = (None, node.elt) if isinstance(node, ast.ListComp) else (node.key, node.value)
        loops = tuple(map(self._loop, node.generators))
        structure = self.of(item)
        # Only the sandbox can evaluate a leaf that is no reference, and its value is plain data.
        is_computed = isinstance(structure, _Leaf) and reference_of(ast.Expression(item)) is None
        if None in loops or is_computed:
            return None
        key_structure = None if key is None else self.of(key)
        return _Comprehension(self._text(node), key_structure, structure, cast("tuple[_Loop, ...]", loops))

    def _loop(self, loop: ast.comprehension) -> _Loop | None:
        if not isinstance(loop.target, ast.Name):
            return None
        name = loop.target.id
        items = self._text(loop.iter)
        tests = " and ".join(f"({self._text(test)})" for test in loop.ifs)
        return _Loop(name, self.of(loop.iter), f"[bool({tests}) for {name} in {items}]" if tests else "")


_COMPOSED: Mapping[type[ast.expr], Callable[[_Builder, Any], Structure | None]] = {
    ast.List: _Builder.listed,
    ast.Tuple: _Builder.listed,
    ast.Dict: _Builder.mapping,
    ast.Call: _Builder.call,
    ast.IfExp: _Builder.choice,
    ast.BoolOp: _Builder.first_of,
    ast.BinOp: _Builder.sum,
    ast.Subscript: _Builder.item,
    ast.ListComp: _Builder.comprehension,
    ast.DictComp: _Builder.comprehension,
}
