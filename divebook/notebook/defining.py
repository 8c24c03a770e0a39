"""What a ``%%dive`` cell does: it defines agents and workflows, gives an agent its script, or tries a step."""

from __future__ import annotations

from divebook.notebook.arguments import split
from divebook.notebook.cards import short_errors
from divebook.notebook.cell import Cell, confirmation, parse_cell, scripted_agent
from divebook.notebook.expressions import Names
from divebook.notebook.printed import tell
from divebook.notebook.recovery import lines_after_defining
from divebook.notebook.session import Session
from divebook.notebook.trying_magics import TRY, try_cell
from divebook.replay.trial import StepTrial
from divebook.workflow.yaml_value import yaml_of


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
