"""The two streams as rich consoles, and the few forms in which the commands print."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from divebook.cli.text import secrets
from divebook.text.shown import visible

STATUS_STYLES = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "waiting": "cyan",
    "running": "blue",
    "pending": "dim",
    "moved": "magenta",
    "continued_as_new": "magenta",
    "picture": "magenta",
}
_UNLIMITED = 100_000
DAMAGED = 1
"""Exit code where a log or store is damaged."""


def console(*, error: bool = False) -> Console:
    """Return stdout, or stderr, for writing; what is not a terminal gets lines of any length."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _UNLIMITED
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def note(text: str, style: str = "") -> None:
    """Print a line on stderr."""
    console(error=True).print(Text(visible(secrets.text(text)), style), soft_wrap=True)


def note_damage(readable: int, events: int | None, damage: Exception) -> None:
    """Say on stderr that only the beginning of a log can be read, which has so many events if that is known."""
    of_all = "" if events is None else f" of {events}"
    note(f"damaged: this is what the first {readable}{of_all} events say. {damage}", "bold red")


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return Text(status, STATUS_STYLES.get(status, ""))


def say(*parts: Text | str) -> None:
    """Print parts on stdout, two spaces apart."""
    line = Text("  ").join(_clean(part) for part in parts if part)
    console().print(line, soft_wrap=True)


def write(text: str) -> None:
    """Print text on stdout exactly as it is: JSON, of which `divebook.cli.text.as_json` has taken the secrets."""
    sys.stdout.write(f"{text}\n")


def section(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print named values under a title, those of several lines below their name; print nothing if there are none."""
    if not rows:
        return
    out = console()
    out.print(Text(title, "bold"))
    for name, whole in rows:
        value = secrets.text(whole)
        if "\n" in value:
            out.print(Text(f"  {name}:", "cyan"), soft_wrap=True)
            out.print(Padding(Text(value), (0, 0, 0, 4)))
        else:
            out.print(Text.assemble((f"  {name}: ", "cyan"), value), soft_wrap=True)


def columns(titles: Iterable[str], rows: Iterable[Sequence[Text | str]], *, whole: Iterable[str] = ()) -> None:
    """Print a table; the columns named in `whole` are never cut."""
    never_cut = set(whole)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ignore" if title in never_cut else "ellipsis")
    for row in rows:
        table.add_row(*map(_clean, row))
    console().print(table)


def _clean(part: Text | str) -> Text:
    return part if isinstance(part, Text) else Text(secrets.text(part))
