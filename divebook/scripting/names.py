"""Which names a script takes from outside, and how much of each it looks at."""

from __future__ import annotations

import ast
import copy
import symtable
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from divebook.errors import ScriptSyntaxError, UndefinedVariableError, did_you_mean

Keys = frozenset[str | int] | None
"""The keys of a mapping that a script can reach; None when it may reach all."""

_ADVICE = {
    "true": "write True",
    "false": "write False",
    "null": "write None",
    "nil": "write None",
    "none": "write None",
}
_NEEDS_ACTIVITY = frozenset({"time", "random", "rand", "datetime", "date", "uuid", "now", "sleep", "documents"})
_NOW = "write 'from datetime import datetime' first, and datetime.now()"
_IMPORTS = {
    "time": "write 'import time' first, and time.time(); or 'from datetime import datetime', and datetime.now()",
    "now": _NOW,
    "datetime": "write 'from datetime import datetime' first",
    "date": "write 'from datetime import date' first",
    "rand": "write 'import random' first, and random.randrange(100)",
    "sleep": "write 'import time' first, and time.sleep(1)",
}
_SYSTEM = frozenset({"os", "sys", "exec", "eval", "open", "subprocess", "http", "net", "fetch", "socket", "input"})


class Scopes:
    """The names of a script, resolved scope by scope by Python's own symbol table."""

    def __init__(self, source: str, tree: ast.Expression | ast.Module) -> None:
        mode: Literal["eval", "exec"] = "eval" if isinstance(tree, ast.Expression) else "exec"
        try:
            self._top = symtable.symtable(source, "<script>", mode)
        except SyntaxError as error:
            raise ScriptSyntaxError(f"{error.msg} (line {error.lineno})", error.lineno) from error
        if any(isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp) for node in ast.walk(tree)):
            separate = _SeparateScopes().visit(copy.deepcopy(tree))
            self._top = symtable.symtable(ast.unparse(separate), "<script>", mode)
        self._inner = list(_children(self._top))

    def free(self) -> frozenset[str]:
        """Return the names that must come from outside."""
        tables = [self._top, *self._inner]
        used = {s.get_name() for t in tables for s in t.get_symbols() if s.is_referenced() and self._outside(t, s)}
        return frozenset(used - self.defined())

    def _outside(self, table: symtable.SymbolTable, symbol: symtable.Symbol) -> bool:
        return table is self._top or symbol.is_global()

    def defined(self) -> frozenset[str]:
        """Return the names the module level binds, also through ``global`` in a function."""
        own = {s.get_name() for s in self._top.get_symbols() if s.is_assigned() or s.is_imported()}
        declared = {
            s.get_name() for t in self._inner for s in t.get_symbols() if s.is_declared_global() and s.is_assigned()
        }
        return frozenset(own | declared)

    def shadowed(self) -> frozenset[str]:
        """Return the names that a function, class or comprehension binds for itself."""
        return frozenset(
            s.get_name()
            for t in self._inner
            for s in t.get_symbols()
            if s.is_local() or s.is_parameter() or s.is_free()
        )

    def imported_only(self) -> frozenset[str]:
        """Return the names that can only be an imported module, class or function."""
        imported = {s.get_name() for s in self._top.get_symbols() if s.is_imported()}
        return frozenset(imported - self.shadowed())


class _SeparateScopes(ast.NodeTransformer):
    """Turns comprehensions into generators: Python 3.12 counts the variables of the former as those around them."""

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        return ast.GeneratorExp(node.elt, node.generators)

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        self.generic_visit(node)
        return ast.GeneratorExp(node.elt, node.generators)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        self.generic_visit(node)
        return ast.GeneratorExp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Keep only the expressions of an f-string, which not every Python can write back."""
        self.generic_visit(node)
        return ast.Tuple([part for part in node.values if not isinstance(part, ast.Constant)], ast.Load())

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        specification = [node.format_spec] if node.format_spec else []
        return ast.Tuple([node.value, *specification], ast.Load())


def _children(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _children(child)


def first_lines(tree: ast.AST, names: Collection[str]) -> dict[str, int | None]:
    """Return the first line on which each name occurs, in the order of lines."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            found[node.id] = min(node.lineno, found.get(node.id, node.lineno))
    return {name: found.get(name) for name in sorted(names, key=lambda name: (found.get(name, 0), name))}


class _KeyUses(ast.NodeVisitor):
    """Collects the constant keys by which names are read; any other use of a name makes it `whole`."""

    def __init__(self) -> None:
        self.keys: dict[str, set[str | int]] = {}
        self.whole: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        self.whole.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not (isinstance(node.ctx, ast.Load) and self._reads(node.value, node.attr)):
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not (isinstance(node.ctx, ast.Load) and self._reads(node.value, _constant(node.slice))):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        member = len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn)
        if not (member and self._reads(node.comparators[0], _constant(node.left))):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            key = _constant(node.args[0]) if node.args and node.func.attr in ("get", "delete") else None
            if not (self._sets(node.func) or self._reads(node.func.value, key)):
                self.visit(node.func.value)
        else:
            self.visit(node.func)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.visit(argument)

    def _sets(self, function: ast.Attribute) -> bool:
        """Note that a script sets a variable, which reads none."""
        if not (function.attr == "set" and isinstance(function.value, ast.Name) and function.value.id == "state"):
            return False
        self.keys.setdefault(function.value.id, set())
        return True

    def _reads(self, value: ast.AST, key: str | int | None) -> bool:
        if not isinstance(value, ast.Name) or key is None:
            return False
        self.keys.setdefault(value.id, set()).add(key)
        return True


def _constant(node: ast.AST) -> str | int | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str | int) else None


def key_uses(tree: ast.AST, free: frozenset[str]) -> dict[str, Keys]:
    """Return, for each free name, the keys the script can reach in it.

    A variable of the same name in an inner scope counts as well: that reaches too much, never too little.
    """
    uses = _KeyUses()
    uses.visit(tree)
    return {name: None if name in uses.whole else frozenset(uses.keys.get(name, set())) for name in free}


def undefined(
    name: str, line: int | None, names: Mapping[str, Any], offered: Collection[str]
) -> UndefinedVariableError:
    """Return the error for an unknown name, with the most helpful hint there is."""
    return UndefinedVariableError(name, line, _hint(name, names, offered))


def _hint(name: str, names: Mapping[str, Any], offered: Collection[str]) -> str | None:
    if name.lower() in _ADVICE:
        return _ADVICE[name.lower()]
    for root in ("state", "inputs"):
        if isinstance(names.get(root), Mapping) and name in names[root]:
            return f"write {root}.{name}"
    if name in _NEEDS_ACTIVITY:
        if "documents" not in offered:
            return "only script steps may use the clock or chance"
        return _IMPORTS.get(name, f"write 'import {name}' first")
    if name in _SYSTEM:
        return "scripts are sandboxed: no files, processes or network"
    return did_you_mean(name, {*names, *offered})
