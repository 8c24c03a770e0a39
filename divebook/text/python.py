"""Python source as syntax trees."""

from __future__ import annotations

import ast
from typing import Literal, cast, overload

_ATTEMPTS = 100


@overload
def parse_python(source: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse_python(source: str, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """Return the tree of a source, in any thread.

    Python 3.11 counts the depth of trees for all threads together, and raises SystemError where two of them parse at
    the same time (https://github.com/python/cpython/issues/106905).

    Raises
    ------
    SyntaxError, ValueError, RecursionError, MemoryError
        As `ast.parse`.
    """
    for _ in range(_ATTEMPTS):
        try:
            return cast("ast.Module | ast.Expression", ast.parse(source, mode=mode))
        except SystemError:
            continue
    return cast("ast.Module | ast.Expression", ast.parse(source, mode=mode))
