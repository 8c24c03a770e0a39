"""Reports as text: for `print`, files, notebooks without HTML, and (with colours) the shell.

`lines_of` is the only layout of reports as text. `text_of` joins its lines, and `terminal_text` gives their parts
colours, so that a report has the same words at the same places everywhere.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import singledispatchmethod
from typing import TYPE_CHECKING, TypeAlias

from divebook.report.model import (
    Block,
    Card,
    Cards,
    ChangedText,
    Code,
    Column,
    Difference,
    Differences,
    DifferentPart,
    Facts,
    Items,
    Line,
    Paragraph,
    Patch,
    Picture,
    Report,
    Section,
    Shares,
    Table,
    Text,
    Tree,
    Values,
    joined,
    texts_of,
)
from divebook.text.format import ADDED, REMOVED, marked, plural, visible
from divebook.text.redaction import cut, one_line

if TYPE_CHECKING:
    from rich.text import Text as RichText

Parts: TypeAlias = tuple[Text, ...]
"""Parts of one printed line. Line ends and control characters in them are escapes already."""
INDENT = Text("  ")
GAP = 2
"""Number of spaces between two columns."""
LEAST_CELL = 12
"""Width to which a cell is cut at least."""
PATCH = "patch"
"""Style of the lines of a patch."""
MAX_MARKED = 400
"""Maximum number of characters of one difference."""


def text_of(report: Report, width: int | None = None) -> str:
    """Return a report as text. With `width`, tables are cut to so many columns of a terminal.

    >>> print(text_of(Report(title=("sum: ", Text("done", "good")), blocks=(Items(("a", "b")),))))
    sum: done
      a
      b
    """
    return "\n".join(map(_plain, lines_of(report, width)))


def _plain(parts: Parts) -> str:
    """Return the text of a line without its styles, and without spaces at its end. A line of a patch keeps them, so
    that the patch can be applied.
    """
    plain = "".join(part.content for part in parts)
    return plain if parts and parts[-1].style == PATCH else plain.rstrip(" ")


def lines_of(report: Report, width: int | None = None, clean: Callable[[str], str] = str) -> Iterator[Parts]:
    """Yield the lines of a report as parts with a style. `clean` replaces the secrets in the cells of tables, before
    they are cut to the width.
    """
    blocks: tuple[Block, ...] = report.blocks
    if report.alert is not None:
        # An empty line precedes a failure.
        blocks = (*blocks, Paragraph((), apart=True), report.alert)
    title = texts_of(report.title)
    if title:
        yield title
    facts = map(texts_of, report.facts)
    yield from _indented(facts) if title else facts
    # A table without a title of its own belongs to the report, and is indented like its facts.
    is_first = not title and not report.facts
    yield from _Layout(width, clean).lines_of(blocks, is_first=is_first, below_title=bool(title))


class _Layout:
    """Lines of blocks in a terminal of a certain width; None for no limit."""

    def __init__(self, width: int | None, clean: Callable[[str], str]) -> None:
        self._width = width
        self._clean = clean

    def lines_of(self, blocks: Iterable[Block], *, is_first: bool = True, below_title: bool = False) -> Iterator[Parts]:
        """Yield the lines of blocks, with an empty line before each block that is set apart."""
        for block in blocks:
            if isinstance(block, Picture | Shares):
                continue  # tables have their words
            lines = list(self._lines(block))
            if isinstance(block, Table) and below_title and not block.title:
                lines = list(_indented(lines))
            is_paragraph = isinstance(block, Paragraph)
            is_apart = block.apart if isinstance(block, Paragraph) else isinstance(block, Table | Section)
            if is_apart and not is_first and (lines or is_paragraph):
                yield ()
            yield from lines
            is_first = is_first and not lines

    @singledispatchmethod
    def _lines(self, block: Block) -> Iterator[Parts]:
        """Yield the lines of a block."""
        raise TypeError(f"{type(block).__name__} has no form as text")

    @_lines.register
    def _(self, block: Paragraph) -> Iterator[Parts]:
        return map(texts_of, block.lines)

    @_lines.register
    def _(self, block: Items) -> Iterator[Parts]:
        return _indented(map(texts_of, block.lines))

    @_lines.register
    def _(self, block: Facts) -> Iterator[Parts]:
        for label, value in block.rows:
            if isinstance(value, Code):
                yield texts_of(Text(f"{label}:", "label"))
                yield from _indented(_code(value.content, value.marked))
            else:
                yield (*texts_of(Text(f"{label}: ", "label")), *texts_of(value))

    @_lines.register
    def _(self, block: Values) -> Iterator[Parts]:
        for label, whole in block.rows:
            name = texts_of(Text(label, "label"))
            first, *more = _code(cut(whole, block.most_in_text))
            if more:
                yield (*name, Text(" ="))
                yield from _indented((first, *more))
            else:
                yield (*name, Text(" = "), *first)

    @_lines.register
    def _(self, block: Tree) -> Iterator[Parts]:
        yield from ((Text("  " * depth), *texts_of(line)) for depth, line in block.entries[: block.most_in_text])
        if block.most_in_text is not None and len(block.entries) > block.most_in_text:
            yield texts_of(block.rest)

    @_lines.register
    def _(self, block: Code) -> Iterator[Parts]:
        return _code(block.content, block.marked)

    @_lines.register
    def _(self, block: Patch) -> Iterator[Parts]:
        yield (INDENT, *texts_of(block.title))
        if block.in_text:
            for line in block.content.removesuffix("\n").split("\n"):
                # A patch of a file with line ends of Windows keeps the "\r" before each "\n", also in the last.
                content = line.removesuffix("\r")
                yield (Text(visible(content) + line[len(content) :], PATCH),)

    @_lines.register
    def _(self, block: ChangedText) -> Iterator[Parts]:
        return _code(marked(block.before, block.after))

    @_lines.register
    def _(self, block: Section) -> Iterator[Parts]:
        if block.in_text:
            yield texts_of(Text(f"{block.title}:", "strong"))
            yield from _indented(self.lines_of(block.blocks))

    @_lines.register
    def _(self, block: Card) -> Iterator[Parts]:
        yield joined(": ", (texts_of(block.title), texts_of(block.note)))
        yield from _indented(self.lines_of(block.blocks))

    @_lines.register
    def _(self, block: Cards) -> Iterator[Parts]:
        return (line for card in block.cards for line in self._lines(card))

    @_lines.register
    def _(self, block: Table) -> Iterator[Parts]:
        rows = list(_rows(block, self._width, self._clean))
        if block.title:
            yield texts_of(Text(f"{block.title}:", "strong"))
            yield from _indented(rows)
        else:
            yield from rows

    @_lines.register
    def _(self, block: Differences) -> Iterator[Parts]:
        return _differences(block)


def _indented(lines: Iterable[Parts]) -> Iterator[Parts]:
    return ((INDENT, *line) if line else () for line in lines)


def _code(content: str, marked_line: int | None = None) -> Iterator[Parts]:
    """Yield the lines of a text with several lines."""
    for number, line in enumerate(visible(content).split("\n")):
        yield (Text(line, "strong" if number == marked_line else ""),)


# --- tables ----------------------------------------------------------------------------------------------------------


def _rows(block: Table, width: int | None, clean: Callable[[str], str]) -> Iterator[Parts]:
    """Yield the titles and rows of a table, with aligned columns."""
    shown = block.shown_columns
    columns = [block.columns[number] for number in shown]
    titles = tuple((Text(column.title, "strong"),) for column in columns)
    rows = [titles, *(tuple(_cleaned(row[number], clean) for number in shown) for row in block.rows)]
    widths = [max(map(_width_of, cells)) for cells in zip(*rows, strict=True)]
    if width is not None:
        widths = _fitting(columns, widths, width)
    for row in rows:
        yield tuple(_cells(row, widths))


def _cleaned(line: Line, clean: Callable[[str], str]) -> Parts:
    """Return the parts of a cell without secrets. A cell that contained one loses its styles."""
    parts = texts_of(line)
    plain = "".join(part.content for part in parts)
    clean_text = clean(plain)
    return parts if clean_text == plain else (Text(clean_text),)


def _cells(row: Sequence[Parts], widths: Sequence[int]) -> Iterator[Text]:
    """Yield the parts of a row. Each cell but the last one is filled up to the width of its column."""
    last = len(row) - 1
    for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
        parts = tuple(_cut(cell, width))
        yield from parts
        if number < last:
            yield Text(" " * (width - _width_of(parts) + GAP))


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Return the widths of the columns in a terminal of a certain width. The widest column that may be cut loses a
    character at a time.

    >>> _fitting([Column("id"), Column("about", "long")], [6, 40], 28)
    [6, 20]
    """
    fitting = list(widths)
    # A column whose cells have about the least width stays as it is.
    can_be_cut = [number for number, column in enumerate(columns) if column.kind in ("name", "long")]
    excess = sum(fitting) + GAP * (len(fitting) - 1) - width
    while excess > 0 and can_be_cut:
        widest = max(can_be_cut, key=lambda number: fitting[number])
        if fitting[widest] <= LEAST_CELL:
            break
        fitting[widest] -= 1
        excess -= 1
    return fitting


def _cut(parts: Parts, width: int) -> Iterator[Text]:
    """Yield the parts of a cell, cut to a width, with an ellipsis at the end of a cut cell."""
    if _width_of(parts) <= width:
        yield from parts
        return
    remaining = width - 1
    for part in parts:
        content = ""
        for character in part.content:
            remaining -= _width(character)
            if remaining < 0:
                yield Text(f"{content}…", part.style)
                return
            content += character
        yield part


def _width_of(parts: Iterable[Text]) -> int:
    return sum(_width(part.content) for part in parts)


def _width(text: str) -> int:
    """Return the number of columns of a terminal that a text takes: two for a wide character, such as a Chinese one,
    and none for an accent that joins its letter.

    >>> _width("ab"), _width("水"), _width("e\u0301")
    (2, 2, 1)
    """
    if text.isascii():
        return len(text)
    return sum(_width_of_character(character) for character in text)


def _width_of_character(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# --- differences -----------------------------------------------------------------------------------------------------


def _differences(block: Differences) -> Iterator[Parts]:
    count = 0
    omitted = 0
    for row in block.rows:
        if row.kind != "same" and block.most_in_text is not None and count == block.most_in_text:
            omitted += 1
        elif not omitted:
            count += row.kind != "same"
            yield _difference(row) if block.has_places else _texts_of_difference(row)
    notes = [f"and {plural(omitted, 'more difference')} in the table; .frame() returns all"] if omitted else []
    yield from ((INDENT, *texts_of(note)) for note in [*notes, block.note] if note)


def _difference(row: Difference) -> Parts:
    """Return one difference as a line: ``~ input n: [-1-]{+2+}``."""
    sign = Text(f"  {row.sign} ", row.kind)
    if row.kind == "same":
        return (sign, *texts_of(row.words))
    # The name of the only part follows the place: ``draft / model call, prompt: ...``.
    separator = ", " if len(row.parts) == 1 and row.parts[0].name and not row.more else ": "
    labels = f" ({' → '.join(filter(None, row.labels))})" if any(row.labels) else ""
    return (sign, *texts_of((row.place, labels, separator)), *_texts_of_difference(row))


def _texts_of_difference(row: Difference) -> Parts:
    parts = [_part(row, part) for part in row.parts]
    parts += [row.more_words] if row.more else []
    parts += [row.repeated_words] if row.repeated else []
    notes = ", ".join([*row.shown_marks, *row.notes])
    notes = f" ({notes})" if notes else ""
    return texts_of(("; ".join(parts), notes))


def _part(row: Difference, part: DifferentPart) -> str:
    name = f"{part.name}: " if part.name else ""
    if row.kind in ("added", "removed"):
        side = "only in B" if row.kind == "added" else "only in A"
        content = part.after if part.before is None else part.before
        return name + one_line(f"{side}, {content}" if content else side, MAX_MARKED)
    signs = {ADDED: "{{+{}+}}", REMOVED: "[-{}-]"}
    words = "".join(signs.get(piece.sign, "{}").format(piece.text) for piece in part.marked())
    return name + one_line(words, MAX_MARKED)


# --- colours of a terminal ------------------------------------------------------------------------------------------

STYLES = {
    "strong": "bold",
    "faint": "dim",
    "label": "cyan",
    "good": "green",
    "bad": "bold red",
    "badge": "bold",
    "removed": "red",
    "added": "green",
    "changed": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "waiting": "cyan",
    "paused": "cyan",
    "interrupted": "yellow",
    "running": "blue",
    "pending": "dim",
    "enqueued": "dim",
    "moved": "magenta",
    "continued_as_new": "magenta",
    "snapshot": "magenta",
}
"""Styles of rich by style of a text. Styles without an entry, such as ``id``, have no colour."""


def terminal_text(report: Report, width: int | None = None, clean: Callable[[str], str] = str) -> RichText:
    """Return a report as text of rich. Its words are those of `text_of`.

    Parameters
    ----------
    width
        Number of columns to which tables are cut.
    clean
        Replaces the secrets in a text. A line that contains one loses its colours.
    """
    from rich.text import Text as RichText

    lines = []
    for parts in lines_of(report, width, clean):
        plain = _plain(parts)
        clean_line = clean(plain)
        line = RichText(clean_line)
        if clean_line == plain:
            end = 0
            for part in parts:
                start, end = end, end + len(part.content)
                if part.style in STYLES:
                    line.stylize(STYLES[part.style], start, end)
        lines.append(line)
    return RichText("\n").join(lines)
