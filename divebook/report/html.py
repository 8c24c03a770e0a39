"""Reports as HTML, with inline styles only. No other file of the package makes HTML elements of text.

JupyterLab and GitHub remove ``<style>``, ``<svg>`` and ``<script>`` from untrusted output, and some pages remove all
styles. Therefore all words are in elements that need no style, no background covers the page (a page may be light or
dark), and pictures are images. Class names are for divebook's JupyterLab extension (``widgets/src/lab``) and for the
typesetting of formulas; no style needs them.

Text becomes part of an element only through `safe`, `inline` and `multiline`, which escape it. The library markupsafe,
which marks escaped text by a class, is not used: a cell of a table takes 3.3 us with its `Markup.format`, and 1.2 us
here. For a text of 1,000 characters its `escape` takes 0.8 us and `html.escape` 1.5 us, but `visible`, which is needed
with both, takes 3.6 us.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch

from divebook.report.model import (
    SIGNS,
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
    texts_of,
)
from divebook.text.colours import LIGHT
from divebook.text.format import ADDED, AS_TEXT, NOTHING, REMOVED, Sign, lines_in, pieces, visible
from divebook.text.redaction import cut

# --- elements --------------------------------------------------------------------------------------------------------


def safe(text: str) -> str:
    """Return text with HTML characters and control characters escaped."""
    return html.escape(visible(text))


def _element(name: str, content: str, **attributes: str | bool) -> str:
    """Return an HTML element. `content` is HTML. Attributes are text, or True for an attribute without a value;
    ``class_`` stands for ``class``. An attribute that is False is left out.

    >>> _element("td", "a<br>b", style="color:red", class_="x")
    '<td style="color:red" class="x">a<br>b</td>'
    """
    texts = []
    for key, value in attributes.items():
        if value is not False:
            texts.append(f" {key.rstrip('_')}" if value is True else f' {key.rstrip("_")}="{safe(value)}"')
    return f"<{name}{''.join(texts)}>{content}</{name}>"


def _styled(style: str, content: str) -> str:
    return _element("span", content, style=style)


def _details(summary: str, content: str, *, is_open: bool, **attributes: str) -> str:
    """Return a section that readers can unfold, and that is unfolded at first if `is_open`. `summary` and `content` are
    HTML.

    >>> _details("more", "all", is_open=True)
    '<details open><summary style="cursor:pointer;display:list-item">more</summary>all</details>'
    """
    # Some pages hide the marker of a summary by another value of `display`.
    head = _element("summary", summary, style="cursor:pointer;display:list-item")
    return _element("details", head + content, open=is_open, **attributes)


# --- lines -----------------------------------------------------------------------------------------------------------

MAX_WORD = 30
"""Number of characters above which a word may be broken into two lines."""
MAX_LINE = 60
"""Number of characters up to which a value is shown beside its name."""
MAX_NAME = 16
"""Number of characters above which a word in a column of names may be broken into two lines."""
_RULE = f"1px solid {LIGHT['rule']}"
_FAINT = "opacity:.75"
_BADGE = f"display:inline-block;border:{_RULE};border-radius:3px;padding:0 5px;margin-right:6px;font-weight:bold"
_WRAPPED = "white-space:pre-wrap;overflow-wrap:anywhere"
_CODE = f"{_WRAPPED};word-break:normal;margin:2px 0 8px 0;padding:0;background:none;color:inherit"
_MONO = "font-family:var(--jp-code-font-family,monospace);font-size:12px;line-height:1.35"
_MARKS = {
    REMOVED: ("del", f"background:{LIGHT['removed-mark']};color:inherit;text-decoration:line-through"),
    ADDED: ("ins", f"background:{LIGHT['added-mark']};color:inherit;text-decoration:underline"),
}
_ELEMENTS = {"strong": "strong", "bad": "strong", "label": "strong", "code": "code", "id": "code"}
"""Elements of styles. A style without an entry is shown as plain text."""


def inline(line: Line, longest: int | None = None) -> str:
    """Return a line as HTML. In a cell of a table, words with more than `longest` characters may be broken."""
    return "".join(_styled_text(text, longest) for text in texts_of(line))


def _styled_text(text: Text, longest: int | None) -> str:
    element = _ELEMENTS.get(text.style)
    # Code and ids stay in one piece, so that a search in the page finds them.
    content = safe(text.content) if longest is None or element == "code" else _breakable(text.content, longest)
    if element is not None:
        return _element(element, content)
    if text.style in _MARKS:
        name, style = _MARKS[text.style]
        return _element(name, content, style=style)
    styles = {"faint": _FAINT, "badge": _BADGE}
    return _styled(styles[text.style], content) if text.style in styles else content


def _breakable(text: str, longest: int) -> str:
    """Insert ``<wbr>`` into the long words of a text, so that a browser can break the lines there. Styles that allow
    such breaks do not work, because untrusted notebooks remove them.
    """
    # A piece of exactly `longest` characters is followed by more of its word, so a break is allowed behind it.
    # "abcdef", longest=3: "abc" with a break, "de", "f". Only a piece of full length gets a break.
    parts = re.findall(rf"\S{{1,{longest}}}(?=\S)|.", text, re.DOTALL)
    return "".join(f"{safe(part)}<wbr>" if len(part) == longest else safe(part) for part in parts)


def _preformatted(content: str, style: str = _CODE, **attributes: str) -> str:
    return _element("pre", content, **attributes, style=style)


def _heading(text: str) -> str:
    """Return a title or a label with a capital letter, as pages have them. A label that does not begin with a word,
    but with the name of a file, stays as it is.

    >>> _heading("to continue"), _heading("flow.yaml:3:5")
    ('To continue', 'flow.yaml:3:5')
    """
    begins_with_word = text.partition(" ")[0].isalpha()
    return safe(f"{text[:1].upper()}{text[1:]}" if begins_with_word else text)


def _marked(sign: Sign, text: str) -> str:
    """Return a piece of text as HTML. It is marked if it occurs in only one of two compared texts."""
    if sign not in _MARKS:
        return safe(text)
    name, style = _MARKS[sign]
    return _element(name, safe(text), style=style)


# --- blocks ----------------------------------------------------------------------------------------------------------


def html_of(report: Report) -> str:
    """Return a report as one HTML element.

    >>> html_of(Report(title=("sum of ", Text("<b>", "strong")))).partition("<div style")[2]
    '="margin:2px 0 6px;overflow-wrap:anywhere">sum of <strong>&lt;b&gt;</strong></div></div>'
    """
    parts = [] if report.alert is None else [_html(report.alert)]
    lines = [inline(report.title)] if texts_of(report.title) else []
    if report.facts:
        # The facts follow each other in one line, which a page breaks where it must.
        lines.append(" · ".join(map(inline, report.facts)))
    if lines:
        parts.append(_element("div", "<br>".join(lines), style="margin:2px 0 6px;overflow-wrap:anywhere"))
    parts += map(_html, report.blocks)
    # The class keeps pages from rendering the text between two dollar signs as a formula.
    return _element("div", "".join(parts), class_=AS_TEXT, style="margin:4px 0;max-width:1000px;color:inherit")


@singledispatch
def _html(block: Block) -> str:
    """Return a block as HTML."""
    raise TypeError(f"{type(block).__name__} is not a block of a report")


@_html.register
def _(block: Paragraph) -> str:
    style = "margin:6px 0" if block.apart else "margin:2px 0"
    content = "<br>".join(map(inline, block.lines))
    return _element("div", content, style=f"{style};overflow-wrap:anywhere") if content else ""


@_html.register
def _(block: Items) -> str:
    lines = (_element("div", inline(line)) for line in block.lines)
    return _element("div", "".join(lines), style="margin:2px 0 2px 1.2em;overflow-wrap:anywhere")


@_html.register
def _(block: Facts) -> str:
    # Not a table: front ends set a background for the rows of tables.
    rows = []
    for label, value in block.rows:
        content = _html(value) if isinstance(value, Code) else f" {inline(value)}"
        name = _element("strong", _heading(label))
        rows.append(_element("div", name + content, style="margin:2px 0;overflow-wrap:anywhere"))
    return "".join(rows)


@_html.register
def _(block: Values) -> str:
    return "".join(_value(name, cut(text, block.most)) for name, text in block.rows)


def _value(name: str, text: str) -> str:
    """Return a named value: a short one beside its name, and a longer one below it."""
    label = _element("code", safe(name))
    if "\n" in text or len(text) > MAX_LINE:
        return _element("div", label) + _preformatted(safe(text), dir="auto")
    value = _element("span", safe(text), dir="auto", style=_WRAPPED)
    return _element("div", f"{label} = {value}", style="margin:2px 0")


@_html.register
def _(block: Tree) -> str:
    style = "font-size:13px;line-height:1.5"
    return _element("div", _branches(block.entries, 0, block.unfolded), style=style)


def _branches(entries: Sequence[tuple[int, Line]], depth: int, unfolded: int) -> str:
    """Return the lines of a tree with a certain depth as HTML. Lines with a greater depth are nested in sections that
    can be unfolded.
    """
    # [(0, a), (1, b), (1, c), (0, d)] -> a with the lines b and c below it, then d.
    places = [place for place, (deep, _) in enumerate(entries) if deep == depth]
    parts = []
    for place, end in zip(places, [*places, len(entries)][1:], strict=True):
        text = inline(entries[place][1])
        below = entries[place + 1 : end]
        if below:
            style = f"margin:2px 0 2px 1.2em;padding-left:.6em;border-left:{_RULE}"
            body = _element("div", _branches(below, depth + 1, unfolded), style=style)
            parts.append(_details(text, body, is_open=depth < unfolded))
        else:
            parts.append(_element("div", text))
    return "".join(parts)


@_html.register
def _(block: Code) -> str:
    lines = visible(block.content).split("\n")
    texts = [
        _element("strong", safe(line)) if number == block.marked else safe(line) for number, line in enumerate(lines)
    ]
    return _preformatted("\n".join(texts))


@_html.register
def _(block: Patch) -> str:
    # Without their ends: `<br>` separates the lines, and in `<pre>` both would show an empty line.
    text = [line.removesuffix("\n") for line in lines_in(block.content)]
    style = f"margin:4px 0 8px;padding:6px 8px;border:{_RULE};overflow-x:auto;{_MONO}"
    content = _preformatted("<br>".join(_lines_of_patch(text)), style)
    return _details(inline(block.title), content, is_open=block.is_open, style="margin:2px 0")


def _lines_of_patch(patch: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a patch as HTML: added and removed lines in colour, and headers fainter."""
    # A header lasts from `diff --git` to the first `@@`. Below it, `--- a` is a removed line that begins with hyphens.
    is_header = True
    signs: dict[str, Sign] = {"+": ADDED, "-": REMOVED}
    for line in patch:
        # A line of content begins with a sign or a space, so these two are headers wherever they stand.
        is_hunk = line.startswith("@@")
        is_header = (is_header or line.startswith("diff --git ")) and not is_hunk
        if is_header or is_hunk or line.startswith("\\"):  # such as "\ No newline at end of file"
            yield _styled(_FAINT, safe(line))
        elif line[:1] in signs:
            name, style = _MARKS[signs[line[0]]]
            # Whole lines are marked by their colour alone; underlining and line-through mark pieces inside a line.
            yield _element(name, safe(line), style=f"{style.partition(';text-decoration')[0]};text-decoration:none")
        else:
            yield safe(line)


@_html.register
def _(block: ChangedText) -> str:
    content = "".join(_marked(piece.sign, piece.text) for piece in pieces(block.before, block.after))
    return _element("div", content, style=_WRAPPED)


@_html.register
def _(block: Section) -> str:
    content = _element("div", "".join(map(_html, block.blocks)), style="padding:4px 0 0 16px")
    title = _element("strong", _heading(block.title))
    return _details(title, content, is_open=block.is_open, style="margin:4px 0")


@_html.register
def _(block: Card) -> str:
    if block.is_bad:
        style = f"border-left:4px solid {LIGHT['bad']};padding:4px 0 4px 12px;margin:0 0 10px 0"
    else:
        style = f"min-width:0;box-sizing:border-box;border:{_RULE};border-radius:4px;padding:6px 10px;margin:0 0 8px"
    title = inline(block.title)
    if block.is_bad:
        title = _element("strong", title)
    note = f" {_styled(_FAINT, inline(block.note))}" if block.note else ""
    head = _element("div", title + note, style="margin:0 0 4px;overflow-wrap:anywhere")
    return _element("div", head + "".join(map(_html, block.blocks)), style=style)


@_html.register
def _(block: Cards) -> str:
    style = "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(260px,100%),1fr));gap:8px"
    return _element("div", "".join(map(_html, block.cards)), style=style)


@_html.register
def _(block: Picture) -> str:
    # An image with a data URI passes sanitizers that remove ``<svg>``.
    style = "display:block;max-width:100%;height:auto;margin:10px 0"
    return f'<img alt="{safe(block.description)}" src="{safe(block.draw())}" style="{style}">'


@_html.register
def _(block: Shares) -> str:
    parts = []
    for name, share, colour in block.parts:
        bar = f"display:inline-block;height:10px;width:{share:.2%};background:{LIGHT[colour]}"
        parts.append(_element("span", "", title=name, style=bar))
    style = "font-size:0;white-space:nowrap;margin:4px 0;max-width:600px"
    return f'<div aria-hidden="true" style="{style}">{"".join(parts)}</div>'


# --- tables ----------------------------------------------------------------------------------------------------------

_LINE = f"border:0;border-bottom:{_RULE}"
_CELL = f"text-align:left;vertical-align:top;padding:3px 10px 3px 0;{_LINE}"
_CELLS = {
    "name": f"{_CELL};overflow-wrap:anywhere;min-width:7em;font-weight:normal",
    "short": f"{_CELL};white-space:nowrap",
    "time": _CELL,
    "long": f"{_CELL};overflow-wrap:anywhere;min-width:7em",
}


@_html.register
def _(block: Table) -> str:
    shown = block.shown_columns
    columns = [block.columns[number] for number in shown]
    titles = (_element("th", safe(column.title), scope="col", style=_CELLS["short"]) for column in columns)
    rows = (
        _element("tr", "".join(_cell(column, row[number]) for column, number in zip(columns, shown, strict=True)))
        for row in block.rows
    )
    # A table is as wide as the page only if it has long texts.
    width = ";width:100%" if any(column.kind == "long" for column in columns) else ""
    style = f"border-collapse:collapse;margin:4px 0 8px;table-layout:auto;color:inherit{width}"
    caption = ""
    if block.title:
        at_top = "caption-side:top;text-align:left;white-space:nowrap;padding:2px 0;color:inherit"
        caption = _element("caption", _element("strong", _heading(block.title)), style=at_top)
    return _table(caption, titles, rows, style)


def _table(caption: str, titles: Iterable[str], rows: Iterable[str], style: str) -> str:
    cells = "".join(titles)
    head = _element("thead", _element("tr", cells)) if cells else ""
    return _element("table", caption + head + _element("tbody", "".join(rows)), style=style)


def _cell(column: Column, line: Line) -> str:
    if column.kind == "name":
        return _element("th", inline(line, MAX_NAME), scope="row", style=_CELLS["name"])
    if column.kind == "time":
        # Only the space between both parts is a place for a line end: browsers also break at the hyphens of a date.
        day, space, clock = "".join(text.content for text in texts_of(line)).partition(" ")
        both = (_styled("white-space:nowrap", safe(part)) for part in (day, clock) if part)
        return _element("td", space.join(both), style=_CELLS["time"])
    # Texts of people can be written from right to left.
    direction = "auto" if column.kind == "long" else False
    return _element("td", inline(line, MAX_WORD), dir=direction, style=_CELLS[column.kind])


# --- differences -----------------------------------------------------------------------------------------------------
#
# Both runs are side by side. Differing words have a colour and a line through or below them, so that readers need only
# one of both. divebook's JupyterLab extension finds the rows by their classes, to lead from difference to difference.

_LANE = "padding:4px 10px 4px 0;text-align:left;vertical-align:top;overflow-wrap:anywhere;white-space:normal"

_WIDTHS = ("Difference", "30%"), ("A", "27%"), ("B", "27%"), (f"B {SIGNS['removed']} A", "16%")
"""Columns of the table of differences, with their widths."""


@_html.register
def _(block: Differences) -> str:
    style = "width:100%;table-layout:fixed;border-collapse:collapse;color:inherit"
    if not block.has_places:
        return _element("div", _table("", (), map(_alone, block.rows), f"{style};margin:0"), class_="divebook-first")
    titles = (_element("th", title, style=f"{_LANE};width:{width}") for title, width in _WIDTHS)
    table = _table("", titles, map(_difference, block.rows), style)
    return table + (_html(Paragraph((block.note,), apart=True)) if block.note else "")


def _difference(row: Difference) -> str:
    if row.kind == "same":
        content = f"{row.sign} {row.words}"
        if row.inner:
            style = "width:100%;table-layout:fixed;border-collapse:collapse;color:inherit;margin:0"
            inner = _table("", (), map(_difference, row.inner), style)
            content = _details(content, inner, is_open=False)
        cell = _element("td", content, colspan="4", style=f"{_LANE};{'' if row.inner else _FAINT}")
        return _element("tr", cell, class_="divebook-same")
    kind = _element("strong", f"{row.sign} {row.kind_words}")
    place = _element("div", inline(row.place), style="overflow-wrap:anywhere")
    about = _element("div", safe(row.about), dir="auto", style=_FAINT) if row.about else ""
    lanes = (_element("div", lane, style=_WRAPPED) for lane in _lanes(row))
    marks = (_element("strong", safe(mark)) for mark in row.shown_marks)
    notes = " <br>".join([*marks, *map(safe, row.notes)])
    widths = (width for _, width in _WIDTHS)
    cells = (
        _element("td", content, style=f"{_LANE};width:{width}")
        for content, width in zip((kind + place + about, *lanes, notes), widths, strict=True)
    )
    classes = " ".join(f"divebook-{name}" for name in ("difference", row.kind, *row.marks))
    return _element("tr", "".join(cells), class_=classes, style=f"border-top:{_RULE}")


def _alone(row: Difference) -> str:
    """Return the row of a difference whose place is a title: the two sides with their letters."""
    lanes = (
        _element("div", _styled(_BADGE, letter) + lane, style=_WRAPPED)
        for letter, lane in zip("AB", _lanes(row), strict=True)
    )
    return _element("tr", "".join(_element("td", lane, style=f"{_LANE};width:50%") for lane in lanes))


def _lanes(row: Difference) -> tuple[str, str]:
    """Return both sides of a difference as HTML, for the first and the second run.

    Each part is a line on both sides. The numbers of further parts and the repeated parts are on the first side only.
    """
    lanes: tuple[list[str], list[str]] = ([], [])
    for part in row.parts:
        name = _styled(_FAINT, f"{inline(part.name)}: ") if part.name else ""
        for lane, text in zip(lanes, _sides(row, part), strict=True):
            lane.append(name + text)
    if row.more:
        lanes[0].append(row.more_words)
    if row.repeated:
        lanes[0].append(_styled(_FAINT, safe(row.repeated_words)))
    first, second = (_styled(_BADGE, safe(label)) if label else "" for label in row.labels)
    return first + "\n".join(lanes[0]), second + "\n".join(lanes[1])


def _sides(row: Difference, part: DifferentPart) -> tuple[str, str]:
    # Each side has its own words and the common ones. Of a place that one run lacks, all words are new.
    is_change = row.kind not in ("added", "removed")
    lacking = _styled(_FAINT, f"{NOTHING!r}" if is_change else "not in this run")
    if not is_change:
        before, after = (None if text is None else safe(text) for text in (part.before, part.after))
    else:
        marked = part.marked()
        before, after = (
            None if text is None else "".join(_marked(*piece) for piece in marked if piece.sign != other)
            for text, other in ((part.before, ADDED), (part.after, REMOVED))
        )
    return (lacking if before is None else before), (lacking if after is None else after)
