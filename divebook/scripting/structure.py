"""Composed expressions, such as ``[state.a, state.b]``, ``{"rows": state.frame}`` and ``a if test else b``: values that
are assembled outside the sandbox from parts.

The parts of a composed expression are evaluated one by one and assembled outside the sandbox. A frame, an instance or
an enum member that a part refers to keeps its type. Inside the sandbox it would become rows, a mapping or a plain
value. Parts that compute something, and the tests of conditional expressions, run in the sandbox.

An example: ``{"rows": state.frame, "n": len(state.names)}`` becomes a `_Dict` of two `_Leaf` nodes. ``state.frame`` is
a reference and is looked up. ``len(state.names)`` is evaluated in the sandbox. The mapping is built here.

If a node cannot be assembled here, because a value has another type than expected, it is evaluated as a whole in the
sandbox, which raises the errors of Python. A comprehension is assembled here only if it reads more than plain data;
otherwise one crossing to the sandbox gives the same result. Work outside the sandbox has the limits of the sandbox
(`WorkBudget`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast

from divebook.errors import ScriptLimitError
from divebook.scripting.prelude import NOTHING, Attribute, Get, Item, Purpose, last_part, ran_too_long, reference_of

MAX_TURNS = 1_000_000
"""Largest number of loop turns and evaluated parts in one expression. So many need about as much memory as the sandbox
may use.
"""

MAX_COPIES = 10_000_000
"""Largest number of items that one expression may copy from lists and mappings into others. An item takes 8 bytes."""


class Evaluate(Protocol):
    """Signature of the interpreter's function that evaluates one part of a composed expression."""

    def __call__(self, purpose: Purpose, text: str, names: Mapping[str, Any]) -> Any:
        """Evaluate one part of an expression, such as ``state.n`` in ``state.n > 2 and ready``, with the given names.
        Return its value. A plain reference such as ``state.n`` is looked up; any other code runs in the sandbox.
        """


class PartFunctions(NamedTuple):
    """Two functions for parts of a composed expression, which the interpreter provides: one evaluates a part, the other
    tests if a part reads plain data only.
    """

    evaluate: Evaluate
    is_plain: Callable[[str, Mapping[str, Any]], bool]
    """Function that returns True if all data that a part reads is plain."""


class WorkBudget:
    """Limits for evaluating composed expressions outside the sandbox: time, loop turns and copied items. Expressions
    that are evaluated together share one budget.

    Parameters
    ----------
    seconds
        Limit of time.
    clock
        Function that returns the time in seconds.
    """

    __slots__ = ("_clock", "_copies", "_ends", "_seconds", "_turns")

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        # The clock of the interpreter stands still while the thread waits for a sandbox session (`_Processes.clock`),
        # so that a busy machine does not use up the limit.
        self._ends = clock() + seconds
        self._turns = 0
        self._copies = 0

    def count_turn(self) -> None:
        """Count one turn of a loop, or one evaluation in the sandbox. Raise `ScriptLimitError` if a limit is
        exceeded.
        """
        self._turns += 1
        if self._clock() > self._ends:
            raise ScriptLimitError(ran_too_long(self._seconds))
        if self._turns > MAX_TURNS:
            raise ScriptLimitError(f"an expression went through more than {MAX_TURNS:,} items; do less in one script")

    def count_copies(self, items: int) -> None:
        """Add `items`, a number of list items that are about to be copied, to the count of all copied items. Raise
        `ScriptLimitError` if the count exceeds `MAX_COPIES`.
        """
        # The items are counted before they are copied. A check afterwards would come too late for memory.
        self._copies += items
        if self._copies > MAX_COPIES:
            raise ScriptLimitError(f"an expression copied more than {MAX_COPIES:,} items; do less in one script")


@dataclass(frozen=True, slots=True)
class Scope:
    """Evaluation scope of a composed expression: the variables that it may use, the functions that evaluate its parts,
    and its work budget.
    """

    purpose: Purpose
    names: Mapping[str, Any]
    parts: PartFunctions
    work: WorkBudget

    @property
    def of_parts(self) -> Scope:
        """Scope like this one, for evaluating the entries of a list or mapping. In it, recorded values such as frames
        keep their type.
        """
        # The purpose of the whole decides which values it may be, such as items of a loop. Its entries may be any
        # recordable value.
        return self if self.purpose is Purpose.VALUE else replace(self, purpose=Purpose.VALUE)

    def with_name(self, name: str, value: Any) -> Scope:
        """Return the scope for one turn of a loop: this scope, with a value for the loop variable."""
        return replace(self, names={**self.names, name: value})

    def is_plain(self, text: str) -> bool:
        """Return True if an expression reads plain data only, and no recorded values such as frames or instances of
        classes.
        """
        return self.parts.is_plain(text, self.names)

    def value_of(self, text: str) -> Any:
        """Evaluate the source text of one part of a composed expression in this scope, and return its value. A
        reference is looked up; any other code runs in the sandbox.
        """
        self.work.count_turn()
        return self.parts.evaluate(self.purpose, text, self.names)

    def holds(self, test: str) -> bool:
        """Evaluate the test of a conditional expression in the sandbox. Return True if its value is true."""
        self.work.count_turn()
        # Only the boolean crosses back from the sandbox, not the value of the test.
        return bool(self.parts.evaluate(Purpose.CONDITION, f"bool({test})", self.names))


class ExpressionNode(Protocol):
    """Interface of the nodes of a composed expression."""

    def value(self, scope: Scope) -> Any:
        """Return the value of the node; `NOTHING` if only the sandbox can evaluate the node."""


@dataclass(frozen=True, slots=True)
class ComposedNode:
    """A composed expression: its tree of nodes (`structure`), and its source, which the sandbox evaluates if the tree
    cannot be evaluated outside.
    """

    structure: ExpressionNode
    text: str

    def value(self, scope: Scope) -> Any:
        """Return the value of the expression, assembled outside the sandbox or evaluated in it."""
        value = self.structure.value(scope)
        # Values that were looked up before the tree failed are looked up again. Expressions have no side effects.
        return scope.value_of(self.text) if value is NOTHING else value


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Expression node that is evaluated as a whole: a constant, a reference to look up, or code for the sandbox."""

    text: str
    constant: Any = NOTHING
    """Value of the node if it is a constant; otherwise `NOTHING`."""

    def value(self, scope: Scope) -> Any:
        return scope.value_of(self.text) if self.constant is NOTHING else self.constant


@dataclass(frozen=True, slots=True)
class _List:
    """Expression node of a list or tuple. A starred entry (``*value``) adds all items of its value."""

    # (True for a starred entry, its node). ``[state.a, *state.b]`` -> ((False, a), (True, b))
    items: tuple[tuple[bool, ExpressionNode], ...]

    def value(self, scope: Scope) -> Any:
        result: list[Any] = []
        for is_starred, item in self.items:
            value = item.value(scope.of_parts)
            if not is_starred:
                result.append(value)
                continue
            # Other types are iterable in Python as well, such as strings and mappings. The sandbox unpacks or refuses
            # them.
            if type(value) is not list:
                return NOTHING
            scope.work.count_copies(len(value))
            result += value
        return result


@dataclass(frozen=True, slots=True)
class _Dict:
    """Expression node of a mapping. An entry without a key (``**value``) adds all entries of its value."""

    entries: tuple[tuple[ExpressionNode | None, ExpressionNode], ...]

    def value(self, scope: Scope) -> Any:
        result: dict[Any, Any] = {}
        for key, item in self.entries:
            # An entry ``**value`` has no key. The empty string stands for it, and passes the check of keys.
            name = "" if key is None else key.value(scope.of_parts)
            value = item.value(scope.of_parts)
            # The sandbox raises Python's error for a key that cannot be hashed, and for ``**`` of a value that is not a
            # mapping.
            if not _is_key(name) or (key is None and type(value) is not dict):
                return NOTHING
            if key is None:
                scope.work.count_copies(len(value))
                result.update(value)
            else:
                result[name] = value
        return result


def _is_key(value: Any) -> bool:
    return isinstance(value, str | int | float)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Expression node of ``then if test else other``. Only the branch that the test selects is evaluated."""

    test: str
    then: ExpressionNode
    other: ExpressionNode

    def value(self, scope: Scope) -> Any:
        # The other branch may fail, as in ``state.a / state.n if state.n else 0``.
        return (self.then if scope.holds(self.test) else self.other).value(scope)


@dataclass(frozen=True, slots=True)
class _Part:
    """Expression node that reads ``.name``, ``[key]`` or ``.get(key)`` of a composed value."""

    whole: ExpressionNode
    part: Attribute | Item | Get

    def value(self, scope: Scope) -> Any:
        return self.part.of(self.whole.value(scope.of_parts))


@dataclass(frozen=True, slots=True)
class _ComputedItem:
    """Expression node that reads ``[key]`` of a value, where the key is itself an expression."""

    whole: ExpressionNode
    key: ExpressionNode

    def value(self, scope: Scope) -> Any:
        whole = self.whole.value(scope.of_parts)
        key = self.key.value(scope.of_parts)
        # A boolean is an integer for ``isinstance``, but not for `type`. The sandbox decides what ``[True]`` means.
        return Item(key).of(whole) if type(key) in (str, int) else NOTHING


@dataclass(frozen=True, slots=True)
class _Slice:
    """Expression node that reads a part of a list, ``[first:last:step]``."""

    whole: ExpressionNode
    bounds: tuple[ExpressionNode | None, ...]

    def value(self, scope: Scope) -> Any:
        whole = self.whole.value(scope.of_parts)
        bounds = [None if bound is None else bound.value(scope.of_parts) for bound in self.bounds]
        # Python refuses a step of zero. The sandbox raises that error.
        is_sound = type(whole) is list and all(bound is None or type(bound) is int for bound in bounds)
        if not is_sound or bounds[2] == 0:
            return NOTHING
        part = slice(*bounds)
        # The length of the sliced range is the number of items in the part.
        scope.work.count_copies(len(range(len(whole))[part]))
        return whole[part]


@dataclass(frozen=True, slots=True)
class _ListSum:
    """Expression node that concatenates lists, ``a + b``."""

    parts: tuple[ExpressionNode, ...]

    def value(self, scope: Scope) -> Any:
        result: list[Any] = []
        for part in self.parts:
            value = part.value(scope.of_parts)
            if type(value) is not list:
                return NOTHING
            scope.work.count_copies(len(value))
            result += value
        return result


@dataclass(frozen=True, slots=True)
class _Loop:
    """One loop of a comprehension: its part ``for name in items if test``."""

    name: str
    items: ExpressionNode
    tests: str
    """Expression for a list of booleans: for each item, True if the item passes all tests. Empty if there are no
    tests.
    """

    def turns(self, scope: Scope) -> Iterator[Scope]:
        """Yield a scope for each turn of this loop: for each item of the list that passes the ``if`` tests. The scope
        contains the item as the loop variable. Raise `_NoListError` if the value is not a list.
        """
        items = self.items.value(scope)
        if type(items) is not list:
            raise _NoListError
        # The tests of all items are one list expression: one crossing to the sandbox in place of one for each item.
        passed = scope.value_of(self.tests) if self.tests else [True] * len(items)
        for item, is_included in zip(items, passed, strict=True):
            scope.work.count_turn()
            if is_included:
                yield scope.with_name(self.name, item)


class _NoListError(Exception):
    """Internal error: the value over which a comprehension loops is not a list, so that only the sandbox can evaluate
    the comprehension.
    """


@dataclass(frozen=True, slots=True)
class _Comprehension:
    """Expression node of a list comprehension ``[item for ...]``; if the node has a key, of a dict comprehension
    ``{key: item for ...}``.
    """

    text: str
    key: ExpressionNode | None
    item: ExpressionNode
    loops: tuple[_Loop, ...]

    def value(self, scope: Scope) -> Any:
        # For plain data one evaluation in the sandbox gives the same result as one for each item.
        if scope.is_plain(self.text):
            return NOTHING
        turns = _nested(self.loops, scope.of_parts)
        try:
            if self.key is None:
                # ``NOTHING`` of an item cannot occur here: each item is a leaf or a composed node, which evaluates
                # itself.
                return [self.item.value(turn) for turn in turns]
            pairs = [(self.key.value(turn), self.item.value(turn)) for turn in turns]
        except _NoListError:
            return NOTHING
        # As in Python, the last of equal keys provides the value.
        return dict(pairs) if all(_is_key(key) for key, _ in pairs) else NOTHING


def _nested(loops: Sequence[_Loop], scope: Scope) -> Iterator[Scope]:
    """Run several nested loops of a comprehension: yield a scope for each turn of the innermost loop. The scope
    contains the loop variables of all loops.
    """
    if not loops:
        yield scope
        return
    # The items of an inner loop may depend on the variable of the outer one, so that they are evaluated for each turn.
    loop, *inner = loops
    for turn in loop.turns(scope):
        yield from _nested(inner, turn)


def structure_of(source: str, tree: ast.Expression) -> ExpressionNode | None:
    """Convert the syntax tree of a composed expression to a tree of expression nodes. Return None for any other
    expression, which is evaluated as a whole.
    """
    node = _Builder(source).of(tree.body)
    return node.structure if isinstance(node, ComposedNode) else None


class _Builder:
    """Converter from the syntax tree of one expression to a tree of expression nodes.

    A part that contains no variable, such as ``[1, 2 + 3]``, becomes one leaf, which is evaluated in the sandbox once.
    """

    def __init__(self, source: str) -> None:
        # Positions in a syntax tree count bytes. `ast.get_source_segment` would split the whole source for each node.
        self._lines = [line.encode() for line in source.split("\n")]

    def of(self, node: ast.expr) -> ExpressionNode:
        # Other constants, such as bytes and ``...``, are left to the sandbox.
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, type(None))):
            return _Leaf("", node.value)
        # Without a name the value is the same in the sandbox, and nothing can lose its type.
        has_name = any(isinstance(part, ast.Name) for part in ast.walk(node))
        # A reference is one leaf, which is looked up as a whole: ``state.rows[0].name``.
        is_reference = reference_of(ast.Expression(node)) is not None
        text = self._text(node)
        structure = self._composed(node) if has_name and not is_reference else None
        return _Leaf(text) if structure is None else ComposedNode(structure, text)

    def _text(self, node: ast.expr) -> str:
        first = node.lineno - 1
        last = cast(int, node.end_lineno) - 1
        if first == last:
            return self._lines[first][node.col_offset : node.end_col_offset].decode()
        # The text spans several lines: the rest of the first line, the lines between, the beginning of the last line.
        inner = self._lines[first + 1 : last]
        edges = self._lines[first][node.col_offset :], self._lines[last][: node.end_col_offset]
        return b"\n".join((edges[0], *inner, edges[1])).decode()

    def _composed(self, node: ast.expr) -> ExpressionNode | None:
        # ``[state.a, state.b][0]`` reads a part of a composed value.
        part_and_whole = last_part(node)
        if part_and_whole is not None:
            part, whole = part_and_whole
            inner = self.of(whole)
            # A leaf as the whole means that the sandbox evaluates it anyway, together with the part.
            return None if isinstance(inner, _Leaf) else _Part(inner, part)
        compose = _COMPOSED.get(type(node))
        return None if compose is None else compose(self, node)

    def listed(self, node: ast.List | ast.Tuple) -> ExpressionNode:
        is_starred = [isinstance(item, ast.Starred) for item in node.elts]
        items = [item.value if isinstance(item, ast.Starred) else item for item in node.elts]
        return _List(tuple(zip(is_starred, map(self.of, items), strict=True)))

    def mapping(self, node: ast.Dict) -> ExpressionNode:
        pairs = zip(node.keys, node.values, strict=True)
        return _Dict(tuple((None if key is None else self.of(key), self.of(value)) for key, value in pairs))

    def call(self, node: ast.Call) -> ExpressionNode | None:
        """Convert a call ``dict(a=state.a)`` to an expression node of a mapping. Return None for calls of other
        functions, which the sandbox evaluates.
        """
        # ``dict(**more)`` has a keyword without a name.
        names = [word.arg for word in node.keywords]
        if not (isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args and all(names)):
            return None
        return _Dict(tuple((_Leaf("", word.arg), self.of(word.value)) for word in node.keywords))

    def choice(self, node: ast.IfExp) -> ExpressionNode:
        return _Choice(self._text(node.test), self.of(node.body), self.of(node.orelse))

    def first_of(self, node: ast.BoolOp) -> ExpressionNode:
        """Convert ``a and b`` or ``a or b`` to nested conditional expression nodes, from the last operand to the first.

        ``a or b`` becomes ``a if a else b``. Each value except the last is evaluated twice, which has no effect because
        expressions have no side effects.
        """
        # From the last operand to the first, since the result of each test contains the rest:
        # ``a or b or c`` is ``a if a else (b if b else c)``.
        structure = self.of(node.values[-1])
        for value in reversed(node.values[:-1]):
            operand = self.of(value)
            if isinstance(node.op, ast.Or):
                structure = _Choice(self._text(value), operand, structure)
            else:
                structure = _Choice(self._text(value), structure, operand)
        return structure

    def sum(self, node: ast.BinOp) -> ExpressionNode | None:
        """Convert ``a + b + c`` to an expression node that concatenates lists. Return None if the expression mixes
        tuples with other operands.

        The node of a tuple is a list node, but Python cannot add a list and a tuple. The sandbox raises that error.
        """
        operands: list[ast.expr] = []
        first: ast.expr = node
        # ``a + b + c`` is nested to the left: ``(a + b) + c``. A loop collects the operands of a long sum without
        # recursion.
        while isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add):
            operands.append(first.right)
            first = first.left
        operands.append(first)
        are_tuples = {isinstance(operand, ast.Tuple) for operand in operands}
        # One operand: the operator is not an addition.
        if len(operands) == 1 or len(are_tuples) > 1:
            return None
        return _ListSum(tuple(map(self.of, reversed(operands))))

    def item(self, node: ast.Subscript) -> ExpressionNode:
        whole = self.of(node.value)
        if not isinstance(node.slice, ast.Slice):
            return _ComputedItem(whole, self.of(node.slice))
        bounds = (node.slice.lower, node.slice.upper, node.slice.step)
        return _Slice(whole, tuple(None if bound is None else self.of(bound) for bound in bounds))

    def comprehension(self, node: ast.ListComp | ast.DictComp) -> ExpressionNode | None:
        """Convert a comprehension to an expression node. Return None if only the sandbox can evaluate the
        comprehension.
        """
        key, item = (None, node.elt) if isinstance(node, ast.ListComp) else (node.key, node.value)
        loops = tuple(map(self._loop, node.generators))
        structure = self.of(item)
        # A leaf that is not a reference is evaluated in the sandbox, and its value is plain data.
        is_computed = isinstance(structure, _Leaf) and reference_of(ast.Expression(item)) is None
        if None in loops or is_computed:
            return None
        key_structure = None if key is None else self.of(key)
        return _Comprehension(self._text(node), key_structure, structure, cast("tuple[_Loop, ...]", loops))

    def _loop(self, loop: ast.comprehension) -> _Loop | None:
        # ``for key, value in ...`` is left to the sandbox.
        if not isinstance(loop.target, ast.Name):
            return None
        name = loop.target.id
        items = self._text(loop.iter)
        # "for x in xs if a if b" -> "[bool((a) and (b)) for x in (xs)]"
        tests = " and ".join(f"({self._text(test)})" for test in loop.ifs)
        return _Loop(name, self.of(loop.iter), f"[bool({tests}) for {name} in ({items})]" if tests else "")


_COMPOSED: Mapping[type[ast.expr], Callable[[_Builder, Any], ExpressionNode | None]] = {
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
