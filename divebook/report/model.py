"""Model of a report: facts, tables, trees, differences, cards and texts, without markup.

An object that shows itself derives from `divebook.report.shown.Shown` and has one method, `report`, which returns a
`Report`. The renderers `divebook.report.text` and `divebook.report.html` format it for each place. Builders of reports
therefore contain no markup and no layout, and all places show the same words.

A report consists of blocks, and a block of lines. A line is a string, or a tuple of strings and of `Text` with a style.
Styles have a meaning (``strong``, ``faint``, ``id``, or the status of an execution), and no look: each renderer gives
them one. Renderers escape control characters, and in a line also line ends and tabs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from divebook.report.hints import Hint
from divebook.text.colours import STATUS_SIGNS
from divebook.text.format import ADDED, REMOVED, Piece, pieces, plural, visible

# --- lines -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Part of a line, with a style.

    Styles are ``strong``, ``faint``, ``good``, ``bad``, ``code``, ``id``, ``money``, ``duration``, ``time``, ``badge``
    (a short word with a border), ``removed``, ``added``, and the statuses of executions.
    """

    content: str
    style: str = ""


Line: TypeAlias = str | Text | Hint | tuple[str | Text | Hint, ...]
"""One line of a report: a string, or several strings, texts with a style, and hints."""
_BREAKS = re.compile(r"[\t\n]")


def status(name: str, words: str = "") -> Text:
    """Return a status with its sign, in the style of the status. `words` replaces the name.

    >>> status("completed").content, status("moved").content
    ('✓ completed', 'moved')
    """
    return Text(f"{STATUS_SIGNS.get(name, '')} {words or name}".lstrip(), name)


def texts_of(line: Line) -> tuple[Text, ...]:
    r"""Return the parts of a line, with control characters, line ends and tabs replaced by escapes.

    >>> texts_of(("a\n", Text("b", "strong"), ""))
    (Text(content='a\\n', style=''), Text(content='b', style='strong'))
    """
    parts = line if isinstance(line, tuple) else (line,)
    texts = map(_text, parts)
    return tuple(Text(_BREAKS.sub(_spelled, visible(text.content)), text.style) for text in texts if text.content)


def _text(part: str | Text | Hint) -> Text:
    """Return a part of a line with its style. A hint is worded for the interface that renders it."""
    if isinstance(part, Hint):
        return Text(part.text, "code")
    return part if isinstance(part, Text) else Text(part)


def _spelled(match: re.Match[str]) -> str:
    return "\\t" if match[0] == "\t" else "\\n"


def joined(separator: str, lines: Iterable[Line]) -> tuple[Text, ...]:
    """Join lines to one line, without the empty ones.

    >>> joined(", ", ["a", "", Text("b", "strong")])
    (Text(content='a', style=''), Text(content=', ', style=''), Text(content='b', style='strong'))
    """
    parts: list[Text] = []
    for texts in filter(None, map(texts_of, lines)):
        parts += [Text(separator)] if parts else []
        parts += texts
    return tuple(parts)


# --- blocks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines of text below each other. If it is `apart`, an empty line precedes it."""

    lines: tuple[Line, ...]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """List of lines, indented."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with their values: lines, or code below the label."""

    rows: tuple[tuple[str, Line | Code], ...]


@dataclass(frozen=True, slots=True)
class Values:
    """Named values of users, as text, each cut to a number of characters."""

    rows: tuple[tuple[str, str], ...]
    most: int
    most_in_text: int


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table. Its kind says how wide its cells are: ``name`` and ``long`` may be wrapped or cut, a ``short``
    one never is, and a ``time`` may have its date and its time of day in two lines of a page. An optional column is
    left out if all its cells are empty.
    """

    title: str
    kind: Literal["name", "short", "long", "time"] = "short"
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of lines in columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Line, ...], ...]
    title: str = ""

    @property
    def shown_columns(self) -> tuple[int, ...]:
        """Numbers of the columns that are shown: all but the empty optional ones."""
        return tuple(
            number
            for number, column in enumerate(self.columns)
            if not column.is_optional or any(texts_of(row[number]) for row in self.rows)
        )


@dataclass(frozen=True, slots=True)
class Tree:
    """Lines with their depth, from 0 on. Readers of a page can unfold the levels from `unfolded` on."""

    entries: tuple[tuple[int, Line], ...]
    unfolded: int = 0
    most_in_text: int | None = None
    """Maximum number of lines in text, which cannot be folded."""
    rest: Line = ""
    """Line about the omitted lines."""


@dataclass(frozen=True, slots=True)
class Code:
    """Text as it is written: source code, a traceback, a value. One of its lines may be marked."""

    content: str
    marked: int | None = None
    """Number of the marked line in `content`, from 0 on."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Differences of one file in git's patch format, below a line about the file."""

    title: Line
    content: str
    is_open: bool = False
    in_text: bool = True
    """False if text has the title only, because its readers cannot unfold the rest."""


@dataclass(frozen=True, slots=True)
class ChangedText:
    """Text in two versions, shown once, with the removed and added words marked."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks below a title. Readers of a page can unfold it."""

    title: str
    blocks: tuple[Block, ...]
    is_open: bool = True
    in_text: bool = True
    """False for details that text leaves out, because its readers cannot unfold them."""


@dataclass(frozen=True, slots=True)
class Card:
    """Box with a border: a title, a less important note, and blocks below them."""

    title: Line
    blocks: tuple[Block, ...]
    note: Line = ""
    is_bad: bool = False
    """True for a failure."""


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards beside each other, as far as the page is wide enough."""

    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """Picture that repeats what the other blocks say. Text leaves it out, and does not draw it."""

    draw: Callable[[], str]
    """Function that returns the image as a data URI."""
    description: str


@dataclass(frozen=True, slots=True)
class Shares:
    """Bar of shares in a whole, which a table explains. Text leaves it out."""

    parts: tuple[tuple[str, float, str], ...]
    """Name, share from 0 to 1, and name of the colour (`divebook.text.colours`)."""


# --- differences between two runs ------------------------------------------------------------------------------------

MINUS = "\N{MINUS SIGN}"
DifferenceKind: TypeAlias = Literal["same", "changed", "added", "removed"]
SIGNS: Mapping[DifferenceKind, str] = {"same": "=", "changed": "≠", "added": "+", "removed": MINUS}
"""Signs of the kinds of differences."""
REQUEST: Literal["request"] = "request"
"""Kind of a row about a place whose request differs, and whose result is the same in both runs."""
Mark: TypeAlias = Literal["better", "worse", "blocked", "costlier"]
MARK_WORDS: Mapping[Mark, str] = {"better": "▲ better", "worse": "▼ worse"}
"""Texts of the marks of a difference. Marks without an entry are only filters: the labels and notes say the same."""
CONTEXT = 60
"""Number of characters of unchanged text that are shown on each side of a difference."""


@dataclass(frozen=True, slots=True)
class DifferentPart:
    """Part of a place that differs, with its text in both runs; None if a run lacks it."""

    name: str
    before: str | None
    after: str | None
    is_whole: bool = False
    """True if text that both runs have in common is shown in full."""

    def marked(self) -> list[Piece]:
        """Return the words of both texts in order, as unchanged, removed and added pieces. Long unchanged pieces are
        shortened.
        """
        both = pieces(self.before or "", self.after or "")
        last = len(both) - 1
        return [
            piece._replace(text=_short(piece.text, place == 0, place == last))
            if piece.sign not in (REMOVED, ADDED) and not self.is_whole
            else piece
            for place, piece in enumerate(both)
        ]

    @property
    def edit(self) -> tuple[str, ...]:
        """Removed and added words in order. Parts with equal edits were changed in the same way, although their names
        and their unchanged words may differ.
        """
        both = pieces(self.before or "", self.after or "")
        return tuple(f"{piece.sign} {piece.text.strip()}" for piece in both if piece.sign in (REMOVED, ADDED))


def _short(text: str, is_first: bool, is_last: bool) -> str:  # noqa: FBT001 - both are positions in a list
    """Return a text that both runs have in common without its middle. At the beginning or end of the whole text, only
    the side next to a difference is kept.
    """
    head = "" if is_first else text[:CONTEXT]
    tail = "" if is_last else text[-CONTEXT:]
    return text if len(text) <= len(head) + len(tail) + CONTEXT else f"{head} … {tail}"


@dataclass(frozen=True, slots=True)
class Difference:
    """Place (step, item, call, ...) at which two runs differ, or several places at which their results are the
    same.
    """

    kind: DifferenceKind | Literal["request"]
    place: str = ""
    about: str = ""
    """Value of the item of `Each` to which the place belongs, as text."""
    parts: tuple[DifferentPart, ...] = ()
    more: int = 0
    """Number of further parts that differ."""
    labels: tuple[str, str] = ("", "")
    """Words about the result in each run, such as ``live``."""
    notes: tuple[str, ...] = ()
    """Texts that compare the second run with the first, such as its additional time."""
    marks: tuple[Mark, ...] = ()
    repeated: tuple[str, ...] = ()
    """Names of the parts that differ in the same way as in the first difference. They are not in `parts`."""
    count: int = 1
    """Number of equal places, for ``same``."""
    inner: tuple[Difference, ...] = ()
    """Places among the equal ones whose request differs in the same way as in the first difference."""

    @property
    def sign(self) -> str:
        """Sign of the kind, such as ``≠``."""
        return "≈" if self.kind == REQUEST else SIGNS[self.kind]

    @property
    def kind_words(self) -> str:
        """Kind of the difference in words, such as ``changed``."""
        return "same result" if self.kind == REQUEST else self.kind

    @property
    def shown_marks(self) -> tuple[str, ...]:
        """Texts of the marks that are shown."""
        return tuple(MARK_WORDS[mark] for mark in self.marks if mark in MARK_WORDS)

    @property
    def words(self) -> str:
        """Text about equal places: ``3 places the same``."""
        if not self.inner:
            return f"{plural(self.count, 'place')} the same"
        which = "the" if len(self.inner) == self.count else f"{len(self.inner):,} with the"
        return f"{plural(self.count, 'place')} with the same result, {which} request changed as above"

    @property
    def repeated_words(self) -> str:
        """Text about the parts that differ as in the first difference: ``prompt: as above``."""
        return f"{', '.join(self.repeated)}: as above"

    @property
    def more_words(self) -> str:
        """Text about the further parts: ``and 2 more parts``."""
        return f"and {plural(self.more, 'more part')}"


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences between two runs, side by side in a page, and with marked words in text."""

    rows: tuple[Difference, ...]
    has_places: bool = True
    """False if a title names the place of the only difference."""
    note: str = ""
    """Text about the differences that are not in `rows`."""
    most_in_text: int | None = None
    """Maximum number of differences that text shows."""
    total: int = 0
    """Number of differences, including the omitted ones, and without the `inner` ones of the rows."""


Block: TypeAlias = (
    Paragraph
    | Items
    | Facts
    | Values
    | Table
    | Tree
    | Code
    | Patch
    | ChangedText
    | Section
    | Card
    | Cards
    | Picture
    | Shares
    | Differences
)


@dataclass(frozen=True, slots=True)
class Report:
    """Content that an object shows: a title, facts, blocks, and a card (alert) that readers must not miss."""

    title: Line = ""
    facts: tuple[Line, ...] = ()
    """Lines below the title."""
    blocks: tuple[Block, ...] = ()
    alert: Card | None = None
    """Card about a failure. It is shown first on a page, and last in text output, because a terminal shows the end of a
    long text.
    """

    def embedded(self) -> tuple[Block, ...]:
        """Return the report as blocks of another report."""
        lines = tuple(line for line in (self.title, *self.facts) if texts_of(line))
        card = () if self.alert is None else (self.alert,)
        return (*([Paragraph(lines)] if lines else []), *self.blocks, *card)
