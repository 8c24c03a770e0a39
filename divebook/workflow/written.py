"""Where a workflow stands in the text that it was read from, for what is found wrong with it later."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from divebook.errors import Place, Problem, position_in
from divebook.workflow.located import nearest_position


@dataclass(frozen=True, slots=True)
class Written:
    """The text of a workflow, and where its parts are in that; of one made in Python nothing is known."""

    name: str = ""
    """What the text is called: ``survey.yaml``, ``Cell [5]``."""
    positions: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """Line and column of all that the text has."""
    place: Place = ()
    """The place of the workflow in it."""
    text: str = ""
    above: int = 0
    """How many lines of the cell come before the text."""

    def located(self, problem: Problem, pattern: str = "") -> Problem:
        """Return a problem of the workflow, whose place is relative to that, with its line and column.

        With a `pattern` it is where that is first met in its part; of a group, where that begins.
        """
        line, column = nearest_position((*self.place, *problem.place), self.positions)
        if pattern and line:
            line, column = self._met(re.compile(pattern), line, column)
        return problem.at(line, column)

    def _met(self, pattern: re.Pattern[str], line: int, column: int) -> tuple[int, int]:
        for number, text in enumerate(self.text.splitlines()[line - self.above - 1 :], line):
            found = pattern.search(text, column - 1 if number == line else 0)
            if found is not None:
                return number, found.start(pattern.groups) + 1
        return line, column

    def where(self, place: Place) -> str:
        """Return where a part stands, such as ``survey.yaml:7:11``, or an empty text.

        >>> Written("survey.yaml", {("Steps", 0): (7, 11)}).where(("Steps", 0, "Agent"))
        'survey.yaml:7:11'
        """
        line, column = nearest_position((*self.place, *place), self.positions)
        return position_in(self.name, line, column) if line else ""


UNWRITTEN = Written()
