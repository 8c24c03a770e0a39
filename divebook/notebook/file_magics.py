"""The sub-commands of ``%dive`` about the files that a run has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from divebook.notebook.commands import command
from divebook.notebook.looking_magics import LookingMagics, number_of

if TYPE_CHECKING:
    from divebook.notebook.arguments import Arguments
    from divebook.replay.changed_files import ChangedFiles
    from divebook.replay.kept_files import KeptFiles


class FileMagics(LookingMagics):
    """Sub-commands about files; their docstrings are their help, and name their options."""

    def _kept(self, arguments: Arguments) -> KeptFiles:
        named = arguments.words[0] if arguments.words else None
        run = self._session.run_or_newest(named, store=arguments.options.get("store"))
        return run.environment.files(run.id, arguments.options.get("workspace"))

    @command("files [RUN]")
    def files(self, arguments: Arguments) -> ChangedFiles:
        """List the files that a run has changed in its workspace, each to be unfolded.

        RUN               the execution; the beginning of its id is enough; by default the newest
        --since N         from event N on, and not from the beginning
        --at N            up to event N, and not to the end
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is
        """
        since, at = number_of(arguments, "since", "an event"), number_of(arguments, "at", "an event")
        return self._kept(arguments).changed(since, at, whole=False)

    @command("diff [RUN] [FILE] ...")
    def diff(self, arguments: Arguments) -> ChangedFiles:
        """Show what a run has changed in its files, as git does.

        RUN               the execution; the beginning of its id is enough; by default the newest
        FILE              only these files, by their paths in the workspace
        --since N         from event N on, and not from the beginning
        --at N            up to event N, and not to the end
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is

        `d = %dive diff`, then `d.patch` is a text that `git apply` takes, `d.files` are the differences one by one.
        """
        since, at = number_of(arguments, "since", "an event"), number_of(arguments, "at", "an event")
        return self._kept(arguments).changed(since, at, arguments.words[1:] or None)

    @command("apply [RUN] [FILE] ...")
    def apply(self, arguments: Arguments) -> str:
        """Take over what a run has changed, into the folder that it has a copy of: all of it, or nothing.

        A file that has changed there meanwhile is named, and nothing is written. Hidden files and version-control
        metadata (`.git/`) are taken over only if you name them or their folder.

        RUN               the execution; the beginning of its id is enough; by default the newest
        FILE              only these files, by their paths in the workspace
        --to FOLDER       into this folder, not that which was copied
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is
        """
        kept, to = self._kept(arguments), arguments.options.get("to")
        return kept.apply(to, arguments.words[1:] or None).told(to or kept.source, "%dive apply RUN {}")

    @command("restore [RUN]")
    def restore(self, arguments: Arguments) -> str:
        """Put the files of a run's workspace as they were at an event into a folder: all of them, or no change.

        Hidden files and version-control metadata (`.git/`) are left as they are there, unless you name them.

        RUN               the execution; the beginning of its id is enough; by default the newest
        --to FOLDER       the folder, which then holds nothing else
        --at N            as they were at event N, and not at the end
        --include PATH    also this hidden file, or all of this hidden folder; can be repeated
        --force           also if the folder holds something
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is
        """
        from divebook.workspace.snapshots.protected import left_out_text

        to = arguments.options.get("to")
        if to is None:
            raise UsageError("%dive restore needs a folder: %dive restore RUN --at 12 --to then")
        kept, at = self._kept(arguments), number_of(arguments, "at", "an event")
        tree = kept.restore(to, at, force=arguments.has("force"), by_name=arguments.several("include"))
        left_out = left_out_text([path for path, _ in tree.problems], "--include {}")
        report = f"{len(tree.entries)} files and folders as of event {at or kept.last} are in {to}"
        return f"{report}. {left_out}" if left_out else report
