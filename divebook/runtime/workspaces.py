"""Workspaces (folders for agents and commands) of one execution. They are opened for the first call, their files are
compared with the log around each call, and they are closed when the execution is parked.

The log has the tree of files at every event: the files when the workspace was opened, and the changes of each call
since (`divebook.events.catalog.FilesChanged`). A process that resumes the execution can therefore check whether the
files match the log. A fork gets the files as they were at its event.

If the files do not match, a person decides: `RESTORE` writes the files of the log, `KEEP` records the present files as
a change from outside.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from divebook.definitions.resources import WorkspaceDefinition
from divebook.documents.policy import patterns_of_stores
from divebook.engine.operations import OUTPUT, Place, StreamedCall, Write
from divebook.engine.state import ABOUT_FILES, HeldWorkspace
from divebook.errors import StepError
from divebook.events import catalog
from divebook.questions.answer import value_of
from divebook.questions.question import CLARIFICATION
from divebook.questions.wording import files_differ
from divebook.runtime.concurrency import Waits
from divebook.runtime.operations import FileEvents, OperationLog, WorkspaceRef
from divebook.workspaces.egress.proxy import EgressAnswer
from divebook.workspaces.paths import Root
from divebook.workspaces.shell import PRINTED
from divebook.workspaces.snapshots.applying import Applied, Meanwhile, apply_changes, select_changes, without_protected
from divebook.workspaces.snapshots.restore import JOURNAL_FOLDER
from divebook.workspaces.snapshots.take import (
    Manifest,
    Snapshots,
    TreeSnapshot,
    changed_tree,
    manifest_of,
    tree_of,
    versions_in,
)
from divebook.workspaces.snapshots.tree import (
    FileChange,
    FileDiff,
    Tree,
    changes_between,
    diffs_of,
    short_summary,
    shown_path,
    summary_of,
)
from divebook.workspaces.workspace import CURRENT_WORKSPACE, Workspace


class Workspaces:
    """All workspaces that one execution uses in this process. Lives on the engine's event loop."""

    def __init__(self, operations: OperationLog, waits: Waits, provider: WorkspaceProvider | None) -> None:
        self._operations = operations
        self._waits = waits
        self._provider = provider
        self._opened: dict[str, OpenWorkspace] = {}
        # Calls that enter the same workspace for the first time open it once.
        self._opening = asyncio.Lock()
        # What-if: answers are recorded one after another, because each starts from the files after the one before.
        self._serving = asyncio.Lock()
        self._expected: dict[str, str] = {}
        """By workspace: treatment of files that differ from the log, if that is decided already."""
        self._egress: dict[str, int] = {}
        """By workspace: number of network requests to hosts."""

    @property
    def _journal(self) -> Any:
        return self._operations.journal

    def expect(self, name: str, outcome: str) -> None:
        """Decide in advance how `enter` settles a difference between the files of a workspace and the log: `RESTORE` or
        `KEEP`. An earlier decision is not replaced.

        A person or a rule has decided it.
        """
        self._expected.setdefault(name, outcome)

    async def enter(self, name: str, place: Place) -> WorkspaceLease:
        """Open a workspace for a call, and make its files match the log. Return a lease, through which the call runs in
        the workspace.

        Raises
        ------
        Suspended
            The files differ from the log, and a person is asked what to do with them.
        """
        # A decision counts for one entry only.
        expected_outcome = self._expected.pop(name, None)
        while True:
            opened = await self._open(name, place)
            async with opened.lock:
                # While this call waited for the lock or for a person, the workspace may have been closed. The loop
                # then opens it again.
                if opened is self._opened.get(name) and await self._reconcile(name, opened, place, expected_outcome):
                    return WorkspaceLease(opened, functools.partial(self._events_after, name, opened))
                recorded = opened.recorded
                actual = opened.actual
            if recorded is not None and actual is not None:  # the workspace may be closed while a person is asked
                await self._ask(name, recorded, actual.tree, place)

    # Example: the log has tree T1 for a workspace. Before the run was resumed, a person edited a file, so the folder
    # has T2. On opening, `actual` is T2 and differs. After the answer "restore" the folder has T1 again. After "keep"
    # the log gets a `files_changed` from T1 to T2 with the cause "outside". In both cases the call then starts from
    # files that the log has.
    async def _reconcile(self, name: str, opened: OpenWorkspace, place: Place, expected_outcome: str | None) -> bool:
        """Make the log and the files of a workspace match. Return True if they match then, and False if a person must
        decide how to settle the difference.

        In order: apply changes that the log took from elsewhere; record changes made since the last call; settle a
        difference found on opening.
        """
        snapshots = opened.snapshots
        # Files are never replaced under a running call. The next call that finds none running does it.
        if opened.is_behind and snapshots is not None and opened.recorded is not None and not opened.running_calls:
            assert self._provider is not None  # noqa: S101 - it provided the workspace
            await asyncio.to_thread(snapshots.restore, opened.recorded, self._provider.content)
            opened.is_behind = False
        if opened.actual is None:
            # While other calls run, their unfinished changes would be taken for changes from outside.
            if opened.snapshots is not None and not opened.running_calls:
                self._note(place, await self._new_changes(name, opened, None))
            return True
        recorded = opened.recorded
        assert recorded is not None  # noqa: S101 - the found files were compared with it
        outcome = expected_outcome
        if outcome is None or (outcome == RESTORE and not opened.is_copy):  # maybe a user's own edits
            outcome = self._answer_about(name, recorded, opened.actual.tree)
        if outcome is None:
            return False
        await self._settle(name, opened, place, outcome)
        return True

    async def difference(self, name: str, place: Place) -> str:
        """Return a sentence for people about how the files of a workspace differ from the log. It is empty if they
        match.
        """
        opened = await self._open(name, place)
        if opened.actual is None or opened.recorded is None:
            return ""
        changes = changes_between(opened.recorded.entries, opened.actual.tree.entries)
        return f" Its workspace {name} has other files than before: {short_summary(changes)}."

    def reference(self, name: str, place: Place, operation_id: str) -> WorkspaceRef:
        """Return a reference to a workspace for a what-if, which may take the result of a call in the workspace from
        another log.
        """

        def tree() -> str | None:
            self._open_as_recorded(name, place)
            state = self._journal.state.workspaces.get(name)
            return None if state is None else state.tree

        return WorkspaceRef(name, tree, functools.partial(self._with_files, name, place, operation_id))

    @asynccontextmanager
    async def _with_files(
        self, name: str, place: Place, operation_id: str, files: FileEvents
    ) -> AsyncIterator[Callable[[], None]]:
        """Return a context manager around a call whose result a what-if takes from another log. It yields a function
        that records the file changes of the call in this log.

        The files themselves are written when the next call enters the workspace.
        """
        async with self._serving:
            state: HeldWorkspace | None = self._journal.state.workspaces.get(name)
            tree: Tree | None = None
            # The digests suffice if the files here equal those in the other log. Only otherwise the whole tree is
            # read.
            if files and state is not None and state.tree is not None and state.tree != files[0].before:
                tree = await self._tree(state)
            yield lambda: self._record_files(name, place, operation_id, files, tree)

    def _open_as_recorded(self, name: str, place: Place) -> None:
        """Open a workspace in a what-if with the files that it had in the run of which the what-if is made: record that
        it was opened so. Do nothing if it is open already, or if that run did not use it.
        """
        if name in self._journal.state.workspaces or self._operations.miss_policy is None:
            return
        event = self._operations.miss_policy.opened(name)
        if event is not None:
            folder = event.source or event.reference.get("folder")
            self._operations.record(place, replace(event, workspace=name, reference={}, source=folder))

    def _record_files(self, name: str, place: Place, operation_id: str, files: FileEvents, tree: Tree | None) -> None:
        """Record the file changes of a call whose result a what-if has taken from another log. They are recorded as
        changes of this execution's workspace.

        The trees before and after are computed again, because the files here may differ from those in the answering
        log. The files themselves are written later (`OpenWorkspace.is_behind`).
        """
        opened = self._opened.get(name)
        for data in files:
            state: HeldWorkspace | None = self._journal.state.workspaces.get(name)
            if state is None or state.tree is None:
                return
            # Several events follow each other: each starts from the tree after the one before.
            if opened is not None and opened.recorded is not None:
                tree = opened.recorded
            if tree is not None:
                tree = changed_tree(tree.entries, [data.files or ()])
            after = data.after if tree is None else tree.digest
            event = replace(data, workspace=name, before=state.tree, after=after, previous=state.at, beside=None)
            self._operations.record(place, replace(event, operation_id=operation_id))
            if opened is not None:
                opened.recorded = tree
                opened.at = self._journal.recorded
                opened.is_behind = True

    def place_of(self, name: str) -> tuple[Path, str | None] | None:
        """Return the folder with the files of a workspace, and the name by which tools know this folder. Return None if
        there is neither a folder nor a source to copy yet.

        Before the first call in the workspace, this is the folder from which the files are copied.
        """
        if name in self._opened:
            root = self._opened[name].workspace.root
            return Path(root.path), root.name
        state: HeldWorkspace | None = self._journal.state.workspaces.get(name)
        if state is not None and "folder" in state.reference:
            return Path(state.reference["folder"]), None
        source = None if self._provider is None else self._provider.source_of(self._provider.definition(name))
        return None if source is None else (source, None)

    def may_go_unasked(self, name: str) -> bool:
        """Return whether this workflow may copy changed files of a workspace back to its source folder without asking a
        person.
        """
        return self._provider is not None and self._provider.may_go_unasked(name, self._journal.state.fingerprint)

    async def own_changes(self, name: str, place: Place, tree: str | None = None) -> OwnChanges:
        """Return the changes that were made to the files of a workspace since they were copied from its source folder.
        Raises like `enter`.

        With the digest of an earlier `tree`, compare those files instead.

        Raises
        ------
        StepError
            The workspace is not a copy of a folder, or it has no snapshots.
        """
        await self.enter(name, place)
        state = self._journal.state.workspaces[name]
        provider = self._provider
        assert provider is not None  # noqa: S101 - the workspace was entered
        folder = None if state.source is None else provider.source_of(provider.definition(name))
        if state.tree is None or folder is None:
            why = "its files are not kept" if state.tree is None else "it is not a copy of a folder"
            raise StepError(f"no files of workspace {name} can be applied: {why}")
        if str(folder) != state.source:
            raise StepError(f"workspace {name} started as a copy of {state.source}, but now its folder is {folder}")
        manifests = await self._manifests(state, tree)
        return await asyncio.to_thread(OwnChanges.of, folder, tree or state.tree, manifests, provider.content)

    async def _events_after(self, name: str, opened: OpenWorkspace, operation_id: str) -> list[catalog.Payload]:
        """Return the events about changed files to record after a call in a workspace has ended; empty if the workspace
        has no snapshots.
        """
        if opened.snapshots is None:
            return []
        async with opened.lock:
            return await self._new_changes(name, opened, operation_id)

    async def close(self) -> None:
        """Close all workspaces of the execution. Each can be opened again from the log."""
        self._egress.clear()
        while self._opened:
            _, opened = self._opened.popitem()
            if opened.snapshots is not None:
                opened.snapshots.close()
            await opened.workspace.__aexit__(None, None, None)

    # --- opening -----------------------------------------------------------------------------------------------------

    async def _open(self, name: str, place: Place) -> OpenWorkspace:
        async with self._opening:
            opened = self._opened.get(name)
            if opened is None:
                opened = self._opened[name] = await self._open_for_run(name, place)
            return opened

    async def _open_for_run(self, name: str, place: Place) -> OpenWorkspace:
        provider = self._provider
        if provider is None:
            raise StepError(f"workspace {name} cannot be used here: it needs an environment")
        definition = provider.definition(name)
        self._open_as_recorded(name, place)
        on_egress = functools.partial(self._record_egress, name, place)
        enter = functools.partial(enter_workspace, provider, definition, on_egress)
        state: HeldWorkspace | None = self._journal.state.workspaces.get(name)
        if state is None:
            return await self._create(enter, provider, definition, place)
        # The log may be a copy, so that the recorded folder belongs to another execution. It is left alone, and the
        # copy gets a folder of its own.
        if state.is_own and not provider.is_of_another(Path(state.reference["folder"]), self._journal.execution_id):
            return await self._reopen(enter, definition, state)
        return await self._open_from_fork(enter, provider, definition, state, place)

    async def _create(
        self, enter: Enter, provider: WorkspaceProvider, definition: WorkspaceDefinition, place: Place
    ) -> OpenWorkspace:
        source = provider.source_of(definition)
        if definition.in_place and source is not None:
            opened = await enter(source, is_copy=False)
        else:
            folder = provider.folder_for(self._journal.execution_id, definition.name)
            if source is not None:
                await asyncio.to_thread(copy_files, source, folder, definition)
            opened = await enter(folder, is_copy=True)
        snapshot = await snapshot_of(opened, everything=True)
        came_from = None if source is None or definition.in_place else str(source)
        self._record_opened(definition, opened, snapshot, place, came_from)
        return opened

    async def _reopen(self, enter: Enter, definition: WorkspaceDefinition, state: HeldWorkspace) -> OpenWorkspace:
        is_copy = state.source is not None or not definition.in_place
        opened = await enter(Path(state.reference["folder"]), is_copy=is_copy)
        snapshot = await snapshot_of(opened, everything=True)
        if snapshot is not None and state.tree is not None:
            opened.recorded = await self._tree(state)
            opened.at = state.at
            if snapshot.tree.digest != state.tree:
                opened.actual = snapshot
        return opened

    async def _open_from_fork(
        self,
        enter: Enter,
        provider: WorkspaceProvider,
        definition: WorkspaceDefinition,
        state: HeldWorkspace,
        place: Place,
    ) -> OpenWorkspace:
        """Open a workspace for a fork: create a folder with the files that the workspace of its source had at the fork
        point.
        """
        folder = provider.folder_for(self._journal.execution_id, definition.name)
        opened = await enter(folder, is_copy=True)
        if state.tree is None or opened.snapshots is None:
            raise StepError(
                f"workspace {definition.name} has no snapshots, so a fork cannot restore its files: set Snapshots: true"
            )
        tree = await self._tree(state)
        # The files come from the store, because the folder of the source may have changed since the fork point.
        await asyncio.to_thread(opened.snapshots.restore, tree, provider.content)
        source = state.source or state.reference.get("folder")
        reference = opened.workspace.reference
        event = catalog.WorkspaceOpened(definition.name, definition.kind, reference, source, state.tree)
        self._operations.record(place, event)
        opened.recorded = tree
        opened.at = state.at
        return opened

    def _record_opened(
        self,
        definition: WorkspaceDefinition,
        opened: OpenWorkspace,
        snapshot: TreeSnapshot | None,
        place: Place,
        source: str | None,
    ) -> None:
        fields: dict[str, Any] = {}
        if snapshot is not None:
            delta = dict(snapshot.tree.entries)
            fields = {
                "tree": snapshot.tree.digest,
                "files": manifest_of(delta, snapshot.contents),
                "problems": problems(snapshot),
            }
        reference = opened.workspace.reference
        self._operations.record(
            place, catalog.WorkspaceOpened(definition.name, definition.kind, reference, source, **fields)
        )
        if snapshot is not None:
            opened.recorded = snapshot.tree
            opened.at = self._journal.recorded
            opened.unrecorded = {}

    async def _tree(self, state: HeldWorkspace) -> Tree:
        """Return the tree (paths and digests of all files) that a workspace has according to the log."""
        return await asyncio.to_thread(tree_of, await self._manifests(state))

    async def _manifests(self, state: HeldWorkspace, tree: str | None = None) -> list[Manifest]:
        """Return the lists of files (manifests) that the log has for a workspace, oldest first: one from its opening,
        and one from each later change. With the digest `tree`, the lists end with the change after which the files have
        this digest.
        """
        manifests: list[Manifest] = []
        at: int | None = state.at
        # Backwards: each change names the event of the change before it, and the opening names none. The store then
        # reads these events only, and not the whole log.
        while at:
            data = (await self._journal.event(at)).data
            if isinstance(data, catalog.FilesChanged):
                digest = data.after
                at = data.previous
            else:
                digest = data.tree
                at = None
            if manifests or tree in (None, digest):
                manifests.append(data.files or ())
        return manifests[::-1]

    def _record_egress(self, name: str, place: Place, answer: EgressAnswer) -> None:
        """Record a network request from a workspace that is being opened, or in which a call runs. Other requests are
        not recorded, and none after the first `MOST_ANSWERS`.
        """
        opened = self._opened.get(name)
        calls = {} if opened is None else opened.running_calls
        count = self._egress[name] = self._egress.get(name, 0) + 1
        if (opened is not None and not calls) or count > MOST_ANSWERS:
            return
        # With several running calls, it is unknown which one made the request.
        operation_id = next(iter(calls)) if len(calls) == 1 else None
        event = catalog.EgressAnswered(name, answer.host[:MOST_OF_HOST], answer.port, answer.refused, operation_id)
        self._operations.record(next(iter(calls.values()), place), event)

    # --- files that differ from the log ------------------------------------------------------------------------------

    async def _settle(self, name: str, opened: OpenWorkspace, place: Place, outcome: str) -> None:
        """Settle a difference between the files of a workspace and the log. Depending on the decision, write the
        recorded files back, or record the present files as a change from outside.
        """
        actual = opened.actual
        recorded = opened.recorded
        provider = self._provider
        snapshots = opened.snapshots
        assert actual and recorded and provider and snapshots  # noqa: S101, PT018 - a difference was found
        if outcome == RESTORE:
            await asyncio.to_thread(snapshots.restore, recorded, provider.content)
        else:
            self._note(place, [await self._change_event(name, opened, actual, None, OUTSIDE)])
        opened.actual = None

    def _question_about(self, name: str, recorded: Tree, actual: Tree) -> str:
        # The digests are part of the id: if the files change once more, the old answer does not count.
        question_id: str = self._journal.state.question_id("files", name, recorded.digest, actual.digest)
        return question_id

    def _answer_about(self, name: str, recorded: Tree, actual: Tree) -> str | None:
        """Return the decision of a person (`RESTORE` or `KEEP`) about files that differ from the log. Return None if
        the question is open or was not asked.
        """
        question = self._journal.state.interrupts.get(self._question_about(name, recorded, actual))
        return None if question is None or question.is_open else str(value_of(question))

    async def _ask(self, name: str, recorded: Tree, actual: Tree, place: Place) -> None:
        """Ask a person whether to restore or keep files of a workspace that differ from the log. Return when the
        question is answered.
        """
        question_id = self._question_about(name, recorded, actual)
        if question_id not in self._journal.state.interrupts:
            changes = changes_between(recorded.entries, actual.entries)
            rows = [change_data(change) for change in changes[:MOST_CHANGES]]
            wording = files_differ(name, short_summary(changes), rows, restore=RESTORE, keep=KEEP)
            self._operations.record(place, wording.event(question_id, CLARIFICATION, f"{ABOUT_FILES}{name}"))
        # The question is not asked by code of the step, so a replay does not request it.
        self._operations.skip(question_id)
        await self._waits.wait_for_answer(place.path, question_id)

    # --- looking for changes -----------------------------------------------------------------------------------------

    async def _new_changes(self, name: str, opened: OpenWorkspace, operation_id: str | None) -> list[catalog.Payload]:
        snapshot = await snapshot_of(opened)
        if snapshot is None or opened.recorded is None or snapshot.tree.digest == opened.recorded.digest:
            return []
        return [await self._change_event(name, opened, snapshot, operation_id, None if operation_id else OUTSIDE)]

    async def _change_event(
        self, name: str, opened: OpenWorkspace, snapshot: TreeSnapshot, operation_id: str | None, cause: str | None
    ) -> catalog.FilesChanged:
        recorded = opened.recorded
        assert recorded is not None and self._provider is not None  # noqa: S101, PT018 - the caller has compared the files
        tell = functools.partial(summary_of_changes, recorded, snapshot, self._provider.content)
        summary = await asyncio.to_thread(tell)
        # Calls that ran at the same time may have made some of these changes. Readers see them in the event.
        concurrent = [other for other in opened.running_calls if other != operation_id]
        event = catalog.FilesChanged(
            name,
            recorded.digest,
            snapshot.tree.digest,
            operation_id,
            cause,
            summary.files,
            opened.at,
            summary.changes,
            summary.number,
            concurrent or None,
            problems(snapshot),
        )
        opened.recorded = snapshot.tree
        opened.at = None  # set when the event is recorded
        return event

    def record_events(self, place: Place, events: Sequence[catalog.Payload]) -> None:
        """Record events about changed files of a workspace, directly after the end of the call that changed them."""
        self._note(place, events)

    def _note(self, place: Place, events: Sequence[catalog.Payload]) -> None:
        for data in events:
            self._operations.record(place, data)
            if isinstance(data, catalog.FilesChanged) and data.workspace in self._opened:
                opened = self._opened[data.workspace]
                # The number is known only now. The contents are in the log with the event, so they need not be kept.
                opened.at = self._journal.recorded
                opened.unrecorded = {}


# --- entered workspaces ----------------------------------------------------------------------------------------------


OnEgress: TypeAlias = Callable[[EgressAnswer], None]
"""Called for each network request to a host from a workspace, with the decision on it."""


class WorkspaceProvider(Protocol):
    """Protocol of the part of an environment that creates workspaces (folders in which agents and commands work) for
    executions.
    """

    def definition(self, name: str) -> WorkspaceDefinition:
        """Return the definition of a workspace; raises `NotFoundError`."""

    def may_go_unasked(self, name: str, fingerprint: str) -> bool:
        """Return whether a workflow with this fingerprint may copy changed files of a workspace back to its source
        folder without asking a person.
        """

    def folder_for(self, execution_id: str, name: str) -> Path:
        """Return the folder in which an execution keeps its copy of a workspace. Create the folder if necessary."""

    def is_of_another(self, folder: Path, execution_id: str) -> bool:
        """Return whether a workspace folder belongs to an execution other than this one."""

    def source_of(self, definition: WorkspaceDefinition) -> Path | None:
        """Return the folder from which the files of a workspace are copied, or None if the workspace starts empty."""

    def made(self, definition: WorkspaceDefinition, folder: Path, on_egress: OnEgress) -> Workspace:
        """Return a new workspace over a folder; the caller must enter it. `on_egress` is called for each network
        request to a host.
        """

    def content(self, digest: str) -> bytes:
        """Return the content of a file from the store, by the digest of the content."""


class OpenWorkspace:
    """A workspace of an execution that is open in this process. It knows the files that the log has for it, and the
    files that are actually in the folder.
    """

    def __init__(self, workspace: Workspace, snapshots: Snapshots | None, *, is_copy: bool) -> None:
        self.workspace = workspace
        self.snapshots = snapshots
        self.is_copy = is_copy
        self.recorded: Tree | None = None
        """The files according to the log."""
        self.at: int | None = None
        """Sequence number of the event with these files."""
        self.actual: TreeSnapshot | None = None
        """The actual files, if they differ from the log, until the difference is settled."""
        self.unrecorded: dict[str, bytes] = {}
        """Contents of files by digest that were read and are not in the log yet."""
        self.running_calls: dict[str, Place] = {}
        """Places of the calls that run in the workspace, by operation id."""
        self.lock = asyncio.Lock()
        self.is_behind = False
        """True if the log has changes made elsewhere that are not applied to these files yet."""


class WorkspaceLease:
    """Permit of one call to use an open workspace. The call runs inside the workspace, and its changes to files are
    detected afterwards.

    Parameters
    ----------
    events_after
        Return the events to record about the files after the call with an operation id has ended.
    """

    def __init__(self, opened: OpenWorkspace, events_after: Callable[[str], Awaitable[list[catalog.Payload]]]) -> None:
        self._open = opened
        self.events_after = events_after

    def wrap(self, call: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """Return a function that makes the given call inside the workspace."""

        async def run_inside() -> Any:
            # Set in the call and not around it: the call may run in another task, which has a copy of the context.
            token = CURRENT_WORKSPACE.set(self._open.workspace)
            try:
                return await call()
            finally:
                CURRENT_WORKSPACE.reset(token)

        return run_inside

    def wrap_streamed(self, call: Callable[[], Awaitable[Any]]) -> StreamedCall:
        """Return a function that makes the given call inside the workspace. The output of the commands that the call
        runs is streamed to listeners.
        """
        inside = self.wrap(call)

        async def run_streamed(write: Write) -> Any:
            token = PRINTED.set(lambda _, text: write(text, OUTPUT))
            try:
                return await inside()
            finally:
                PRINTED.reset(token)

        return run_streamed

    @contextmanager
    def mark_running(self, operation_id: str, place: Place) -> Iterator[None]:
        """Register the call with this operation id as running in the workspace, inside the `with` block."""
        self._open.running_calls[operation_id] = place
        try:
            yield
        finally:
            del self._open.running_calls[operation_id]


async def enter_workspace(
    provider: WorkspaceProvider, definition: WorkspaceDefinition, on_egress: OnEgress, folder: Path, *, is_copy: bool
) -> OpenWorkspace:
    """Create a workspace over a folder and enter it. Return it as an `OpenWorkspace`."""
    workspace = provider.made(definition, folder, on_egress)
    await workspace.__aenter__()
    # A store that snapshots its own files would double in size with each run.
    exclude = [*definition.exclude, *patterns_of_stores(folder)]
    snapshots = Snapshots(workspace.root, exclude=exclude) if definition.snapshots else None
    return OpenWorkspace(workspace, snapshots, is_copy=is_copy)


async def snapshot_of(opened: OpenWorkspace, *, everything: bool = False) -> TreeSnapshot | None:
    """Take a snapshot of a workspace's files. Return None if the workspace has snapshots switched off."""
    snapshots = opened.snapshots
    if snapshots is None:
        return None

    def take() -> TreeSnapshot:
        snapshot = snapshots.take(everything=everything)
        # Set in this thread: a caller that is cancelled while it waits, or before it records these contents, leaves
        # them to the next one (test_a_cancelled_look_keeps_the_contents_that_it_read).
        opened.unrecorded |= snapshot.contents
        return snapshot._replace(contents=opened.unrecorded)

    return await asyncio.to_thread(take)


# --- recorded file changes -------------------------------------------------------------------------------------------
#
# All functions of this part block.


MOST_CHANGES = 1_000
"""Maximum number of file changes that an event lists by name."""


def copy_files(source: Path, folder: Path, definition: WorkspaceDefinition) -> None:
    """Copy the files of a folder to an execution's folder. Stores of divebook in the folder are left out."""
    root = Root(source)
    target = Root(folder)
    try:
        # The protection of stores would not cover a copy.
        exclude = [*definition.exclude, JOURNAL_FOLDER, *patterns_of_stores(source)]
        with Snapshots(root, exclude=exclude, watch=False) as snapshots:
            snapshot = snapshots.take()
        with Snapshots(target, watch=False) as copies:
            copies.restore(snapshot.tree, snapshot.contents.__getitem__)
    finally:
        root.close()
        target.close()


class OwnChanges(NamedTuple):
    """Changes that were made to the files of a workspace since they were copied from its source folder."""

    folder: Path
    """The source folder."""
    tree: str
    """Digest of the files."""
    changes: list[FileChange]
    meanwhile: Meanwhile
    content: Callable[[str], bytes]
    """Return the content of a file by its digest."""

    @classmethod
    def of(cls, folder: Path, tree: str, manifests: Sequence[Manifest], content: Callable[[str], bytes]) -> OwnChanges:
        """Compute the changes from the lists of files (manifests) in the log: the first is that of the copied files,
        the others are the changes since.
        """
        changes = changes_between(tree_of(manifests[:1]).entries, tree_of(manifests).entries)
        return cls(folder, tree, changes, versions_in(manifests), content)

    def diffs(self) -> list[FileDiff]:
        """Return the line-by-line diff of each changed file."""
        return diffs_of(self.changes, self.content)

    def protected(self) -> set[str]:
        """Return the paths of changed files that are protected: `take_over` applies their changes only if they are
        named.
        """
        _, left_out = without_protected(self.changes, str(self.folder), ())
        return {shown_path(change.path) for change in left_out}

    def take_over(self, paths: Sequence[str] | None, by_name: Collection[str] = ()) -> Applied:
        """Apply the changes of the named paths, or of all paths, to the source folder of the workspace. Raises like
        `apply_changes`.

        Parameters
        ----------
        by_name
            Protected paths to apply in addition to those of `paths`.
        """
        root = Root(self.folder)
        try:
            changes = select_changes(self.changes, paths)
            return apply_changes(root, changes, self.content, self.meanwhile, by_name=[*(paths or ()), *by_name])
        finally:
            root.close()


class ChangeSummary(NamedTuple):
    """Changes of a workspace's files in the form in which an event stores them: the first changes for readers, the
    number of all changes, and all of them as a manifest.
    """

    changes: list[dict[str, Any]]
    """The first of the changes, for readers."""
    number: int
    files: list[list[Any]]
    """The changes in the form of a manifest."""


def summary_of_changes(recorded: Tree, snapshot: TreeSnapshot, content: Callable[[str], bytes]) -> ChangeSummary:
    """Return the changes from the recorded files of a workspace to a snapshot of them, as an event stores them."""
    entries = snapshot.tree.entries
    changes = changes_between(recorded.entries, entries)
    paths = {path for change in changes for path in (change.path, change.was) if path is not None}
    # Files whose time alone has changed are in the manifest, so that a restored file has the recorded time. Readers do
    # not see them as changes.
    mtimes = {path for path in snapshot.delta if recorded.entries.get(path) != entries.get(path)}
    delta = {path: entries.get(path) for path in paths | mtimes}

    def get(digest: str) -> bytes:
        return snapshot.contents[digest] if digest in snapshot.contents else content(digest)

    summary = summary_of(changes[:MOST_CHANGES], get)
    return ChangeSummary(summary, len(changes), manifest_of(delta, snapshot.contents))


def change_data(change: FileChange) -> dict[str, Any]:
    """Return the path of a changed file and the kind of its change as plain data, for an event or a question."""
    data = {"path": shown_path(change.path), "kind": change.kind}
    return data if change.was is None else {**data, "was": shown_path(change.was)}


def problems(snapshot: TreeSnapshot) -> list[dict[str, Any]] | None:
    """Return the files that a snapshot could not include, with the reasons, as plain data. Return None if there are
    none.
    """
    rows = [{"path": shown_path(path), "reason": reason} for path, reason in snapshot.tree.problems]
    return rows or None


RESTORE = "restore"
KEEP = "keep"
"""Treatments of files that differ from the log."""
MOST_ANSWERS = 1_000
"""Maximum number of recorded network requests per opening."""
MOST_OF_HOST = 255
"""Maximum number of characters of a recorded host name."""
Enter: TypeAlias = Callable[..., Awaitable[OpenWorkspace]]
"""Function that enters a workspace over a folder, and receives whether the folder is a copy."""
OUTSIDE = "outside"
RESTORED = "restored"
"""Causes of file changes that no recorded call made."""
