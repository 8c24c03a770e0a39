"""The workspaces of one execution: opened when a call first works in one, looked at after each, closed when it rests.

The log has the tree of files at every event: what the workspace held when it was opened, and what has changed since, by
the call that ended just before (`divebook.events.catalog.FilesChanged`). So a process that takes the execution up can
tell whether the files are what the log says, and a fork gets them as they were at its event.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from divebook.documents.policy import patterns_of_stores
from divebook.engine.operations import OUTPUT, Place, StreamedCall, Write
from divebook.engine.state import ABOUT_FILES, HeldWorkspace
from divebook.errors import StepError
from divebook.events import catalog
from divebook.questions.answer import value_of
from divebook.questions.question import CLARIFICATION
from divebook.runtime.concurrency import Waits
from divebook.runtime.operations import FileEvents, OperationLog, WorkspaceRef
from divebook.workflow.servers import WorkspaceDefinition
from divebook.workspace.egress.proxy import EgressAnswer
from divebook.workspace.paths import Root
from divebook.workspace.shell import PRINTED
from divebook.workspace.snapshots.applying import Applied, Meanwhile, applied, chosen, without_protected
from divebook.workspace.snapshots.restore import JOURNAL_FOLDER
from divebook.workspace.snapshots.take import (
    Manifest,
    Snapshots,
    Taken,
    changed_tree,
    manifest_of,
    tree_of,
    versions_in,
)
from divebook.workspace.snapshots.tree import (
    FileChange,
    FileDiff,
    Tree,
    changes_between,
    diffs_of,
    shown_path,
    summary_of,
    told_in_short,
)
from divebook.workspace.workspace import PRESENT, Workspace

# A workspace that is entered for an execution, and what lends it.


TellEgress: TypeAlias = Callable[[EgressAnswer], None]
"""Hears of each host that is asked for from a workspace, and what became of that."""


class WorkspaceProvider(Protocol):
    """What gives an execution its workspaces."""

    def definition(self, name: str) -> WorkspaceDefinition:
        """Return what is said of a workspace; raises `NotFoundError`."""

    def may_go_unasked(self, name: str, fingerprint: str) -> bool:
        """Return whether a workflow may have changes of a workspace applied without a question."""

    def folder_for(self, execution_id: str, name: str) -> Path:
        """Return the folder that an execution has for the files of a workspace, which is made if it is not there."""

    def is_of_another(self, folder: Path, execution_id: str) -> bool:
        """Return whether a folder is one that another execution has for its files."""

    def source_of(self, definition: WorkspaceDefinition) -> Path | None:
        """Return the folder whose files a workspace begins with; None for an empty one."""

    def made(self, definition: WorkspaceDefinition, folder: Path, told: TellEgress) -> Workspace:
        """Return a workspace over a folder, to be entered; it tells of each host that is asked for from there."""

    def content(self, digest: str) -> bytes:
        """Return the content of a file that the store keeps."""


class OpenWorkspace:
    """A workspace that is entered, and what is known of its files."""

    def __init__(self, workspace: Workspace, snapshots: Snapshots | None, *, is_copy: bool) -> None:
        self.workspace, self.snapshots, self.is_copy = workspace, snapshots, is_copy
        self.known: Tree | None = None
        """What the log says that it holds."""
        self.at: int | None = None
        """The event that says so."""
        self.found: Taken | None = None
        """What it holds instead, from when that was seen until it is settled."""
        self.unrecorded: dict[str, bytes] = {}
        """What files hold, by digest, that was read and is not in the log yet."""
        self.under_way: dict[str, Place] = {}
        """The calls that work in it, by their ids."""
        self.lock = asyncio.Lock()
        self.is_behind = False
        """Whether the log has changes that were made elsewhere and are not made here yet."""


class WorkspaceLease:
    """A call's stay in a workspace.

    Parameters
    ----------
    left
        Returns what is to be recorded of the files, once the call of an id has ended.
    """

    def __init__(self, opened: OpenWorkspace, left: Callable[[str], Awaitable[list[catalog.Payload]]]) -> None:
        self._open, self.left = opened, left

    def around(self, call: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """Return the call as one that works there."""

        async def made() -> Any:
            token = PRESENT.set(self._open.workspace)
            try:
                return await call()
            finally:
                PRESENT.reset(token)

        return made

    def heard(self, call: Callable[[], Awaitable[Any]]) -> StreamedCall:
        """Return the call as one that works there and hands on what commands print, as it comes."""
        inside = self.around(call)

        async def made(write: Write) -> Any:
            token = PRINTED.set(lambda _, text: write(text, OUTPUT))
            try:
                return await inside()
            finally:
                PRINTED.reset(token)

        return made

    @contextmanager
    def staying(self, operation_id: str, place: Place) -> Iterator[None]:
        """Surround the call."""
        self._open.under_way[operation_id] = place
        try:
            yield
        finally:
            del self._open.under_way[operation_id]


async def entered(
    lender: WorkspaceProvider, definition: WorkspaceDefinition, told: TellEgress, folder: Path, *, is_copy: bool
) -> OpenWorkspace:
    """Enter a workspace over a folder."""
    workspace = lender.made(definition, folder, told)
    await workspace.__aenter__()
    # A store that kept its own files would double with each run.
    exclude = [*definition.exclude, *patterns_of_stores(folder)]
    snapshots = Snapshots(workspace.root, exclude=exclude) if definition.snapshots else None
    return OpenWorkspace(workspace, snapshots, is_copy=is_copy)


async def taken_of(opened: OpenWorkspace, *, everything: bool = False) -> Taken | None:
    """Look at its files; None where nothing is kept of them."""
    if opened.snapshots is None:
        return None
    taken = await asyncio.to_thread(opened.snapshots.take, everything=everything)
    opened.unrecorded |= taken.contents  # who looked may have been cancelled before it recorded what it had seen
    return taken._replace(contents=opened.unrecorded)


# What the log says of files of a workspace: rows of what has changed, and the same in a few words; blocking.


MOST_CHANGES = 1_000
"""Changes of files that an event lists by name."""


def copied(source: Path, folder: Path, definition: WorkspaceDefinition) -> None:
    """Copy the files of a folder into one that an execution has for them, without the stores that are there."""
    root, target = Root(source), Root(folder)
    try:
        # A copy of a store would not be protected.
        exclude = [*definition.exclude, JOURNAL_FOLDER, *patterns_of_stores(source)]
        with Snapshots(root, exclude=exclude, watch=False) as snapshots:
            taken = snapshots.take()
        with Snapshots(target, watch=False) as copies:
            copies.restore(taken.tree, taken.contents.__getitem__)
    finally:
        root.close()
        target.close()


class OwnChanges(NamedTuple):
    """How the files of a workspace differ from those that it began with, a copy of a folder."""

    folder: Path
    """The folder."""
    tree: str
    """Digest of the files."""
    changes: list[FileChange]
    meanwhile: Meanwhile
    content: Callable[[str], bytes]
    """Returns what a file held, by its digest."""

    @classmethod
    def of(cls, folder: Path, tree: str, manifests: Sequence[Manifest], content: Callable[[str], bytes]) -> OwnChanges:
        """Return what has changed since the first of the manifests."""
        changes = changes_between(tree_of(manifests[:1]).entries, tree_of(manifests).entries)
        return cls(folder, tree, changes, versions_in(manifests), content)

    def diffs(self) -> list[FileDiff]:
        """Return the difference of each file."""
        return diffs_of(self.changes, self.content)

    def protected(self) -> set[str]:
        """Return the paths that are taken over only if they are named."""
        _, left_out = without_protected(self.changes, str(self.folder), ())
        return {shown_path(change.path) for change in left_out}

    def take_over(self, paths: Sequence[str] | None, by_name: Collection[str] = ()) -> Applied:
        """Take changes over into the folder, of some paths or of all; raises as `applied` does.

        Parameters
        ----------
        by_name
            Protected paths that are taken over as well, beside those of `paths`.
        """
        root = Root(self.folder)
        try:
            return applied(
                root, chosen(self.changes, paths), self.content, self.meanwhile, by_name=[*(paths or ()), *by_name]
            )
        finally:
            root.close()


class ToldChanges(NamedTuple):
    """What has changed in a workspace."""

    changes: list[dict[str, Any]]
    """For readers: the first of them."""
    number: int
    files: list[list[Any]]
    """As a manifest."""


def told_of(known: Tree, taken: Taken, content: Callable[[str], bytes]) -> ToldChanges:
    """Return what has changed, for readers and as a manifest."""
    entries = taken.tree.entries
    changes = changes_between(known.entries, entries)
    paths = {path for change in changes for path in (change.path, change.was) if path is not None}
    mtimes = {path for path in taken.delta if known.entries.get(path) != entries.get(path)}
    delta = {path: entries.get(path) for path in paths | mtimes}

    def get(digest: str) -> bytes:
        return taken.contents[digest] if digest in taken.contents else content(digest)

    told = summary_of(changes[:MOST_CHANGES], get)
    return ToldChanges(told, len(changes), manifest_of(delta, taken.contents))


def plain(change: FileChange) -> dict[str, Any]:
    """Return a change as an event or a question has it."""
    told = {"path": shown_path(change.path), "kind": change.kind}
    return told if change.was is None else {**told, "was": shown_path(change.was)}


def problems(taken: Taken) -> list[dict[str, Any]] | None:
    """Return the files that a tree leaves out, as an event has them; None for none."""
    told = [{"path": shown_path(path), "reason": reason} for path, reason in taken.tree.problems]
    return told or None


RESTORE, KEEP = "restore", "keep"
"""What is done with files that are not what the log says."""
MOST_ANSWERS, MOST_OF_HOST = 1_000, 255
"""Requests for hosts outside that are recorded in one opening, and characters of a host's name."""
Enter: TypeAlias = Callable[..., Awaitable[OpenWorkspace]]
"""Enters the workspace over a folder; is told whether that is a copy."""
OUTSIDE, RESTORED = "outside", "restored"
"""Why files have changed, where no call of the log has done it."""


class Workspaces:
    """The workspaces of one execution in this process; on the engine's loop."""

    def __init__(self, once: OperationLog, waits: Waits, lender: WorkspaceProvider | None) -> None:
        self._once, self._waits, self._lender = once, waits, lender
        self._opened: dict[str, OpenWorkspace] = {}
        self._opening, self._serving = asyncio.Lock(), asyncio.Lock()
        self._expected: dict[str, str] = {}
        """What is to be done with files that differ, by workspace, where that is known already."""
        self._egress: dict[str, int] = {}
        """How often hosts were asked for, by workspace."""

    @property
    def _journal(self) -> Any:
        return self._once.journal

    def expect(self, name: str, outcome: str) -> None:
        """Say what is to be done if the files of a workspace are not what the log says: a person has, or a rule."""
        self._expected.setdefault(name, outcome)

    async def enter(self, name: str, place: Place) -> WorkspaceLease:
        """Return a call's stay in a workspace, whose files are what the log says by then.

        Raises
        ------
        Suspended
            They are not, and a person is asked what is to be done.
        """
        expected = self._expected.pop(name, None)
        while True:
            opened = await self._open(name, place)
            async with opened.lock:
                if opened is self._opened.get(name) and await self._agrees(name, opened, place, expected):
                    return WorkspaceLease(opened, functools.partial(self._left, name, opened))
                known, found = opened.known, opened.found
            if known is not None and found is not None:  # while a person is asked, the workspace may be left
                await self._ask(name, known, found.tree, place)

    async def _agrees(self, name: str, opened: OpenWorkspace, place: Place, expected: str | None) -> bool:
        """Make log and files agree, if it is known how; return whether they do."""
        if opened.is_behind and opened.snapshots is not None and opened.known is not None and not opened.under_way:
            assert self._lender is not None  # noqa: S101 - it has lent it
            await asyncio.to_thread(opened.snapshots.restore, opened.known, self._lender.content)
            opened.is_behind = False
        if opened.found is None:
            if opened.snapshots is not None and not opened.under_way:
                self._note(place, await self._looked_at(name, opened, None))
            return True
        known = opened.known
        assert known is not None  # noqa: S101 - what was found was compared with it
        outcome = expected
        if outcome is None or (outcome == RESTORE and not opened.is_copy):  # their own files a person may have changed
            outcome = self._answer_about(name, known, opened.found.tree)
        if outcome is None:
            return False
        await self._settle(name, opened, place, outcome)
        return True

    async def difference(self, name: str, place: Place) -> str:
        """Return how the files of a workspace differ from what the log says, for people; empty if they do not."""
        opened = await self._open(name, place)
        if opened.found is None or opened.known is None:
            return ""
        changes = changes_between(opened.known.entries, opened.found.tree.entries)
        return f" Its workspace {name} has other files than before: {told_in_short(changes)}."

    def inside(self, name: str, place: Place, operation_id: str) -> WorkspaceRef:
        """Return what another log must know of a workspace to answer a call that works there."""

        def tree() -> str | None:
            self._require_begun(name, place)
            held = self._journal.state.workspaces.get(name)
            return None if held is None else held.tree

        return WorkspaceRef(name, tree, functools.partial(self._bringing, name, place, operation_id))

    @asynccontextmanager
    async def _bringing(
        self, name: str, place: Place, operation_id: str, files: FileEvents
    ) -> AsyncIterator[Callable[[], None]]:
        """Surround a call that is answered from another log; give what records its changes of files as made here.

        The files themselves are brought when a call next works in the workspace.
        """
        async with self._serving:
            held: HeldWorkspace | None = self._journal.state.workspaces.get(name)
            tree: Tree | None = None
            if files and held is not None and held.tree is not None and held.tree != files[0].before:
                tree = await self._tree(held)
            yield lambda: self._bring(name, place, operation_id, files, tree)

    def _require_begun(self, name: str, place: Place) -> None:
        """Have a workspace begin with the files with which it has begun in the log that answers, if there is one."""
        if name in self._journal.state.workspaces or self._once.beyond is None:
            return
        begun = self._once.beyond.opened(name)
        if begun is not None:
            folder = begun.source or begun.reference.get("folder")
            self._once.record(place, replace(begun, workspace=name, reference={}, source=folder))

    def _bring(self, name: str, place: Place, operation_id: str, files: FileEvents, tree: Tree | None) -> None:
        opened = self._opened.get(name)
        for data in files:
            held: HeldWorkspace | None = self._journal.state.workspaces.get(name)
            if held is None or held.tree is None:
                return
            if opened is not None and opened.known is not None:
                tree = opened.known
            if tree is not None:
                tree = changed_tree(tree.entries, [data.files or ()])
            after = data.after if tree is None else tree.digest
            kept = replace(data, workspace=name, before=held.tree, after=after, previous=held.at, beside=None)
            self._once.record(place, replace(kept, operation_id=operation_id))
            if opened is not None:
                opened.known, opened.at, opened.is_behind = tree, self._journal.recorded, True

    def place_of(self, name: str) -> tuple[Path, str | None] | None:
        """Return the folder with the files of a workspace, and its name for tools; None for a folder still to be made.

        Before the first call works in the workspace, this is the folder that the files are copied from.
        """
        if name in self._opened:
            root = self._opened[name].workspace.root
            return Path(root.path), root.name
        held: HeldWorkspace | None = self._journal.state.workspaces.get(name)
        if held is not None and "folder" in held.reference:
            return Path(held.reference["folder"]), None
        source = None if self._lender is None else self._lender.source_of(self._lender.definition(name))
        return None if source is None else (source, None)

    def may_go_unasked(self, name: str) -> bool:
        """Return whether the workflow may have changes of a workspace applied without a question."""
        return self._lender is not None and self._lender.may_go_unasked(name, self._journal.state.fingerprint)

    async def own_changes(self, name: str, place: Place, tree: str | None = None) -> OwnChanges:
        """Return how the files of a workspace differ from those that it began with; raises as `enter` does.

        With the digest of a `tree` which it had: how those files differ.

        Raises
        ------
        StepError
            It is no copy of a folder, or nothing is known of its files.
        """
        await self.enter(name, place)
        held, lender = self._journal.state.workspaces[name], self._lender
        assert lender is not None  # noqa: S101 - it was entered
        folder = None if held.source is None else lender.source_of(lender.definition(name))
        if held.tree is None or folder is None:
            why = "its files are not kept" if held.tree is None else "it is no copy of a folder"
            raise StepError(f"there is nothing to take over from workspace {name}: {why}")
        if str(folder) != held.source:
            raise StepError(f"workspace {name} began with {held.source}, and is now said to be of {folder}")
        manifests = await self._manifests(held, tree)
        return await asyncio.to_thread(OwnChanges.of, folder, tree or held.tree, manifests, lender.content)

    async def _left(self, name: str, opened: OpenWorkspace, operation_id: str) -> list[catalog.Payload]:
        """Return what is to be recorded of a workspace in which a call has ended."""
        if opened.snapshots is None:
            return []
        async with opened.lock:
            return await self._looked_at(name, opened, operation_id)

    async def close(self) -> None:
        """Leave all workspaces: each is found again by what the log says of it."""
        self._egress.clear()
        while self._opened:
            _, opened = self._opened.popitem()
            if opened.snapshots is not None:
                opened.snapshots.close()
            await opened.workspace.__aexit__(None, None, None)

    # --- opening ---------------------------------------------------------------------------------------------------

    async def _open(self, name: str, place: Place) -> OpenWorkspace:
        async with self._opening:
            known = self._opened.get(name)
            if known is None:
                known = self._opened[name] = await self._begun(name, place)
            return known

    async def _begun(self, name: str, place: Place) -> OpenWorkspace:
        lender = self._lender
        if lender is None:
            raise StepError(f"workspace {name} cannot be used here: no environment lends one")
        definition = lender.definition(name)
        self._require_begun(name, place)
        enter = functools.partial(entered, lender, definition, functools.partial(self._tell_egress, name, place))
        held: HeldWorkspace | None = self._journal.state.workspaces.get(name)
        if held is None:
            return await self._begin_first(enter, lender, definition, place)
        if held.is_own and not lender.is_of_another(Path(held.reference["folder"]), self._journal.execution_id):
            return await self._found_again(enter, definition, held)
        return await self._of_source(enter, lender, definition, held, place)

    async def _begin_first(
        self, enter: Enter, lender: WorkspaceProvider, definition: WorkspaceDefinition, place: Place
    ) -> OpenWorkspace:
        source = lender.source_of(definition)
        if definition.in_place and source is not None:
            opened = await enter(source, is_copy=False)
        else:
            folder = lender.folder_for(self._journal.execution_id, definition.name)
            if source is not None:
                await asyncio.to_thread(copied, source, folder, definition)
            opened = await enter(folder, is_copy=True)
        taken = await taken_of(opened, everything=True)
        came_from = None if source is None or definition.in_place else str(source)
        self._record_opened(definition, opened, taken, place, came_from)
        return opened

    async def _found_again(self, enter: Enter, definition: WorkspaceDefinition, held: HeldWorkspace) -> OpenWorkspace:
        is_copy = held.source is not None or not definition.in_place
        opened = await enter(Path(held.reference["folder"]), is_copy=is_copy)
        taken = await taken_of(opened, everything=True)
        if taken is not None and held.tree is not None:
            opened.known, opened.at = await self._tree(held), held.at
            if taken.tree.digest != held.tree:
                opened.found = taken
        return opened

    async def _of_source(
        self,
        enter: Enter,
        lender: WorkspaceProvider,
        definition: WorkspaceDefinition,
        held: HeldWorkspace,
        place: Place,
    ) -> OpenWorkspace:
        """Make a place for the files that the source had at the event of the fork."""
        folder = lender.folder_for(self._journal.execution_id, definition.name)
        opened = await enter(folder, is_copy=True)
        if held.tree is None or opened.snapshots is None:
            raise StepError(
                f"workspace {definition.name} has no snapshots, so a fork cannot have its files: set Snapshots: true"
            )
        tree = await self._tree(held)
        await asyncio.to_thread(opened.snapshots.restore, tree, lender.content)
        source = held.source or held.reference.get("folder")
        reference = opened.workspace.reference
        told = catalog.WorkspaceOpened(definition.name, definition.kind, reference, source, held.tree)
        self._once.record(place, told)
        opened.known, opened.at = tree, held.at
        return opened

    def _record_opened(
        self,
        definition: WorkspaceDefinition,
        opened: OpenWorkspace,
        taken: Taken | None,
        place: Place,
        source: str | None,
    ) -> None:
        told: dict[str, Any] = {}
        if taken is not None:
            delta = dict(taken.tree.entries)
            told = {
                "tree": taken.tree.digest,
                "files": manifest_of(delta, taken.contents),
                "problems": problems(taken),
            }
        reference = opened.workspace.reference
        self._once.record(place, catalog.WorkspaceOpened(definition.name, definition.kind, reference, source, **told))
        if taken is not None:
            opened.known, opened.at, opened.unrecorded = taken.tree, self._journal.recorded, {}

    async def _tree(self, held: HeldWorkspace) -> Tree:
        """Return the files that the log says a workspace has."""
        return await asyncio.to_thread(tree_of, await self._manifests(held))

    async def _manifests(self, held: HeldWorkspace, tree: str | None = None) -> list[Manifest]:
        """Return what a workspace began with, and each change since, or until it had the files of a digest."""
        manifests: list[Manifest] = []
        at: int | None = held.at
        while at:
            data = (await self._journal.event(at)).data
            came, at = (data.after, data.previous) if isinstance(data, catalog.FilesChanged) else (data.tree, None)
            if manifests or tree in (None, came):
                manifests.append(data.files or ())
        return manifests[::-1]

    def _tell_egress(self, name: str, place: Place, answer: EgressAnswer) -> None:
        """Record that a host was asked for: while the workspace is opened, or a call is under way there."""
        opened = self._opened.get(name)
        calls = {} if opened is None else opened.under_way
        asked = self._egress[name] = self._egress.get(name, 0) + 1
        if (opened is not None and not calls) or asked > MOST_ANSWERS:
            return
        operation_id = next(iter(calls)) if len(calls) == 1 else None
        told = catalog.EgressAnswered(name, answer.host[:MOST_OF_HOST], answer.port, answer.refused, operation_id)
        self._once.record(next(iter(calls.values()), place), told)

    # --- files that are not what the log says ----------------------------------------------------------------------

    async def _settle(self, name: str, opened: OpenWorkspace, place: Place, outcome: str) -> None:
        """Do with files that differ what is to be done."""
        found, known, lender, snapshots = opened.found, opened.known, self._lender, opened.snapshots
        assert found and known and lender and snapshots  # noqa: S101, PT018 - a difference was found
        if outcome == RESTORE:
            await asyncio.to_thread(snapshots.restore, known, lender.content)
        else:
            self._note(place, [await self._changed(name, opened, found, None, OUTSIDE)])
        opened.found = None

    def _question_about(self, name: str, known: Tree, found: Tree) -> str:
        question_id: str = self._journal.state.question_id("files", name, known.digest, found.digest)
        return question_id

    def _answer_about(self, name: str, known: Tree, found: Tree) -> str | None:
        """Return what a person has said is to be done; None if nobody has yet."""
        asked = self._journal.state.interrupts.get(self._question_about(name, known, found))
        return None if asked is None or asked.is_open else str(value_of(asked))

    async def _ask(self, name: str, known: Tree, found: Tree, place: Place) -> None:
        """Return when a person has said what is to be done."""
        question_id = self._question_about(name, known, found)
        if question_id not in self._journal.state.interrupts:
            changes = changes_between(known.entries, found.entries)
            asked = catalog.InterruptRaised(
                question_id,
                CLARIFICATION,
                f"The files of workspace {name} are not as the run left them. What is to be done?",
                f"{told_in_short(changes)}. {RESTORE}: put back what the run had; {KEEP}: go on with these.",
                data={"workspace": name, "changes": [plain(change) for change in changes[:MOST_CHANGES]]},
                schema={"enum": [RESTORE, KEEP]},
                operation_id=f"{ABOUT_FILES}{name}",
            )
            self._once.record(place, asked)
        self._once.pass_over(question_id)
        await self._waits.answer(place.path, question_id)

    # --- looking ---------------------------------------------------------------------------------------------------

    async def _looked_at(self, name: str, opened: OpenWorkspace, operation_id: str | None) -> list[catalog.Payload]:
        taken = await taken_of(opened)
        if taken is None or opened.known is None or taken.tree.digest == opened.known.digest:
            return []
        return [await self._changed(name, opened, taken, operation_id, None if operation_id else OUTSIDE)]

    async def _changed(
        self, name: str, opened: OpenWorkspace, taken: Taken, operation_id: str | None, cause: str | None
    ) -> catalog.FilesChanged:
        known = opened.known
        assert known is not None and self._lender is not None  # noqa: S101, PT018 - whoever asks has looked
        tell = functools.partial(told_of, known, taken, self._lender.content)
        changed = await asyncio.to_thread(tell)
        beside = [other for other in opened.under_way if other != operation_id]
        told = catalog.FilesChanged(
            name,
            known.digest,
            taken.tree.digest,
            operation_id,
            cause,
            changed.files,
            opened.at,
            changed.changes,
            changed.number,
            beside or None,
            problems(taken),
        )
        opened.known = taken.tree
        opened.at = None  # known once it is recorded
        return told

    def note(self, place: Place, told: Sequence[catalog.Payload]) -> None:
        """Record what is to be said of files, right behind the end of the call that changed them."""
        self._note(place, told)

    def _note(self, place: Place, told: Sequence[catalog.Payload]) -> None:
        for data in told:
            self._once.record(place, data)
            if isinstance(data, catalog.FilesChanged) and data.workspace in self._opened:
                opened = self._opened[data.workspace]
                opened.at, opened.unrecorded = self._journal.recorded, {}
