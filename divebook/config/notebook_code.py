"""Which code cells of a notebook define something in Python: read, never run.

Cells define that make a `@workflow`, `@step` or `@action`, or call one of `MAKERS`; to them belong the cells that give
them the names they use. Lines of magics count as nothing, or as the value of the name they are assigned to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from divebook.text.python import parse_python

DECORATORS = frozenset({"action", "step", "workflow"})
MAKERS = frozenset({"Action", "Agent", "Environment", "Workflow", "add_agent", "add_workflow", "allow", "define"})
_TRANSPARENT = frozenset({"%%capture", "%%prun", "%%time"})
"""Magics of whole cells whose body is Python of the notebook."""
_ASSIGNED = re.compile(r"(?m)^(\s*[\w, ]+=\s*)[%!].*$")
_MAGIC = re.compile(r"(?m)^(\s*)[%!].*$")
_HELP = re.compile(r"(?m)^(\s*)(?:\?{1,2}[\w.]+|[\w.]+\?{1,2})[ \t]*$")
_LOADS = re.compile(r"(?m)^\s*%load_ext\s")


def defining_cells(cells: Mapping[int, str]) -> list[int]:
    """Return the numbers of the cells that define something, and no others."""
    return [number for number, source in cells.items() if (tree := _tree(source)) and any(_defining(tree))]


def cells_to_run(cells: Mapping[int, str]) -> list[int]:
    """Return the numbers of the cells to run for what the notebook defines in Python, in the order of the notebook."""
    trees = {number: tree for number, source in cells.items() if (tree := _tree(source)) is not None}
    chosen = set(defining_cells(cells))
    wanted: set[str] = set()
    while True:
        wanted |= {name for number in chosen for name in (*_used(trees[number]), "*")}
        more = {number for number, tree in trees.items() if not wanted.isdisjoint(_bound(tree))} - chosen
        if not more:
            break
        chosen |= more
    if any(_MAGIC.search(cells[number]) or _ASSIGNED.search(cells[number]) for number in chosen):
        chosen |= {number for number, source in cells.items() if _LOADS.search(source)}
    return sorted(chosen)


def _tree(source: str) -> ast.Module | None:
    """Return a cell as Python, without its magics; None where it is none."""
    first, _, body = source.lstrip().partition("\n")
    if first.startswith("%%"):
        if first.split(None, 1)[0] not in _TRANSPARENT:
            return None
        source = body
    without_magics = _HELP.sub(r"\1pass", _MAGIC.sub(r"\1pass", _ASSIGNED.sub(r"\1None", source)))
    for text in (source, without_magics):
        try:
            return parse_python(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _defining(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what defines something in the statements of a cell, not in the functions that it only defines."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            decorators: Sequence[ast.expr] = getattr(node, "decorator_list", ())
            yield from (one for one in decorators if _called(one) in DECORATORS)
            continue
        if isinstance(node, ast.Call) and _called(node) in MAKERS | DECORATORS:
            yield node
        pending.extend(ast.iter_child_nodes(node))


def _called(node: ast.expr) -> str:
    """Return the last part of the name of what decorates or is called."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _used(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _bound(tree: ast.Module) -> set[str]:
    """Return the names that a cell gives; ``*`` stands for those of a star import, which may be any."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {(one.asname or one.name).partition(".")[0] for one in names}
    return found
