"""What has failed in an execution, as views and saved notebooks show it: followed from span to span."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from divebook.events import Event
from divebook.history.failures import Failure, ItemNames, failure_of, is_kept, is_undoing, leaf_of, shown_kept
from divebook.history.span import Span
from divebook.widgets.protocol.failures import ArgumentView, FailureReport, FailureView, SourceLine
from divebook.widgets.protocol.run import Header

MOST_SHOWN = 50
Read = Callable[[int, int], Sequence[Event]]
"""Events after a sequence number, at most so many."""


class Failing:
    """The failures of the spans so far; a span that has changed may be taken again."""

    def __init__(self, names: ItemNames) -> None:
        self._names = names
        self._failed: dict[int, Span] = {}
        """By index, in the order in which they failed."""
        self._kinds: dict[tuple[str, str], dict[int, None]] = {}
        self._known: dict[int, Failure] = {}
        self._done: set[int] = set()
        self._items = 0
        self._is_undone = False
        self.has_changed = True
        """Whether the report is another than it was when it was last made."""

    def of(self, header: Header) -> Header:
        """Return a header that says how many have failed."""
        return {**header, "failed": len(self._failed)}

    @property
    def kept(self) -> str:
        """What is safe in the log, in words; nothing is where it was rolled back."""
        return "" if self._is_undone else shown_kept(self._items, len(self._done) - self._items)

    def take(self, span: Span) -> None:
        """Note whether a span stands for a failure, or for something that is kept."""
        self._count(span)
        self._is_undone = self._is_undone or is_undoing(span)
        if span.is_failure:
            self._remove(span.index)
            self._failed[span.index] = span
            self._kinds.setdefault(_kind(span), {})[span.index] = None
            self.has_changed = True
        elif span.index in self._failed:
            self._remove(span.index)

    def _count(self, span: Span) -> None:
        if span.index not in self._done and is_kept(span):
            self._done.add(span.index)
            self._items += span.kind == "item"

    def _remove(self, index: int) -> None:
        self._known.pop(index, None)
        if self._failed.pop(index, None) is None:
            return
        self.has_changed = True
        for known in self._kinds.values():
            known.pop(index, None)

    def report(self, spans: Sequence[Span], read: Read | None = None) -> FailureReport:
        """Return what has failed; with `read`, what calls were given is read there, and not in the spans."""
        self.has_changed = False
        shown = [self._view(self._failed[index], spans, read) for index in self._chosen()]
        return FailureReport(total=len(self._failed), kept=self.kept, shown=shown)

    def _chosen(self) -> list[int]:
        """Return the first of each kind, then others, in the order in which they failed."""
        first = [next(iter(known)) for known in self._kinds.values() if known][:MOST_SHOWN]
        others = (index for index in self._failed if index not in set(first))
        chosen = {*first, *(index for index, _ in zip(others, range(MOST_SHOWN - len(first)), strict=False))}
        return [index for index in self._failed if index in chosen]

    def _view(self, span: Span, spans: Sequence[Span], read: Read | None) -> FailureView:
        known = self._known.get(span.index)
        if known is None:
            leaf = leaf_of(span, spans)
            known = failure_of(span, leaf if read is None else _with_data(leaf, read), self._names)
            self._known[span.index] = known
        return view_of_failure(known, same=len(self._kinds[_kind(span)]))


def _kind(span: Span) -> tuple[str, str]:
    """Return what equal failures have in common: the class and the line, or else the message."""
    return span.error_type or "", str((span.place or {}).get("label")) if span.place else span.error or ""


def _with_data(leaf: Span, read: Read) -> Span:
    """Return a span with what it was given, which a feed leaves in the store."""
    (event,) = read(leaf.sequences[0] - 1, 1)
    return replace(leaf, parameters=getattr(event.data, "parameters", None), item=getattr(event.data, "item", None))


def view_of_failure(failure: Failure, *, same: int = 1) -> FailureView:
    """Return a failure as views know it."""
    arguments = (failure.arguments or {}).items()
    return FailureView(
        id=failure.span,
        sequence=failure.sequence,
        failed_us=failure.failed_us,
        error_type=failure.error_type,
        message=failure.message,
        means=failure.means,
        step=failure.step,
        path=failure.path,
        item=failure.item,
        attempt=failure.attempt,
        called=failure.called,
        arguments=[ArgumentView(name=name, text=text) for name, text in arguments],
        place=failure.place,
        cell=failure.cell,
        line=failure.line,
        source=[SourceLine(number=number, text=text) for number, text in failure.source],
        traceback=failure.traceback,
        handled=failure.handled,
        same=same,
    )


def failing_of(spans: Iterable[Span], names: ItemNames) -> Failing:
    """Return the failures of some spans."""
    failing = Failing(names)
    for span in spans:
        failing.take(span)
    return failing
