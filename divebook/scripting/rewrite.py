"""Rewriting scripts so that ``inputs.name`` works on mappings, without moving a line.

``a.b`` becomes ``helper(a, 'b', 'a')``. Calls keep their function: ``state.get("n")`` is Python's own method; only
``state.set("n", 1)`` and ``state.delete("n")``, which mappings lack, become ``helper(state, 'set', "n", 1)``. The text
is edited in place, byte offsets as the parser reports them; an f-string is replaced whole, because Python 3.11 reports
wrong positions inside it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from divebook.scripting.contexts import SAFE_NAMES
from divebook.scripting.prelude import ATTRIBUTE, CHANGE, ENTRIES, FORMAT, RESULT
from divebook.text.names import normal_name

_SPACE = re.compile(rb"(?:[ \t\f\n\\]|#[^\n]*\n)*")
_BEFORE_DOT = re.compile(rb"(?:[ \t\f\n\\)]|#[^\n]*\n)*")

_DATA = (
    *(ast.Constant, ast.Compare, ast.BinOp, ast.UnaryOp, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set),
    *(ast.ListComp, ast.DictComp, ast.SetComp),
)
_TEXTS_AND_NUMBERS = (ast.Constant, ast.Compare, ast.UnaryOp, ast.JoinedStr)


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    text: str


def rewrite(source: str, tree: ast.Expression | ast.Module, modules: frozenset[str]) -> str:
    """Return `source` with attribute reads on data replaced, and its result checked.

    Parameters
    ----------
    modules
        Names that can only be modules or classes: their attributes stay as they are.
    """
    editor = _Editor(source, modules, has_own_dict=any(_names_dict(node) for node in ast.walk(tree)))
    result = _result_of(tree)
    if result is not None:
        editor.wrap(result)
    editor.visit(tree)
    return editor.applied()


def _names_dict(node: ast.AST) -> bool:
    """Return whether a node gives the name ``dict`` to something of the script."""
    if isinstance(node, ast.Name):
        return node.id == "dict" and not isinstance(node.ctx, ast.Load)
    return "dict" in (getattr(node, "name", None), getattr(node, "arg", None), getattr(node, "asname", None))


def _may_have_equal_keys(node: ast.Dict) -> bool:
    """Return whether two keys of a dict display may be equal and yet differ, as 1 and True do; strings never do."""
    constants = [key.value for key in node.keys if isinstance(key, ast.Constant)]
    others = [key for key in node.keys if key is None or not isinstance(key, ast.Constant | ast.JoinedStr)]
    numbers = [value for value in constants if not isinstance(value, str)]
    return len(others) + bool(numbers) > 1 or len(set(numbers)) < len(numbers)


def _result_of(tree: ast.Expression | ast.Module) -> ast.expr | None:
    """Return the expression whose value is the result, unless it can only be plain data."""
    if isinstance(tree, ast.Expression):
        return tree.body if _may_be_code(tree.body, SAFE_NAMES) else None
    last = tree.body[-1] if tree.body else None
    return last.value if isinstance(last, ast.Expr) and not isinstance(last.value, _TEXTS_AND_NUMBERS) else None


def _may_be_code(node: ast.expr, code_names: frozenset[str] | None) -> bool:
    """Tell whether a value may be a function, class, module or view; `code_names` are names of such, None: any is."""
    if isinstance(node, ast.BoolOp):
        return any(_may_be_code(value, code_names) for value in node.values)
    if isinstance(node, ast.IfExp):
        return _may_be_code(node.body, code_names) or _may_be_code(node.orelse, code_names)
    if isinstance(node, ast.Attribute | ast.Subscript):
        return code_names is None or _may_be_code(node.value, code_names)
    if isinstance(node, ast.Name):
        return code_names is None or node.id in code_names
    return not isinstance(node, _DATA)


def is_change(node: ast.AST, *changes: str) -> bool:
    """Whether a node is a call ``state.set(...)`` or ``state.delete(...)``."""
    function = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "state"
        and function.attr in (changes or ("set", "delete"))
    )


def _is_named(node: ast.AST) -> bool:
    """Return whether a node is the mapping of variables or inputs, whose keys are names."""
    return isinstance(node, ast.Name) and node.id in ("state", "inputs")


def _is_read(node: ast.Attribute, modules: frozenset[str]) -> bool:
    return isinstance(node.ctx, ast.Load) and not (isinstance(node.value, ast.Name) and node.value.id in modules)


def _path(node: ast.expr) -> str | None:
    """Return ``inputs.user`` for a plain chain of names, for use in messages."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _path(node.value)
        return f"{before}.{node.attr}" if before else None
    return None


class _Editor(ast.NodeVisitor):
    """Collects edits, outer ones first, so that insertions at one place nest rightly."""

    def __init__(self, source: str, modules: frozenset[str], *, has_own_dict: bool) -> None:
        self._source = source.encode()
        self._modules, self._has_own_dict = modules, has_own_dict
        self._edits: list[_Edit] = []
        self._line_starts = [0]
        for line in self._source.split(b"\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)

    def applied(self) -> str:
        pieces: list[bytes] = []
        position = 0
        for edit in sorted(self._edits, key=lambda edit: edit.start):
            pieces += [self._source[position : edit.start], edit.text.encode()]
            position = edit.end
        return b"".join([*pieces, self._source[position:]]).decode()

    def wrap(self, node: ast.expr) -> None:
        """Pass the value of `node` through the check of results."""
        start, end = self._span(node)
        self._insert_call(start, f"{RESULT}((")
        self._edits.append(_Edit(end, end, "))"))

    def visit_Call(self, node: ast.Call) -> None:
        if is_change(node) and isinstance(node.func, ast.Attribute):
            start, end = self._span(node.func)
            opening = self._after(_SPACE, end)
            self._edits.append(_Edit(start, opening + 1, f"{CHANGE}(state, {node.func.attr!r}, "))
            self._normalise(node.args[:1])
        else:
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and _is_named(node.func.value):
                self._normalise(node.args[:1])
            self.visit(node.func.value if isinstance(node.func, ast.Attribute) else node.func)
            if isinstance(node.func, ast.Name) and node.func.id == "dict" and not self._has_own_dict:
                self._keep_first_keys(node)
        for argument in [*node.args, *node.keywords]:
            self.visit(argument)

    def _keep_first_keys(self, node: ast.Call) -> None:
        """Write ``dict(pairs)`` as ``dict(helper(pairs))``."""
        if not node.args or isinstance(node.args[0], ast.Starred):
            return
        start, end = self._span(node.args[0])
        opening = self._after(_SPACE, self._span(node.func)[1])
        if start == opening:  # a generator without parentheses of its own begins and ends with those of the call
            start, end = start + 1, end - 1
        self._edits += [_Edit(start, start, f"{ENTRIES}("), _Edit(end, end, ")")]

    def visit_Dict(self, node: ast.Dict) -> None:
        """Write ``{a: b, **c}`` as ``helper([(a, b), *c.items()])`` where two keys may be equal."""
        if _may_have_equal_keys(node):
            start, end = self._span(node)
            self._edits.append(_Edit(start, start + 1, f"{ENTRIES}(["))
            begin = start + 1
            for key, value in zip(node.keys, node.values, strict=True):
                close = self._after(_BEFORE_DOT, self._span(value)[1])
                if key is None:
                    stars = self._source.index(b"**", begin)
                    self._edits += [_Edit(stars, stars + 2, "*("), _Edit(close, close, ").items()")]
                else:
                    self._edits.append(_Edit(begin, begin, "("))
                    self._separate(key)
                    self._edits.append(_Edit(close, close, ")"))
                begin = close + 1
            self._edits.append(_Edit(end - 1, end, "])"))
        self.generic_visit(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        """Write ``{a: b for ...}`` as ``helper([(a, b) for ...])``, unless its keys are strings."""
        if not isinstance(node.key, ast.JoinedStr):
            start, end = self._span(node)
            self._edits.append(_Edit(start, start + 1, f"{ENTRIES}([("))
            self._separate(node.key)
            close = self._after(_BEFORE_DOT, self._span(node.value)[1])
            self._edits += [_Edit(close, close, ") "), _Edit(end - 1, end, "])")]
        self.generic_visit(node)

    def _separate(self, key: ast.expr) -> None:
        """Write a comma in place of the colon behind a key."""
        colon = self._after(_BEFORE_DOT, self._span(key)[1])
        self._edits.append(_Edit(colon, colon + 1, ","))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _is_named(node.value):
            self._normalise([node.slice])
        self.generic_visit(node)

    def _normalise(self, names: list[ast.expr]) -> None:
        """Write the names of variables as the log has them: reads in the same script compare them as they are."""
        for name in names:
            if isinstance(name, ast.Constant) and name.lineno == name.end_lineno:
                normal = normal_name(name.value)
                if normal != name.value:
                    self._edits.append(_Edit(*self._span(name), repr(normal)))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if _is_read(node, self._modules):
            start, end = self._span(node)
            dot = self._find_dot(self._span(node.value)[1])
            name = self._find_name(dot + 1)
            path = _path(node.value)
            self._insert_call(start, f"{ATTRIBUTE}(")
            self.visit(node.value)
            self._edits.append(_Edit(dot, dot + 1, ","))
            self._edits.append(_Edit(name, end, f" {node.attr!r}, {path!r})" if path else f" {node.attr!r})"))
        else:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        lowering = _Lowering(self._modules)
        lowered = lowering.visit(node)
        if lowering.changed:
            start, end = self._span(node)
            # Parentheses and blank lines keep the lines below where they were.
            padding = "\n" * self._source.count(b"\n", start, end)
            self._edits.append(_Edit(start, end, f"({ast.unparse(lowered)}{padding})"))

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        """Leave patterns alone: ``case Colour.RED`` must stay a dotted name."""

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        """Leave patterns alone."""

    def _insert_call(self, position: int, text: str) -> None:
        before = self._source[position - 1 : position]
        touching = before.isalnum() or before == b"_"  # ``in(a).b``
        self._edits.append(_Edit(position, position, f" {text}" if touching else text))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        start = self._line_starts[node.lineno - 1] + node.col_offset
        return start, self._line_starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def _find_dot(self, position: int) -> int:
        """Return where the dot after a value is; only closing parentheses, space and comments come before it."""
        return self._after(_BEFORE_DOT, position)

    def _find_name(self, position: int) -> int:
        return self._after(_SPACE, position)

    def _after(self, pattern: re.Pattern[bytes], position: int) -> int:
        match = pattern.match(self._source, position)
        return match.end() if match else position


class _Lowering(ast.NodeTransformer):
    """Turns an f-string into a join of helper calls, and the attributes inside into helper calls."""

    def __init__(self, modules: frozenset[str]) -> None:
        self._modules = modules
        self.changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if is_change(node) and isinstance(node.func, ast.Attribute):
            self.changed = True
            given = [ast.Name("state", ast.Load()), ast.Constant(node.func.attr), *map(self.visit, node.args)]
            return ast.Call(ast.Name(CHANGE, ast.Load()), given, [self.visit(word) for word in node.keywords])
        if isinstance(node.func, ast.Attribute):
            function = ast.Attribute(self.visit(node.func.value), node.func.attr, ast.Load())
        else:
            function = self.visit(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        return ast.Call(function, arguments, [self.visit(keyword) for keyword in node.keywords])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not _is_read(node, self._modules):
            return ast.Attribute(self.visit(node.value), node.attr, node.ctx)
        self.changed = True
        path = _path(node.value)
        names = [ast.Constant(node.attr), *([ast.Constant(path)] if path else [])]
        return _call(ATTRIBUTE, self.visit(node.value), *names)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts = ast.List([self.visit(part) for part in node.values], ast.Load())
        return ast.Call(ast.Attribute(ast.Constant(""), "join", ast.Load()), [parts], [])

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        conversion = ast.Constant(chr(node.conversion) if node.conversion > 0 else "")
        specification = self.visit(node.format_spec) if node.format_spec else ast.Constant("")
        return _call(FORMAT, self.visit(node.value), conversion, specification)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
