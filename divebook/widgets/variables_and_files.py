"""Variables as they are now, with type and size: short, a table as its head; large values are never gone through whole.

Values in a log never change: what was made of one is kept for as long as the variable has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypedDict, cast

from divebook.engine.state import ExecutionState, HeldWorkspace
from divebook.errors import UnopenableValueError
from divebook.events import catalog
from divebook.events.arrow.foreign import Arrow
from divebook.events.catalog import StateMutated
from divebook.events.classes import Instance
from divebook.events.codec import readable
from divebook.events.event import Event
from divebook.events.recorded import Container, Recorded
from divebook.replay.files import MOST_LEFT_OUT
from divebook.runtime.execution import Execution
from divebook.store.maintenance import file_content
from divebook.text.redaction import Redactor, cut, one_line
from divebook.widgets.protocol import FilesPoint, FileView, LeftOutView, VariableView, WorkspaceView
from divebook.workflow.definition import Workflow, hidden_steps, visible_steps
from divebook.workspace.snapshots.applying import without_protected
from divebook.workspace.snapshots.take import Manifest, changed_tree, tree_of
from divebook.workspace.snapshots.tree import FileDiff, Tree, changes_between, diffs_of, shown_path

MOST_VARIABLES = 200
HEAD = 5
"""Rows of a table."""
MOST_COLUMNS = 20
CELL = 60
LARGEST = 50_000_000
"""Bytes of a table that is opened for its head."""
TEXT = 2_000
"""Characters of one value."""
MOST_PARTS, DEEPEST = 20, 4
"""Parts of a list or mapping, and how far down they are shown."""
INPUT = "input"


class _Named(NamedTuple):
    """A variable or input of an execution."""

    name: str
    source: str
    """The step that set it last, or the first that is to; ``input`` of an input."""
    value: Any = None
    is_set: bool = True


class Setters:
    """Which step set each variable last, as the log says; of the steps that people see."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.steps: dict[str, str] = {}
        self._hidden = frozenset[str]()
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Take over the next event."""
        if not event.step:
            self._hidden |= hidden_steps(event.data)
        elif isinstance(event.data, StateMutated) and event.step not in self._hidden:
            self.steps.update((mutation.key, event.step) for mutation in event.data.mutations)


class VariableReader:
    """Makes views of the variables of one execution, each value once."""

    def __init__(self, workflow: Workflow, redactor: Redactor) -> None:
        self._steps = {step.store: step.name for step in reversed(visible_steps(workflow)) if step.store}
        self._redactor = redactor
        self._known: dict[tuple[str, str], tuple[Any, VariableView]] = {}

    def of(self, state: ExecutionState, setters: Setters) -> list[VariableView]:
        """Return inputs and variables as they are, and those that steps are still to set."""
        before = self._known
        self._known = {}
        return [self._view(named, before) for named in islice(self._named(state, setters), MOST_VARIABLES)]

    def _named(self, state: ExecutionState, setters: Setters) -> Iterator[_Named]:
        yield from (_Named(name, INPUT, value) for name, value in state.inputs.items())
        for name in dict.fromkeys([*reversed(self._steps), *sorted(state.variables)]):
            source = setters.steps.get(name) or self._steps.get(name, "")
            yield _Named(name, source, state.variables.get(name), name in state.variables)

    def _view(self, named: _Named, before: Mapping[tuple[str, str], tuple[Any, VariableView]]) -> VariableView:
        key = named.source, named.name
        known = before.get(key)
        view = known[1] if known is not None and named.is_set and known[0] is named.value else self._made(named)
        if named.is_set:
            self._known[key] = named.value, view
        return view

    def _made(self, named: _Named) -> VariableView:
        name = one_line(named.name, CELL)
        source = one_line(named.source, CELL)
        view = VariableView(name=name, source=source, type="", size="", text="", columns=[], rows=[], total=0)
        if not named.is_set:
            return {**view, "text": "not set yet"}
        view["type"], view["size"] = type_of(named.value), size_of(named.value)
        try:
            head = _head(named.value)
        except (UnopenableValueError, ValueError) as error:
            return {**view, "text": one_line(f"its rows cannot be shown: {error}", TEXT)}
        if head:
            columns, rows = self._table(named.name, head)
            return {**view, "columns": columns, "rows": rows, "total": len_of(named.value)}
        return {**view, "text": self._text(named.name, named.value)}

    def _text(self, name: str, value: Any) -> str:
        told = self._redactor.under(name, _short(value, DEEPEST))
        return cut(readable(told, indent=2 if _is_nested(told) else None), TEXT)

    def _table(self, name: str, head: list[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
        names = list(dict.fromkeys(str(key) for row in head for key in row))[:MOST_COLUMNS]
        short = [{str(key): _short(part, 1) for key, part in row.items()} for row in head]
        clean = [self._redactor.under(name, {key: row.get(key) for key in names}) for row in short]
        rows = [[_cell(row.get(key)) for key in names] if isinstance(row, dict) else [str(row)] for row in clean]
        return [one_line(key, CELL) for key in names], rows


def shorter(views: Iterable[VariableView], characters: int) -> list[VariableView]:
    """Return views of which all texts together have about so many characters; after that only name, type and size."""
    kept = []
    left = characters
    for view in views:
        left -= len(view["text"]) + sum(len(cell) for row in view["rows"] for cell in row)
        kept.append(view if left >= 0 else {**view, "text": "", "columns": [], "rows": []})
    return kept


def type_of(value: Any) -> str:
    """Return the type of a recorded value in a word: ``text``, ``list``, ``DataFrame``, the name of a class.

    >>> type_of("site-packages"), type_of([]), type_of(True), type_of(2.5)
    ('text', 'list', 'yes or no', 'number')
    """
    match value:
        case None:
            return "nothing"
        case bool():
            return "yes or no"
        case str():
            return "text"
        case int() | float():
            return "number"
        case list() | tuple():
            return "list"
        case Mapping():
            return "mapping"
        case Arrow():
            return value.kind.rpartition(".")[2]
        case Instance():
            return value.cls.rpartition(".")[2]
    return str(getattr(value, "tag", type(value).__name__))


def size_of(value: Any) -> str:
    """Return how large a value is: characters of a text, parts of a list, rows and columns of a table."""
    if isinstance(value, Arrow):
        return " x ".join(f"{length:,}" for length in value.shape)
    return f"{len(value):,}" if isinstance(value, str | list | tuple | Mapping) else ""


def len_of(value: Any) -> int:
    """Return how many rows a table has."""
    return int(value.shape[0]) if isinstance(value, Arrow) else len(value)


def _head(value: Any) -> list[Mapping[str, Any]]:
    """Return the first rows of a table, or of a list of records; none of anything else."""
    if isinstance(value, Arrow) and len(value.shape) == 2:
        if value.least_bytes() > LARGEST:
            raise ValueError(f"it has more than {LARGEST // 1_000_000} MB")
        return [row for row in value.head(HEAD) if isinstance(row, Mapping)]
    first = value[:HEAD] if isinstance(value, list | tuple) else []
    rows = [item.plain() if isinstance(item, Instance) else item for item in first]
    are_records = all(isinstance(row, Mapping) and 0 < len(row) <= MOST_COLUMNS for row in rows)
    return rows if are_records else []


def _short(value: Any, depth: int) -> Any:
    """Return the beginning of a value, as plain data."""
    match value:
        case str():
            return value[: 2 * TEXT] + ("…" if len(value) > 2 * TEXT else "")
        case Mapping():
            parts = value.items()
        case Instance():
            parts = value.plain().items()
        case list() | tuple():
            return _and_more([_short(part, depth - 1) for part in value[:MOST_PARTS]], len(value)) if depth else "[…]"
        case Container():
            return _short(value.plain(), depth)
        case Recorded():
            return value.summary()
        case _:
            return value
    if not depth:
        return "{…}"
    kept: dict[str, Any] = {str(key): _short(part, depth - 1) for key, part in islice(parts, MOST_PARTS)}
    left = len(parts) - len(kept)
    return kept | {"…": f"{left:,} more"} if left > 0 else kept


def _cell(value: Any) -> str:
    is_missing = value is None or value != value  # noqa: PLR0124 - as only nan does
    return "" if is_missing else one_line(readable(value), CELL)


def _and_more(kept: list[Any], whole: int) -> list[Any]:
    return [*kept, f"… {whole - len(kept):,} more"] if whole > len(kept) else kept


def _is_nested(value: Any) -> bool:
    parts: Iterable[Any] = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(isinstance(part, Mapping | list) and part for part in parts)


# Files that an execution has changed, as views show them: the first of them, with what has changed in each.


MOST_FILES = 500
MOST_POINTS = 200
LONGEST, MOST_CHARACTERS = 50_000, 200_000
"""Characters of one difference, and of all."""


class _Point(NamedTuple):
    """An event from which on a workspace has other files."""

    sequence: int
    files: Manifest
    told: str
    left_out: Sequence[Mapping[str, str]]


class _Changes(TypedDict):
    total: int
    added: int
    removed: int
    files: list[FileView]


class FilesReader:
    """Makes views of the files that one execution has changed; each event is read once."""

    def __init__(self, execution: Execution, redactor: Redactor) -> None:
        self._execution = execution
        self._redactor = redactor
        self._known: dict[str, tuple[int, Tree, Tree]] = {}
        """By workspace: the event up to which it was read, the files that it had at first, and those of that event."""
        self._made: dict[str, tuple[str, WorkspaceView]] = {}
        """By workspace: the digest of its files, and the view of them."""
        self._points: dict[str, list[_Point]] = {}
        """By workspace: the events with which it had other files, the first one first."""

    def of(self, at: int = 0, since: int = 0) -> list[WorkspaceView]:
        """Return what has changed by an event, or by now, of each workspace in which something has by now.

        With `since` it is what is otherwise than at that event, be it an earlier or a later one.
        """
        held = [(name, held) for name, held in sorted(self._execution.state.workspaces.items()) if held.tree]
        now = [view for name, one in held if (view := self._of_now(name, one))["total"]]
        return [self._of_then(view, at, since) for view in now] if at or since else now

    def _of_now(self, name: str, held: HeldWorkspace) -> WorkspaceView:
        known = self._made.get(name)
        if known is None or known[0] != held.tree:
            first, now = self._trees(name, held)
            points = self._points[name]
            told = [FilesPoint(sequence=point.sequence, told=point.told) for point in points[1:][-MOST_POINTS:]]
            view = WorkspaceView(
                name=name,
                kind=held.kind,
                folder=held.source or "",
                **self._changes(first, now, held.source),
                left_out=_left_out(points[-1]),
                points=[*told[::-1], FilesPoint(sequence=points[0].sequence, told="begin")],
            )
            known = self._made[name] = held.tree or "", cast("WorkspaceView", self._redactor.value(view))
        return known[1]

    def _of_then(self, now: WorkspaceView, at: int, since: int) -> WorkspaceView:
        points = self._points[now["name"]]
        before = _until(points, since)
        known = points if at == 0 else _until(points, at)
        first, then = (tree_of([point.files for point in part]) for part in (before, known))
        changed = {**self._changes(first, then, now["folder"]), "left_out": _left_out(known[-1])}
        return WorkspaceView(**{**now, **cast("WorkspaceView", self._redactor.value(changed))})

    def _changes(self, first: Tree, then: Tree, folder: str | None) -> _Changes:
        changes = changes_between(first.entries, then.entries)
        diffs = diffs_of(changes[:MOST_FILES], lambda digest: file_content(self._execution.store, digest))
        _, left_out = without_protected(changes, folder or None, ())
        protected = {shown_path(change.path) for change in left_out}
        return _Changes(
            total=len(changes) - len(changes[:MOST_FILES]) + len(diffs),
            added=sum(diff.added or 0 for diff in diffs),
            removed=sum(diff.removed or 0 for diff in diffs),
            files=_views(diffs, protected),
        )

    def _trees(self, name: str, held: HeldWorkspace) -> tuple[Tree, Tree]:
        """Return the files that a workspace had at first, and those that it has; what was read before is not again."""
        until, first, now = self._known.get(name, (0, None, None))
        came: list[_Point] = []
        at: int | None = held.at
        while at and at > until:
            (event,) = self._execution.store.read(self._execution.id, at - 1, 1)
            data = event.data
            assert isinstance(data, catalog.WorkspaceOpened | catalog.FilesChanged)  # noqa: S101 - `held.at` counts one
            came.append(_Point(at, data.files or (), _told(data), data.problems or ()))
            at = data.previous if isinstance(data, catalog.FilesChanged) else None
        came.reverse()
        manifests = [point.files for point in came]
        self._points.setdefault(name, []).extend(came)
        if first is None or now is None:
            first = tree_of(manifests[:1])
            now = tree_of(manifests)
        else:
            now = changed_tree(now.entries, manifests)
        self._known[name] = held.at, first, now
        return first, now


def _until(points: list[_Point], sequence: int) -> list[_Point]:
    """Return those up to an event, of which the first is always one."""
    return [point for point in points if point.sequence <= sequence] or points[:1]


def _told(data: catalog.WorkspaceOpened | catalog.FilesChanged) -> str:
    """Return in a few words what has changed with an event."""
    changes = data.changes or () if isinstance(data, catalog.FilesChanged) else ()
    if not changes:
        return ""
    count = data.count if isinstance(data, catalog.FilesChanged) else None
    more = (count or len(changes)) - 1
    return f"{changes[0]['path']} and {more} more" if more else str(changes[0]["path"])


def _left_out(point: _Point) -> list[LeftOutView]:
    return [LeftOutView(path=each["path"], reason=each["reason"]) for each in point.left_out[:MOST_LEFT_OUT]]


def _views(diffs: Sequence[FileDiff], protected: Collection[str]) -> list[FileView]:
    left = MOST_CHARACTERS
    views = []
    for diff in diffs:
        is_shown = len(diff.text) <= min(LONGEST, left)
        left -= len(diff.text) if is_shown else 0
        views.append(
            FileView(
                path=diff.path,
                kind=cast("FileView", {"kind": diff.kind})["kind"],
                was=diff.was or "",
                added=diff.added,
                removed=diff.removed,
                diff=diff.text if is_shown else None,
                protected=diff.path in protected,
            )
        )
    return views


def within(views: Iterable[WorkspaceView], most: int) -> list[WorkspaceView]:
    """Return views to be saved: differences of so many characters together at most, longer ones are left out."""
    left = most
    found = []
    for view in views:
        files = []
        for file in view["files"]:
            length = len(file["diff"] or "")
            files.append(file if length <= left else FileView(**{**file, "diff": None}))
            left -= length if length <= left else 0
        found.append(WorkspaceView(**{**view, "files": files, "points": []}))
    return found
