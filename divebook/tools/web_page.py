"""Text of web pages: headings, lists and links are kept, all other markup is removed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_SILENT = ("script", "style", "noscript", "template", "svg", "head", "iframe")


_BLOCKS = (
    *("p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "table", "tr", "ul", "ol", "dl"),
    *("dt", "dd", "blockquote", "pre", "form", "figure", "hr", "li", "h1", "h2", "h3", "h4", "h5", "h6"),
)


_LINES = ("li", "tr", "dt", "dd")


_MARKS = {f"h{level}": "#" * level + " " for level in range(1, 7)} | {"li": "- "}


def readable(markup: str, address: str) -> str:
    """Return the text of a page. `address` is the base of its links.

    >>> print(readable("<title>T</title><h1>Hi</h1><p><a href='/x'>This</a> &amp; that<script>f()", "http://a/"))
    T
    <BLANKLINE>
    # Hi
    <BLANKLINE>
    [This](http://a/x) & that
    """
    reader = _Reader(address)
    reader.feed(_harmless(markup))
    reader.close()
    return reader.text()


def _harmless(markup: str) -> str:
    """Remove markup on which Python's parser fails or takes quadratic time.

    These are comments, sections, and tags that never end (test_a_page_that_was_made_to_hold_the_reader_up).
    """
    parts = []
    done = 0
    while (start := markup.find("<!--", done)) >= 0:
        parts.append(markup[done:start])
        end = markup.find("-->", start + 4)
        done = len(markup) if end < 0 else end + 3
    text = "".join([*parts, markup[done:]]).replace("<![", "<! ")
    last = text.rfind(">") + 1
    return text[:last] + text[last:].replace("<", " ")


class _Reader(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self._address = address
        self._parts: list[str] = []
        self._title: list[str] = []
        self._silent = ""
        self._depth = 0
        self._links: list[str] = []
        self._in_title = self._is_verbatim = False

    def text(self) -> str:
        """Return the text that was read."""
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
        title = " ".join("".join(self._title).split())
        return f"{title}\n\n{body}" if title else body

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = self._in_title or tag == "title"
        if tag == "body":  # some pages leave their head open
            self._silent = ""
        if tag in _SILENT and self._silent in ("", tag):
            self._depth = self._depth + 1 if self._silent else 1
            self._silent = tag
        if self._silent:
            return
        self._is_verbatim = self._is_verbatim or tag == "pre"
        if tag in _BLOCKS:
            self._parts.append(("\n" if tag in _LINES else "\n\n") + _MARKS.get(tag, ""))
        elif tag == "br":
            self._parts.append("\n")
        elif tag in ("td", "th") and self._parts[-1:] != ["\n"]:
            self._parts.append(" ")
        elif tag == "a":
            self._links.append(self._target(dict(attrs).get("href") or ""))
            self._parts.append("[" if self._links[-1] else "")

    def _target(self, reference: str) -> str:
        """Return the target of a link; empty if it does not lead to a web page."""
        try:
            target = urljoin(self._address, reference.strip())
        except ValueError:
            return ""
        return target if reference.strip()[:1] not in ("", "#") and target.startswith(("http://", "https://")) else ""

    def handle_endtag(self, tag: str) -> None:
        # Silent elements may be nested in elements of the same name, so their depth is counted.
        if tag == "title":
            self._in_title = False
        if self._silent:
            self._depth -= tag == self._silent
            self._silent = self._silent if self._depth else ""
            return
        if tag == "pre":
            self._is_verbatim = False
        if tag == "a" and self._links:
            target = self._links.pop()
            self._parts.append(f"]({target})" if target else "")
        elif tag in _BLOCKS:
            self._parts.append("\n" if tag in _LINES else "\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._silent:
            self._parts.append(data if self._is_verbatim else self._joined(data))

    def _joined(self, data: str) -> str:
        """Return text with single spaces, and without white space at the beginning of a line."""
        text = re.sub(r"\s+", " ", data)
        return text.lstrip() if not self._parts or self._parts[-1].endswith(("\n", " ")) else text
