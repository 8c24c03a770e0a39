"""Built-in tools for files in a folder: ``read_file``, ``write_file``, ``list_directory`` and ``text_editor``."""

from __future__ import annotations

import inspect
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from divebook.definitions.resources import IF_NOT_READ_ONLY
from divebook.definitions.tools import FileSpellings, ToolFunction, ToolHints
from divebook.documents import DocumentRepository, Policy
from divebook.documents.policy import FILES, HIDDEN, FileArguments
from divebook.documents.private_files import MOST_FOLDERS
from divebook.documents.repository import has_wildcards, matches
from divebook.errors import PathNotAllowedError, SetupError
from divebook.workspaces.files import Disk
from divebook.workspaces.paths import PathPolicy, Root

READS = ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False)
WRITES = ToolHints(read_only=False, destructive=True, idempotent=True, open_world=False)


class ToolReach(NamedTuple):
    """Documents and files that the built-in tools of an environment can access: the document repository, the access
    policy and the base folder.
    """

    documents: DocumentRepository
    policy: Policy
    folder: Path
    """Folder to which relative paths of files refer."""


def builtin_tool(
    function: Callable[..., Any], hints: ToolHints, name: str = "", files: FileSpellings | None = None
) -> ToolFunction:
    """Return a built-in tool for agents that calls a Python function. A person must approve each call, unless the tool
    only reads.

    An approval rule can decide in place of the person. The function runs in a thread of this process, whatever the
    executor of other functions is.
    """
    return ToolFunction(
        name or function.__name__,
        function,
        inspect.getdoc(function) or "",
        hints=hints,
        confirmation=IF_NOT_READ_ONLY,
        executor="thread",
        files=files,
    )


def tool_failure(message: str) -> Exception:
    """Return the exception with which a tool reports a failed call to the model. The turn of the agent continues."""
    from pydantic_ai.exceptions import ToolFailed

    return ToolFailed(f"Error: {in_utf8(message)}")


def in_utf8(text: str) -> str:
    """Return a text in which everything that UTF-8 cannot encode is escaped. Such characters occur because file names
    may contain any bytes.
    """
    return text.encode("utf-8", "backslashreplace").decode()


MOST_BYTES = 10_000_000
"""Maximum size in bytes of a file that a tool reads."""
_SHOWN = 100


class Folder:
    """Folder with the files that a built-in tool may access. Patterns of allowed and denied paths restrict the files.
    Links are followed.

    Parameters
    ----------
    allow, deny
        Patterns of paths, in which ``**`` also matches slashes. A pattern that is not absolute is relative to the
        folder. A file that matches both lists is denied. Without `allow`, all files are allowed that `deny` does not
        match.
    """

    def __init__(self, reach: ToolReach, allow: Sequence[str] = (), deny: Sequence[str] = (), root: str = "") -> None:
        self._policy = reach.policy
        self._base = reach.folder
        self.root = reach.policy.file(root, reach.folder) if root else reach.folder.resolve()
        self._allow = [self._absolute_pattern(pattern) for pattern in allow]
        # Denied paths are compared without case, allowed paths exactly: in case of doubt, access is denied.
        self._deny = [self._absolute_pattern(pattern).casefold() for pattern in deny]

    def _absolute_pattern(self, pattern: str) -> str:
        """Convert a pattern of allowed or denied files to a pattern that matches absolute paths. Links in the part
        before the first wildcard are resolved.

        The paths that are compared with the pattern have resolved links, too.
        """
        # Such a pattern matches at any depth, so there is no fixed beginning whose links could be resolved.
        if pattern.startswith("**"):
            return f"/{pattern}"
        # "src/*/x.py" -> "/project/src" without links, then "*/x.py"
        parts = Path(pattern).parts
        plain = next((at for at, part in enumerate(parts) if has_wildcards(part)), len(parts))
        begin = self.root.joinpath(*parts[:plain]).resolve().as_posix().rstrip("/")
        return "/".join([begin, *parts[plain:]])

    def is_denied(self, path: Path) -> bool:
        """Return True if a pattern of denied files matches the path. Upper and lower case are not distinguished,
        because some disks do not distinguish them.
        """
        return any(matches(pattern, path.as_posix().casefold()) for pattern in self._deny)

    def find(self, path: str) -> Path:
        """Return the real path of a file, with links resolved. Raise an error that the model gets if the access policy
        or the patterns deny access to the file.
        """
        try:
            # The policy resolves links, so patterns are compared with the real path.
            real_path = self._policy.file(path, self.root)
        except SetupError as error:
            raise tool_failure(f"Access denied: {error}") from error
        is_allowed = not self._allow or any(matches(pattern, real_path.as_posix()) for pattern in self._allow)
        if self.is_denied(real_path) or not is_allowed:
            raise tool_failure(f"Access denied: {path} is not among the files that this tool may reach")
        return real_path

    @property
    def files(self) -> FileArguments:
        """Description of the tool's arguments that are paths in this folder, by which approval rules compare files."""
        return FileArguments(("path",), self._base, start=self.root)

    def shown(self, path: Path) -> str:
        """Return a path as text for the model: relative to this folder if it is inside, else absolute."""
        return in_utf8((path.relative_to(self.root) if path.is_relative_to(self.root) else path).as_posix())

    @contextmanager
    def _open_files(self, shown: str, action: str) -> Iterator[Disk]:
        """Yield an object with blocking operations on the files of this folder. Errors inside the ``with`` block are
        converted to errors that the model gets.
        """
        # Links are checked again when a file is opened, so that one created after `find` leads nowhere else
        # (tests/tools/test_races_of_tools.py).
        policy: PathPolicy | None = None
        allowed = self._policy.allowed
        # A policy that allows all files opens "/" as well. Then the guard alone protects hidden files.
        # Inside of `try`, because opening the folders may already fail.
        try:
            other_roots = [Root("/")] if FILES in allowed else []
            policy = PathPolicy(Root(self.root), other_roots, None if HIDDEN in allowed else self._policy.why_protected)
            yield Disk(policy)
        except PathNotAllowedError as error:
            raise tool_failure(f"Access denied: {error}") from error
        except UnicodeDecodeError as error:
            raise tool_failure(
                f"File {shown} is no UTF-8 text (at byte {error.start}), so it cannot be shown"
            ) from error
        except UnicodeEncodeError as error:
            raise tool_failure(f"File {shown} cannot be {action}: it holds half of a character") from error
        except OSError as error:
            raise tool_failure(f"{shown[:_SHOWN]!r} cannot be {action}: {error.strerror}") from error
        # A policy holds open folders, which are closed here.
        finally:
            if policy is not None:
                policy.close()

    def kind(self, path: Path) -> str:
        """Return ``file``, ``folder``, ``nothing`` (the path does not exist) or ``other`` (such as a pipe, which could
        block a reader).
        """
        with self._open_files(path.name, "looked at") as disk:
            try:
                # "nothing" is a valid state, not an error of the tool.
                status = disk.status(str(path))
            except (FileNotFoundError, NotADirectoryError):
                return "nothing"
            if status.is_file:
                return "file"
            return "folder" if status.is_dir else "other"

    def text(self, path: Path, shown: str, most: int = MOST_BYTES) -> str:
        """Return the text of a file. Raise an error that the model gets if the file is not UTF-8, or has more than
        `most` bytes.
        """
        with self._open_files(shown, "read") as disk:
            if (size := disk.status(str(path)).size) > most:
                raise tool_failure(f"File {shown} is too large ({size} bytes): at most {most} bytes can be read")
            # Limited again, because the file may have grown since. "utf-8-sig" leaves out a byte order mark.
            return disk.read(str(path), length=most).decode("utf-8-sig")

    def write(self, path: Path, text: str, shown: str) -> None:
        """Replace the content of a file in one step, so that no reader sees half of the text.

        Missing folders are created, and the permissions of the file stay.
        """
        # The working folder need not exist before its first file.
        self.root.mkdir(parents=True, exist_ok=True)
        with self._open_files(shown, "written") as disk:
            content = text.encode()
            disk.make_folder(str(path.parent), parents=True, most=MOST_FOLDERS)
            disk.write(str(path), content)

    def names(self, path: Path, shown: str) -> list[str]:
        """Return the names of the entries of a folder, sorted."""
        with self._open_files(shown, "listed") as disk:
            return disk.names(str(path))

    def look(self, path: Path, shown: str) -> os.stat_result | None:
        """Return the result of `os.stat` for a path, without following a link. Return None if the path does not exist
        any more.
        """
        # The entry is looked up in its open folder, so a link that is swapped in meanwhile is not followed.
        with self._open_files(shown, "looked at") as disk, disk.policy.parent(str(path)) as (folder, name):
            try:
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def is_folder(self, path: Path) -> bool:
        """Return True if a path is a folder, or a link to a folder that the tool may access."""
        with self._open_files(path.name, "looked at") as disk:
            return disk.is_folder(str(path))


def file_reader(reach: ToolReach, *, max_size: int = 102_400) -> ToolFunction:
    """Return the tool ``read_file``, which reads files of at most `max_size` bytes."""
    folder = Folder(reach)

    def read_file(path: str) -> str:
        """Read a text file and return its content.

        Parameters
        ----------
        path
            Path of the file, relative to the working folder.
        """
        return folder.text(_file(folder, path), path, max_size)

    return builtin_tool(read_file, READS, files=folder.files)


def file_writer(reach: ToolReach, *, allow_list: Sequence[str] = (), deny_list: Sequence[str] = ()) -> ToolFunction:
    """Return the tool ``write_file``. It writes files that `allow_list` allows and `deny_list` does not deny."""
    folder = Folder(reach, allow_list, deny_list)

    def write_file(path: str, content: str) -> str:
        """Write a text file. An existing file is replaced, and missing folders are created.

        Parameters
        ----------
        path
            Path of the file, relative to the working folder.
        content
            The whole content of the file.
        """
        real_path = folder.find(path)
        if folder.kind(real_path) not in ("file", "nothing"):
            raise tool_failure(f"{path} is not a file")
        folder.write(real_path, content, path)
        return f"Successfully wrote {len(content.encode())} bytes to {path}"

    return builtin_tool(write_file, WRITES, files=folder.files)


def directory_lister(
    reach: ToolReach,
    *,
    default_path: str = ".",
    max_entries: int = 100,
    root_directory: str = "",
    allow_list: Sequence[str] = (),
    deny_list: Sequence[str] = (),
) -> ToolFunction:
    """Return the tool ``list_directory``, limited to folders that `allow_list` allows and `deny_list` does not deny."""
    folder = Folder(reach, allow_list, deny_list, root_directory)

    def list_directory(path: str = default_path) -> dict[str, Any]:
        """List the entries of a folder.

        Parameters
        ----------
        path
            Path of the folder, relative to the working folder.
        """
        real_path = folder.find(path)
        if folder.kind(real_path) != "folder":
            raise tool_failure(f"Directory not found: {path}")
        visible = [real_path / name for name in folder.names(real_path, path) if not folder.is_denied(real_path / name)]
        # Only the entries that are shown are looked at, because a folder may have very many.
        statuses = [(entry, folder.look(entry, path)) for entry in visible[:max_entries]]
        entries = [_entry(folder, entry, status) for entry, status in statuses if status is not None]
        result: dict[str, Any] = {"entries": entries}
        if len(visible) > max_entries:
            result["note"] = f"limited to {max_entries} entries of {len(visible)}"
        return result

    return builtin_tool(list_directory, READS, files=folder.files)


def _file(folder: Folder, path: str) -> Path:
    real_path = folder.find(path)
    kind = folder.kind(real_path)
    if kind == "nothing":
        raise tool_failure(f"File not found: {path}")
    if kind != "file":
        raise tool_failure(f"{path} is not a file")
    return real_path


def _entry(folder: Folder, path: Path, status: os.stat_result) -> dict[str, Any]:
    return {
        "name": in_utf8(path.name),
        "path": folder.shown(path),
        "size": status.st_size,
        # `status` describes a link itself, but a link to an allowed folder is a folder for the model.
        "is_dir": folder.is_folder(path),
        "mode": stat.filemode(status.st_mode),
        "mod_time": _time(status.st_mtime),
        "extension": in_utf8(path.suffix),
    }


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a disk may hold times that no calendar has
        return ""


_MOST_ENTRIES = 500
_AROUND = 4
"""Number of lines that the result of an edit shows before and after the change."""
_EDITS = ToolHints(read_only=False, destructive=True, idempotent=False, open_world=False)


def text_editor(reach: ToolReach, *, name: str = "text_editor") -> ToolFunction:
    """Return the tool that views and edits text files. `name` is the name of the tool in requests to the model."""
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
            For `create`: the whole content of the new file.
        old_str
            For `str_replace`: the text to replace, with enough context to occur exactly once.
        new_str
            For `str_replace` and `insert`: the new text.
        insert_line
            For `insert`: number of the line after which the text is inserted; 0 is the beginning.
        view_range
            For `view`: numbers of the first and the last line; -1 is the last line of the file.
        """
        real_path = folder.find(path)
        # `create` needs a path that does not exist. All other commands need one that does.
        if command != "create" and folder.kind(real_path) == "nothing":
            raise tool_failure(f"The path {path} does not exist. Please provide a valid path")
        edit = _Edit(folder, real_path, path, file_text, old_str, new_str, insert_line, view_range)
        return _COMMANDS[command](edit)

    return builtin_tool(edit, _EDITS, name, folder.files)


class _Edit(NamedTuple):
    folder: Folder
    real_path: Path
    path: str
    file_text: str | None
    old_str: str | None
    new_str: str | None
    insert_line: int | None
    view_range: list[int] | None

    def need(self, parameter: str, command: str) -> str:
        """Return the value of a parameter of the tool call, such as ``new_str``, that the called command requires.
        Raise an error that the model gets if it is missing.
        """
        value = getattr(self, parameter)
        if value is None:
            raise tool_failure(f"Parameter `{parameter}` is required for command: {command}")
        return str(value)

    def text(self) -> str:
        """Return the content of the file that the tool call names. Raise an error that the model gets if the path is
        not a file.
        """
        if self.folder.kind(self.real_path) != "file":
            raise tool_failure(f"The path {self.path} is not a file: only view shows folders")
        return self.folder.text(self.real_path, self.path)


def _view(edit: _Edit) -> str:
    if edit.folder.kind(edit.real_path) == "folder":
        if edit.view_range is not None:
            raise tool_failure("`view_range` is for files: leave it out for a folder")
        return _folder_tree(edit)
    # Only line feeds separate lines: other separators stay in their line, so that an edit keeps them.
    lines = edit.text().split("\n")
    first, last = _range(edit.view_range, len(lines))
    return _numbered(lines, first, last)


def _range(view_range: list[int] | None, count: int) -> tuple[int, int]:
    if view_range is None:
        return 1, count
    # A range of another length becomes (0, 0), which the check below refuses.
    first, last = view_range if len(view_range) == 2 else (0, 0)
    # -1 is the end of the file, as in the text editor tools of providers.
    last = count if last == -1 else last
    if not 1 <= first <= last <= count:
        raise tool_failure(f"`view_range` must be [first, last] within the {count} lines of the file, not {view_range}")
    return first, last


def _folder_tree(edit: _Edit) -> str:
    """Return the entries of a folder and of its direct subfolders as text, one path per line. Hidden entries are left
    out.
    """

    def entries(folder: Path) -> list[Path]:
        return [folder / name for name in edit.folder.names(folder, edit.path) if not name.startswith(".")]

    above = entries(edit.real_path)
    folders = [path for path in above if edit.folder.is_folder(path)]
    below = [entry for folder in folders for entry in entries(folder)]
    shown = [edit.folder.shown(entry) for entry in (*above, *below)]
    more = [f"... and {len(shown) - _MOST_ENTRIES} more"] if len(shown) > _MOST_ENTRIES else []
    return "\n".join([f"{edit.path} holds, two levels deep:", *sorted(shown[:_MOST_ENTRIES]), *more])


def _create(edit: _Edit) -> str:
    if edit.folder.kind(edit.real_path) != "nothing":
        raise tool_failure(f"File already exists at: {edit.path}. Cannot overwrite files with command `create`")
    text = edit.need("file_text", "create")
    edit.folder.write(edit.real_path, text, edit.path)
    return f"File created successfully at: {edit.path}"


def _replace(edit: _Edit) -> str:
    old = edit.need("old_str", "str_replace")
    new = edit.new_str or ""
    text = edit.text()
    # An empty text occurs everywhere, so it counts as missing.
    count = text.count(old) if old else 0
    if count != 1:
        what = "did not appear" if not count else f"appears {count} times"
        raise tool_failure(f"No replacement was made: `old_str` {what} in {edit.path}. It must occur exactly once")
    at = text.index(old)
    new_text = text[:at] + new + text[at + len(old) :]
    edit.folder.write(edit.real_path, new_text, edit.path)
    # Number of the line in which the replaced text begins.
    line = text.count("\n", 0, at) + 1
    # `chr(10)` is a line feed: an f-string of Python 3.11 cannot contain a backslash in its expressions.
    return f"The file {edit.path} has been edited. {_around(new_text, line, line + new.count(chr(10)))}"


def _insert(edit: _Edit) -> str:
    after = int(edit.need("insert_line", "insert"))
    new = edit.need("new_str", "insert")
    lines = edit.text().split("\n")
    if not 0 <= after <= len(lines):
        raise tool_failure(f"`insert_line` must be between 0 and {len(lines)}, not {after}")
    new_text = "\n".join([*lines[:after], *new.split("\n"), *lines[after:]])
    edit.folder.write(edit.real_path, new_text, edit.path)
    return f"The file {edit.path} has been edited. {_around(new_text, after + 1, after + 1 + new.count(chr(10)))}"


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
