"""Commands about the files of a run: ``files``, ``diff``, ``apply``, ``restore``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from divebook.commands.command import FILES, Invocation, command, option
from divebook.commands.parameters import AtEvent, Files, RunOrNewest, SinceEvent, Workspace
from divebook.report.hints import advised
from divebook.report.shown import Shown

if TYPE_CHECKING:
    from divebook.replay.files import ChangedFiles, KeptFiles
    from divebook.report.model import Report


class FileDifference(TypedDict):
    """One changed file as JSON."""

    path: str
    kind: str
    added: int | None
    removed: int | None
    diff: str
    was: NotRequired[str]


class FileDifferences(TypedDict):
    """Result of ``files`` and ``diff`` as JSON."""

    workspace: str
    since: int
    until: int
    files: list[FileDifference]


class WrittenData(TypedDict):
    """Result of ``apply`` and ``restore`` as JSON."""

    folder: str
    written: list[str]
    unchanged: list[str]
    left_out: list[str]


def differences_data(changes: ChangedFiles) -> FileDifferences:
    """Return the changed files of a run as plain data."""
    data = changes.to_dict()
    return {
        "workspace": data["workspace"],
        "since": data["since"],
        "until": data["until"],
        "files": data["files"],
    }


@dataclass(frozen=True, repr=False)
class WrittenFiles(Shown):
    """Files that a command wrote into a folder."""

    folder: Path | None
    written: list[str]
    text: str
    """Lines that name the written files, and those that were left out."""
    unchanged: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Protected paths that were not written, because the person did not name them."""

    def report(self) -> Report:
        """Return the text."""
        from divebook.report.model import Paragraph, Report

        return Report(blocks=(Paragraph(tuple(self.text.splitlines())),))


def written_data(written: WrittenFiles) -> WrittenData:
    """Return the files that a command wrote as plain data."""
    return {
        "folder": str(written.folder),
        "written": written.written,
        "unchanged": written.unchanged,
        "left_out": written.left_out,
    }


def _kept_files(call: Invocation, run: str | None, workspace: str | None) -> KeptFiles:
    return call.run(run).files(workspace)


@command("files", FILES, example="files exec_01k8", python="run.files().changed", data=differences_data)
def files(
    call: Invocation,
    run: RunOrNewest = None,
    *,
    since: SinceEvent = None,
    at: AtEvent = None,
    workspace: Workspace = None,
) -> ChangedFiles:
    """List the files that a run has changed in its workspace."""
    return _kept_files(call, run, workspace).changed(since, at, whole=False)


@command(
    "diff",
    FILES,
    example="diff exec_01k8 src/app.py",
    python="run.files().changed",
    data=differences_data,
    notebook_help="`d = %dive diff` assigns the result to a variable: `d.patch` is a string for `git apply`, "
    "`d.files` lists the differences by file.",
)
def diff(
    call: Invocation,
    run: RunOrNewest = None,
    paths: Files = None,
    *,
    since: SinceEvent = None,
    at: AtEvent = None,
    workspace: Workspace = None,
) -> ChangedFiles:
    """Show the changes that a run made to files, in the format of git."""
    return _kept_files(call, run, workspace).changed(since, at, paths or None)


@command("apply", FILES, example="apply exec_01k8 src/app.py", python="run.files().apply", data=written_data)
def apply(
    call: Invocation,
    run: RunOrNewest = None,
    paths: Files = None,
    *,
    to: Annotated[
        Path | None,
        option("--to", metavar="FOLDER", help="Target folder. Default: the original folder.", completes="file"),
    ] = None,
    since: SinceEvent = None,
    at: AtEvent = None,
    workspace: Workspace = None,
) -> WrittenFiles:
    """Copy the changes of a run into the original folder.

    The run changed a copy of the folder. Either all changes are copied, or none: if a file in the original folder has
    changed since, the error names it, and nothing is written. Hidden files (`.envrc`, `.vscode/`) and version-control
    metadata (`.git/`) are copied only if you name them or their folder.
    """
    workspace_files = _kept_files(call, run, workspace)
    applied = workspace_files.apply(to, paths or None, since=since, until=at)
    folder = to or workspace_files.source
    # The text names the files that were left out, with the line that applies them.
    text = applied.in_words(folder, advised("apply RUN {}"))
    return WrittenFiles(folder, applied.written, text, applied.there, applied.left_out)


@command(
    "restore", FILES, example="restore exec_01k8 --to then --at 12", python="run.files().restore", data=written_data
)
def restore(
    call: Invocation,
    run: RunOrNewest = None,
    *,
    to: Annotated[
        Path, option("--to", metavar="FOLDER", help="Target folder. Other files in it are removed.", completes="file")
    ],
    at: AtEvent = None,
    include: Annotated[
        list[str] | None,
        option(
            "--include",
            metavar="PATH",
            help="Also restore this hidden file, or all files of this hidden folder. May be repeated.",
        ),
    ] = None,
    force: Annotated[bool, option("--force", "-f", help="Allow a folder that is not empty.")] = False,
    workspace: Workspace = None,
) -> WrittenFiles:
    """Restore the files of a run, as of an event, to a folder.

    Either all files are restored, or none. Hidden files and version-control metadata (`.git/`) in the folder do not
    change, unless you name them with `--include`.
    """
    from divebook.workspaces.snapshots.restore import left_out_text

    workspace_files = _kept_files(call, run, workspace)
    tree = workspace_files.restore(to, at, force=force, by_name=include or ())
    left_out = [path for path, _ in tree.problems]
    report = f"{len(tree.entries)} files and folders as of event {at or workspace_files.last} are in {to}"
    note = left_out_text(left_out, "--include {}")
    written = sorted(tree.entries)
    return WrittenFiles(to, written, f"{report}. {note}" if note else report, left_out=left_out)
