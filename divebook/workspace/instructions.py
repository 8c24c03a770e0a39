"""What an agent is told of a workspace: its folders with what is in them, its shell, its resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from xml.sax.saxutils import escape, quoteattr

from divebook.workspace.disk import Disk
from divebook.workspace.ignored import GITIGNORE, IgnoreRules

SKIPPED = frozenset({"node_modules", ".git", ".venv", "__pycache__"})
MAX_DEPTH = 3
MOST_ENTRIES = 500
"""Lines of one tree: an agent lists what it wants to know."""
_SHOWN_HIDDEN = (".env",)


def file_instructions(disk: Disk, folders: Sequence[str], tmp_dir: str | None) -> str:
    """Return the part about files."""
    lines = ["<file-system>", f"<default-directory>{escape(disk.policy.default.name)}</default-directory>"]
    if tmp_dir is not None:
        lines.append(f"<tmp-directory>{escape(tmp_dir)}</tmp-directory>")
    for folder in folders:
        lines += [f"<directory path={quoteattr(folder)}>", escape(tree_text(disk, folder)), "</directory>"]
    return "\n".join([*lines, "</file-system>"])


def shell_instructions(folder: str, seconds: float, note: str) -> str:
    """Return the part about the shell."""
    return "\n".join(
        [
            "<shell-execution>",
            f"<default-directory>{escape(folder)}</default-directory>",
            f"<default-timeout>{seconds:.1f}s</default-timeout>",
            f"<note>{escape(note)}</note>",
            "</shell-execution>",
        ]
    )


def mount_instructions(folder: str, inside: str) -> str:
    """Return the part about where a folder of this machine is inside a container."""
    told = [f"<host>{escape(folder)}</host>", f"<container>{escape(inside)}</container>"]
    return "\n".join(["<mount-mapping>", *told, "</mount-mapping>"])


def resource_instructions(told: Mapping[str, str]) -> str:
    """Return the part about resources."""
    lines = [f"<resource name={quoteattr(key)}>{escape(text)}</resource>" for key, text in told.items()]
    return "\n".join(["<resources>", *lines, "</resources>"])


def whole_instructions(parts: Sequence[str]) -> str:
    """Return all parts as one text; nothing for none."""
    inside = "\n\n".join(part for part in parts if part)
    return f"<environment-context>\n{inside}\n</environment-context>" if inside else ""


def tree_text(disk: Disk, folder: str, max_depth: int = MAX_DEPTH) -> str:
    """Return what is in a folder, a line each: folders first, hidden ones left out, those of a .gitignore marked."""
    if not disk.is_folder(folder):
        return f"Directory not found: {folder}"
    base = disk.policy.absolute(folder).rstrip("/")
    ignored = _ignored(disk, base)
    lines: list[str] = []
    for line in _lines(disk, base, "", max_depth, ignored):
        if len(lines) == MOST_ENTRIES:
            lines.append("... and more")
            break
        lines.append(line)
    return "\n".join(lines)


def _lines(disk: Disk, base: str, below: str, depth: int, ignored: IgnoreRules) -> Iterator[str]:
    entries = disk.entries(f"{base}/{below}" if below else base)
    for name, is_folder in sorted(entries, key=lambda entry: (not entry[1], entry[0])):
        path = f"{below}/{name}" if below else name
        if is_folder and name in SKIPPED:
            yield f"{path}/ (skipped)"
        elif name.startswith(".") and name not in _SHOWN_HIDDEN:
            continue
        elif ignored.is_ignored(path, is_folder=is_folder):
            yield f"{path}{'/' if is_folder else ''} (gitignored)"
        elif not is_folder:
            yield path
        elif depth > 1:
            yield from _lines(disk, base, path, depth - 1, ignored)


def _ignored(disk: Disk, base: str) -> IgnoreRules:
    """Return the rules of a folder's own .gitignore."""
    rules = IgnoreRules()
    with suppress(OSError):  # there is none, or it cannot be read
        rules.add("", disk.read(f"{base}/{GITIGNORE}").decode(errors="replace"))
    return rules
