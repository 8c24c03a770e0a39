"""One pass over one definition text: what was found wrong, and where everything stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from divebook.dialects import MANNERS, OWN, Dialect, Manner
from divebook.errors import DefinitionError, Place, Problem, Severity
from divebook.workflow.located import Mapping, Mark, Node, Scalar, nearest_position

Format = Literal["yaml", "json"]


@dataclass(slots=True)
class Reading:
    """Collects problems and positions while a text is read.

    `format` says how keys are matched; a Python mapping is read as if it were YAML.
    """

    text: str = ""
    source_name: str = "<cell>"
    dialect: Dialect = OWN
    format: Format = "yaml"
    line_offset: int = 0
    problems: list[Problem] = field(default_factory=list)
    positions: dict[Place, tuple[int, int]] = field(default_factory=dict)
    broken: set[Place] = field(default_factory=set)
    """Steps with something wrong in them, whose other rules are not worth checking."""
    refused: set[Place] = field(default_factory=set)
    """Definitions that could not be made, and are left out of their lists."""

    @property
    def manner(self) -> Manner:
        """What differs between the dialects."""
        return MANNERS[self.dialect]

    @property
    def strict(self) -> bool:
        """Whether what would be ignored is an error."""
        return self.manner.is_strict

    @property
    def severity(self) -> Severity:
        """How bad it is that something would be ignored."""
        return "error" if self.strict else "warning"

    @property
    def lax(self) -> bool:
        """Whether unknown and repeated keys are let through, as the old system did in JSON."""
        return self.format == "json" and not self.strict

    @property
    def errors(self) -> list[Problem]:
        """The problems that forbid the use of the text."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that do not."""
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    def add(
        self,
        message: str,
        mark: Mark,
        place: Place = (),
        *,
        key: str | None = None,
        hint: str | None = None,
        severity: Severity = "error",
    ) -> None:
        """Note a problem at `mark`."""
        line, column = self.position(mark)
        self.problems.append(Problem(message, line, column, key, severity, hint, place))

    def add_found(self, found: Iterable[Problem]) -> None:
        """Note problems that know only their place; the nearest known position above it is filled in."""
        for problem in found:
            located = problem.at(*nearest_position(problem.place, self.positions))
            twin = nearest_position(problem.twin, self.positions)[0] if problem.twin else 0
            self.problems.append(located.beside(twin))

    def find_duplicates(self, entries: Sequence[tuple[Scalar, Node]]) -> None:
        """Note every key that its mapping has already; lax JSON lets the last one win."""
        first: dict[str, Mark] = {}
        for key, _ in [] if self.lax else entries:
            if key.text in first:
                hint = f"first on line {self.position(first[key.text])[0]}"
                self.add(f"key {key.text!r} is given twice", key.start, key=key.text, hint=hint)
            first.setdefault(key.text, key.start)

    def locate(self, place: Place, key: Mark, value: Mark) -> None:
        """Remember where `place` stands: at its value, or at its key if the value begins on another line."""
        if key.line:
            self.positions[place] = self.position(value if value.line == key.line else key)

    def position(self, mark: Mark) -> tuple[int, int]:
        """Return line and column in the whole cell or file."""
        return (mark.line + self.line_offset, mark.column) if mark.line else (0, 0)

    def fail(self, message: str, mark: Mark, hint: str | None = None) -> NoReturn:
        """Give up: note the problem and raise everything found so far."""
        self.add(message, mark, hint=hint)
        raise self._error()

    def raise_errors(self) -> None:
        """Raise `DefinitionError` if there are errors, in the order of the text."""
        if self.errors:
            raise self._error()

    def source_of(self, node: Node) -> str:
        """Return the text that `node` was read from, moved to the left margin."""
        if not isinstance(node, Mapping) or not node.start.line:
            return ""
        lines = self.text[node.start.index : node.end.index].rstrip().split("\n")
        margin = " " * (node.start.column - 1)
        return "\n".join([lines[0], *(line.removeprefix(margin) for line in lines[1:])]) + "\n"

    def _error(self) -> DefinitionError:
        ordered = sorted(self.errors, key=lambda problem: (problem.line, problem.column))
        return DefinitionError(ordered, self.source_name)
