"""Everything that shows itself: the same words as text, as HTML and in a terminal, which no page takes away."""

import re

from IPython.core.formatters import DisplayFormatter

import divebook
from divebook.report.html import html_of
from divebook.report.model import Report
from divebook.report.shown import Shown
from divebook.report.text import text_of
from tests.report.test_rendering import ATTRIBUTES, KEPT, Page


def test_each_kind_has_the_same_words_everywhere_and_nothing_that_a_page_takes_away(shown):
    for each in shown:
        report = each.report()
        markup, text = html_of(report), text_of(report)
        page = Page(markup)
        assert page.elements <= KEPT, each
        assert page.attributes <= ATTRIBUTES, each
        assert "<script" not in markup
        assert not {"\x1b", "\u202e"} & {*markup, *text}
        # A page also has details that its readers can unfold.
        only_in_text = {"only", "in", "and", "more", "difference", "differences", "table", "frame", "all", "has", "the"}
        assert words_of(text) - only_in_text <= words_of(page.text), each


def words_of(text):
    return {*re.findall(r"\w+", text.lower())}


def test_what_is_printed_is_what_a_notebook_saves_as_text_and_a_terminal_prints(shown):
    formatter = DisplayFormatter()
    # Widgets are for the pages of a kernel, and are not asked for here.
    formatter.ipython_display_formatter.enabled = False
    for each in shown:
        bundle = each._repr_mimebundle_()
        assert bundle["text/plain"] == str(each) == text_of(each.report())
        assert each.__rich__().plain == str(each)
        assert formatter.format(each)[0]["text/plain"] == str(each)
        assert bundle["text/html"] == each._repr_html_()


def test_each_class_that_shows_itself_has_an_example(shown):
    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    # Names: a dataclass with slots replaces its class, and both are subclasses.
    examples = {type(each).__name__ for each in shown}
    kinds = {kind.__name__ for kind in below(Shown) if kind.__module__.startswith("divebook.")}
    assert kinds - examples == {"Shown", "ResumePlan"}, "add an example to the fixture of this file"


def test_a_report_that_is_empty_is_shown_as_nothing():
    assert text_of(Report()) == ""
    assert divebook.__name__ not in html_of(Report())
