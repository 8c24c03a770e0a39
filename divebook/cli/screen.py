"""The two streams as rich consoles, and the few forms in which the commands print."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from divebook.cli.text import secrets
from divebook.text.shown import visible

if TYPE_CHECKING:  # rich is loaded by what prints: --help is instant
    from rich.console import Console
    from rich.text import Text

STATUS_STYLES = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "waiting": "cyan",
    "paused": "cyan",
    "running": "blue",
    "pending": "dim",
    "enqueued": "dim",
    "moved": "magenta",
    "continued_as_new": "magenta",
    "picture": "magenta",
}
_UNLIMITED = 100_000
DAMAGED = 1
"""Exit code where a log or store is damaged."""


def console(*, error: bool = False) -> Console:
    """Return stdout, or stderr, for writing; what is not a terminal gets lines of any length."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _UNLIMITED
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def note(text: str, style: str = "") -> None:
    """Print a line on stderr."""
    console(error=True).print(styled(secrets.text(text), style), soft_wrap=True)


def note_damage(readable: int, events: int | None, damage: Exception) -> None:
    """Say on stderr that only the beginning of a log can be read, which has so many events if that is known."""
    of_all = "" if events is None else f" of {events}"
    note(f"damaged: this is what the first {readable}{of_all} events say. {damage}", "bold red")


def styled(text: str, style: str = "") -> Text:
    """Return a text of rich's, in which control characters are spelled out."""
    from rich.text import Text

    return Text(visible(text), style)


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return styled(status, STATUS_STYLES.get(status, ""))


def say(*parts: Text | str) -> None:
    """Print parts on stdout, two spaces apart."""
    line = styled("  ").join(_clean(part) for part in parts if part)
    console().print(line, soft_wrap=True)


def write(text: str) -> None:
    """Print text on stdout without control characters: JSON, of which `as_json` has taken the secrets, and names."""
    sys.stdout.write(f"{visible(text)}\n")


def section(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print named values under a title, those of several lines below their name; print nothing if there are none."""
    if not rows:
        return
    from rich.padding import Padding

    out = console()
    say(styled(title, "bold"))
    for name, whole in rows:
        value = secrets.text(whole)
        if "\n" in value:
            say(styled(f"  {name}:", "cyan"))
            out.print(Padding(styled(value), (0, 0, 0, 4)))
        else:
            out.print(styled("").join([styled(f"  {name}: ", "cyan"), styled(value)]), soft_wrap=True)


def columns(titles: Iterable[str], rows: Iterable[Sequence[Text | str]], *, whole: Iterable[str] = ()) -> None:
    """Print a table; the columns named in `whole` are never cut."""
    from rich.table import Table

    never_cut = set(whole)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ignore" if title in never_cut else "ellipsis")
    for row in rows:
        table.add_row(*map(_clean, row))
    console().print(table)


def _clean(part: Text | str) -> Text:
    return styled(secrets.text(part)) if isinstance(part, str) else part
