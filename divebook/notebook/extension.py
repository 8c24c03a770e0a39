"""The IPython extension, loaded by ``%load_ext divebook`` and removed by ``%unload_ext divebook``.

Loading registers the magics, completion, help at the cursor, and two transformations of the text of cells:

- ``%dive run?`` becomes ``%dive help run``, because IPython would search for an object called ``run``;
- ``%dive run x`` is awaited, so that it waits without blocking the kernel.

IPython awaits the ``await`` expressions of a cell, but not the value that a magic returns. The text of a cell is
therefore changed before it runs. IPython has already turned ``%dive run x`` into ``get_ipython().run_line_magic('dive',
'run x')``. This becomes ``await get_ipython().run_line_magic('dive', 'await run x')``, also after ``r =``. Inside a
function, ``%%time`` or ``%%capture`` no ``await`` is possible. The text then stays unchanged, and the magic blocks.
`tests/notebook/test_awaiting.py` lists texts that are changed and texts that are not.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TypeAlias

from IPython.core.interactiveshell import InteractiveShell

from divebook.notebook.completion import install_completion, install_inspection, remove_completion, remove_inspection
from divebook.notebook.magics import AWAIT, DevEnvMagics, DiveMagics
from divebook.notebook.recovery import print_interrupted
from divebook.notebook.shell_state import remember_cell
from divebook.text.syntax import parse_python

# Sub-commands that wait for a run. All others return at once.
AWAITED_COMMANDS = ("run", "resume", "fork", "answer", "signal")
# The text into which IPython turns ``%dive ...``, except for its argument.
_CALL = "run_line_magic('dive', "
_COMMAND_WITH_QUESTION_MARK = re.compile(r"^(\s*%dive\s+)([a-z-]+)\s*\?{1,2}\s*$")
_MAGIC_WITH_QUESTION_MARK = re.compile(r"^(\s*)%%?dive\s*\?{1,2}\s*$")
# No ``await`` is added inside these: a plain function cannot await, and the cell awaits only its own statements.
_FUNCTION_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Transform: TypeAlias = Callable[[list[str]], list[str]]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add divebook to an IPython shell: its magics, completion, help, and two functions that change the text of a cell
    before it runs, for example to put ``await`` before slow magics. Print which executions were interrupted.

    Loading twice has the same effect as loading once.
    """
    # Loading again, for example after an upgrade, replaces the earlier objects.
    _remove_all(shell)
    shell.register_magics(DiveMagics, DevEnvMagics)
    # The clean-up transformers run first, before IPython replaces ``%dive run?`` by a search for an object `run`. The
    # others run last, when the text is valid Python.
    shell.input_transformers_cleanup.append(help_for_commands)
    shell.input_transformers_post.append(AwaitWherePossible(shell))
    install_completion(shell)
    install_inspection(shell)
    shell.events.register("pre_run_cell", remember_cell)
    # The last statement, because it may read a store and resume runs, which needs the loaded magics.
    print_interrupted()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove everything from an IPython shell that `load_ipython_extension` added, and close the session.

    Runs that have not ended can be resumed later.
    """
    from divebook.notebook.session import close_session  # loading the extension must be quick

    _remove_all(shell)
    close_session()


def _remove_all(shell: InteractiveShell) -> None:
    _remove(shell.input_transformers_cleanup, lambda transform: transform is help_for_commands)
    # Another shell or an earlier load has its own instance, so that the class is compared.
    _remove(shell.input_transformers_post, lambda transform: isinstance(transform, AwaitWherePossible))
    remove_completion(shell)
    remove_inspection(shell)
    if remember_cell in shell.events.callbacks["pre_run_cell"]:
        shell.events.unregister("pre_run_cell", remember_cell)
    remaining = [entry for entry in shell.configurables if not isinstance(entry, DiveMagics | DevEnvMagics)]
    # `register_magics` has put the instances into three places of the shell: its configurables, the registry of
    # classes, and the tables of line and cell magics.
    shell.configurables[:] = remaining
    for magics_type in (DiveMagics, DevEnvMagics):
        shell.magics_manager.registry.pop(magics_type.__name__, None)
    for magics in shell.magics_manager.magics.values():
        magics.pop("dive", None)
        magics.pop("dev_env", None)


def _remove(transforms: list[Transform], is_ours: Callable[[Transform], bool]) -> None:
    transforms[:] = [transform for transform in transforms if not is_ours(transform)]


# --- changes to the text of cells ------------------------------------------------------------------------------------


class AwaitWherePossible:
    """IPython transformer of cell texts. It puts ``await`` before slow ``%dive`` lines, so that they do not block the
    kernel's event loop.

    It belongs to one shell, because the text is changed only if the shell can await.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines of a cell with ``await`` before slow ``%dive`` calls. Return them unchanged if the shell
        runs the cell without an event loop.
        """
        # A text that is transformed while `run_code` is on the stack runs inside another cell, for example by
        # ``%%time``. The code around it cannot await.
        if not self._shell.autoawait or runs_inside(InteractiveShell.run_code.__code__):
            return lines
        return await_magics(lines)


def await_magics(lines: list[str]) -> list[str]:
    """Put ``await`` before those ``%dive`` calls of a cell that take long. Return the changed lines of the cell; if
    they have a syntax error, return them unchanged.
    """
    # The parser is slow compared to this search, and runs for each cell of the user.
    if not any(_CALL in line for line in lines):
        return lines
    try:
        tree = parse_python("".join(lines))
    except SyntaxError:
        return lines
    changed = list(lines)
    for call, offset in reversed(list(_calls(tree))):  # from the end, so that earlier offsets stay valid
        # The offsets of syntax trees count bytes of UTF-8.
        row = call.lineno - 1
        line = changed[row].encode()
        before = line[: call.col_offset]
        call_text = line[call.col_offset : offset]
        rest = line[offset:]
        # run_line_magic('dive', 'run x') -> await run_line_magic('dive', 'await run x')
        changed[row] = (before + b"await " + call_text + f"{AWAIT} ".encode() + rest).decode()
    return changed


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, int]]:
    """Yield those calls in the code of a cell that run a slow ``%dive`` sub-command, in the order of the text. Yield
    with each call the byte offset at which the name of the sub-command starts in its line.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTION_SCOPES):
            continue
        if isinstance(node, ast.Call):
            offset = _offset_of_command(node)
            if offset is not None:
                yield node, offset
        yield from _calls(node)


def _offset_of_command(call: ast.Call) -> int | None:
    """Return the byte offset of the sub-command in a call ``run_line_magic("dive", "run ...")``, into which IPython
    translates the line ``%dive run ...``.

    None for other function calls, and for sub-commands that need not be awaited.
    """
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "run_line_magic" and len(call.args) == 2):
        return None
    magic, line = call.args
    # The line is not a constant if the person calls `run_line_magic` with a variable.
    if not (isinstance(magic, ast.Constant) and magic.value == "dive" and isinstance(line, ast.Constant)):
        return None
    words = str(line.value).split(maxsplit=1)
    if not words or words[0] not in AWAITED_COMMANDS:
        return None
    return line.col_offset + 1  # after the quote


def help_for_commands(lines: list[str]) -> list[str]:
    """Replace the cell line ``%dive run?`` by ``%dive help run``, and ``%dive?`` by ``%dive help``."""
    replaced = []
    for line in lines:
        command_help = _COMMAND_WITH_QUESTION_MARK.sub(r"\1help \2", line)
        replaced.append(_MAGIC_WITH_QUESTION_MARK.sub(r"\1%dive help", command_help))
    return replaced


def runs_inside(code: CodeType) -> bool:
    """Return whether the code object `code` is on the Python call stack of this thread."""
    # The frame of this function itself is not checked.
    frame = sys._getframe()  # noqa: SLF001 - the public way, inspect.stack, reads every source file
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is code:
            return True
    return False
