"""Preparation of code for the sandbox: parsing, checks, rewriting, analysis of names, and errors.

`compile_expression` and `compile_script` convert source code to a `Program` in four steps:

1. **Parse** (`parse_expression`, `parse_script`) and explain common mistakes, such as ``&&`` instead of ``and``.
2. **Check** (`check_expression`, `check_script`): an expression must not change a value, and must give the same result
   each time. A script must not assign to `inputs` or `state`.
3. **Rewrite** (`rewrite`): ``state.total`` becomes a function call that reads a key, because data in the sandbox are
   plain mappings. No line moves, so that line numbers in errors stay correct.
4. **Analyse names** (`Scopes`, `key_uses`): for ``state.total * inputs.rate`` the result is
   ``{"state": {"total"}, "inputs": {"rate"}}``. `select` later sends only these values to the sandbox.

The end of the module converts failures of the sandbox to divebook's errors.
"""

from __future__ import annotations

import ast
import copy
import io
import re
import symtable
import tokenize
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Literal

from divebook.errors import ScriptError, ScriptLimitError, ScriptSyntaxError, UndefinedVariableError, did_you_mean
from divebook.scripting.prelude import (
    ATTRIBUTE,
    BUILTINS,
    CHANGE,
    ENTRIES,
    FORMAT,
    HELPERS,
    MAKE_CODE,
    NOTHING,
    RESULT,
    SAFE_NAMES,
    Limits,
    Purpose,
    Reference,
    prelude,
    ran_too_long,
    reference_of,
)
from divebook.scripting.structure import ExpressionNode, structure_of
from divebook.text.arguments import normal_name, same_name
from divebook.text.syntax import parse_python

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
"""Methods that change a list, a mapping, a set, or the variables of the execution."""
_FOREIGN = (
    (re.compile(r"&&"), "write 'and' instead of '&&'"),
    (re.compile(r"\|\|"), "write 'or' instead of '||'"),
    (re.compile(r"!(?!=)"), "write 'not x' instead of '!x'"),
    (re.compile(r"\?.*:"), "write 'a if c else b' instead of 'c ? a : b'"),
    (re.compile(r"\$\("), "'$(' is valid only at the start of the whole string"),
)
# A string or comment. Group 1 is the prefix of a string, such as ``f`` or ``rb``.
_STRING_OR_COMMENT = re.compile(
    r"""([a-z]{0,2})('{3}.*?'{3}|"{3}.*?"{3}|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")|#[^\n]*""",
    re.DOTALL | re.IGNORECASE,
)
# ``a.b["c"] = 1``, but not ``a == 1``: group 1 ends with the first ``=`` if no second one follows.
_ASSIGNS = re.compile(r"^([\w.\[\]\"']+\s*=)(?=[^=])")


def parse_expression(text: str) -> tuple[str, ast.Expression]:
    """Parse an expression. Return a pair: its source with parentheses around it, so that it may span several lines, and
    the syntax tree of that source.
    """
    source = normalise(text).strip()
    if not source:
        raise ScriptSyntaxError("the expression is empty; write a Python expression such as state.count > 3")
    # The closing parenthesis has its own line, behind a comment that may end the source.
    wrapped = f"({source}\n)"
    try:
        with _parser(source):
            # Without parentheses first: ``a) + (b`` would be valid inside them. The wrapped source is parsed for its
            # positions.
            parse_python(source, mode="eval")
            return wrapped, parse_python(wrapped, mode="eval")
    except SyntaxError as error:
        spanning = _parse_spanning(source, wrapped)
        if spanning is None:
            raise _syntax_error(error, source, _advice_on_change(source)) from error
        return wrapped, spanning


def parse_script(text: str) -> tuple[str, ast.Module]:
    """Parse a script. Return its source with normalized line ends, and its syntax tree."""
    source = normalise(text)
    try:
        with _parser(source):
            return source, parse_python(source)
    except SyntaxError as error:
        raise _syntax_error(error, source) from error


def normalise(text: str) -> str:
    """Replace all line ends of a source by line feeds, so that line numbers are the same as those of Python's
    parser.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def _parser(source: str) -> Iterator[None]:
    """Return a context manager around calls of Python's parser. Other exceptions that the parser raises for hostile
    code become SyntaxError, and its warnings are suppressed.
    """
    try:
        if "\\" in source:  # an invalid escape such as "\d" in a pattern must not cause a warning in a notebook
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        else:
            yield
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "nested too deeply") from error


def _parse_spanning(source: str, wrapped: str) -> ast.Expression | None:
    """Parse an expression of several lines that is valid Python only inside parentheses. `wrapped` is `source` with
    parentheses around it. Return the syntax tree; None if `wrapped` is not a valid expression.
    """
    if "\n" not in source or not _balanced(source):
        return None
    try:
        with _parser(source):
            tree = parse_python(wrapped, mode="eval")
    except SyntaxError:
        return None
    # ``x for x in y`` over several lines would become a generator by the added parentheses.
    return None if isinstance(tree.body, ast.GeneratorExp) else tree


def _balanced(source: str) -> bool:
    """Return True if parentheses around a source would enclose all of it. For ``1) + (2`` the result is False, because
    the added parenthesis closes before the ``+``.
    """
    depth = 0
    # Line and column behind the closing parenthesis: the added line is the one after the last line of the source.
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
    """Return advice for an error message if a person wrote an assignment or deletion where an expression is required;
    None for other mistakes.
    """
    if _is_comparison(source):
        # ``=`` in place of ``==`` has its own advice.
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
    """Return True if a person probably wrote ``=`` for ``==``: with ``==`` the source is a valid expression.

    This holds for ``y = x``, but not for ``y = x +``.
    """
    corrected, count = _ASSIGNS.subn(r"\1=", source)
    try:
        with _parser(corrected):
            parse_python(corrected, mode="eval")
    except SyntaxError:
        return False
    return count > 0


def _syntax_error(error: SyntaxError, source: str, hint: str | None = None) -> ScriptSyntaxError:
    code = _STRING_OR_COMMENT.sub(_without_text, source)
    hint = hint or next((advice for pattern, advice in _FOREIGN if pattern.search(code)), None)
    # Expressions are mostly one line, for which a line number is noise.
    message = error.msg if error.lineno is None or "\n" not in source else f"{error.msg} (line {error.lineno})"
    return ScriptSyntaxError(f"{message}; {hint}" if hint else message, error.lineno)


def _without_text(match: re.Match[str]) -> str:
    """Return an empty string literal in place of a string or comment, so that a search for operators of other languages
    finds none in ``"Go!"``. An f-string stays, because it contains code.
    """
    prefix = match[1] or ""
    return match[0] if "f" in prefix.lower() else "''"


def check_expression(tree: ast.AST) -> None:
    """Raise `ScriptSyntaxError` if an expression is not deterministic or not free of side effects: if it could change a
    value, or give another result when it is evaluated again.
    """
    _check_targets(tree)
    _check_texts(tree)
    # Lambdas that the expression itself calls, by identity: two equal lambdas may be at different places.
    allowed_lambdas = {id(node) for node in _called_lambdas(tree)}
    for node in ast.walk(tree):
        reason = _refusal(node)
        if isinstance(node, ast.Lambda) and id(node) not in allowed_lambdas:
            reason = "a lambda is allowed only as the argument key= or as the function passed to map or filter"
        if reason:
            raise ScriptSyntaxError(reason, getattr(node, "lineno", None))


def _check_texts(tree: ast.AST) -> None:
    """Raise `ScriptSyntaxError` for a string constant with an unpaired surrogate (half of a character), which the
    sandbox would silently replace.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not _is_unicode(node.value):
            raise ScriptSyntaxError(
                f"the text {node.value!a} contains half of a surrogate pair (line {node.lineno}); "
                "write the whole character",
                node.lineno,
            )


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _check_targets(tree: ast.AST) -> None:
    """Raise `ScriptSyntaxError` for a comprehension whose loop variable has the name of a builtin, such as ``[id for id
    in ids]``.

    Monty 1.4 reads the builtin instead of the variable.
    """
    targets = [node.target for node in ast.walk(tree) if isinstance(node, ast.comprehension)]
    for target in targets:
        for name in ast.walk(target):
            if isinstance(name, ast.Name) and name.id in BUILTINS and isinstance(name.ctx, ast.Store):
                raise ScriptSyntaxError(
                    f"a comprehension cannot assign to {name.id!r}, a built-in name; call the variable {name.id}_ "
                    "instead",
                    name.lineno,
                )


def _refusal(node: ast.AST) -> str | None:
    """Return the reason why expressions must not contain this syntax node; None if the node is allowed.

    A method that changes its object (``append``) is refused only for a part of a named value: a list that the
    expression itself has built may change.
    """
    if isinstance(node, ast.NamedExpr):
        return f"':=' assigns a variable, which expressions cannot do; {_NO_CHANGES}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING_METHODS:
        name = _root_of(node.func.value)
        return None if name is None else f"{ast.unparse(node.func)}() changes {name!r}; {_NO_CHANGES}"
    if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom) or (
        isinstance(node, ast.comprehension) and node.is_async
    ):
        return "await and yield are not available in an expression"
    if isinstance(node, ast.Attribute) and node.attr.startswith("__"):
        return f"attribute {node.attr!r} is not available: names that begin with '__' are reserved for Python"
    # Names such as ``__import__`` and those of the prelude's helpers.
    if isinstance(node, ast.Name | ast.arg) and _name_of(node).startswith("__"):
        return f"name {_name_of(node)!r} is not available: names that begin with '__' are reserved for Python"
    return None


def _root_of(node: ast.expr) -> str | None:
    """Return the variable to which a chain of attributes and items belongs: ``state`` for ``state.a["b"]``.

    Return None if the chain begins with a value that the expression itself builds.
    """
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        # ``state.get("rows").append(1)`` would change a part of the state.
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            node = node.func.value
        else:
            return node.id if isinstance(node, ast.Name) else None


def _name_of(node: ast.Name | ast.arg) -> str:
    return node.id if isinstance(node, ast.Name) else node.arg


def _called_lambdas(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the syntax nodes of functions that the expression itself calls: called directly, passed as ``key=``, or
    passed to ``map`` or ``filter``. A lambda is allowed only there, because it cannot become the expression's result.

    The text of a lambda would show an address, which differs from run to run.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            # ``(lambda x: x + 1)(2)``, then ``sorted(rows, key=lambda ...)``, then ``map(lambda ...)``.
            yield node.func
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "key")
            if isinstance(node.func, ast.Name) and node.func.id in ("map", "filter"):
                yield from node.args[:1]


def check_script(tree: ast.AST, shadowed: frozenset[str]) -> None:
    """Raise `ScriptSyntaxError` for mistakes in a script step: an assignment to `inputs` or `state`, or a reserved
    name.

    Parameters
    ----------
    shadowed
        Names that a function of the script binds locally. ``state.x = 1`` then changes a local variable ``state``.
    """
    _check_targets(tree)
    _check_texts(tree)
    for node in _outside_functions(tree):
        # The parser accepts ``return`` outside a function. Only a compiler refuses it.
        if isinstance(node, ast.Return):
            advice = "end the script with the value instead, because the last expression is the result"
            raise ScriptSyntaxError(f"'return' outside a function (line {node.lineno}); {advice}", node.lineno)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", None)
        root = _written_root(node)
        # A function may have a parameter ``state``. The name is then its own everywhere in the script, which is lenient
        # but never refuses a valid script.
        if root in READ_ONLY and root not in shadowed:
            raise ScriptSyntaxError(
                f"a script cannot change {root!r} (line {line}); return the value, and set Store in the step to store "
                "the value in a variable",
                line,
            )
        if isinstance(node, ast.Name | ast.arg) and _name_of(node) in HELPERS:
            raise ScriptSyntaxError(f"name {_name_of(node)!r} is reserved (line {line})", line)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            message = f"'from {node.module} import *' is not available; import the names that you need"
            raise ScriptSyntaxError(message, line)


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield node
            yield from _outside_functions(node)


def _written_root(node: ast.AST) -> str | None:
    """Return the variable whose value an assignment target changes: ``state`` for ``state``, ``state.x`` and
    ``state["x"].y``.

    Return None for other syntax nodes.
    """
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript) or isinstance(node.ctx, ast.Load):
        return None
    # "state.x[0].y = 1" -> "state"
    inner: ast.AST = node
    while isinstance(inner, ast.Attribute | ast.Subscript):
        inner = inner.value
    return inner.id if isinstance(inner, ast.Name) else None


# --- rewriting ------------------------------------------------------------------------------------------------------
#
# Data in the sandbox are plain mappings, so that ``inputs.name`` must be rewritten. No line may move, because errors
# report line numbers.
#
# ``a.b`` becomes ``helper(a, 'b', 'a')``, where the last argument is the path for error messages. Calls keep their
# function: ``state.get("n")`` is a method of dict. Only ``state.set("n", 1)`` and ``state.delete("n")``, which mappings
# lack, become ``helper(state, 'set', "n", 1)``.
#
# `_Editor` walks the syntax tree and collects edits of the source: byte ranges, as the parser reports them, and their
# new text. For ``inputs.n + 1`` the edits are: insert ``helper(`` before ``inputs``, replace ``.`` by ``,``, and
# replace ``n`` by `` 'n', 'inputs')``. All edits are then applied at once, in the order of their positions. An f-string
# is replaced as a whole (`_Lowering`), because Python 3.11 reports wrong positions inside it.


_SPACE = re.compile(rb"(?:[ \t\f\n\\]|#[^\n]*\n)*")
_SPACE_AND_CLOSINGS = re.compile(rb"(?:[ \t\f\n\\)]|#[^\n]*\n)*")

_DATA = (
    *(ast.Constant, ast.Compare, ast.BinOp, ast.UnaryOp, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set),
    *(ast.ListComp, ast.DictComp, ast.SetComp),
)
_TEXTS_AND_NUMBERS = (ast.Constant, ast.Compare, ast.UnaryOp, ast.JoinedStr)


@dataclass(frozen=True, slots=True)
class _Edit:
    """Replacement of a byte range of source code by new text. An empty range is an insertion."""

    start: int
    end: int
    text: str


def rewrite(source: str, tree: ast.Expression | ast.Module, modules: frozenset[str]) -> str:
    """Translate Python source to the source that the sandbox runs. In it, ``a.name`` reads the key ``name`` of a
    mapping, and the result of the code is checked to be data.

    Parameters
    ----------
    modules
        Names that can only be modules or classes. Their attributes stay unchanged.
    """
    # A script that defines its own ``dict`` must not have its calls changed.
    editor = _Editor(source, modules, has_own_dict=any(_names_dict(node) for node in ast.walk(tree)))
    result = _result_of(tree)
    if result is not None:
        editor.wrap(result)
    editor.visit(tree)
    return editor.edited_source()


def _names_dict(node: ast.AST) -> bool:
    """Return True if a syntax node binds the name ``dict``, so that ``dict`` does not mean the builtin any more."""
    if isinstance(node, ast.Name):
        return node.id == "dict" and not isinstance(node.ctx, ast.Load)
    return "dict" in (getattr(node, "name", None), getattr(node, "arg", None), getattr(node, "asname", None))


def _may_have_equal_keys(node: ast.Dict) -> bool:
    """Return True if a dict display ``{...}`` may have two keys that are equal but not identical, such as 1 and
    True.
    """
    constants = [key.value for key in node.keys if isinstance(key, ast.Constant)]
    # Keys that may equal another one: computed keys and ``**`` (None). Strings equal only strings, and stay as they
    # are.
    computed = [key for key in node.keys if key is None or not isinstance(key, ast.Constant | ast.JoinedStr)]
    numbers = [value for value in constants if not isinstance(value, str)]
    # Two keys may be equal if two are computed, or one is computed and one is a number, or two numbers are equal:
    # ``{1: a, True: b}``.
    return len(computed) + bool(numbers) > 1 or len(set(numbers)) < len(numbers)


def _result_of(tree: ast.Expression | ast.Module) -> ast.expr | None:
    """Return the syntax node of the expression whose value is the result of the code. The sandbox must check that this
    value is data and not, for example, a function.

    Return None if the code has no result, or if the result can only be plain data.
    """
    if isinstance(tree, ast.Expression):
        # Names of builtins and modules are the only code in an expression. Everything else that it reads is data.
        return tree.body if _may_be_code(tree.body, SAFE_NAMES) else None
    last = tree.body[-1] if tree.body else None
    # In a script every name may be code, so that only constants are exempt.
    return last.value if isinstance(last, ast.Expr) and not isinstance(last.value, _TEXTS_AND_NUMBERS) else None


def _may_be_code(node: ast.expr, code_names: frozenset[str] | None) -> bool:
    """Return True if the value of an expression may be a function, class, module or dict view, and not data.

    `code_names` are the names of such objects. None means that every name may refer to such an object.
    """
    if isinstance(node, ast.BoolOp):
        return any(_may_be_code(value, code_names) for value in node.values)
    if isinstance(node, ast.IfExp):
        return _may_be_code(node.body, code_names) or _may_be_code(node.orelse, code_names)
    if isinstance(node, ast.Attribute | ast.Subscript):
        # A part of data is data. A part of a module, such as ``math.sin``, may be a function.
        return code_names is None or _may_be_code(node.value, code_names)
    if isinstance(node, ast.Name):
        return code_names is None or node.id in code_names
    return not isinstance(node, _DATA)


def is_change(node: ast.AST, *changes: str) -> bool:
    """Return True if a syntax node calls ``state.set`` or ``state.delete``. If `changes` contains method names, only
    these methods count.
    """
    function = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "state"
        and function.attr in (changes or ("set", "delete"))
    )


def _is_named(node: ast.AST) -> bool:
    """Return True if a syntax node is the variable ``state`` or ``inputs``, whose keys are names of variables or
    inputs.
    """
    return isinstance(node, ast.Name) and node.id in ("state", "inputs")


def _is_read(node: ast.Attribute, modules: frozenset[str]) -> bool:
    return isinstance(node.ctx, ast.Load) and not (isinstance(node.value, ast.Name) and node.value.id in modules)


def _path(node: ast.expr) -> str | None:
    """Return the source of a chain of names such as ``inputs.user``, for error messages; None for any other syntax
    node.
    """
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _path(node.value)
        return f"{before}.{node.attr}" if before else None
    return None


class _Editor(ast.NodeVisitor):
    """AST visitor that collects the edits (`_Edit`) which translate source code for the sandbox.

    Edits of an outer node are added before edits of its inner nodes, and sorting is stable. Insertions at the same
    position are therefore nested correctly.
    """

    def __init__(self, source: str, modules: frozenset[str], *, has_own_dict: bool) -> None:
        self._source = source.encode()
        self._modules = modules
        self._has_own_dict = has_own_dict
        self._edits: list[_Edit] = []
        self._line_starts = [0]
        for line in self._source.split(b"\n"):
            # Positions of the parser are pairs of line and byte. The sum of a line's start and the byte is the place in
            # the source.
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)

    def edited_source(self) -> str:
        """Apply all collected edits to the original source, and return the new source."""
        pieces: list[bytes] = []
        position = 0
        # Stable: insertions at one place stay in the order in which they were added, the outer first.
        for edit in sorted(self._edits, key=lambda edit: edit.start):
            pieces += [self._source[position : edit.start], edit.text.encode()]
            position = edit.end
        return b"".join([*pieces, self._source[position:]]).decode()

    def wrap(self, node: ast.expr) -> None:
        """Add the edits that wrap an expression in a call of the sandbox helper `RESULT`, which raises an error if the
        value of the expression is not data.
        """
        start, end = self._span(node)
        # Two parentheses, because ``a, b`` without its own would be two arguments of the call.
        self._replace(start, start, f"{RESULT}((")
        self._edits.append(_Edit(end, end, "))"))

    def visit_Call(self, node: ast.Call) -> None:
        # The name and the opening parenthesis are replaced. The arguments and the closing parenthesis stay.
        if is_change(node) and isinstance(node.func, ast.Attribute):
            start = self._span(node)[0]
            opening = self._behind(node.func)
            # The line breaks in the replaced text, so that no line below moves.
            padding = "\n" * self._source.count(b"\n", start, opening)
            self._replace(start, opening + 1, f"{CHANGE}({padding}state, {node.func.attr!r}, ")
            self._normalise(node.args[:1])
        else:
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and _is_named(node.func.value):
                self._normalise(node.args[:1])
            # The method stays as written: only the value on which it is called is translated.
            self.visit(node.func.value if isinstance(node.func, ast.Attribute) else node.func)
            if isinstance(node.func, ast.Name) and node.func.id == "dict" and not self._has_own_dict:
                self._keep_first_keys(node)
        for argument in [*node.args, *node.keywords]:
            self.visit(argument)

    def _keep_first_keys(self, node: ast.Call) -> None:
        """Add the edits that pass the argument of ``dict(pairs)`` through the sandbox helper `ENTRIES`. The helper
        makes the dict keep the first of two equal keys, such as 1 and True, as Python does.
        """
        if not node.args or isinstance(node.args[0], ast.Starred):
            return
        start, end = self._span(node.args[0])
        opening = self._behind(node.func)
        if start == opening:  # a generator without parentheses: its range includes those of the call
            start = start + 1
            end = end - 1
        self._edits += [_Edit(start, start, f"{ENTRIES}("), _Edit(end, end, ")")]

    def visit_Dict(self, node: ast.Dict) -> None:
        """Add the edits that replace ``{a: b, **c}`` by ``ENTRIES([(a, b), *c.items()])`` if two keys may be equal,
        such as 1 and True. `ENTRIES` is a sandbox helper that keeps the first of equal keys, as Python does.
        """
        if _may_have_equal_keys(node):
            start, end = self._span(node)
            self._replace(start, start + 1, f"{ENTRIES}([")
            begin = start + 1
            for key, value in zip(node.keys, node.values, strict=True):
                close = self._behind(value)  # the comma, or the closing brace
                if key is None:
                    stars = self._after(_SPACE, begin)
                    self._edits += [_Edit(stars, stars + 2, "*("), _Edit(close, close, ").items()")]
                else:
                    self._edits.append(_Edit(begin, begin, "("))
                    self._separate(key)
                    self._edits.append(_Edit(close, close, ")"))
                # The next entry begins behind the comma.
                begin = close + 1
            self._edits.append(_Edit(end - 1, end, "])"))
        self.generic_visit(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        """Add the edits that replace ``{a: b for ...}`` by ``ENTRIES([(a, b) for ...])``. `ENTRIES` is a sandbox helper
        that keeps the first of equal keys, such as 1 and True. F-string keys need no helper, because they are always
        strings.
        """
        if not isinstance(node.key, ast.JoinedStr):
            start, end = self._span(node)
            self._replace(start, start + 1, f"{ENTRIES}([(")
            self._separate(node.key)
            close = self._behind(node.value)
            self._edits += [_Edit(close, close, ") "), _Edit(end - 1, end, "])")]
        self.generic_visit(node)

    def _separate(self, key: ast.expr) -> None:
        """Add the edit that replaces the colon after the key of a mapping entry by a comma, so that ``key: value``
        becomes a tuple.
        """
        colon = self._behind(key)
        self._edits.append(_Edit(colon, colon + 1, ","))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _is_named(node.value):
            self._normalise([node.slice])
        self.generic_visit(node)

    def _normalise(self, names: list[ast.expr]) -> None:
        """Add the edits that normalize names of variables in string constants, such as in ``state.set("total", 1)``, to
        Unicode form NFKC, because the log stores names in this form.
        """
        for name in names:
            # A constant over several lines is left alone, because its replacement on one line would move the lines
            # below.
            if isinstance(name, ast.Constant) and name.lineno == name.end_lineno:
                normal = normal_name(name.value)
                if normal != name.value:
                    self._edits.append(_Edit(*self._span(name), repr(normal)))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if _is_read(node, self._modules):
            start, end = self._span(node)
            dot = self._behind(node.value)
            name = self._after(_SPACE, dot + 1)
            path = _path(node.value)
            # The outer call is inserted before the value is visited, so that it comes first at the same position.
            self._replace(start, start, f"{ATTRIBUTE}(")
            self.visit(node.value)
            self._edits.append(_Edit(dot, dot + 1, ","))
            self._edits.append(_Edit(name, end, f" {node.attr!r}, {path!r})" if path else f" {node.attr!r})"))
        else:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        # An f-string is replaced as a whole, and only if it contains code that must be translated.
        lowering = _Lowering(self._modules, has_own_dict=self._has_own_dict)
        lowered = lowering.visit(copy.deepcopy(node))  # it changes nodes in place
        if lowering.changed:
            start, end = self._span(node)
            # Parentheses and line breaks preserve the line numbers of the following code.
            padding = "\n" * self._source.count(b"\n", start, end)
            self._edits.append(_Edit(start, end, f"({ast.unparse(lowered)}{padding})"))

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        """Skip the value patterns of ``match`` statements, so that they are not rewritten: ``case Colour.RED`` must
        remain a dotted name.
        """

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        """Skip the mapping patterns of ``match`` statements, whose keys may be dotted names."""

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        """Skip the class patterns of ``match`` statements, so that they are not rewritten."""

    def _replace(self, start: int, end: int, text: str) -> None:
        """Add the edit that replaces a byte range by a text that begins with a name. A space separates the name from a
        keyword before it.
        """
        before = self._source[start - 1 : start]
        touching = before.isalnum() or before == b"_"  # ``in(a).b``, ``return{a: b}``
        self._edits.append(_Edit(start, end, f" {text}" if touching else text))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        start = self._line_starts[node.lineno - 1] + node.col_offset
        return start, self._line_starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def _behind(self, node: ast.expr) -> int:
        """Return the position of the token that follows a node and the parentheses around it: the dot in
        ``(value).name``, the colon behind a key, the opening parenthesis of a call.
        """
        return self._after(_SPACE_AND_CLOSINGS, self._span(node)[1])

    def _after(self, pattern: re.Pattern[bytes], position: int) -> int:
        match = pattern.match(self._source, position)
        return match.end() if match else position


class _Lowering(ast.NodeTransformer):
    """AST transformer for code inside f-strings. It replaces each f-string by a call that joins its parts. In these
    parts, an attribute such as ``state.total`` becomes a call of a helper that reads the key, and a dict that may have
    equal keys becomes a call of `ENTRIES`.
    """

    def __init__(self, modules: frozenset[str], *, has_own_dict: bool) -> None:
        self._modules = modules
        self._has_own_dict = has_own_dict
        self.changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if is_change(node) and isinstance(node.func, ast.Attribute):
            self.changed = True
            changed = [ast.Name("state", ast.Load()), ast.Constant(node.func.attr), *map(self.visit, node.args)]
            return ast.Call(ast.Name(CHANGE, ast.Load()), changed, [self.visit(word) for word in node.keywords])
        # A method of a value is not an attribute that is read, as in `_Editor.visit_Call`.
        if isinstance(node.func, ast.Attribute):
            function = ast.Attribute(self.visit(node.func.value), node.func.attr, ast.Load())
        else:
            function = self.visit(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict" and not self._has_own_dict
        if is_dict and arguments and not isinstance(arguments[0], ast.Starred):
            arguments[0] = self._entries(arguments[0])
        return ast.Call(function, arguments, [self.visit(keyword) for keyword in node.keywords])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not _is_read(node, self._modules):
            return ast.Attribute(self.visit(node.value), node.attr, node.ctx)
        self.changed = True
        path = _path(node.value)
        names = [ast.Constant(node.attr), *([ast.Constant(path)] if path else [])]
        return _call(ATTRIBUTE, self.visit(node.value), *names)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        if not _may_have_equal_keys(node):
            return self.generic_visit(node)
        entries: list[ast.expr] = []
        # {a: b, **c} -> ENTRIES([(a, b), *c.items()])
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                items = ast.Call(ast.Attribute(self.visit(value), "items", ast.Load()), [], [])
                entries.append(ast.Starred(items, ast.Load()))
            else:
                entries.append(ast.Tuple([self.visit(key), self.visit(value)], ast.Load()))
        return self._entries(ast.List(entries, ast.Load()))

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        is_text = isinstance(node.key, ast.JoinedStr)
        self.generic_visit(node)
        if is_text:
            return node
        # {a: b for ...} -> ENTRIES([(a, b) for ...])
        return self._entries(ast.ListComp(ast.Tuple([node.key, node.value], ast.Load()), node.generators))

    def _entries(self, pairs: ast.expr) -> ast.Call:
        self.changed = True
        return _call(ENTRIES, pairs)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        # f"a{b}" -> "".join(["a", FORMAT(b, "", "")])
        parts = ast.List([self.visit(part) for part in node.values], ast.Load())
        return ast.Call(ast.Attribute(ast.Constant(""), "join", ast.Load()), [parts], [])

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        # -1 means no conversion. Otherwise it is the code of the letter: ``!r`` is 114.
        conversion = ast.Constant(chr(node.conversion) if node.conversion > 0 else "")
        specification = self.visit(node.format_spec) if node.format_spec else ast.Constant("")
        return _call(FORMAT, self.visit(node.value), conversion, specification)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


# --- analysis of names: names that a script takes from outside, and the keys that it reads of each --------------------


Keys = frozenset[str | int] | None
"""Keys of a mapping that a script can read. None means all keys."""

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
    """The names that a script uses, classified by scope with Python's symbol table."""

    def __init__(self, source: str, tree: ast.Expression | ast.Module) -> None:
        mode: Literal["eval", "exec"] = "eval" if isinstance(tree, ast.Expression) else "exec"
        try:
            self._top = symtable.symtable(source, "<script>", mode)
        except SyntaxError as error:
            raise ScriptSyntaxError(f"{error.msg} (line {error.lineno})", error.lineno) from error
        # The symbol table of the original is correct for code without comprehensions, which need not be copied.
        if any(isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp) for node in ast.walk(tree)):
            separate = _SeparateScopes().visit(copy.deepcopy(tree))
            self._top = symtable.symtable(ast.unparse(separate), "<script>", mode)
        self._inner = list(_children(self._top))

    def free(self) -> frozenset[str]:
        """Return the names that the script reads but does not define itself, such as ``state``."""
        used = set()
        for table in [self._top, *self._inner]:
            for symbol in table.get_symbols():
                if symbol.is_referenced() and self._outside(table, symbol):
                    used.add(symbol.get_name())
        return frozenset(used - self.defined())

    def _outside(self, table: symtable.SymbolTable, symbol: symtable.Symbol) -> bool:
        # A name of a function that is not its own is global there, such as ``state`` in a function body.
        return table is self._top or symbol.is_global()

    def defined(self) -> frozenset[str]:
        """Return the names that the script binds at module level, also through ``global`` in a function."""
        symbols = self._top.get_symbols()
        # A name that the script binds is not taken from outside, even if it is read first. Python raises NameError
        # then.
        names = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
        # ``global x`` in a function binds a name of the module.
        for table in self._inner:
            for symbol in table.get_symbols():
                if symbol.is_declared_global() and symbol.is_assigned():
                    names.add(symbol.get_name())
        return frozenset(names)

    def shadowed(self) -> frozenset[str]:
        """Return the names that a function, class or comprehension of the script binds in its own scope."""
        names = set()
        for table in self._inner:
            for symbol in table.get_symbols():
                if symbol.is_local() or symbol.is_parameter() or symbol.is_free():
                    names.add(symbol.get_name())
        return frozenset(names)

    def imported_only(self) -> frozenset[str]:
        """Return the names that the script binds by ``import``, without those that a function or comprehension of the
        script also uses for a variable of its own.
        """
        imported = {symbol.get_name() for symbol in self._top.get_symbols() if symbol.is_imported()}
        # A name of an import that a function uses for its own variable may be data there, whose attributes are keys.
        return frozenset(imported - self.shadowed())


class _SeparateScopes(ast.NodeTransformer):
    """AST transformer that replaces list, set and dict comprehensions by generators, because only generators have their
    own symbol table in every Python version.

    Since Python 3.12 the variables of a comprehension belong to the symbol table of the code around it.
    """

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
        """Replace an f-string by a tuple of the expressions in it, because not every Python version can convert
        f-strings back to source.
        """
        self.generic_visit(node)
        return ast.Tuple([part for part in node.values if not isinstance(part, ast.Constant)], ast.Load())

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        specification = [node.format_spec] if node.format_spec else []
        return ast.Tuple([node.value, *specification], ast.Load())


def _children(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield all symbol tables nested inside a symbol table, at any depth."""
    for child in table.get_children():
        yield child
        yield from _children(child)


def first_lines(tree: ast.AST, names: Collection[str]) -> dict[str, int | None]:
    """Return for each name the number of the line on which it first occurs in the code; None for a name that does not
    occur. The names are sorted by line.
    """
    lines: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            lines[node.id] = min(node.lineno, lines.get(node.id, node.lineno))
    ordered = sorted(names, key=lambda name: (lines.get(name, 0), name))
    return {name: lines.get(name) for name in ordered}


class _KeyUses(ast.NodeVisitor):
    """AST visitor that collects the constant keys that code reads from each variable, such as ``total`` for
    ``state.total``.

    A variable that is used in any other way is added to `whole`.
    """

    def __init__(self) -> None:
        self.keys: dict[str, set[str | int]] = {}
        self.whole: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        self.whole.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        # ``state.a.b`` reads the key ``a`` of ``state``: the outer attribute is visited, the inner one recorded.
        if not (isinstance(node.ctx, ast.Load) and self._reads(node.value, node.attr)):
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not (isinstance(node.ctx, ast.Load) and self._reads(node.value, _constant(node.slice))):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        # ``"a" in state`` needs only this key: the sandbox gets the key if it exists.
        member = len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn)
        if not (member and self._reads(node.comparators[0], _constant(node.left))):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            # Methods with a key as first argument. Other methods, such as ``items``, need the whole variable: their
            # object is visited as a name.
            key = _constant(node.args[0]) if node.args and node.func.attr in ("get", "delete") else None
            if not (self._sets(node.func) or self._reads(node.func.value, key)):
                self.visit(node.func.value)
        else:
            self.visit(node.func)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.visit(argument)

    def _sets(self, function: ast.Attribute) -> bool:
        """Return True if `function` is the method ``state.set``. In this case, record that the code uses ``state``, but
        no key of it, because ``state.set`` reads no variable.
        """
        if not (function.attr == "set" and isinstance(function.value, ast.Name) and function.value.id == "state"):
            return False
        self.keys.setdefault(function.value.id, set())
        return True

    def _reads(self, value: ast.AST, key: str | int | None) -> bool:
        """Record in `keys` that code reads the constant `key` of the variable `value`, and return True. If `value` is
        not a variable or `key` is None, record nothing and return False.
        """
        if not isinstance(value, ast.Name) or key is None:
            return False
        self.keys.setdefault(value.id, set()).add(key)
        return True


def _constant(node: ast.AST) -> str | int | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str | int) else None


def key_uses(tree: ast.AST, free: frozenset[str]) -> dict[str, Keys]:
    """Return for each of the free variables the keys that the code can read from it. None for a variable means that the
    code can read all keys.

    A variable of the same name in an inner scope counts as well. The result may have too many keys, never too few.
    """
    uses = _KeyUses()
    uses.visit(tree)
    # A variable in `whole` is used in a way that may reach all keys.
    return {name: None if name in uses.whole else frozenset(uses.keys.get(name, set())) for name in free}


def undefined(
    name: str, line: int | None, names: Mapping[str, Any], offered: Collection[str]
) -> UndefinedVariableError:
    """Return an `UndefinedVariableError` for a name that the code uses but that does not exist. The error contains a
    hint.
    """
    return UndefinedVariableError(name, line, _hint(name, names, offered))


def _hint(name: str, names: Mapping[str, Any], offered: Collection[str]) -> str | None:
    """Return the most specific hint for a name that does not exist; None if no hint applies.

    In this order: a literal of another language (``true``), a key of ``state`` or ``inputs``, a module that needs an
    import or a script step, a function that the sandbox excludes, a similar name.
    """
    if name.lower() in _ADVICE:
        return _ADVICE[name.lower()]
    # ``count`` in place of ``state.count``.
    for root in ("state", "inputs"):
        if isinstance(names.get(root), Mapping) and name in names[root]:
            return f"write {root}.{name}"
    if name in _NEEDS_ACTIVITY:
        if "documents" not in offered:
            return "only script steps may use the current time or random numbers"
        return _IMPORTS.get(name, f"write 'import {name}' first")
    if name in _SYSTEM:
        return "scripts are sandboxed: no files, processes or network"
    return did_you_mean(name, {*names, *offered})


# --- programs: checked and rewritten code, cached by its text ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Program:
    """Compiled program: the checked and rewritten code of one expression or script, ready to run in the sandbox."""

    text: str
    """Source as its author wrote it."""

    code: str
    """Rewritten source for the sandbox, with the same lines as the original."""

    prelude: str
    """Code that a fresh sandbox session runs before this code."""

    uses: Mapping[str, Keys]
    """Variables that the code reads but does not define, each with the keys that the code can read."""

    makes_code: bool
    """True if the code may use names that do not occur in its source, through ``eval`` and similar functions."""

    lines: Mapping[str, int | None]
    """Line on which each of these variables first occurs, sorted by line."""

    reference: Reference | None
    """The reference, if the expression is only a reference such as ``state.rows``; otherwise None."""

    structure: ExpressionNode | None
    """Tree of nodes of a composed expression such as ``[state.a, state.b]``; otherwise None."""

    def require(self, names: Mapping[str, Any], offered: Collection[str]) -> None:
        """Raise UndefinedVariableError if this program uses a name that is neither in `names` (the variables) nor in
        `offered` (built-in names).
        """
        for name in self.lines:
            if name not in names and name not in offered:
                raise undefined(name, self.lines[name], names, offered)


@lru_cache(maxsize=4096)
def compile_expression(text: str) -> Program:
    """Parse, check and rewrite an expression to a `Program` for the sandbox. The result is cached."""
    source, tree = parse_expression(text)
    return _compiled(text, source, tree)


@lru_cache(maxsize=512)
def compile_script(text: str) -> Program:
    """Parse, check and rewrite the script of a script step to a `Program` for the sandbox. The result is cached."""
    source, tree = parse_script(text)
    return _compiled(text, source, tree)


def _compiled(text: str, source: str, tree: ast.Expression | ast.Module) -> Program:
    """Check and rewrite parsed code to a `Program` for the sandbox. Raise `ScriptSyntaxError` if the code is not
    allowed or is nested too deeply.
    """
    try:
        scopes = Scopes(source, tree)
        # The name analysis is done before the checks, because a script may bind ``state`` itself.
        free = scopes.free()
        if isinstance(tree, ast.Expression):
            check_expression(tree)
        else:
            check_script(tree, scopes.shadowed())
        code = rewrite(source, tree, scopes.imported_only())
        makes_code = not free.isdisjoint(MAKE_CODE)
        lines = first_lines(tree, free)
        reference = reference_of(tree)
        # A tree only for expressions: scripts always run in the sandbox.
        structure = structure_of(source, tree) if reference is None and isinstance(tree, ast.Expression) else None
        return Program(text, code, prelude(code), key_uses(tree, free), makes_code, lines, reference, structure)
    except RecursionError as error:
        raise ScriptSyntaxError("nested too deeply; split it into smaller expressions") from error


def look_up(expression: str, names: Mapping[str, Any]) -> Any:
    """Look up the value of an expression that only refers to a value, like ``state.rows``. Return `NOTHING` for other
    expressions.
    """
    reference = compile_expression(expression).reference
    return NOTHING if reference is None else reference.resolve(names, Purpose.VALUE)


def select(programs: Iterable[Program], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables in `names` that at least one of the programs can read. If only some keys of a variable are
    read, only these keys are returned. The cost does not depend on the size of the state.
    """
    reached: dict[str, set[str | int] | None] = {}
    for program in programs:
        # ``eval`` may read any name, so that all values are sent.
        if program.makes_code:
            return {name: _part(value, None) for name, value in names.items()}
        for name, keys in program.uses.items():
            if name in names:
                # None absorbs all keys: one program that reads everything needs everything.
                collected = reached.setdefault(name, set())
                reached[name] = None if collected is None or keys is None else collected | keys
    return {name: _part(names[name], keys) for name, keys in reached.items()}


def _part(value: Any, keys: set[str | int] | None) -> Any:
    if not isinstance(value, Mapping):
        return value
    if keys is None:
        # The sandbox takes dicts. The state is a mapping of another type.
        return value if type(value) is dict else dict(value)
    part = {}
    # A fixed order, so that the sandbox gets the same input in each run. Keys of different types are comparable by
    # their text only.
    for key in sorted(keys, key=repr):
        name = same_name(key, value)
        if name is not None:
            # Rewritten code reads the normal form of a name. Code that cannot be rewritten reads its original form.
            part[key] = value[name]
            part[normal_name(key)] = value[name]
    return part


# --- errors: failures of the sandbox, with line numbers of the script ------------------------------------------------


_MAX_GROWTH = 64
"""Largest ratio between the memory that a value takes inside the sandbox and the size of its JSON form."""
_MISSING_KEY = re.compile(r"(?P<before>(?P<path>[\w.]+) has no key '(?P<key>.*)') \(keys: .*\)", re.DOTALL)


class FailureKind(Enum):
    """Reason why the sandbox returned no value for a piece of code."""

    RAISED = "raised"
    SYNTAX = "syntax"
    TIME = "time"
    MEMORY = "memory"
    CRASHED = "crashed"
    UNSENDABLE = "unsendable"


class SandboxError(Exception):
    """Failure of code in the sandbox. Its attribute `line` counts lines in the code that was sent to the sandbox, not
    in the user's source.
    """

    def __init__(self, kind: FailureKind, text: str, line: int | None = None) -> None:
        self.kind = kind
        self.text = text
        self.line = line
        self.printed = ""
        super().__init__(text)

    @property
    def ends_session(self) -> bool:
        """True if the sandbox session cannot be used for other code after this failure."""
        return self.kind in (FailureKind.TIME, FailureKind.MEMORY, FailureKind.CRASHED)


def forked() -> ScriptError:
    """Return the error that scripts cannot run in this process, because it was forked from a process that had already
    started the sandbox.
    """
    return ScriptError(
        "scripts cannot run in a process forked from one that has run scripts; "
        'start it with multiprocessing.get_context("spawn") instead'
    )


def script_error(
    failure: SandboxError, programs: Sequence[Program], names: Mapping[str, Any], limits: Limits
) -> ScriptError:
    """Convert a failure of the sandbox to the error that the user sees. `programs` are all programs that were sent to
    the sandbox together, in order.
    """
    if failure.kind is FailureKind.TIME:
        return ScriptLimitError(ran_too_long(limits.seconds), failure.line)
    if failure.kind is FailureKind.MEMORY:
        return ScriptLimitError(_needs_more(programs, names, limits.memory), failure.line)
    if failure.kind is FailureKind.CRASHED:
        return ScriptError(f"the sandbox process ended while it ran the script ({failure.text}); run it again")
    line, spans_lines = _program_line(failure.line, programs)
    where = f" (line {line})" if line and spans_lines else ""
    kind = ScriptSyntaxError if failure.kind is FailureKind.SYNTAX else ScriptError
    return kind(f"{_with_nearest_key(failure.text, names)}{where}", line)


def _needs_more(programs: Sequence[Program], names: Mapping[str, Any], memory: int) -> str:
    """Return the error message that a script needs more memory. If the largest value that was sent to the sandbox can
    be the cause, the message names it.
    """
    # Only values that were sent can have filled the memory of the sandbox.
    values = dict(_reached(select(programs, names)))
    weights = {place: _weight(value) for place, value in values.items()}
    place = max(weights, key=weights.__getitem__, default="")
    message = f"script needs more than {memory / 2**20:g} MiB of memory"
    # Even with the largest growth, the value alone would fit. Then the code itself has built too much.
    if not place or weights[place] * _MAX_GROWTH < memory:
        return f"{message}; work on smaller parts"
    value = values[place]
    kind = type(value).__name__
    if isinstance(value, str):
        kind = "text"
    elif isinstance(value, Mapping):
        kind = "mapping"
    return (
        f"{message}; {place}, a {kind} of {len(value):,}, is the largest value that the code reads: "
        f"pass the whole value to an action or a step with $({place}), and compute there what the script needs"
    )


def _reached(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield a pair for each value in `names`, the values that were sent with a script: its path, such as
    ``state.total``, and the value. A mapping such as ``state`` gives one pair for each of its entries.
    """
    for name, value in names.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", item) for key, item in value.items())
        else:
            yield name, value


def _weight(value: Any) -> int:
    """Return the approximate size of a value's JSON form in bytes."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(str(key)) + _weight(item) for key, item in value.items())
    return sum(map(_weight, value)) + len(value) if isinstance(value, list | tuple) else 8


def _program_line(line: int | None, programs: Sequence[Program]) -> tuple[int | None, bool]:
    """Convert a line number in the code that was sent to the sandbox. This code joins several programs; the result is
    the line number within one of them.

    Return also True if this program has more than one line.
    """
    if line is None:
        return None, False
    # Programs are joined by commas, so that the last line of one is the first line of the next. An expression ends with
    # a line that has only its closing parenthesis.
    for program in programs:
        count = program.code.count("\n")
        if line <= count or program is programs[-1]:
            return line, "\n" in program.text.strip()
        line -= count
    return line, False


def _with_nearest_key(text: str, names: Mapping[str, Any]) -> str:
    """Replace the list of keys in the sandbox's error message about a missing key: by the most similar existing key, or
    by all existing keys. Return any other message unchanged.

    The sandbox knows only the keys that the script mentions, but `names` has all keys.
    """
    match = _MISSING_KEY.search(text)
    value: Any = names
    # "state.order has no key 'totl'" -> the value of names["state"]["order"].
    for part in match["path"].split(".") if match else ():
        value = value.get(part) if isinstance(value, Mapping) else None
    if match is None or not isinstance(value, Mapping):
        return text
    keys = [str(key) for key in value]
    hint = did_you_mean(match["key"], keys) or f"keys: {', '.join(keys[:10]) or 'none'}"
    return text.replace(match[0], f"{match['before']} ({hint})")
