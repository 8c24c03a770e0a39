"""``%dive run`` in a cell waits without blocking the kernel: the call is awaited.

IPython awaits what a cell awaits, but not what a magic returns. So the text of a cell is changed before it runs:
``%dive run x``, which IPython has made ``get_ipython().run_line_magic('dive', 'run x')``, becomes ``await
get_ipython().run_line_magic('dive', 'await run x')``, also after ``r =``. Where that is impossible (in a function,
inside ``%%time`` or ``%%capture``) the call stays as it is, and the magic blocks.
`tests/notebook/test_awaiting.py` lists the texts that are changed, and those that are not.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from types import CodeType

from divebook.text.python import parse_python

AWAIT = "await"
"""Sub-command before another one: return a coroutine instead of blocking."""
AWAITED = ("run", "resume", "fork", "answer", "signal")

_CALL = "run_line_magic('dive', "
_HELP = re.compile(r"^(\s*%dive\s+)([a-z-]+)\s*\?{1,2}\s*$")
_OVERVIEW = re.compile(r"^(\s*)%%?dive\s*\?{1,2}\s*$")
_NO_WAY_IN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def await_magics(lines: list[str]) -> list[str]:
    """Put ``await`` before the calls of a cell that take long."""
    if not any(_CALL in line for line in lines):
        return lines
    try:
        tree = parse_python("".join(lines))
    except SyntaxError:
        return lines
    changed = list(lines)
    for call, command in reversed(list(_calls(tree))):
        row = call.lineno - 1
        line = changed[row].encode()
        before, between, behind = line[: call.col_offset], line[call.col_offset : command], line[command:]
        changed[row] = (before + b"await " + between + f"{AWAIT} ".encode() + behind).decode()
    return changed


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, int]]:
    """Yield the calls to be awaited, and where in their line the sub-command begins, in the order of the text."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _NO_WAY_IN):
            continue
        if isinstance(node, ast.Call) and (command := _command(node)) is not None:
            yield node, command
        yield from _calls(node)


def _command(call: ast.Call) -> int | None:
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "run_line_magic" and len(call.args) == 2):
        return None
    magic, line = call.args
    if not (isinstance(magic, ast.Constant) and magic.value == "dive" and isinstance(line, ast.Constant)):
        return None
    word = str(line.value).split(maxsplit=1)[:1]
    return line.col_offset + 1 if word and word[0] in AWAITED else None


def help_for_commands(lines: list[str]) -> list[str]:
    """Turn ``%dive run?`` into ``%dive help run``: IPython alone would look for an object called ``run``."""
    return [_OVERVIEW.sub(r"\1%dive help", _HELP.sub(r"\1help \2", line)) for line in lines]


def runs_inside(code: CodeType) -> bool:
    """Return whether this thread is executing `code` now."""
    frame = sys._getframe()  # noqa: SLF001 - the public way, inspect.stack, reads every source file
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is code:
            return True
    return False
