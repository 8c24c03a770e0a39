"""HTML of saved outputs and pages, with inline styles only.

Text of models, users and logs is passed through `safe` before it becomes part of an element. The other functions take
and return HTML, so that elements can be nested.

The library markupsafe, which marks escaped text by a class, is not used: a cell of a table takes 3.3 us with its
`Markup.format`, and 1.2 us here. For a text of 1,000 characters its `escape` takes 0.8 us and `html.escape` 1.5 us, but
`visible`, which is needed with both, takes 3.6 us.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from divebook.text.format import visible


def safe(text: str) -> str:
    """Return text with HTML characters and control characters escaped."""
    return html.escape(visible(text))


def element(name: str, content: str, **attributes: str | bool) -> str:
    """Return an HTML element. `content` is HTML. Attributes are text, or True for an attribute without a value;
    ``class_`` stands for ``class``. An attribute that is False is left out.

    >>> element("td", "a<br>b", style="color:red", class_="x")
    '<td style="color:red" class="x">a<br>b</td>'
    """
    texts = []
    for key, value in attributes.items():
        if value is not False:
            texts.append(f" {key.rstrip('_')}" if value is True else f' {key.rstrip("_")}="{safe(value)}"')
    return f"<{name}{''.join(texts)}>{content}</{name}>"


def styled(style: str, content: str) -> str:
    """Return HTML in a ``span`` element with an inline style."""
    return element("span", content, style=style)


def row_element(cells: Iterable[str], **attributes: str) -> str:
    """Return a row of a table. The cells are ``td`` and ``th`` elements."""
    return element("tr", "".join(cells), **attributes)


def table_element(titles: Sequence[str], rows: Iterable[str], caption: str = "", **attributes: str) -> str:
    """Return a table. `titles` are the ``th`` elements of its head, or empty for none; `rows` are its ``tr`` elements.
    `caption` is a ``caption`` element, or empty.

    >>> table_element([element("th", "n")], [row_element([element("td", "1")])])
    '<table><thead><tr><th>n</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    head = element("thead", row_element(titles)) if titles else ""
    return element("table", caption + head + element("tbody", "".join(rows)), **attributes)


def details_element(summary: str, content: str, *, is_open: bool, **attributes: str) -> str:
    """Return a section that readers can unfold, and that is unfolded at first if `is_open`. `summary` and `content` are
    HTML.

    >>> details_element("more", "all", is_open=True)
    '<details open><summary style="cursor:pointer;display:list-item">more</summary>all</details>'
    """
    # Some pages hide the marker of a summary by another value of `display`.
    head = element("summary", summary, style="cursor:pointer;display:list-item")
    return element("details", head + content, open=is_open, **attributes)
