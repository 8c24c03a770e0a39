"""A defining cell: its first line says what the body is, the body is read as a definition text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from IPython.core.error import UsageError

from divebook.dialects import MANNERS, OWN, Dialect
from divebook.errors import did_you_mean
from divebook.notebook.arguments import parse, split
from divebook.notebook.cards import problem_text
from divebook.notebook.expressions import Names
from divebook.notebook.session import Defined
from divebook.workflow.definition import Definitions
from divebook.workflow.reader import Body, read_definitions

BODIES = ("workflow", "agent")
DIALECTS = tuple(MANNERS)
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
