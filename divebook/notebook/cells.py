"""A defining cell: its first line says what the body is, the body is read as a definition text."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, cast

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from divebook.errors import SetupError, did_you_mean
from divebook.notebook.commands import Names, parse, split, tell
from divebook.notebook.recovery import lines_after_defining
from divebook.notebook.report import problem_text, short_errors
from divebook.notebook.run_magics import TRY, try_cell
from divebook.notebook.session import Defined, Session
from divebook.replay.trial import StepTrial
from divebook.text.redaction import one_line
from divebook.workflow.definition import Definitions
from divebook.workflow.dialect import DIALECT_RULES, OWN, Dialect
from divebook.workflow.reader import Body, read_definitions
from divebook.workflow.yaml_text import yaml_of

BODIES = ("workflow", "agent")
DIALECTS = tuple(DIALECT_RULES)
SCRIPT = "script"
USAGE = (
    "%%dive, %%dive workflow NAME or %%dive agent NAME, each with --dialect dive if need be; %%dive script AGENT; "
    "or %%dive try STEP"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that defines something."""

    text: str
    """What stands below its first line."""
    body: Body = "file"
    name: str | None = None
    dialect: Dialect = OWN
    lines_above: int = 1
    """Lines of the cell before the text."""
    number: int = 0
    """Its number in the notebook, 0 where it has none."""

    def read(self) -> Definitions:
        """Return what it defines; `DefinitionError` counts lines from the top of the cell."""
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
        """The lines of the whole cell; what stands above the text is left empty."""
        return [""] * self.lines_above + self.text.splitlines()


def parse_cell(line: str, text: str, lines_above: int = 1, scope: Names | None = None, number: int = 0) -> Cell:
    """Return the cell that a first line (without ``%%dive``) and a body make; UsageError if the line is wrong."""
    arguments = parse(split(line), {}, {"--dialect": "dialect"}, inputs=False, names=scope)
    dialect = arguments.options.get("dialect", OWN)
    if dialect not in DIALECTS:
        raise UsageError(f"unknown dialect {dialect!r}; one of {', '.join(DIALECTS)}")
    kind, *names = arguments.words or ("file",)
    if kind != "file" and kind not in BODIES:
        advice = did_you_mean(kind, (*BODIES, SCRIPT, "try")) or f"write {USAGE}"
        raise UsageError(f"%%dive cannot begin with {kind!r} ({advice})")
    if len(names) > 1 or (kind == "file" and names):
        raise UsageError(f"one name is enough, found {' '.join(names)}; put a name with spaces in quotes")
    return Cell(text, cast("Body", kind), names[0] if names else None, dialect, lines_above, number)


def scripted_agent(line: str) -> str | None:
    """Return the agent whose script a cell is, by its first line (without ``%%dive``); None for a cell that defines."""
    kind, *names = split(line) or ("",)
    if kind != SCRIPT:
        return None
    if len(names) != 1:
        raise UsageError(f"%%dive script needs the name of one agent, found {' '.join(names) or 'none'}")
    return names[0]


def confirmation(change: Defined) -> str:
    """Return a few lines that say what a cell did."""
    return "\n".join([*_told("defined", change.defined), *_told("replaced", change.replaced), *_warnings(change)])


def _told(verb: str, things: Iterable[str]) -> Iterable[str]:
    listed = ", ".join(things)
    return [f"{verb} {listed}"] if listed else []


def _warnings(change: Defined) -> Iterable[str]:
    return [f"warning: {problem_text(problem)}" for problem in change.warnings]


# What a ``%%dive`` cell does: it defines agents and workflows, gives an agent its script, or tries a step.


def take_cell(
    session: Session, line: str, text: str, lines_above: int, names: Names, *, number: int
) -> StepTrial | None:
    """Take in a cell and say what it did; return what it tried.

    Parameters
    ----------
    line
        The first line, without ``%%dive``.
    lines_above
        How many lines of the cell come before `text`.
    number
        The number of the cell in the notebook, 0 where it has none.
    """
    kind, *words = split(line) or [""]
    if kind == TRY:
        return try_cell(session, words, text, lines_above, names, number=number)
    agent = scripted_agent(line)
    if agent is None:
        _define(session, parse_cell(line, text, lines_above, names, number))
        return None
    with short_errors([""] * lines_above + text.splitlines()):
        tell(session.follow_script(agent, yaml_of(text, "cell", lines_above)))
    return None


def _define(session: Session, parsed: Cell) -> None:
    with short_errors(parsed.lines):
        definitions = parsed.read()
    with short_errors(parsed.lines, definitions.positions):
        change = session.define(definitions)
        lines = [confirmation(change), *lines_after_defining(session)]
    tell("\n".join(lines))


# Code cells of a notebook that are run without a kernel: for what they define, in a shell of this process.


CELL = "<ipython-input"
"""How the names begin that IPython gives to what it compiles."""


def run_cells(cells: Iterable[tuple[int, str]], path: Path) -> list[Any]:
    """Run cells, given with their numbers, as a kernel would; return what they have defined by then, by their names.

    What they print goes to stderr, so that it does not mix with results.

    Raises
    ------
    SetupError
        A cell fails; the ones after it are not run.
    """
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    before = set(shell.user_ns)
    sys.path.insert(0, str(path.parent.absolute()))  # as a kernel does, which begins in the notebook's folder
    with contextlib.redirect_stdout(sys.stderr):
        for number, source in cells:
            _run(shell, source, f"code cell {number} of {path}")
    return [value for name, value in shell.user_ns.items() if name not in before]


def _run(shell: InteractiveShell, source: str, where: str) -> None:
    with _without_tracebacks(shell):
        result = shell.run_cell(source, silent=True)  # type: ignore[no-untyped-call]  # IPython has no types
    error = result.error_before_exec or result.error_in_exec
    if isinstance(error, KeyboardInterrupt):
        raise error
    if error is not None:
        line = _line(error, source)
        place = f"{where}, line {line}" if line else where
        raise SetupError(f"{place}: {type(error).__name__}: {one_line(str(error), 400)}") from error


@contextlib.contextmanager
def _without_tracebacks(shell: InteractiveShell) -> Iterator[None]:
    """Keep a shell from printing what is raised as an error anyway."""
    names = ("showtraceback", "showsyntaxerror")
    for name in names:
        setattr(shell, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name in names:
            delattr(shell, name)  # so that the method of its class counts again


def _line(error: BaseException, source: str) -> int | None:
    """Return the line of the cell in which an error arose; IPython counts without the empty lines at its top."""
    above = source[: len(source) - len(source.lstrip())].count("\n")
    if isinstance(error, SyntaxError):
        return above + (error.lineno or 1)
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename.startswith(CELL)]
    return above + (lines[-1] or 1) if lines else None
