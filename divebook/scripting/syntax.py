"""Parsing expressions and scripts, and refusing what their context does not allow."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from divebook.errors import ScriptSyntaxError
from divebook.scripting.contexts import BUILTINS
from divebook.scripting.prelude import HELPERS
from divebook.text.python import parse_python

READ_ONLY = ("inputs", "state")

_NO_CHANGES = "conditions, templates and items are read-only: set variables in a script step, or with a step's Store"
_CHANGING_METHODS = frozenset(
    {
        *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"),
        *("popitem", "setdefault", "update"),
        *("add", "discard", "difference_update", "intersection_update", "symmetric_difference_update"),
        *("set", "delete"),
    }
)
"""Methods that change a list, a mapping, a set, or the variables."""
_FOREIGN = (
    (re.compile(r"&&"), "write 'and' instead of '&&'"),
    (re.compile(r"\|\|"), "write 'or' instead of '||'"),
    (re.compile(r"!(?!=)"), "write 'not x' instead of '!x'"),
    (re.compile(r"\?.*:"), "write 'a if c else b' instead of 'c ? a : b'"),
    (re.compile(r"\$\("), "'$(' may only open the whole text"),
)
_ASSIGNS = re.compile(r"^([\w.\[\]\"']+\s*=)(?=[^=])")


def parse_expression(text: str) -> tuple[str, ast.Expression]:
    """Return `text` in parentheses (so that it may span lines) and its tree, whose positions fit that text."""
    source = normalise(text).strip()
    if not source:
        raise ScriptSyntaxError("the expression is empty; write a Python expression such as state.count > 3")
    wrapped = f"({source}\n)"
    try:
        with _parser(source):
            parse_python(source, mode="eval")
            return wrapped, parse_python(wrapped, mode="eval")
    except SyntaxError as error:
        spanning = _parse_spanning(source, wrapped)
        if spanning is None:
            raise _syntax_error(error, source, _advice_on_change(source)) from error
        return wrapped, spanning


def parse_script(text: str) -> tuple[str, ast.Module]:
    """Return `text` with normalised line ends, and its tree."""
    source = normalise(text)
    try:
        with _parser(source):
            return source, parse_python(source)
    except SyntaxError as error:
        raise _syntax_error(error, source) from error


def normalise(text: str) -> str:
    """Return `text` with line ends as Python's parser counts them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def _parser(source: str) -> Iterator[None]:
    """Make everything a hostile text can make Python's parser raise a SyntaxError, and keep its warnings quiet."""
    try:
        if "\\" in source:  # "\d" in a pattern is the author's business, not a warning in a notebook
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        else:
            yield
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "nested too deeply") from error


def _parse_spanning(source: str, wrapped: str) -> ast.Expression | None:
    """Parse an expression that is only valid inside parentheses because it spans lines."""
    if "\n" not in source or not _balanced(source):
        return None
    try:
        with _parser(source):
            tree = parse_python(wrapped, mode="eval")
    except SyntaxError:
        return None
    return None if isinstance(tree.body, ast.GeneratorExp) else tree


def _balanced(source: str) -> bool:
    """Tell whether the parentheses put around `source` close at its end: with ``1) + (2`` they close earlier."""
    depth = 0
    end = (source.count("\n") + 2, 1)
    try:
        for token in tokenize.generate_tokens(io.StringIO(f"({source}\n)").readline):
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
                if depth == 0 and token.end != end:
                    return False
    except (tokenize.TokenError, SyntaxError):
        return False
    return depth == 0


def _advice_on_change(source: str) -> str | None:
    """Return what to write in place of a statement that changes something; None for all other mistakes."""
    if _is_comparison(source):
        return f"write '==' to compare; {_NO_CHANGES}"
    try:
        with _parser(source):
            statements = parse_python(source).body
    except SyntaxError:
        return None
    is_change = any(
        isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete) for statement in statements
    )
    return _NO_CHANGES if is_change else None


def _is_comparison(source: str) -> bool:
    """Whether all that is wrong is an ``=`` that compares: ``y = x`` and not ``y = x +``."""
    meant, count = _ASSIGNS.subn(r"\1=", source)
    try:
        with _parser(meant):
            parse_python(meant, mode="eval")
    except SyntaxError:
        return False
    return count > 0


def _syntax_error(error: SyntaxError, source: str, hint: str | None = None) -> ScriptSyntaxError:
    hint = hint or next((advice for pattern, advice in _FOREIGN if pattern.search(source)), None)
    message = error.msg if error.lineno is None or "\n" not in source else f"{error.msg} (line {error.lineno})"
    return ScriptSyntaxError(f"{message}; {hint}" if hint else message, error.lineno)


def check_expression(tree: ast.AST) -> None:
    """Refuse what could make an expression change something, or answer differently another time."""
    _check_targets(tree)
    _check_texts(tree)
    allowed_lambdas = {id(node) for node in _called_lambdas(tree)}
    for node in ast.walk(tree):
        reason = _refusal(node)
        if isinstance(node, ast.Lambda) and id(node) not in allowed_lambdas:
            reason = "a lambda may only be the key= of a call or the function given to map or filter"
        if reason:
            raise ScriptSyntaxError(reason, getattr(node, "lineno", None))


def _check_texts(tree: ast.AST) -> None:
    """Refuse half a character, which the sandbox would silently replace."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not _is_unicode(node.value):
            raise ScriptSyntaxError(
                f"the text {node.value!a} holds half of a surrogate pair (line {node.lineno}); "
                "write the whole character",
                node.lineno,
            )


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _check_targets(tree: ast.AST) -> None:
    """Refuse ``[id for id in ids]``: in a comprehension Monty 1.4 reads its own ``id`` and not the variable."""
    targets = (node.target for node in ast.walk(tree) if isinstance(node, ast.comprehension))
    for name in (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)):
        if name.id in BUILTINS and isinstance(name.ctx, ast.Store):
            advice = f"call it {name.id}_ instead"
            raise ScriptSyntaxError(
                f"a comprehension cannot use the name {name.id!r} of Python's own; {advice}", name.lineno
            )


def _refusal(node: ast.AST) -> str | None:
    if isinstance(node, ast.NamedExpr):
        return f"':=' assigns a name, and expressions cannot keep anything; {_NO_CHANGES}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING_METHODS:
        name = _root_of(node.func.value)
        return None if name is None else f"{ast.unparse(node.func)}() changes {name!r}; {_NO_CHANGES}"
    if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom) or (
        isinstance(node, ast.comprehension) and node.is_async
    ):
        return "await and yield are not available in an expression"
    if isinstance(node, ast.Attribute) and node.attr.startswith("__"):
        return f"attribute {node.attr!r} is not available: names that begin with '__' are Python's own"
    if isinstance(node, ast.Name | ast.arg) and _name_of(node).startswith("__"):
        return f"name {_name_of(node)!r} is not available: names that begin with '__' are Python's own"
    return None


def _root_of(node: ast.expr) -> str | None:
    """Return the name of the value that a node is a part of; None for a value that the expression itself makes."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            node = node.func.value
        else:
            return node.id if isinstance(node, ast.Name) else None


def _name_of(node: ast.Name | ast.arg) -> str:
    return node.id if isinstance(node, ast.Name) else node.arg


def _called_lambdas(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes where a lambda cannot end up as a value (its text shows an address)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.func
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "key")
            if isinstance(node.func, ast.Name) and node.func.id in ("map", "filter"):
                yield from node.args[:1]


def check_script(tree: ast.AST, shadowed: frozenset[str]) -> None:
    """Refuse what can only be a mistake in a script step: writing to `inputs` or `state`, using helper names.

    Parameters
    ----------
    shadowed
        Names that some function of the script binds itself: for those ``state.x = 1`` means something else.
    """
    _check_targets(tree)
    _check_texts(tree)
    for node in _outside_functions(tree):
        if isinstance(node, ast.Return):
            advice = "end the script with the value instead: its last expression is the result"
            raise ScriptSyntaxError(f"'return' outside a function (line {node.lineno}); {advice}", node.lineno)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", None)
        root = _written_root(node)
        if root in READ_ONLY and root not in shadowed:
            raise ScriptSyntaxError(
                f"a script cannot change {root!r} (line {line}); return the value and name it in the step's Store", line
            )
        if isinstance(node, ast.Name | ast.arg) and _name_of(node) in HELPERS:
            raise ScriptSyntaxError(f"name {_name_of(node)!r} is reserved (line {line})", line)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            raise ScriptSyntaxError(f"'from {node.module} import *' is not available; name what you need", line)


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield node
            yield from _outside_functions(node)


def _written_root(node: ast.AST) -> str | None:
    """Return ``state`` for the targets ``state``, ``state.x``, ``state["x"].y`` ..., else None."""
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript) or isinstance(node.ctx, ast.Load):
        return None
    inner: ast.AST = node
    while isinstance(inner, ast.Attribute | ast.Subscript):
        inner = inner.value
    return inner.id if isinstance(inner, ast.Name) else None
