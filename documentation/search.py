"""Hooks of the build of the site, named in ``mkdocs.yml``."""

from __future__ import annotations

from typing import Any

FIRST = ("start/", "how-to/", "explain/")
"""Folders of the guides, which the search prefers to the reference."""
BOOST = 3


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make the search prefer guides to the reference, whose many headings contain the same words.

    The setting is not in the pages, because GitHub shows settings at the top of a page.
    """
    if page.file.src_uri.startswith(FIRST):
        page.meta.setdefault("search", {}).setdefault("boost", BOOST)
    return markdown
