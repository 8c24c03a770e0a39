"""Current variables and changed files of an execution, in the form that views show.

A value is shown with its type, its size and a short text, a table with its first rows. Large values are never traversed
completely. Recorded values never change, so the shown form of a value is cached as long as the variable has the value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypedDict, cast

from divebook.definitions.definition import Workflow, hidden_steps, visible_steps
from divebook.engine.state import ExecutionState, HeldWorkspace
from divebook.errors import UnopenableValueError
from divebook.events import catalog
from divebook.events.arrow.foreign import Arrow
from divebook.events.catalog import StateMutated
from divebook.events.classes import Instance
from divebook.events.codec import readable
from divebook.events.event import Event
from divebook.events.recorded import Container, Recorded
from divebook.events.rich_output import HTML, image_uri, recorded_output
from divebook.replay.files import MOST_LEFT_OUT
from divebook.runtime.run import Run
from divebook.stores.maintenance import file_content
from divebook.text.redaction import Redactor, cut, one_line
from divebook.widgets.protocol import FilesPoint, FileView, LeftOutView, VariableView, WorkspaceView
from divebook.workspaces.snapshots.applying import without_protected
from divebook.workspaces.snapshots.take import Manifest, changed_tree, tree_of
from divebook.workspaces.snapshots.tree import FileDiff, Tree, changes_between, diffs_of, shown_path

MOST_VARIABLES = 200
HEAD = 5
"""Maximum number of rows of a table that are shown."""
MOST_COLUMNS = 20
CELL = 60
LARGEST = 50_000_000
"""Maximum size in bytes of a table whose first rows are read."""
TEXT = 2_000
"""Maximum number of characters of one shown value."""
MOST_PARTS = 20
"""Maximum number of entries of a list or mapping that are shown."""
DEEPEST = 4
"""Maximum number of levels of nested values that are shown."""
INPUT = "input"
MOST_RICH = 1_000_000
"""Maximum number of characters of an image or HTML that is shown."""
MOST_SAVED_RICH = 300_000
"""Maximum number of characters of images and HTML in a saved notebook."""
IMAGE_TYPE = "an image"
HTML_TYPE = "HTML output"


class _Variable(NamedTuple):
    """A variable or input of an execution, with its value and the name of the step that sets it."""

    name: str
    source: str
    """Name of the step that set the variable last, or of the first step that will set it; ``input`` for an input."""
    value: Any = None
    is_set: bool = True


class Setters:
    """For each variable of an execution, the step that set it last according to the log. Steps that are hidden from
    people are ignored.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.steps: dict[str, str] = {}
        self._hidden = frozenset[str]()
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Read the next event of the log: if a step sets variables in it, remember this step as the one that set them
        last.
        """
        # Events without a step start or fork the execution. They contain the definition, with the names of the hidden
        # steps.
        if not event.step:
            self._hidden |= hidden_steps(event.data)
        elif isinstance(event.data, StateMutated) and event.step not in self._hidden:
            self.steps.update((mutation.key, event.step) for mutation in event.data.mutations)


class VariableReader:
    """Converter of the inputs and variables of one execution to the form that views show. Values that have not changed
    are taken from a cache.
    """

    def __init__(self, workflow: Workflow, redactor: Redactor) -> None:
        # In reverse order, so that the first step that stores a variable wins: later keys replace earlier ones.
        self._steps = {step.store: step.name for step in reversed(visible_steps(workflow)) if step.store}
        self._redactor = redactor
        # By source and name: an input and a variable can have equal names.
        self._cache: dict[tuple[str, str], tuple[Any, VariableView]] = {}

    def of(self, state: ExecutionState, setters: Setters) -> list[VariableView]:
        """Return all inputs and variables of a state in the form that views show, including variables that a step will
        set later.
        """
        # Each call fills a new cache, so that variables that no longer exist drop out of it.
        before = self._cache
        self._cache = {}
        return [self._view(variable, before) for variable in islice(self._variables_of(state, setters), MOST_VARIABLES)]

    def _variables_of(self, state: ExecutionState, setters: Setters) -> Iterator[_Variable]:
        yield from (_Variable(name, INPUT, value) for name, value in state.inputs.items())
        # Reversed once more: variables in the order of the steps that set them, then all others by name.
        for name in dict.fromkeys([*reversed(self._steps), *sorted(state.variables)]):
            # Until the first assignment, the definition tells which step will set the variable.
            source = setters.steps.get(name) or self._steps.get(name, "")
            yield _Variable(name, source, state.variables.get(name), name in state.variables)

    def _view(self, variable: _Variable, before: Mapping[tuple[str, str], tuple[Any, VariableView]]) -> VariableView:
        key = variable.source, variable.name
        entry = before.get(key)
        # The same object has the same view, because recorded values never change.
        is_cached = entry is not None and variable.is_set and entry[0] is variable.value
        view = entry[1] if entry is not None and is_cached else self._new_view(variable)
        # A variable that is not set yet has no value by which the cache could find it.
        if variable.is_set:
            self._cache[key] = variable.value, view
        return view

    def _new_view(self, variable: _Variable) -> VariableView:
        name = one_line(variable.name, CELL)
        source = one_line(variable.source, CELL)
        view = VariableView(name=name, source=source, type="", size="", text="", columns=[], rows=[], total=0)
        if not variable.is_set:
            return {**view, "text": "not set yet"}
        if (output := recorded_output(variable.value)) is not None:
            return self._rich(view, variable, *output)
        view["type"] = type_of(variable.value)
        view["size"] = size_of(variable.value)
        # A table of a library that is not installed here cannot be opened.
        try:
            head = _head(variable.value)
        except (UnopenableValueError, ValueError) as error:
            return {**view, "text": one_line(f"the rows cannot be shown: {error}", TEXT)}
        # Only tables and lists of records have rows. All other values are shown as text.
        if head:
            columns, rows = self._table(variable.name, head)
            return {**view, "columns": columns, "rows": rows, "total": len_of(variable.value)}
        return {**view, "text": self._text(variable.name, variable.value)}

    def _rich(self, view: VariableView, variable: _Variable, media_type: str, content: bytes) -> VariableView:
        """Add type, size and text of an image or HTML to its view: the text is its data URI, or its source."""
        size = f"{len(content):,} bytes"
        uri = image_uri(variable.value, MOST_RICH)
        # Views know images and HTML by these types, which no class can have as its name.
        if uri is not None:
            return {**view, "type": IMAGE_TYPE, "size": size, "text": uri}
        if media_type == HTML and len(content) <= MOST_RICH:
            source = self._redactor.under(variable.name, content.decode("utf-8", "replace"))
            return {**view, "type": HTML_TYPE, "size": size, "text": str(source)}
        too_large = "too large to be shown here; get the value from the run"
        return {**view, "type": one_line(media_type, CELL), "size": size, "text": too_large}

    def _text(self, name: str, value: Any) -> str:
        # Shortened before redaction, since redaction walks through the whole value. `_short` keeps twice the shown
        # length, so that a secret that is cut lies behind the shown part.
        clean = self._redactor.under(name, _short(value, DEEPEST))
        return cut(readable(clean, indent=2 if _is_nested(clean) else None), TEXT)

    def _table(self, name: str, head: list[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
        # Rows of a list can have different fields. The columns are all fields, in the order of their first occurrence.
        names = list(dict.fromkeys(str(key) for row in head for key in row))[:MOST_COLUMNS]
        short = [{str(key): _short(part, 1) for key, part in row.items()} for row in head]
        # A row can be hidden as a whole, because of the name of the variable. It is a text then.
        clean = [self._redactor.under(name, {key: row.get(key) for key in names}) for row in short]
        rows = [[_cell(row.get(key)) for key in names] if isinstance(row, dict) else [str(row)] for row in clean]
        return [one_line(key, CELL) for key in names], rows


def shorter(views: Iterable[VariableView], characters: int) -> list[VariableView]:
    """Return variables for a saved notebook, with about `characters` characters of values in total.

    As soon as the limit is reached, further variables have only a name, a type and a size.
    """
    short = []
    room = characters
    # Images and HTML are shown whole or not at all, and have a room of their own.
    rich_room = max(characters, MOST_SAVED_RICH) if characters else 0
    # A variable that does not fit still takes its room, so that all variables after it are left out too.
    for view in views:
        if view["type"] in (IMAGE_TYPE, HTML_TYPE):
            rich_room -= len(view["text"])
            short.append(view if rich_room >= 0 else {**view, "text": ""})
            continue
        room -= len(view["text"]) + sum(len(cell) for row in view["rows"] for cell in row)
        short.append(view if room >= 0 else {**view, "text": "", "columns": [], "rows": []})
    return short


def type_of(value: Any) -> str:
    """Return the type of a recorded value in one or a few words: ``text``, ``list``, ``DataFrame``, the name of a
    class.

    >>> type_of("site-packages"), type_of([]), type_of(True), type_of(2.5)
    ('text', 'list', 'yes or no', 'number')
    """
    match value:
        case None:
            return "nothing"
        # Before `int`, because True and False are instances of it.
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
        # "pandas.DataFrame" -> "DataFrame"
        case Arrow():
            return value.kind.rpartition(".")[2]
        case Instance():
            return value.cls.rpartition(".")[2]
    return str(getattr(value, "tag", type(value).__name__))


def size_of(value: Any) -> str:
    """Return the size of a variable's value as text: characters of a string, entries of a list, rows and columns of a
    table. Empty for other values.
    """
    if isinstance(value, Arrow):
        return " x ".join(f"{length:,}" for length in value.shape)
    return f"{len(value):,}" if isinstance(value, str | list | tuple | Mapping) else ""


def len_of(value: Any) -> int:
    """Return the number of rows of a table or list."""
    return int(value.shape[0]) if isinstance(value, Arrow) else len(value)


def table_head(value: Arrow, largest: int) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the first rows of a frame as short texts; both are empty if the frame has no
    rows and columns, or more than `largest` bytes.
    """
    rows = [] if value.least_bytes() > largest else _head(value)
    names = list(dict.fromkeys(str(key) for row in rows for key in row))[:MOST_COLUMNS]
    cells = [{str(key): _short(part, 1) for key, part in row.items()} for row in rows]
    return [one_line(name, CELL) for name in names], [[_cell(row.get(name)) for name in names] for row in cells]


def _head(value: Any) -> list[Mapping[str, Any]]:
    """Return the first rows of a table, or the first records of a list, to show as a table; an empty list for other
    values.
    """
    if isinstance(value, Arrow) and len(value.shape) == 2:
        # The size is estimated before anything is decoded.
        if value.least_bytes() > LARGEST:
            raise ValueError(f"the table has more than {LARGEST // 1_000_000} MB")
        # `head` decodes the whole table, so that large tables are left alone.
        return [row for row in value.head(HEAD) if isinstance(row, Mapping)]
    first = value[:HEAD] if isinstance(value, list | tuple) else []
    # An instance is shown by its fields. Its class is not loaded.
    rows = [item.plain() if isinstance(item, Instance) else item for item in first]
    are_records = all(isinstance(row, Mapping) and 0 < len(row) <= MOST_COLUMNS for row in rows)
    return rows if are_records else []


def _short(value: Any, depth: int) -> Any:
    """Return a shortened copy of a variable's value: the beginning of texts, lists and mappings.

    Lists and mappings are limited to `MOST_PARTS` entries and `depth` levels. Omitted entries are replaced by their
    number or by ``…``.
    """
    match value:
        case str():
            # The cut is marked, since `cut` later sees only this shortened text.
            return value[: 2 * TEXT] + ("…" if len(value) > 2 * TEXT else "")
        case Mapping():
            parts = value.items()
        case Instance():
            parts = value.plain().items()
        case list() | tuple():
            return _and_more([_short(part, depth - 1) for part in value[:MOST_PARTS]], len(value)) if depth else "[…]"
        # Tuples, sets and mappings with other keys than strings have a recorded form, which is opened for display.
        case Container():
            return _short(value.plain(), depth)
        # Any other recorded value, such as a date or an image, has a one-line summary.
        case Recorded():
            return value.summary()
        case _:
            return value
    # A mapping at the deepest level is only indicated.
    if not depth:
        return "{…}"
    entries: dict[str, Any] = {str(key): _short(part, depth - 1) for key, part in islice(parts, MOST_PARTS)}
    remaining = len(parts) - len(entries)
    return entries | {"…": f"{remaining:,} more"} if remaining > 0 else entries


def _cell(value: Any) -> str:
    # Not a number stands for a missing value in tables.
    is_missing = value is None or value != value  # noqa: PLR0124 - as only nan does
    return "" if is_missing else one_line(readable(value), CELL)


def _and_more(parts: list[Any], whole: int) -> list[Any]:
    return [*parts, f"… {whole - len(parts):,} more"] if whole > len(parts) else parts


def _is_nested(value: Any) -> bool:
    # A flat list fits on one line. A nested value is easier to read with indentation.
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list):
        parts = value
    return any(isinstance(part, Mapping | list) and part for part in parts)


# --- changed files of an execution -----------------------------------------------------------------------------------


MOST_FILES = 500
MOST_POINTS = 200
LONGEST = 50_000
"""Maximum number of characters of the difference of one file."""
MOST_CHARACTERS = 200_000
"""Maximum number of characters of all differences."""


class _Point(NamedTuple):
    """An event that changed the files of a workspace. Its fields are the number of the event, the changed files, a
    short text that names them, and the files that were not stored.
    """

    sequence: int
    files: Manifest
    label: str
    left_out: Sequence[Mapping[str, str]]


class _Changes(TypedDict):
    total: int
    added: int
    removed: int
    files: list[FileView]


class FilesReader:
    """Converter of the changed files of one execution to the form that views show. Each event is read once."""

    def __init__(self, execution: Run, redactor: Redactor) -> None:
        self._execution = execution
        self._redactor = redactor
        self._cache: dict[str, tuple[int, Tree, Tree]] = {}
        """For each workspace: the last event that was read, the original files, and the files at this event."""
        self._views_by_workspace: dict[str, tuple[str, WorkspaceView]] = {}
        """For each workspace: the digest of its files, and the files in the form that views show."""
        self._points: dict[str, list[_Point]] = {}
        """For each workspace: the events that changed its files, the oldest first."""

    def of(self, at: int = 0, since: int = 0) -> list[WorkspaceView]:
        """Return the changed files of each workspace of the execution as of the event `at` (0: now).

        With `since`, return the differences between the event `since` and the event `at`; `since` may be later than
        `at`. Workspaces whose files are now unchanged are omitted.
        """
        # A workspace without a tree has no snapshot yet.
        held = [(name, held) for name, held in sorted(self._execution.state.workspaces.items()) if held.tree]
        views = [self._of_now(name, one) for name, one in held]
        now = [view for view in views if view["total"]]
        return [self._of_then(view, at, since) for view in now] if at or since else now

    def _of_now(self, name: str, held: HeldWorkspace) -> WorkspaceView:
        entry = self._views_by_workspace.get(name)
        # The digest of the tree changes with each change of a file, so that an equal digest means equal files.
        if entry is None or entry[0] != held.tree:
            first, now = self._trees(name, held)
            points = self._points[name]
            # The first point is the event that opened the workspace. It is added at the end with its own label.
            latest = [FilesPoint(sequence=point.sequence, told=point.label) for point in points[1:][-MOST_POINTS:]]
            view = WorkspaceView(
                name=name,
                kind=held.kind,
                folder=held.source or "",
                **self._changes(first, now, held.source),
                left_out=_left_out(points[-1]),
                # Newest first, as a person looks for the latest change.
                points=[*latest[::-1], FilesPoint(sequence=points[0].sequence, told="begin")],
            )
            entry = self._views_by_workspace[name] = held.tree or "", cast("WorkspaceView", self._redactor.value(view))
        return entry[1]

    def _of_then(self, now: WorkspaceView, at: int, since: int) -> WorkspaceView:
        points = self._points[now["name"]]
        # `since` can be later than `at`, so the two are treated alike.
        before = _until(points, since)
        until = points if at == 0 else _until(points, at)
        first, then = (tree_of([point.files for point in part]) for part in (before, until))
        changed = {**self._changes(first, then, now["folder"]), "left_out": _left_out(until[-1])}
        return WorkspaceView(**{**now, **cast("WorkspaceView", self._redactor.value(changed))})

    def _changes(self, first: Tree, then: Tree, folder: str | None) -> _Changes:
        changes = changes_between(first.entries, then.entries)
        # Only the first files are compared, because each difference reads two contents from the store.
        diffs = diffs_of(changes[:MOST_FILES], lambda digest: file_content(self._execution.store, digest))
        _, left_out = without_protected(changes, folder or None, ())
        protected = {shown_path(change.path) for change in left_out}
        return _Changes(
            # `diffs_of` leaves out folders, so the number of shown files is that of the differences. Files above the
            # limit are counted unread.
            total=len(changes) - len(changes[:MOST_FILES]) + len(diffs),
            added=sum(diff.added or 0 for diff in diffs),
            removed=sum(diff.removed or 0 for diff in diffs),
            files=_views(diffs, protected),
        )

    def _trees(self, name: str, held: HeldWorkspace) -> tuple[Tree, Tree]:
        """Return all files of a workspace as they were at its start, and as they are now.

        The events that change a workspace form a linked list: `previous` is the number of the preceding event. The loop
        follows the list from the newest event back to the last event that was read earlier.
        """
        # A workspace that was never read starts with event 0 and no trees.
        until, first, now = self._cache.get(name, (0, None, None))
        new_points: list[_Point] = []
        at: int | None = held.at
        while at and at > until:
            (event,) = self._execution.store.read(self._execution.id, at - 1, 1)
            # Only these two types of events are linked by `previous`.
            data = event.data
            assert isinstance(data, catalog.WorkspaceOpened | catalog.FilesChanged)  # noqa: S101 - `held.at` counts one
            new_points.append(_Point(at, data.files or (), _change_label(data), data.problems or ()))
            # The opening event has no predecessor, which ends the loop.
            at = data.previous if isinstance(data, catalog.FilesChanged) else None
        new_points.reverse()
        manifests = [point.files for point in new_points]
        self._points.setdefault(name, []).extend(new_points)
        if first is None or now is None:
            # The first manifest contains the complete tree, the others only their changes.
            first = tree_of(manifests[:1])
            now = tree_of(manifests)
        else:
            # Only the new changes are applied to the tree that was read before.
            now = changed_tree(now.entries, manifests)
        self._cache[name] = held.at, first, now
        return first, now


def _until(points: list[_Point], sequence: int) -> list[_Point]:
    """Return those changes of a workspace's files that were made before or at the event `sequence`. If there are none,
    return the first change, in which the workspace was opened.
    """
    return [point for point in points if point.sequence <= sequence] or points[:1]


def _change_label(data: catalog.WorkspaceOpened | catalog.FilesChanged) -> str:
    """Return a short text that names the files that an event changed: ``calc.py and 2 more``."""
    changes = data.changes or () if isinstance(data, catalog.FilesChanged) else ()
    # The opening event lists all files, which are not changes.
    if not changes:
        return ""
    # `changes` contains at most a thousand files. `count` is the number of all.
    count = data.count if isinstance(data, catalog.FilesChanged) else None
    more = (count or len(changes)) - 1
    return f"{changes[0]['path']} and {more} more" if more else str(changes[0]["path"])


def _left_out(point: _Point) -> list[LeftOutView]:
    return [LeftOutView(path=each["path"], reason=each["reason"]) for each in point.left_out[:MOST_LEFT_OUT]]


def _views(diffs: Sequence[FileDiff], protected: Collection[str]) -> list[FileView]:
    room = MOST_CHARACTERS
    views = []
    for diff in diffs:
        # A file that does not fit takes no room, so that smaller ones after it are still shown.
        is_shown = len(diff.text) <= min(LONGEST, room)
        room -= len(diff.text) if is_shown else 0
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
    """Return changed files for a saved notebook, with at most `most` characters of differences in total. Differences
    that do not fit are omitted.
    """
    room = most
    short = []
    for view in views:
        files = []
        for file in view["files"]:
            length = len(file["diff"] or "")
            files.append(file if length <= room else FileView(**{**file, "diff": None}))
            room -= length if length <= room else 0
        short.append(WorkspaceView(**{**view, "files": files, "points": []}))
    return short
