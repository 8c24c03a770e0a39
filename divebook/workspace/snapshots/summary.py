"""What has changed between two trees, for readers: paths, kinds, and how many lines came and went."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from divebook.text.lines import lines_in
from divebook.workspace.snapshots.trees import FILE, FileChange, TreeEntry, shown_path

MOST_BYTES = 200_000
"""Of a file whose lines are counted."""
MOST_COUNTED = 200
_NAMED = 5


def summary_of(changes: Sequence[FileChange], get: Callable[[str], bytes]) -> list[dict[str, Any]]:
    """Return ``path``, ``kind``, ``was``, and ``added`` and ``removed`` lines of texts that are not too long.

    Parameters
    ----------
    get
        Returns the content of a file by its digest.
    """
    return [_told(change, get if at < MOST_COUNTED else None) for at, change in enumerate(changes)]


def _told(change: FileChange, get: Callable[[str], bytes] | None) -> dict[str, Any]:
    told: dict[str, Any] = {"path": shown_path(change.path), "kind": change.kind}
    if change.was is not None:
        told["was"] = shown_path(change.was)
    lines = None if get is None else lines_changed(change.before, change.after, get)
    return told if lines is None else {**told, "added": lines[0], "removed": lines[1]}


def lines_changed(
    before: TreeEntry | None, after: TreeEntry | None, get: Callable[[str], bytes]
) -> tuple[int, int] | None:
    """Return how many lines came and went; None where one of the two is no text, or too long."""
    old, new = text_of(before, get), text_of(after, get)
    if old is None or new is None:
        return None
    matcher = difflib.SequenceMatcher(None, lines_in(old), lines_in(new), autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    return sum(code[4] - code[3] for code in codes), sum(code[2] - code[1] for code in codes)


def text_of(entry: TreeEntry | None, get: Callable[[str], bytes]) -> str | None:
    """Return the text of a file, '' for none; None for what is no text, no file, or too long."""
    if entry is None:
        return ""
    if entry.kind != FILE or entry.size > MOST_BYTES:
        return None
    content = get(entry.content)
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def told_in_short(changes: Sequence[FileChange]) -> str:
    """Return a few words: how many files, and which of them first.

    >>> told_in_short([FileChange("a.py", "changed", None, None), FileChange("b.py", "added", None, None)])
    '1 changed, 1 added: a.py, b.py'
    """
    counts = Counter(change.kind for change in changes)
    named = ", ".join(shown_path(change.path) for change in changes[:_NAMED])
    more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
    return f"{', '.join(f'{count} {kind}' for kind, count in counts.items())}: {named}{more}"
