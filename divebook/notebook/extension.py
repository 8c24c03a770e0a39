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
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.interactiveshell import InteractiveShell

from divebook.commands.table import spelled_in_notebook
from divebook.notebook.magics import AWAIT, DevEnvMagics, DiveMagics
from divebook.notebook.recovery import print_interrupted
from divebook.notebook.shell_state import remember_cell
from divebook.report.hints import Hint, Interface, as_magic, begin_interface, end_interface
from divebook.text.syntax import parse_python

if TYPE_CHECKING:
    from divebook.notebook.line_completion import CellWithCursor, Completions
    from divebook.replay.provenance import Provenance


# Sub-commands that wait for a run. All others return at once.
AWAITED_COMMANDS = ("run", "ask", "resume", "fork", "answer", "signal")
# The text into which IPython turns ``%dive ...``, except for its argument.
_CALL = "run_line_magic('dive', "
_COMMAND_WITH_QUESTION_MARK = re.compile(r"^(\s*)%%?(dive\s+)([a-z-]+)\s*\?{1,2}\s*$")
_MAGIC_WITH_QUESTION_MARK = re.compile(r"^(\s*)(?:%%?dive\s*\?{1,2}|\?{1,2}\s*%%?dive)\s*$")
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
    begin_interface(WORDS)
    # The clean-up transformers run first, before IPython replaces ``%dive run?`` by a search for an object `run`. The
    # others run last, when the text is valid Python.
    shell.input_transformers_cleanup.append(help_for_commands)
    shell.input_transformers_post.append(AwaitWherePossible(shell))
    install_completion(shell)
    install_inspection(shell)
    shell.events.register("pre_run_cell", remember_cell)
    if shell.display_formatter is not None:
        # By name, because loading the extension must not load the class.
        shell.display_formatter.mimebundle_formatter.for_type_by_name(*PROVENANCE, _bundle_of_causes)
    # The last statement, because it may read a store and resume runs, which needs the loaded magics.
    print_interrupted()


def _in_session(hint: Hint) -> str:
    """Return a hint as a line with the magic ``%dive``, which names the store if it is not that of the session."""
    from divebook.notebook.session import session_location  # loading the extension must be quick

    return as_magic(hint, session_location())


WORDS = Interface(_in_session, spelled_in_notebook)
"""The words of notebooks for commands."""


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove everything from an IPython shell that `load_ipython_extension` added, and close the session.

    Runs that have not ended can be resumed later.
    """
    from divebook.notebook.session import close_session  # loading the extension must be quick

    _remove_all(shell)
    close_session()


def _remove_all(shell: InteractiveShell) -> None:
    end_interface(WORDS)
    _remove(shell.input_transformers_cleanup, lambda transform: transform is help_for_commands)
    # Another shell or an earlier load has its own instance, so that the class is compared.
    _remove(shell.input_transformers_post, lambda transform: isinstance(transform, AwaitWherePossible))
    remove_completion(shell)
    remove_inspection(shell)
    if shell.display_formatter is not None:
        # The name while no provenance was shown, and after that the class.
        shell.display_formatter.mimebundle_formatter.pop(".".join(PROVENANCE), None)
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


PROVENANCE = ("divebook.replay.provenance", "Provenance")
"""Module and name of the class that shows itself as a view."""


def _bundle_of_causes(provenance: Provenance, **options: Any) -> dict[str, object]:
    """Return the causes of a value by MIME type; see `divebook.notebook.causes.bundle_of_causes`."""
    from divebook.notebook.causes import bundle_of_causes  # loading the extension must be quick

    return bundle_of_causes(provenance, **options)


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
    """Replace the cell line ``%dive run?`` by ``%dive help run``, and ``%dive?`` by ``%dive help``; the same for
    ``%%dive``, which has the same help.
    """
    replaced = []
    for line in lines:
        command_help = _COMMAND_WITH_QUESTION_MARK.sub(r"\1%\2help \3", line)
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


# --- completion and help in cells ------------------------------------------------------------------------------------

# Tab completion and Shift+Tab help for ``%dive`` lines and ``%%dive`` cells, for all front ends of IPython.
#
# `DiveMatcher` determines which part of the cell contains the cursor: a line of ``%dive``, the first line of a
# ``%%dive`` cell, or its body. It passes the part to `divebook.notebook.line_completion`, which is imported at the
# first completion. `HelpAtCursor` answers Shift+Tab. Both use an existing session and store, but never create them.


# The assignment is optional: ``%dive ``, ``r = %dive ``, ``a, b[0] = %dive ``.
_LINE = re.compile(r"\s*(?:[\w.,\[\]\"' ]+=\s*)?%dive\s")
_CELL = re.compile(r"\s*%%dive\s")
_BODIES = ("workflow", "agent")
_TRY = "try"


class DiveMatcher:
    """Matcher of IPython's completer: it completes words in ``%dive`` lines and ``%%dive`` cells."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    @context_matcher(identifier="divebook")  # type: ignore[untyped-decorator]
    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return the completions of the word before the cursor; an empty result outside ``%dive`` and ``%%dive``."""
        from divebook.errors import StoreError

        try:
            result = self._completions(context)
        # A typing person must not see an error of the store.
        except StoreError:  # reported when the store is really used
            result = None
        completions = []
        # IPython replaces the fragment by the completion, so it must be the part that the matcher has completed.
        fragment = context.token
        if result is not None and result.candidates:
            completions = [SimpleCompletion(entry.text, type=entry.type) for entry in result.candidates]
            fragment = result.fragment
        # `suppress` hides all other matchers, which would offer Python names and files inside a line of words. Outside
        # ``%dive`` the list is empty, and an empty result suppresses nothing.
        return {"completions": completions, "suppress": True, "matched_fragment": fragment, "ordered": True}

    def _completions(self, context: CompletionContext) -> Completions | None:
        lines = context.full_text.split("\n")
        row = context.cursor_line
        column = context.cursor_position
        body = body_at(lines, row, column)
        if body is not None:
            return _in_cell(body)
        head = lines[row][:column]
        top = _top(lines)
        # The space at the end lets the pattern match ``%%dive`` without words.
        cell = _CELL.match(f"{lines[top]} ") if row == top else None
        if cell is not None:
            # Nothing is completed inside the word ``%%dive`` itself.
            return _first_line(head[cell.end() :], self._shell) if column >= cell.end() else None
        line = line_before(head)
        return None if line is None else _in_line(line, self._shell)


def _top(lines: Sequence[str]) -> int:
    """Return the index of the first line of a cell that is not blank; 0 if all are blank."""
    return next((number for number, line in enumerate(lines) if line.strip()), 0)


def body_at(lines: Sequence[str], row: int, column: int) -> CellWithCursor | None:
    """Return the body of a ``%%dive`` cell, divided at the cursor.

    None for cells without ``%%dive``, and if the cursor is in the first line.
    """
    top = _top(lines)
    cell = _CELL.match(f"{lines[top]} ") if row > top else None
    if cell is None:
        return None
    from divebook.notebook.line_completion import CellWithCursor

    # The option is searched for in the text and not parsed, because the line may be unfinished.
    first = lines[top][cell.end() :]
    words = first.split()
    return CellWithCursor(
        above="\n".join(lines[top + 1 : row]),
        head=lines[row][:column],
        tail=lines[row][column:],
        below="\n".join(lines[row + 1 :]),
        body=_kind_of_body(words[0] if words else ""),
        dialect="dive" if "--dialect dive" in first or "--dialect=dive" in first else "divebook",
    )


def _kind_of_body(word: str) -> str:
    """Return the kind of definition that a ``%%dive`` cell contains: ``step``, ``workflow``, ``agent`` or ``file``. The
    kind determines the keys that completion offers. `word` is the first word of the cell's first line.

    ``step`` is for ``%%dive try``, and ``file`` for a cell with several definitions.
    """
    if word == _TRY:
        return "step"
    return word if word in _BODIES else "file"


def line_before(head: str) -> str | None:
    """Return the text between ``%dive`` and the cursor; None for a line without ``%dive``."""
    line = _LINE.match(head)
    return None if line is None else head[line.end() :]


def install_completion(shell: InteractiveShell) -> None:
    """Add a `DiveMatcher` to the completer of a shell."""
    completer: Any = shell.Completer
    completer.custom_matchers.append(DiveMatcher(shell).match)


def remove_completion(shell: InteractiveShell) -> None:
    """Remove the `DiveMatcher` from the completer of a shell."""
    completer: Any = shell.Completer
    matchers = completer.custom_matchers
    # `entry` is a bound method; its ``__self__`` is the matcher.
    matchers[:] = [entry for entry in matchers if not isinstance(getattr(entry, "__self__", None), DiveMatcher)]


def _in_line(before: str, shell: InteractiveShell) -> Completions:
    from divebook.notebook.line_completion import KnownNames, complete
    from divebook.notebook.magics import COMMANDS

    return complete(before, COMMANDS, KnownNames(shell))


def _first_line(before: str, shell: InteractiveShell) -> Completions:
    """Return the completions of the word before the cursor if the cursor is in the first line of a ``%%dive`` cell."""
    from divebook.notebook.cells import DIALECTS
    from divebook.notebook.line_completion import Candidate, KnownNames, matching

    # ``%%dive try`` takes the same words and options as the line ``%dive try``.
    if before.lstrip().startswith(f"{_TRY} "):
        return _in_line(before, shell)
    names = KnownNames(shell)
    # Only the words before the cursor decide. The last part of the split is the unfinished word.
    *words, fragment = before.split(" ")
    previous = [word for word in words if word]
    is_option = fragment.startswith("-")
    # The first line is: %%dive [workflow|agent|script|try] [NAME] [--dialect DIALECT]
    if previous[-1:] == ["--dialect"]:
        return matching(fragment, (Candidate(name, "dialect") for name in DIALECTS))
    if not previous and not is_option:
        return matching(fragment, (Candidate(name, "command") for name in (*_BODIES, "script", _TRY)))
    # All words are complete: kind and name. Only the option is left.
    if len(previous) != 1 or is_option:
        return matching(fragment, [Candidate("--dialect", "option")])
    match previous[0]:
        case "workflow":
            candidates = [Candidate(name, "workflow") for name in names.workflows()]
        case "agent" | "script":
            candidates = [Candidate(name, "agent") for name in names.agents()]
        case _:
            candidates = []
    return matching(fragment, candidates)


def _in_cell(document: CellWithCursor) -> Completions:
    from divebook.notebook.line_completion import DefinedNames, complete_cell, present_environment

    environment = present_environment()
    # Before the first use of the session, only the names inside the cell are known.
    if environment is None:
        return complete_cell(document, DefinedNames())
    names = DefinedNames(
        tuple(environment.definitions.agents),
        tuple(environment.definitions.actions),
        tuple(environment.definitions.workflows),
    )
    return complete_cell(document, names)


# --- Shift+Tab: the meaning of the key or sub-command under the cursor -----------------------------------------------
#
# A kernel answers for a place in a cell by asking IPython about the Python name there. Keys are not Python names, so
# the kernel's method is replaced; elsewhere in a cell the replacement calls the original.

_WORD = re.compile(r"\w*")


class HelpAtCursor:
    """Replacement of the kernel method ``do_inspect``, which answers Shift+Tab, with help for ``%dive``.

    Outside ``%dive`` and ``%%dive`` the original method answers.
    """

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original

    def __call__(self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Iterable[str] = ()) -> Any:
        """Return the reply to the message ``inspect_request`` by which a front end asks for help about the code at the
        cursor.
        """
        text = help_at(code, cursor_pos)
        if text is None:
            return self._original(code, cursor_pos, detail_level, omit_sections)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}


def install_inspection(shell: InteractiveShell) -> None:
    """Make a shell's kernel answer Shift+Tab with help for ``%dive``, by replacing its method ``do_inspect``. In a
    terminal, which has no kernel, nothing changes.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        # An attribute of the kernel object hides the method of its class, so that `remove_inspection` restores it by
        # deleting the attribute.
        kernel.do_inspect = HelpAtCursor(kernel.do_inspect)


def remove_inspection(shell: InteractiveShell) -> None:
    """Undo `install_inspection`: restore the original method ``do_inspect`` of a shell's kernel."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and isinstance(vars(kernel).get("do_inspect"), HelpAtCursor):
        del kernel.do_inspect


def help_at(code: str, cursor: int) -> str | None:
    """Return the help for the key or sub-command at an offset in a cell; None if the offset is at neither of them."""
    lines = code.split("\n")
    row = code.count("\n", 0, cursor)
    # The kernel passes the cursor as an offset in the whole cell.
    column = cursor - (code.rfind("\n", 0, cursor) + 1)
    body = body_at(lines, row, column)
    if body is not None:
        from divebook.definitions.schema import help_for
        from divebook.notebook.line_completion import key_at

        table_and_key = key_at(body)
        return None if table_and_key is None else help_for(*table_and_key)
    line = line_before(lines[row])
    if line is None:
        return None
    from divebook.notebook.magics import COMMANDS

    name = _WORD.match(line.lstrip())
    return COMMANDS[name[0]].whole_help if name and name[0] in COMMANDS else None
