"""Files that an execution has changed, as people look at them: a difference in a terminal, unfolded in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from divebook.history.marked_html import FAINT, RULE, piece_of, safe, styled
from divebook.text.differences import ADDED, REMOVED
from divebook.text.lines import lines_in
from divebook.text.redaction import shared
from divebook.text.shown import AS_TEXT, plural, visible
from divebook.workspace.snapshots.diffs import FileDiff

SIGNS = {"added": "A", "changed": "M", "deleted": "D", "renamed": "R"}
MOST_LEFT_OUT = 20
"""Files that are named of those that are not kept."""
MOST_LINES = 2_000
"""Of one file's difference, in a notebook."""
_HEADS = ("@@", "diff ", "+++", "---", "new file", "deleted file", "rename ", "old mode", "new mode", "Binary ")
_MONO = "font-family:var(--jp-code-font-family,monospace);font-size:12px;line-height:1.35"


@dataclass(frozen=True)
class ChangedFiles:
    """How files of a workspace differ between two events.

    Printed, it is a difference that git can apply, unless texts hold control characters, which are spelled out: `patch`
    has them as they are.
    """

    workspace: str
    files: Sequence[FileDiff]
    since: int
    """The event with which it begins."""
    until: int
    """The event up to which it goes."""
    whole: bool = True
    """Whether it is shown with what has changed in each file, and not as a list."""
    left_out: Sequence[tuple[str, str]] = ()
    """Files of which nothing is kept, each with the reason."""
    more: int = 0
    """How many files have changed besides, which are not looked at."""

    @property
    def added(self) -> int:
        """Lines that came."""
        return sum(found.added or 0 for found in self.files)

    @property
    def removed(self) -> int:
        """Lines that went."""
        return sum(found.removed or 0 for found in self.files)

    @property
    def patch(self) -> str:
        """The difference as git writes it, secrets left out."""
        return str(shared().text("".join(found.text for found in self.files)))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        told = {"workspace": self.workspace, "since": self.since, "until": self.until}
        return {**told, "files": [shared().value(found.to_dict()) for found in self.files]}

    def __len__(self) -> int:
        return len(self.files) + self.more

    def __iter__(self) -> Iterator[FileDiff]:
        return iter(self.files)

    @property
    def head(self) -> str:
        """How much has changed, in a line."""
        if not self.files:
            return f"workspace {self.workspace}: no file has changed from event {self.since} to event {self.until}"
        lines = f"+{self.added} -{self.removed}"
        where = f"from event {self.since} to event {self.until}"
        shown = f", the first {len(self.files)} of them" if self.more else ""
        return f"workspace {self.workspace}: {plural(len(self), 'file')} changed{shown} ({lines}), {where}"

    def __str__(self) -> str:
        if self.whole:
            return "\r\n".join(map(visible, self.patch.split("\r\n"))) if self.files else self.head
        return "\n".join([self.head, *map(_line, self.files), *self._not_kept()])

    def _not_kept(self) -> list[str]:
        told = ", ".join(f"{path} ({reason})" for path, reason in self.left_out[:MOST_LEFT_OUT])
        more = f" and {len(self.left_out) - MOST_LEFT_OUT} more" if len(self.left_out) > MOST_LEFT_OUT else ""
        return [visible(f"  not kept: {told}{more}")] if told else []

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        parts = "".join(_part(found, is_open=self.whole and len(self.files) <= 3) for found in self.files)
        head = f'<div style="margin:2px 0 6px">{safe(self.head)}</div>'
        missing = "".join(f"<div>{styled(FAINT, safe(line))}</div>" for line in self._not_kept())
        return f'<div class="{AS_TEXT}" style="margin:4px 0">{head}{parts}{missing}</div>'

    def within(self, characters: int) -> ChangedFiles:
        """Return it with differences of so many characters in all at most: longer ones are only named."""
        left, kept = characters, []
        for found in self.files:
            is_long = len(found.text) > left
            left -= 0 if is_long else len(found.text)
            kept.append(replace(found, text="Too long to be shown here: %dive diff shows it.") if is_long else found)
        return replace(self, files=kept)


def _lines(found: FileDiff) -> str:
    return "binary" if found.added is None else f"+{found.added} -{found.removed}"


def _line(found: FileDiff) -> str:
    lines = _lines(found)
    was = f" (was {found.was})" if found.was is not None else ""
    return visible(f"  {SIGNS[found.kind]} {found.path}{was}  {lines}").replace("\n", "\\n")


def _part(found: FileDiff, *, is_open: bool) -> str:
    """Return a file, to be unfolded."""
    lines = _lines(found)
    was = f" ← {found.was}" if found.was is not None else ""
    head = f"<b>{SIGNS[found.kind]}</b> <code>{safe(found.path + was)}</code> {styled(FAINT, safe(lines))}"
    text = lines_in(str(shared().text(found.text)))
    shown = [_html_line(line) for line in text[:MOST_LINES]]
    if len(text) > MOST_LINES:
        shown.append(styled(FAINT, f"… {len(text) - MOST_LINES:,} more lines"))
    style = f"margin:4px 0 8px;padding:6px 8px;border:{RULE};overflow-x:auto;{_MONO}"
    body = f'<pre style="{style}">{"<br>".join(shown)}</pre>'
    return f'<details{" open" if is_open else ""} style="margin:2px 0"><summary>{head}</summary>{body}</details>'


def _html_line(line: str) -> str:
    if line.startswith("+") and not line.startswith("+++"):
        return piece_of(ADDED, line).replace("text-decoration:underline", "text-decoration:none")
    if line.startswith("-") and not line.startswith("---"):
        return piece_of(REMOVED, line).replace("text-decoration:line-through", "text-decoration:none")
    return styled(FAINT, safe(line)) if line.startswith(_HEADS) else safe(line)
