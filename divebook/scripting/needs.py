"""Which keys of `inputs` and `state` a text cannot do without, and which variables a script sets."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from divebook.scripting.program import Program
from divebook.scripting.reference import Attribute, Item, Reference
from divebook.scripting.rewrite import is_change
from divebook.scripting.syntax import READ_ONLY, parse_expression, parse_script
from divebook.text.names import normal_name

Need: TypeAlias = tuple[str, str]
"""A mapping and a key of it: ``("state", "total")``."""
_OF_MAPPINGS = frozenset(dir(dict)) | {"set", "delete"}
"""What ``state.name`` may mean beside a key."""


def needs_of_expression(program: Program) -> frozenset[Need]:
    """Return the keys that an expression takes for granted.

    >>> from divebook.scripting.program import compile_expression
    >>> sorted(needs_of_expression(compile_expression("state.total + inputs['n'] + state.get('more', 0)")))
    [('inputs', 'n'), ('state', 'total')]
    """
    if program.uses.keys().isdisjoint(READ_ONLY):
        return frozenset()
    match program.reference:  # most are one, and are not parsed again
        case Reference(name, (Attribute(str(key)) | Item(str(key)), *_)) if key not in _OF_MAPPINGS:
            return frozenset({(name, normal_name(key))}) if name in READ_ONLY else frozenset()
    return _needs(parse_expression(program.text)[1])


def needs_of_script(text: str) -> frozenset[Need]:
    """Return the keys that a script takes for granted."""
    return _needs(parse_script(text)[1])


def set_by_script(text: str) -> frozenset[str] | None:
    """Return the variables that a script sets beside its result; None if that can only be told when it runs.

    >>> sorted(set_by_script("state.set('a', 1)")), set_by_script("state.set(name, 1)")
    (['a'], None)
    """
    return _changed(text, "set")


def changed_by_script(text: str) -> frozenset[str] | None:
    """Return the variables that a script sets or deletes; None as for `set_by_script`."""
    return _changed(text, "set", "delete")


def _changed(text: str, *changes: str) -> frozenset[str] | None:
    named = [_first(node) for node in ast.walk(parse_script(text)[1]) if is_change(node, *changes)]
    names = frozenset(name for name in named if name is not None)
    return names if len(names) == len(set(named)) else None


def _first(node: ast.AST) -> str | None:
    return _text(node.args[0]) if isinstance(node, ast.Call) and node.args else None


def _needs(tree: ast.AST) -> frozenset[Need]:
    """Return what is read without asking first: a text that asks whether a key is there knows that it may not be."""
    bound = {name for node in ast.walk(tree) for name in _bound_by(node)}
    if any(isinstance(node, ast.Try) for node in ast.walk(tree)):
        return frozenset()
    asked = {need for node in ast.walk(tree) for need in _asked(node)}
    read = {need for node in ast.walk(tree) for need in _read(node)}
    return frozenset(need for need in read - asked if need[0] not in bound)


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name


def _read(node: ast.AST) -> Iterator[Need]:
    if isinstance(node, ast.Attribute):
        yield from _needs_of(node.value, [node.attr] if node.attr not in _OF_MAPPINGS else [])
    elif isinstance(node, ast.Subscript):
        yield from _needs_of(node.value, [node.slice])


def _asked(node: ast.AST) -> Iterator[Need]:
    """Yield the keys of ``"total" in state``, ``state.get("total")`` and the like."""
    if isinstance(node, ast.Compare):
        for part in node.comparators:
            yield from _needs_of(part, [node.left])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from _needs_of(node.func.value, node.args)
    elif isinstance(node, ast.Call):  # hasattr(state, "total"), or a function of the script's own
        for part in node.args:
            yield from _needs_of(part, node.args)


def _needs_of(node: ast.AST, keys: Iterable[ast.AST | str]) -> Iterator[Need]:
    """Yield the needs of a mapping, if a node is one, for those of the keys that are written out."""
    if isinstance(node, ast.Name) and node.id in READ_ONLY:
        texts = (key if isinstance(key, str) else _text(key) for key in keys)
        yield from ((node.id, text) for text in texts if text is not None)


def _text(node: ast.AST) -> str | None:
    return normal_name(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
