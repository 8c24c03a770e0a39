"""Random reports with hostile texts: text and HTML have the same words, and no text is markup or moves a cursor."""

import re
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from divebook.report.html import html_of
from divebook.report.model import (
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
    Paragraph,
    Patch,
    Report,
    Section,
    Table,
    Text,
    Tree,
    Values,
)
from divebook.report.text import lines_of, terminal_text, text_of
from divebook.text.format import UNSAFE

# Elements and attributes that both GitHub and JupyterLab keep in untrusted notebooks, apart from `style` and `class`,
# without which a report can be read.
KEPT = {"div", "span", "br", "wbr", "strong", "code", "pre", "del", "ins", "details", "summary", "img"}
KEPT |= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"style", "class", "dir", "scope", "colspan", "open", "title", "aria-hidden", "alt", "src"}
HOSTILE = (
    "<script>alert(1)</script>",
    "<b>",
    "</div>",
    '" onload="x',
    "'",
    "&lt;",
    "\x1b[31m",
    "\x00",
    "\u202e",
    "$5 $",
)
STYLES = ("", "strong", "faint", "code", "id", "badge", "bad", "good", "completed", "failed", "unknown style")

words = st.from_regex(r"\Aword[a-z]{3}\Z")
texts = st.lists(st.one_of(words, st.sampled_from(HOSTILE)), max_size=3).map(" ".join)
many_lines = st.lists(texts, min_size=1, max_size=3).map("\n".join)
lines = st.one_of(
    texts, st.lists(st.one_of(texts, st.builds(Text, texts, st.sampled_from(STYLES))), max_size=3).map(tuple)
)


@st.composite
def tables(draw):
    kinds = st.sampled_from(("name", "short", "long", "time"))
    columns = draw(st.lists(st.builds(Column, words, kinds, st.booleans()), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*[lines for _ in columns]), max_size=3))
    # A column without a word may be left out.
    return Table(tuple(columns), tuple(rows), draw(texts))


either = many_lines | st.none()
changed = st.builds(DifferentPart, texts, either, either, st.booleans())
added = st.builds(DifferentPart, texts, st.none(), many_lines)
removed = st.builds(DifferentPart, texts, many_lines, st.none())
marks = st.lists(st.sampled_from(("better", "worse", "blocked", "costlier")), max_size=2).map(tuple)
differences = st.one_of(
    st.builds(
        Difference,
        st.sampled_from(("changed", "request")),
        texts,
        parts=st.tuples(changed),
        notes=st.tuples(texts),
        marks=marks,
        repeated=st.lists(texts, max_size=2).map(tuple),
    ),
    # A place that one run lacks has the result of the other one.
    st.builds(Difference, st.just("added"), texts, parts=st.tuples(added)),
    st.builds(Difference, st.just("removed"), texts, parts=st.tuples(removed)),
)


def several(strategy):
    return st.lists(strategy, max_size=3).map(tuple)


leaves = st.one_of(
    st.builds(Paragraph, several(lines), st.booleans()),
    st.builds(Items, several(lines)),
    st.builds(Facts, several(st.tuples(texts, st.one_of(lines, st.builds(Code, many_lines))))),
    st.builds(Values, several(st.tuples(texts, many_lines)), st.just(1000), st.just(1000)),
    tables(),
    st.builds(Tree, several(st.tuples(st.just(0), lines)), st.integers(0, 2)),
    st.builds(Code, many_lines, st.integers(0, 3)),
    st.builds(Patch, lines, many_lines, st.booleans()),
    st.builds(ChangedText, many_lines, many_lines),
    st.builds(Differences, several(differences), st.just(True), texts),
)
cards = st.builds(Card, lines, several(leaves), lines, st.booleans())
blocks = st.one_of(
    leaves,
    cards,
    st.builds(Section, texts, several(leaves), st.booleans()),
    st.builds(Cards, several(cards)),
)
reports = st.builds(Report, lines, several(lines), several(blocks), st.none() | cards)


class Page(HTMLParser):
    """The words of HTML, and the elements and attributes in it."""

    def __init__(self, page):
        super().__init__()
        self.text, self.elements, self.attributes, self.open = "", set(), set(), []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag in ("div", "td", "th", "tr", "pre", "br", "summary", "caption", "ins", "del"):
            self.text += "\n"
        if tag not in ("br", "wbr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.text += " " if tag in ("ins", "del") else ""

    def handle_data(self, data):
        self.text += data


def words_in(text):
    return {*re.findall(r"word[a-z]{3}", text.lower())}


@given(reports)
@settings(max_examples=60, deadline=None)
def test_text_and_html_have_the_same_words_and_nothing_of_them_is_markup(report):
    text, markup = text_of(report), html_of(report)
    page = Page(markup)
    assert page.open == []
    assert page.elements <= KEPT
    assert page.attributes <= ATTRIBUTES
    assert not UNSAFE.search(text)
    assert not UNSAFE.search(markup)
    assert words_in(text) == words_in(page.text)


@given(reports)
@settings(max_examples=30, deadline=None)
def test_a_terminal_has_the_words_of_the_text(report):
    assert [line.plain for line in terminal_text(report).split("\n", allow_blank=True)] == text_of(report).split("\n")


@given(tables(), st.integers(20, 60))
@settings(max_examples=40, deadline=None)
def test_a_table_is_cut_to_the_width_of_a_terminal_as_far_as_its_columns_may_be(table, width):
    whole = text_of(Report(blocks=(table,))).split("\n")
    cut = text_of(Report(blocks=(table,)), width).split("\n")
    assert len(whole) == len(cut)
    assert all(len(short) <= max(len(long), width) for short, long in zip(cut, whole, strict=True))


def test_columns_are_aligned_by_the_width_of_their_characters():
    table = Table((Column("name", "name"), Column("n")), (("水水", "1"), ("e\u0301", "2"), ("abc", "3")))
    assert text_of(Report(blocks=(table,))).split("\n") == ["name  n", "水水  1", "e\u0301     2", "abc   3"]


def test_a_card_of_a_failure_is_first_in_a_page_and_last_in_text():
    report = Report("title", blocks=(Items(("line",)),), alert=Card("failure", (), is_bad=True))
    assert text_of(report).split("\n") == ["title", "  line", "", "failure"]
    assert html_of(report).index("failure") < html_of(report).index("title")


def test_long_words_in_a_table_can_be_broken_and_ids_cannot():
    row = ("x" * 70, Text("y" * 70, "id"), "z" * 70)
    page = html_of(Report(blocks=(Table((Column("a", "name"), Column("b"), Column("c", "long")), (row,)),)))
    assert "x" * 16 + "<wbr>" in page
    assert "<code>" + "y" * 70 in page
    assert "z" * 30 + "<wbr>" in page


def test_line_ends_in_a_line_cannot_forge_another_one():
    assert len(list(lines_of(Report("a\nb", ("c\nd",), (Items(("e\nf",)),))))) == 3


def test_a_secret_is_replaced_before_a_cell_is_cut():
    """Half a secret is not recognised."""
    table = Table((Column("about", "long"),), (("the key is correct-horse-battery",),))
    report = Report(blocks=(table,))
    cut = terminal_text(report, 20, lambda text: text.replace("correct-horse-battery", "***")).plain
    assert cut.split("\n") == ["about", "the key is ***"]
    assert "correct" in terminal_text(report, 20).plain
