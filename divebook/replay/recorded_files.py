"""What a log has of files: which its calls found, what they have changed, with which workspaces began. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.beyond import Inside
from divebook.replay.pool import RecordedEnd


class RecordedFiles:
    """What a log has of files behind one of its events.

    Parameters
    ----------
    events
        All of it.
    after
        Number of the event behind which it answers.
    """

    def __init__(self, events: Iterable[Event], after: int) -> None:
        self.changed: dict[int, list[catalog.FilesChanged]] = {}
        """What a call has changed, by the event with which it ended. What was changed from outside counts as done by
        the call before: the calls behind it have found it so."""
        self.opened: dict[str, catalog.WorkspaceOpened] = {}
        """With which files each workspace has begun behind `after`."""
        self._found: dict[int, dict[str, set[str | None]]] = {}
        """Digests of the files of workspaces while a call was under way, by the event with which it ended."""
        trees: dict[str, str | None] = {}
        under_way: dict[str, dict[str, set[str | None]]] = {}
        ended: dict[str, int] = {}
        latest = 0
        for event in events:
            match event.data:
                case catalog.WorkspaceOpened() as data:
                    trees[data.workspace] = data.tree
                    if event.sequence > after and data.files is not None:
                        self.opened.setdefault(data.workspace, data)
                case catalog.FilesChanged() as data:
                    trees[data.workspace] = data.after
                    for seen in under_way.values():
                        seen.setdefault(data.workspace, set()).add(data.after)
                    self.changed.setdefault(ended.get(data.operation_id or "", latest), []).append(data)
                case catalog.OperationStarted() as data if trees:
                    under_way[data.operation_id] = {name: {tree} for name, tree in trees.items()}
                case catalog.OperationCompleted() | catalog.OperationFailed() as data:
                    latest = ended[data.operation_id] = event.sequence
                    if trees:
                        self._found[latest] = under_way.pop(data.operation_id, {})

    def fitting(self, inside: Inside) -> Callable[[RecordedEnd], bool]:
        """Return what says whether a call found the files that are in a workspace now."""
        name, tree = inside.name, inside.tree()
        return lambda end: tree in self._found.get(end.sequence, {}).get(name, {None})
