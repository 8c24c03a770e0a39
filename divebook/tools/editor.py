"""The tool ``text_editor``: view a file, create one, replace a text that occurs once, insert lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from divebook.tools.folder import Folder
from divebook.tools.reach import ToolReach, coming, failed
from divebook.workflow.tools import ToolFunction, ToolHints

_MOST_ENTRIES = 500
_AROUND = 4
"""Lines shown before and after what was changed."""
_EDITS = ToolHints(read_only=False, destructive=True, idempotent=False, open_world=False)


def text_editor(reach: ToolReach, *, name: str = "text_editor") -> ToolFunction:
    """Return the tool that edits files; `name` is what the model knows it by."""
    folder = Folder(reach)

    def edit(  # noqa: PLR0917 - a model gives them by name
        command: Literal["view", "create", "str_replace", "insert"],
        path: str,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: int | None = None,
        view_range: list[int] | None = None,
    ) -> str:
        """View a file or a folder, create a file, replace a text that occurs in it once, or insert lines.

        Parameters
        ----------
        command
            What to do.
        path
            Path of the file or folder.
        file_text
            For `create`: all that the new file holds.
        old_str
            For `str_replace`: the text to replace, with enough around it to occur once.
        new_str
            For `str_replace` and `insert`: the text to put there.
        insert_line
            For `insert`: the line after which it goes; 0 is the top.
        view_range
            For `view`: the first and the last line; -1 is the end.
        """
        found = folder.find(path)
        if command != "create" and folder.kind(found) == "nothing":
            raise failed(f"The path {path} does not exist. Please provide a valid path")
        edit = _Edit(folder, found, path, file_text, old_str, new_str, insert_line, view_range)
        return _COMMANDS[command](edit)

    return coming(edit, _EDITS, name, folder.files)


class _Edit(NamedTuple):
    folder: Folder
    found: Path
    path: str
    file_text: str | None
    old_str: str | None
    new_str: str | None
    insert_line: int | None
    view_range: list[int] | None

    def need(self, parameter: str, command: str) -> str:
        """Return what was given under a parameter that a command cannot do without."""
        given = getattr(self, parameter)
        if given is None:
            raise failed(f"Parameter `{parameter}` is required for command: {command}")
        return str(given)

    def text(self) -> str:
        """Return what the file holds."""
        if self.folder.kind(self.found) != "file":
            raise failed(f"The path {self.path} is not a file: only view shows folders")
        return self.folder.text(self.found, self.path)


def _view(edit: _Edit) -> str:
    if edit.folder.kind(edit.found) == "folder":
        if edit.view_range is not None:
            raise failed("`view_range` is for files: leave it out for a folder")
        return _listed(edit)
    lines = edit.text().split("\n")
    first, last = _range(edit.view_range, len(lines))
    return _numbered(lines, first, last)


def _range(asked: list[int] | None, count: int) -> tuple[int, int]:
    if asked is None:
        return 1, count
    first, last = asked if len(asked) == 2 else (0, 0)
    last = count if last == -1 else last
    if not 1 <= first <= last <= count:
        raise failed(f"`view_range` must be [first, last] within the {count} lines of the file, not {asked}")
    return first, last


def _listed(edit: _Edit) -> str:
    """Return what a folder holds, two levels deep, nothing hidden."""

    def entries(folder: Path) -> list[Path]:
        return [folder / name for name in edit.folder.names(folder, edit.path) if not name.startswith(".")]

    above = entries(edit.found)
    below = [entry for folder in above if edit.folder.is_folder(folder) for entry in entries(folder)]
    shown = [edit.folder.shown(entry) for entry in (*above, *below)]
    more = [f"... and {len(shown) - _MOST_ENTRIES} more"] if len(shown) > _MOST_ENTRIES else []
    return "\n".join([f"{edit.path} holds, two levels deep:", *sorted(shown[:_MOST_ENTRIES]), *more])


def _create(edit: _Edit) -> str:
    if edit.folder.kind(edit.found) != "nothing":
        raise failed(f"File already exists at: {edit.path}. Cannot overwrite files with command `create`")
    text = edit.need("file_text", "create")
    edit.folder.write(edit.found, text, edit.path)
    return f"File created successfully at: {edit.path}"


def _replace(edit: _Edit) -> str:
    old, new = edit.need("old_str", "str_replace"), edit.new_str or ""
    text = edit.text()
    count = text.count(old) if old else 0
    if count != 1:
        what = "did not appear" if not count else f"appears {count} times"
        raise failed(f"No replacement was made: `old_str` {what} in {edit.path}. It must occur exactly once")
    at = text.index(old)
    changed = text[:at] + new + text[at + len(old) :]
    edit.folder.write(edit.found, changed, edit.path)
    line = text.count("\n", 0, at) + 1
    return f"The file {edit.path} has been edited. {_around(changed, line, line + new.count(chr(10)))}"


def _insert(edit: _Edit) -> str:
    after, new = int(edit.need("insert_line", "insert")), edit.need("new_str", "insert")
    lines = edit.text().split("\n")
    if not 0 <= after <= len(lines):
        raise failed(f"`insert_line` must be between 0 and {len(lines)}, not {after}")
    changed = "\n".join([*lines[:after], *new.split("\n"), *lines[after:]])
    edit.folder.write(edit.found, changed, edit.path)
    return f"The file {edit.path} has been edited. {_around(changed, after + 1, after + 1 + new.count(chr(10)))}"


def _around(text: str, first: int, last: int) -> str:
    lines = text.split("\n")
    shown = _numbered(lines, max(1, first - _AROUND), min(len(lines), last + _AROUND))
    return f"Around the change it reads:\n{shown}"


def _numbered(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:6}\t{lines[number - 1]}" for number in range(first, last + 1))


_COMMANDS: dict[str, Callable[[_Edit], str]] = {
    "view": _view,
    "create": _create,
    "str_replace": _replace,
    "insert": _insert,
}
