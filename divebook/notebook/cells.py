"""Cells with definitions (``%%dive``), and execution of the code cells of a notebook without a kernel."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeAlias, cast

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from divebook.definitions.definition import Definitions
from divebook.definitions.dialect import DIALECT_RULES, OWN, Dialect
from divebook.definitions.reader import Body, read_definitions
from divebook.definitions.table import nearest_position
from divebook.definitions.yaml_text import yaml_of
from divebook.errors import DefinitionError, DivebookError, Place, Problem, SetupError, did_you_mean
from divebook.notebook.commands import Names, parse, print_answer, split
from divebook.notebook.recovery import lines_after_defining
from divebook.notebook.session import Defined, Session
from divebook.text.format import visible
from divebook.text.redaction import one_line, shared

_OURS = str(Path(__file__).parents[1]) + os.sep
BODIES = ("workflow", "agent")
DIALECTS = tuple(DIALECT_RULES)
SCRIPT = "script"
USAGE = (
    "%%dive, %%dive workflow NAME or %%dive agent NAME (add --dialect dive for the legacy Dive dialect), "
    "%%dive script AGENT, or %%dive try STEP"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A ``%%dive`` cell with definitions: its text below the first line, and the settings in the first line."""

    text: str
    """The lines of the cell below the first line."""
    body: Body = "file"
    name: str | None = None
    dialect: Dialect = OWN
    lines_above: int = 1
    """Number of lines of the cell before `text`."""
    number: int = 0
    """Execution count of the cell; 0 if unknown."""

    def read(self) -> Definitions:
        """Parse the definitions of the cell.

        Line numbers of a `DefinitionError` count from the top of the cell.
        """
        return read_definitions(
            self.text,
            source_name=f"Cell [{self.number}]" if self.number else "cell",
            dialect=self.dialect,
            line_offset=self.lines_above,
            body=self.body,
            name=self.name,
        )

    @property
    def lines(self) -> Sequence[str]:
        """The lines of the whole cell, so that the line numbers in error messages are correct. The lines above `text`
        are not stored, and are returned as empty strings.
        """
        return [""] * self.lines_above + self.text.splitlines()


def parse_cell(line: str, text: str, lines_above: int = 1, scope: Names | None = None, number: int = 0) -> Cell:
    """Parse the first line of a ``%%dive`` cell (without ``%%dive``), and return the cell.

    `UsageError` is raised if the line is invalid.
    """
    # `inputs=False`: a word with ``=`` is a name here, not an input of a workflow.
    arguments = parse(split(line), {}, {"--dialect": "dialect"}, inputs=False, names=scope)
    dialect = arguments.options.get("dialect", OWN)
    if dialect not in DIALECTS:
        raise UsageError(f"unknown dialect {dialect!r}; choose one of: {', '.join(DIALECTS)}")
    # ``%%dive`` without a word defines everything that a file can define, under the keys Agents, Workflows and so on.
    kind, *names = arguments.words or ("file",)
    if kind != "file" and kind not in BODIES:
        advice = did_you_mean(kind, (*BODIES, SCRIPT, "try")) or f"write {USAGE}"
        raise UsageError(f"unknown word {kind!r} after %%dive ({advice})")
    if len(names) > 1 or (kind == "file" and names):
        expected = "no name" if kind == "file" else "one name"
        raise UsageError(f"%%dive takes {expected} here, not {' '.join(names)!r}; put a name with spaces in quotes")
    return Cell(text, cast("Body", kind), names[0] if names else None, dialect, lines_above, number)


def scripted_agent(line: str) -> str | None:
    """Return the name of the agent whose answers the cell sets, if its first line is ``%%dive script AGENT``. Return
    None for a cell with definitions.

    `line` is the first line without ``%%dive``.
    """
    # ``%%dive`` alone has no words, and is a cell with definitions.
    kind, *names = split(line) or ("",)
    if kind != SCRIPT:
        return None
    if len(names) != 1:
        raise UsageError(f"%%dive script needs the name of one agent, not {' '.join(names) or 'an empty line'}")
    return names[0]


def define_cell(session: Session, line: str, text: str, lines_above: int, names: Names, *, number: int) -> None:
    """Add the definitions of a ``%%dive`` cell to the session and print the added and replaced definitions. For
    ``%%dive script AGENT``, set the scripted answers of an agent instead.

    Parameters
    ----------
    line
        The first line, without ``%%dive``.
    lines_above
        Number of lines of the cell before `text`.
    names
        Variables that expressions on the first line may use.
    number
        Number of the cell's execution, 0 if unknown.
    """
    # The text of a script cell is a list of replies, which no table of definitions describes. It has its own reader.
    agent = scripted_agent(line)
    if agent is not None:
        with short_errors([""] * lines_above + text.splitlines()):
            print_answer(session.follow_script(agent, yaml_of(text, "cell", lines_above)))
        return
    cell = parse_cell(line, text, lines_above, names, number)
    # Positions of parts exist only after the text was read. An error of `define`, such as an unknown agent, names only
    # the part; `positions` provide its line.
    with short_errors(cell.lines):
        definitions = cell.read()
    with short_errors(cell.lines, definitions.positions):
        change = session.define(definitions)
        # These definitions may complete those that an interrupted run needs, so that it can be resumed now.
        lines = [confirmation(change), *lines_after_defining(session)]
    print_answer("\n".join(lines))


def confirmation(change: Defined) -> str:
    """Return the text that a ``%%dive`` cell prints after it has run: the names of added and replaced definitions, and
    warnings.
    """
    lines = []
    if change.defined:
        lines.append(f"defined {', '.join(change.defined)}")
    if change.replaced:
        lines.append(f"replaced {', '.join(change.replaced)}")
    lines += [f"warning: {problem_text(problem)}" for problem in change.warnings]
    return "\n".join(lines)


# --- code cells that run without a kernel ----------------------------------------------------------------------------

CELL_FILE_PREFIX = "<ipython-input"
"""Prefix of the file names under which IPython compiles cells."""


def run_cells(cells: Iterable[tuple[int, str]], path: Path) -> list[Any]:
    """Run code cells of a notebook in an IPython shell of this process; return the values of all variables that they
    set.

    `cells` are pairs of the number and the code of a cell. Their output goes to stderr, so that it does not mix with
    results on stdout.

    Raises
    ------
    SetupError
        A cell fails. The ones after it are not run.
    """
    # IPython's history is a database of the user's own sessions, in which these cells do not belong.
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    # The variables that IPython itself defines (`In`, `exit`, ...) are not results of the cells.
    before = set(shell.user_ns)
    sys.path.insert(0, str(path.parent.absolute()))  # as a kernel does, which starts in the notebook's folder
    with contextlib.redirect_stdout(sys.stderr):
        for number, source in cells:
            _run(shell, source, f"code cell {number} of {path}")
    return [value for name, value in shell.user_ns.items() if name not in before]


def _run(shell: InteractiveShell, source: str, where: str) -> None:
    with _without_tracebacks(shell):
        result = shell.run_cell(source, silent=True)  # type: ignore[no-untyped-call]  # IPython has no types
    # A syntax error is raised before the code is executed, every other error while it is executed.
    error = result.error_before_exec or result.error_in_exec
    # Ctrl-C ends the whole command. It is not a fault of the notebook.
    if isinstance(error, KeyboardInterrupt):
        raise error
    if error is not None:
        line = _line(error, source)
        place = f"{where}, line {line}" if line else where
        raise SetupError(f"{place}: {type(error).__name__}: {one_line(str(error), 400)}") from error


@contextlib.contextmanager
def _without_tracebacks(shell: InteractiveShell) -> Iterator[None]:
    """Stop an IPython shell from printing tracebacks during a ``with`` block, because the function `_run` raises the
    errors of cells instead.
    """
    names = ("showtraceback", "showsyntaxerror")
    for name in names:
        # An attribute of the object hides the method of its class.
        setattr(shell, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name in names:
            delattr(shell, name)  # so that the method of its class counts again


def _line(error: BaseException, source: str) -> int | None:
    """Return the number of the line of a cell that raised an error; None if the traceback contains no line of a cell.

    IPython does not count the empty lines at the top of a cell, so they are added.
    """
    above = source[: len(source) - len(source.lstrip())].count("\n")
    if isinstance(error, SyntaxError):
        return above + (error.lineno or 1)
    # A library may have raised the error. The innermost frame in a cell is then the person's own line.
    frames = extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename.startswith(CELL_FILE_PREFIX)]
    if not lines:
        return None
    return above + (lines[-1] or 1)


# --- errors: cause, line of the cell and next step instead of a traceback ---


Positions: TypeAlias = Mapping[Place, tuple[int, int]]

MAX_PROBLEMS = 12
"""Problems of one definition that a cell shows."""
CARD_WIDTH = 110


@contextmanager
def located(line: tuple[int, str] | None) -> Iterator[None]:
    """Add the number and text of the cell line that is running to each error of divebook that is raised in the ``with``
    block.

    `line` is None for a cell of one line; errors then stay unchanged.
    """
    try:
        yield
    # IPython shows a `UsageError` as one line without a traceback, so that a new text is enough.
    except UsageError as error:
        where = "" if line is None else f"cell line {line[0]}: "
        raise UsageError(shared().text(f"{where}{error}")) from None
    except DivebookError as error:
        # An error with a short form already states its place.
        if line is not None and not hasattr(error, "_render_traceback_"):
            name = type(error).__name__
            message = error_lines(error)[0].removeprefix(f"{name}: ")
            show_as(error, [f"{name}: cell line {line[0]}: {message}", f"    {one_line(line[1], CARD_WIDTH)}"])
        raise


@contextmanager
def short_errors(cell: Sequence[str] = (), positions: Positions | None = None) -> Iterator[None]:
    """Display errors of divebook that are raised in the ``with`` block as a few lines instead of a traceback.

    The errors are raised again, so that the cell fails.

    Parameters
    ----------
    cell
        The lines of the cell, if the lines are to show the place of the problem.
    positions
        Line and column of each part of a definition, for errors that name only the part.
    """
    try:
        yield
    except DivebookError as error:
        # An error that `located` or a called function has given a short form keeps it.
        if not hasattr(error, "_render_traceback_"):
            show_as(error, error_lines(error, cell, positions))
        raise


def show_as(error: BaseException, lines: Sequence[str]) -> None:
    """Make IPython show some lines of text for an error instead of its traceback. Secrets in the lines are replaced."""
    # IPython calls this method of an error, if it exists, instead of formatting the traceback.
    error.__dict__["_render_traceback_"] = lambda: [shared().text(line) for line in lines]


def show_short(error: DivebookError, shell: InteractiveShell) -> None:
    """Make IPython show an error of a function that a cell has called as a few lines, with the line of the cell, and
    not as a traceback. ``%tb Verbose``, or ``%xmode Verbose`` before the cell, shows the whole traceback.
    """
    if hasattr(error, "_render_traceback_"):
        return

    def render() -> list[str]:
        if shell.InteractiveTB.mode == "Verbose":
            full: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
            return full
        # The traceback has the frames of the cell only when the error has left the function.
        frames = takewhile(lambda frame: not frame.filename.startswith(_OURS), extract_tb(error.__traceback__))
        places = [f"  line {frame.lineno}: {one_line(frame.line or '', 100)}" for frame in frames][-1:]
        return [
            shared().text(line) for line in (*error_lines(error), *places, "  show the full traceback: %tb Verbose")
        ]

    error.__dict__["_render_traceback_"] = render


def error_lines(error: DivebookError, cell: Sequence[str] = (), positions: Positions | None = None) -> list[str]:
    """Return the lines of text that a cell shows for an error instead of a traceback.

    A `DefinitionError` is shown with each of its problems, and with the lines of the cell that contain them.
    """
    kind = type(error).__name__
    # The error names a part of a definition, such as ``("Workflows", 0, "Steps", 1)``. If its position is unknown, the
    # line of the nearest enclosing part is shown.
    if isinstance(error, SetupError) and error.place and positions:
        problem = Problem(str(error)).at(*nearest_position(error.place, positions))
        return [f"{kind}: {problem_text(problem)}", *_pointer(problem, cell)]
    if not (isinstance(error, DefinitionError) and cell):
        return [f"{kind}: {visible(str(error))}"]
    # One mistake can cause many problems. The first ones show its place.
    problems = error.problems[:MAX_PROBLEMS]
    if len(error.problems) == 1:
        return [f"{kind}: {problem_text(problems[0])}", *_pointer(problems[0], cell)]
    lines = [f"{kind}: {len(error.problems)} problems in this cell; nothing was defined"]
    for problem in problems:
        lines += [f"  {problem_text(problem)}", *_pointer(problem, cell)]
    more = len(error.problems) - len(problems)
    return [*lines, f"  ... and {more} more"] if more else lines


def problem_text(problem: Problem) -> str:
    """Return one problem of a definition as a line: ``cell line 3, column 5: unknown key 'Promt' (...)``."""
    where = f"cell line {problem.line}, column {problem.column}: " if problem.line else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    return visible(f"{where}{problem.message}{hint}")


def _pointer(problem: Problem, cell: Sequence[str]) -> list[str]:
    """Return two lines that show the position of a definition's problem: the line of the cell that contains it, and a
    line with a mark below the column.

    The list is empty if the line number is unknown, or the line is too long.
    """
    # Line 0 means that the position is unknown.
    if not 1 <= problem.line <= len(cell):
        return []
    line = cell[problem.line - 1]
    # The mark would be at the wrong column if cleaning changed the line.
    if not line.strip() or len(line) > CARD_WIDTH or one_line(line, CARD_WIDTH) != " ".join(line.split()):
        return []
    return [f"    {line}", f"    {' ' * (problem.column - 1)}^"]
