"""Base class of objects that show themselves by a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from divebook.report.model import Report


class Shown:
    """Base class of objects that show themselves: as text, as HTML in notebooks, and in the colours of a terminal.

    A subclass defines `report`. It may define `__repr__`, for lists and error messages, and `_mime_data`.
    """

    __slots__ = ()

    def report(self) -> Report:
        """Return what the object shows."""
        raise NotImplementedError

    def _mime_data(self) -> dict[str, object]:
        """Return data by MIME type that front ends read beside the text and the HTML."""
        return {}

    def __str__(self) -> str:
        from divebook.report.text import text_of

        return text_of(self.report())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from divebook.report.html import html_of

        return html_of(self.report())

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        """Return text, HTML and data of the object by MIME type, as IPython asks for them."""
        return bundle_of(self.report()) | self._mime_data()

    def __rich__(self) -> object:
        """Return the text of the object with colours, as rich prints it."""
        from divebook.report.text import terminal_text

        return terminal_text(self.report())


def bundle_of(report: Report) -> dict[str, object]:
    """Return a report as text and HTML, by MIME type."""
    from divebook.report.html import html_of
    from divebook.report.text import text_of

    return {"text/plain": text_of(report), "text/html": html_of(report)}
