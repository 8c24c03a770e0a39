"""``divebook files``, ``diff``, ``apply``, ``restore``: what executions did to files, taken over or put back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divebook.cli.options import ExecutionId, Json, Store, within
from divebook.cli.screen import note, write
from divebook.text.ranges import COUNT

if TYPE_CHECKING:
    from divebook.replay.kept_files import KeptFiles

Workspace = Annotated[
    str | None, typer.Option("--workspace", metavar="NAME", help="Which workspace, where it has used several.")
]
At = Annotated[
    int | None,
    typer.Option("--at", metavar="N", callback=within(COUNT), help="As they were at event N, and not at the end."),
]
Since = Annotated[
    int | None,
    typer.Option("--since", metavar="N", callback=within(COUNT), help="From event N on, and not from the beginning."),
]
Files = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="Only these files, by their paths in the workspace.")
]


def _files(execution_id: str, store: str | None, workspace: str | None) -> KeptFiles:
    from divebook.cli.project import existing_environment

    return existing_environment(store).files(execution_id, workspace)


def files(
    execution_id: ExecutionId,
    store: Store = None,
    *,
    workspace: Workspace = None,
    since: Since = None,
    at: At = None,
    json: Json = False,
) -> None:
    """List the files that an execution has changed."""
    _show(_files(execution_id, store, workspace), None, since, at, json=json, whole=False)


def diff(
    execution_id: ExecutionId,
    paths: Files = None,
    store: Store = None,
    *,
    workspace: Workspace = None,
    since: Since = None,
    at: At = None,
    json: Json = False,
) -> None:
    """Print what an execution has changed in files."""
    _show(_files(execution_id, store, workspace), paths, since, at, json=json, whole=True)


def _show(
    kept: KeptFiles, paths: list[str] | None, since: int | None, at: int | None, *, json: bool, whole: bool
) -> None:
    from divebook.cli.text import as_json

    found = kept.changed(since, at, paths or None, whole=whole)
    write(as_json(found.to_dict()) if json else str(found))


def apply(
    execution_id: ExecutionId,
    paths: Files = None,
    store: Store = None,
    *,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Into this folder, not that which was copied.")
    ] = None,
    workspace: Workspace = None,
    since: Since = None,
    at: At = None,
) -> None:
    """Take over what an execution has changed in its copy of a folder.

    All of it, or nothing: a file that has changed there meanwhile is named, and nothing is written. Hidden files
    (`.envrc`, `.vscode/`) and version-control metadata (`.git/`) are taken over only if you name them or their folder.
    """
    from divebook.workspace.snapshots.protected import left_out_text

    kept = _files(execution_id, store, workspace)
    done = kept.apply(to, paths or None, since=since, until=at)
    from divebook.cli.text import one_line

    for path in done.written:
        write(one_line(path))
    there = f", {len(done.there)} were so already" if done.there else ""
    note(f"{len(done.written)} taken over into {to or kept.source}{there}")
    if done.left_out:
        note(left_out_text(done.left_out, f"divebook apply {execution_id} {{}}"))


def restore(
    execution_id: ExecutionId,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder, which then holds nothing else.")],
    store: Store = None,
    *,
    workspace: Workspace = None,
    at: At = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Also if the folder holds something.")] = False,
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include", metavar="PATH", help="Also this hidden file, or all of this hidden folder. Repeatable."
        ),
    ] = None,
) -> None:
    """Put the files of an event into a folder.

    All of them, or no change. Hidden files and version-control metadata (`.git/`) are left as they are there, unless
    you name them with `--include`.
    """
    from divebook.workspace.snapshots.protected import left_out_text

    kept = _files(execution_id, store, workspace)
    tree = kept.restore(folder, at, force=force, by_name=include or ())
    note(f"{len(tree.entries)} files and folders as of event {at or kept.last} are in {folder}")
    if tree.problems:
        note(left_out_text([path for path, _ in tree.problems], "--include {}"))
