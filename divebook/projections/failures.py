"""What went wrong, read off a log: one record for each item, and each step, that has failed.

Whoever shows a failure shows this record: `Execution.failure`, frames, reports, the shell, views and what is saved.
(`tests/history/test_failures.py`)
"""

from __future__ import annotations

import ast
import pprint
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from divebook.engine.operations import AGENT_TURN, CHILD_WORKFLOW, TIMER, operation_arguments
from divebook.events import Event, catalog
from divebook.events.catalog import Payload
from divebook.events.codec import readable
from divebook.projections.spans import Handled, PlaceOf, Span, headline, places_in
from divebook.projections.summary import ReadLog
from divebook.text.format import branch_name, plural
from divebook.text.redaction import cut, one_line, shared
from divebook.workflow.definition import Workflow

# What common errors mean, in plain words: said only where the class and the message leave no doubt.
#
# Texts of the log are read here and never run: what a call was given stands in it as Python text.
# (`tests/history/test_meanings.py`)


MOST_KEYS = 8
VALUE_WIDTH = 60
_TRY_AGAIN = "Continuing tries again."


class Seen(NamedTuple):
    """What there is to judge by."""

    message: str
    """Without the class."""
    given: Mapping[str, str]
    """What the call was given: Python text by name."""
    line: str
    """The line that raised it."""


def meaning(error_type: str, message: str, given: Mapping[str, str], line: str) -> str:
    """Return what an error means for a person; an empty text where that is not known for sure.

    >>> meaning("KeyError", "'label'", {"answer": "{'kind': 'bill'}"}, 'return answer["label"]')
    "answer has no key 'label'. It has: kind."
    """
    seen = Seen(message.removeprefix(error_type).removeprefix(": "), given, line)
    told = _MEANINGS.get(error_type, _of_none)
    return told(seen)


def _of_key(seen: Seen) -> str:
    key = _literal(seen.message)
    if not isinstance(key, str | int):
        return ""
    for name, index in re.findall(r"\b(\w+)\[([^\[\]]+)\]", seen.line):
        found = _literal(seen.given.get(name, ""))
        if isinstance(found, dict) and key not in found and _literal(index.strip()) == key:
            keys = one_line(", ".join(map(str, [*found][:MOST_KEYS])), 200)
            more = f" and {len(found) - MOST_KEYS:,} more" if len(found) > MOST_KEYS else ""
            return f"{name} has no key {key!r}. " + (f"It has: {keys}{more}." if found else "It is empty.")
    is_looked_up = seen.line != "" and not re.search(r"\braise\b", seen.line)
    return f"There is no key {_short(key)} in what was looked into." if is_looked_up else ""


def _of_zero(seen: Seen) -> str:
    divided = re.findall(r"[/%]\s*([A-Za-z_]\w*)", seen.line)
    zero = next((name for name in divided if seen.given.get(name) in ("0", "0.0", "False")), "")
    return f"A number was divided by zero: {zero} is {seen.given[zero]}." if zero else "A number was divided by zero."


def _of_module(seen: Seen) -> str:
    found = re.fullmatch(r"No module named '([\w.]+)'", seen.message)
    return (
        f"Python finds no module {found[1]} here. Install what has it (%pip install ...), then continue."
        if found
        else ""
    )


def _of_file(seen: Seen) -> str:
    found = re.search(r"No such file or directory: ('.*'|\".*\")$", seen.message)
    name = _literal(found[1]) if found else None
    if not isinstance(name, str):
        return ""
    place = "" if name.startswith(("/", "~")) else " in the folder in which this ran"
    return f"There is no file or folder {_short(name)}{place}."


def _of_none(seen: Seen) -> str:
    return "A value is None where another was expected." if "'NoneType' object" in seen.message else ""


def _says(text: str) -> Callable[[Seen], str]:
    return lambda _: text


def _if_met(pattern: str, text: str) -> Callable[[Seen], str]:
    return lambda seen: text if re.search(pattern, seen.message) else _of_none(seen)


_UNREACHABLE = f"The other side could not be reached. {_TRY_AGAIN}"
_MEANINGS: Mapping[str, Callable[[Seen], str]] = {
    "KeyError": _of_key,
    "ZeroDivisionError": _of_zero,
    "ModuleNotFoundError": _of_module,
    "FileNotFoundError": _of_file,
    "IndexError": _if_met(
        r"(list|tuple|string) index out of range", "It has fewer elements than the number asked for."
    ),
    "JSONDecodeError": _if_met(r"char 0\)$", "The text is empty, or no JSON from its first character on."),
    "RecursionError": _says("A function calls itself without end."),
    "PermissionError": _says("The operating system does not allow this access."),
    "ConnectionError": _says(_UNREACHABLE),
    "ConnectionRefusedError": _says(_UNREACHABLE),
    "ConnectError": _says(_UNREACHABLE),
    "TimeoutError": _says(f"No answer came in time. {_TRY_AGAIN}"),
}


def _literal(text: str) -> Any:
    """Return what a text is as a literal of Python; None for all others, and for what was cut off."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _short(value: Any) -> str:
    return one_line(repr(value), VALUE_WIDTH)


MOST_ARGUMENT = 2_000
MOST_ARGUMENTS = 30
WIDTH = 64
_NO_CALLS = (AGENT_TURN, TIMER)
"""Operations that hold calls, or make none."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An item or a step that has failed, and why."""

    error_type: str
    """Class of the error; empty where the log does not say it."""
    message: str
    step: str
    path: str
    item: str = ""
    """Which item of `Each` it was, such as ``rows[4321]``; empty for a step without items."""
    iteration: int | None = None
    attempt: int = 1
    """Which attempt failed for good."""
    called: str = ""
    """The function, action, agent, tool or workflow that failed; empty if the step itself did."""
    arguments: Mapping[str, str] | None = None
    """What that was given: Python text by name, shortened, without secrets."""
    place: str = ""
    """``Cell [5], line 4``, ``pipeline.py:12`` or ``survey.yaml:7:11``."""
    line: int = 0
    source: tuple[tuple[int, str], ...] = ()
    """The lines around it, with their numbers."""
    cell: str = ""
    """The front end's id of the cell that the place is in."""
    traceback: str = ""
    """The calls that led there, without those of divebook; the innermost comes last."""
    sequence: int = 0
    """The event that says that it failed."""
    failed_us: int = 0
    """Microseconds since 1970."""
    span: int = -1
    """Index of the span of the call, item or step that failed."""
    handled: Handled = ""
    """What became of it, if the run went on: ``skipped``, ``kept`` as data, or ``caught``."""
    child: str = ""
    """The execution of another workflow in which it happened."""

    @property
    def headline(self) -> str:
        """Class and message: ``KeyError: 'b'``."""
        return headline(self.error_type, self.message)

    @property
    def means(self) -> str:
        """What that says in plain words, where it is known for sure, such as ``answer has no key 'label'``."""
        line = dict(self.source).get(self.line, "")
        return meaning(self.error_type, self.message, self.arguments or {}, line)

    @property
    def where(self) -> str:
        """What failed: ``step parse, rows[1342], attempt 2``."""
        called = "" if self.called in ("", self.step) else f"call of {self.called}"
        attempt = f"attempt {self.attempt}" if self.attempt > 1 else ""
        step = f"step {self.step}" if self.step else ""
        return ", ".join(filter(None, (step, self.item, branch_name(self.path), called, attempt)))

    @property
    def lines(self) -> str:
        """The lines around its place, with their numbers, as text; its own is marked."""
        return "\n".join(f"{'>' if n == self.line else ' '} {n:>4}  {text}" for n, text in self.source)

    @property
    def details(self) -> str:
        """What is known beside the headline, as text: what it means, where, the arguments, the line, the calls."""
        given = "\n".join(f"  {name} = {_indented(text)}" for name, text in (self.arguments or {}).items())
        parts = (
            f"means: {self.means}" if self.means else "",
            f"where: {self.where}" if self.where else "",
            f"arguments:\n{given}" if given else "",
            f"{self.place or 'source'}:\n{self.lines}" if self.lines else self.place,
            f"traceback:\n{self.traceback.rstrip()}" if self.traceback else "",
        )
        return "\n".join(filter(None, parts))

    def told(self) -> str:
        """Return all of it as text."""
        return f"{self.headline}\n{self.details}"


def failures_of(events: Sequence[Event]) -> list[Failure]:
    """Return the failures of a log as it stands, in the order in which their items and steps began."""
    spans = ReadLog.of(events).spans
    names = ItemNames.of(events)
    return [failure_of(span, leaf_of(span, spans), names) for span in spans if span.is_failure]


def failure_in(events: Sequence[Event], error: str) -> Failure:
    """Return why an execution has failed, whose last event says `error`."""
    found = [failure for failure in failures_of(events) if not failure.handled]
    if found:
        return found[-1]
    ended = next((event for event in reversed(events) if isinstance(event.data, catalog.PathFailed)), None)
    sequence, moment = (ended.sequence, ended.recorded_at) if ended else (0, 0)
    reason = getattr(ended.data, "reason", None) if ended else None
    return Failure(reason or "", error, "", ended.path if ended else "", sequence=sequence, failed_us=moment)


OPENINGS = (catalog.ExecutionStarted, catalog.ExecutionForked)
"""What may tell of the definition; the newest one that does counts."""


class ItemNames(NamedTuple):
    """What a workflow calls the items of its steps."""

    place_of: PlaceOf
    variables: Mapping[str, str]
    """By step, the name of the variable that an item is in."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> ItemNames:
        """Read them off a log."""
        told = (
            getattr(event.data, "definition", None) for event in reversed(events) if isinstance(event.data, OPENINGS)
        )
        definition = next(filter(None, told), None)
        return (
            cls(lambda span: span.name, {}) if definition is None else cls.of_workflow(Workflow.from_dict(definition))
        )

    @classmethod
    def of_workflow(cls, workflow: Workflow) -> ItemNames:
        """Take them from a definition."""
        variables = {step.name: step.each.as_ for step in workflow.steps if step.each is not None and step.each.as_}
        return cls(places_in(workflow), variables)


def leaf_of(span: Span, spans: Sequence[Span]) -> Span:
    """Return the call that has made a span fail, the innermost one, or the span itself."""
    while 0 <= span.cause < len(spans):
        span = spans[span.cause]
    return span


def failure_of(span: Span, leaf: Span, names: ItemNames) -> Failure:
    """Return the failure that a span stands for; `leaf`, what made it fail, must have what it was given."""
    place = leaf.place or {}
    signal = (leaf.parameters or {}).get("signal")
    first = place.get("first", 1)
    lines = place.get("lines", ())
    return Failure(
        error_type=leaf.error_type or span.error_type or "",
        message=shared().text(leaf.error or span.error or ""),
        step=span.step,
        path=span.path,
        item=names.place_of(span) if span.iteration is not None else "",
        iteration=span.iteration,
        attempt=span.attempts,
        called=leaf.called or "",
        arguments=arguments_of(leaf, names),
        place=place.get("label", ""),
        line=place.get("line", 0),
        source=tuple(enumerate(lines, first)),
        cell=place.get("cell", ""),
        traceback=leaf.trace or "",
        sequence=span.sequences[-1],
        failed_us=span.ended_us or 0,
        span=leaf.index,
        handled=span.handled,
        child=str(signal) if leaf.type == CHILD_WORKFLOW and signal else "",
    )


def arguments_of(leaf: Span, names: ItemNames) -> dict[str, str] | None:
    """Return what a call was given as Python text by name; of a script, and of a step, the item it was for."""
    given = leaf.parameters or {}
    found: Any = operation_arguments(given)
    if found is None and leaf.type == AGENT_TURN:
        found = {name: given[name] for name in ("agent", "prompt") if name in given}
    if found is None and leaf.item is not None:
        found = {names.variables.get(leaf.step, "item"): leaf.item}
    return None if not found else {str(name): _text(str(name), found[name]) for name in list(found)[:MOST_ARGUMENTS]}


def _text(name: str, value: Any) -> str:
    """Return a value as Python writes it, or in a few words where that cannot be."""
    clean = shared().under(name, value)
    is_plain = isinstance(clean, str | int | float | bool | list | dict | type(None))
    room = max(20, WIDTH - len(name))
    return cut(pprint.pformat(clean, width=room, sort_dicts=False) if is_plain else readable(clean), MOST_ARGUMENT)


def _indented(text: str) -> str:
    return text.replace("\n", "\n      ")


def kept_in(spans: Iterable[Span]) -> str:
    """Return what of a run is safe in its log, in words; nothing is where it was rolled back."""
    spans = list(spans)
    if any(map(is_undoing, spans)):
        return ""
    done = [span for span in spans if is_kept(span)]
    items = sum(span.kind == "item" for span in done)
    return shown_kept(items, len(done) - items)


def is_undoing(span: Span) -> bool:
    """Return whether a span undoes what others have done."""
    return span.path.startswith(catalog.ROLLBACK_PATH)


def is_kept(span: Span) -> bool:
    """Return whether a span is an item or a call that is not made again."""
    is_done = span.status == catalog.COMPLETED and span.kind in ("item", "operation")
    return is_done and span.type not in _NO_CALLS and not span.is_pause


def shown_kept(items: int, calls: int) -> str:
    """Return counts of what is kept in words; an empty text for nothing."""
    told = [plural(items, "item") if items else "", plural(calls, "call") if calls else ""]
    return " and ".join(filter(None, told))


def summary(failures: Sequence[Failure], most: int = 3) -> str:
    """Return many failures in a line: ``3 failed: rows[4321], rows[17] and 1 more``."""
    names = [failure.item or f"step {failure.step}" for failure in failures[:most]]
    more = [f"{len(failures) - most:,} more"] if len(failures) > most else []
    return f"{len(failures):,} failed: {one_line(', '.join([*names, *more]), 200)}" if failures else ""


# The lines of code that recorded failures name. Where code is located is no fact, so comparisons leave them out.
#
# The text of a failure reads ``ZeroDivisionError: division by zero (step a, survey.yaml:7:11)``. Comments, another file
# name, or reading the definition from the log instead of its file change the last part alone.


def place_label(data: Payload) -> str:
    """Return the line that a failure names, such as ``survey.yaml:7:11``; empty if it names none."""
    match data:
        case catalog.OperationFailed():
            place = (data.raised or {}).get("place")
        case catalog.StepFailed() | catalog.IterationFailed():
            place = data.place
        case _:
            return ""
    return str(place.get("label", "")) if isinstance(place, Mapping) else ""


def without_places(error: str, labels: Iterable[str]) -> str:
    """Return the text of a failure without the lines that it names; `labels` are those of the failures before it.

    >>> without_places("ZeroDivisionError: division by zero (step a, survey.yaml:7:11)", ["survey.yaml:7:11"])
    'ZeroDivisionError: division by zero (step a)'
    """
    for label in labels:
        head, mark, advice = error.rpartition(f", {label})")
        error = f"{head}){advice}" if mark else error
    return error
