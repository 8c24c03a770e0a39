"""Reports survive the sanitizers of pages that show untrusted notebooks: JupyterLab and GitHub."""

import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook.report.html import html_of
from tests.report.test_rendering import reports

LAB = Path(sys.prefix) / "share" / "jupyter" / "lab" / "static"
PROGRAM = Path(__file__).parent / "jupyterlab_sanitizer.mjs"
EMPTY = {"br", "wbr", "img"}


class Parsed(HTMLParser):
    """Text and elements of a page. Styles are compared apart, since a sanitizer writes them in its own form."""

    def __init__(self, page):
        super().__init__()
        self.text, self.elements, self.styles = "", [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        style = named.pop("style", None) or ""
        self.styles += [part.partition(":")[0].strip() for part in style.split(";") if part.strip()]
        # JupyterLab removes it; it is at bars of empty elements, which no screen reader reads anyway.
        named.pop("aria-hidden", None)
        self.elements.append((tag, tuple(sorted(named.items()))))

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            self.elements.append(f"/{tag}")

    def handle_data(self, data):
        self.text += data


# --- JupyterLab: its own code ----------------------------------------------------------------------------------------


def in_jupyterlab(pages):
    """Return pages as JupyterLab shows them in an untrusted notebook."""
    node = shutil.which("node")
    if node is None or not LAB.exists():
        pytest.skip("needs Node and JupyterLab")
    command = [node, str(PROGRAM), str(LAB)]
    done = subprocess.run(command, input=json.dumps(pages), capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_jupyterlab_removes_what_is_dangerous():
    """Otherwise the other tests would prove nothing."""
    page = '<div onclick="x()" style="color:red">a<script>b</script><svg><text>c</text></svg></div>'
    assert in_jupyterlab([page]) == ['<div style="color:red">ac</div>']


def test_each_kind_of_report_is_the_same_in_an_untrusted_notebook_of_jupyterlab(shown):
    pages = [html_of(each.report()) for each in shown]
    for page, sanitized in zip(pages, in_jupyterlab(pages), strict=True):
        before, after = Parsed(page), Parsed(sanitized)
        assert after.text == before.text
        assert after.elements == before.elements
        assert {*before.styles} - {*after.styles} <= REMOVED_STYLES


REMOVED_STYLES = {"overflow-wrap", "color", "font-family"}
"""Styles that JupyterLab removes, and that reports can lack: tables have ``<wbr>`` in long words, the colour is always
``inherit``, and the font is that of ``<pre>``.
"""


@given(st.lists(reports, min_size=20, max_size=40))
@settings(max_examples=4, deadline=None)
def test_random_reports_with_hostile_texts_are_the_same_in_jupyterlab(several):
    pages = list(map(html_of, several))
    for page, sanitized in zip(pages, in_jupyterlab(pages), strict=True):
        before, after = Parsed(page), Parsed(sanitized)
        assert after.text == before.text
        assert after.elements == before.elements


# --- GitHub: the allow lists that it publishes -----------------------------------------------------------------------

# The elements of `rehype-sanitize`, whose default schema follows GitHub, and of GitHub's `html-pipeline`.
REHYPE = """
a b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img input ins kbd li ol p picture pre q rp rt
ruby s samp section source span strike strong sub summary sup table tbody td tfoot th thead tr tt ul var
"""
PIPELINE = """
h1 h2 h3 h4 h5 h6 h7 h8 br b i strong em a pre code img input tt div ins del sup sub p picture ol ul table thead tbody
tfoot blockquote dl dt dd kbd q samp var hr ruby rt rp li tr td th s strike summary details caption figure figcaption
abbr bdo cite dfn mark small source span time wbr
"""
GITHUB = {"rehype-sanitize": {*REHYPE.split()}, "html-pipeline": {*PIPELINE.split()}}
ATTRIBUTES = {"alt", "title", "dir", "scope", "colspan", "open", "aria-hidden"}
"""Those attributes of reports that both keep. They remove styles, classes and images that are data."""


class OnGitHub(Parsed):
    """Text and elements of a page that GitHub's sanitizers leave: unknown elements are replaced by their content."""

    def __init__(self, page, allowed):
        self._allowed = allowed
        super().__init__(page)

    def handle_starttag(self, tag, attributes):
        if tag in self._allowed:
            super().handle_starttag(tag, [(name, value) for name, value in attributes if name in ATTRIBUTES])

    def handle_endtag(self, tag):
        if tag in self._allowed:
            super().handle_endtag(tag)


@pytest.mark.parametrize("sanitizer", GITHUB)
def test_each_kind_of_report_can_be_read_on_github(shown, sanitizer):
    for each in shown:
        page = html_of(each.report())
        before, after = Parsed(page), OnGitHub(page, GITHUB[sanitizer])
        assert after.text == before.text
        # Only the title of a table and the places where long words may be broken are no elements of `rehype-sanitize`.
        removed = [element for element in map(name_of, before.elements) if element not in map(name_of, after.elements)]
        assert {*removed} <= ({"caption", "wbr"} if sanitizer == "rehype-sanitize" else set())
        assert after.styles == []


def name_of(element):
    return element.removeprefix("/") if isinstance(element, str) else element[0]
