"""Failures of an execution, read from its log: one record for each failed item and each failed step.

`Run.failure`, frames, reports, the shell, live views and saved runs all show this record
(`tests/projections/test_failures.py`). A step or item often fails because a call inside it failed. The record then
describes the innermost failed call: for the spans ``step parse`` <- ``item parse[3]`` <- ``action read_csv``, each
caused by the next, the record has the arguments, the source line and the traceback of ``read_csv``.
"""

from __future__ import annotations

import ast
import builtins
import pprint
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from divebook.definitions.definition import Workflow
from divebook.engine.operations import AGENT_TURN, CHILD_WORKFLOW, TIMER, operation_arguments
from divebook.errors import StepError
from divebook.events import Event, catalog
from divebook.events.catalog import Payload
from divebook.events.codec import readable
from divebook.events.event import to_datetime
from divebook.projections.spans import Handled, PlaceOf, Span, headline, places_in
from divebook.projections.summary import ReadLog
from divebook.report.hints import advised
from divebook.report.model import Items, Report
from divebook.report.shown import Shown
from divebook.text.format import branch_name, plural
from divebook.text.redaction import cut, one_line, shared

MOST_ARGUMENT = 2_000
MOST_ARGUMENTS = 30
WIDTH = 64
_HANDLED: Mapping[str, str] = {"skipped": "skipped", "kept": "stored as data", "caught": "caught by the workflow"}
"""Words for the values of `Failure.handled`."""
_NO_CALLS = (AGENT_TURN, TIMER)
"""Types of operations that are not calls themselves: turns, which contain calls, and timers."""


@dataclass(frozen=True, slots=True)
class Failure(Shown):
    """Failed item or step, with the error, its cause and its location.

    ``print(run.failure)`` shows the error, its meaning, its location, the arguments and the next step. `lines` and
    `traceback` have the code.
    """

    error_type: str
    """Class name of the error; empty if the log does not contain it."""
    message: str
    step: str
    path: str
    item: str = ""
    """Label of the item of ``Each``, such as ``rows[4321]``; empty for a step without items."""
    iteration: int | None = None
    attempt: int = 1
    """Number of the last attempt."""
    called: str = ""
    """Name of the failed function, action, agent, tool or workflow; empty if the code of the step itself failed."""
    arguments: Mapping[str, str] | None = None
    """Arguments of the failed call by name, as Python text, shortened and without secrets."""
    place: str = ""
    """Location of the failed code: ``Cell [5], line 4``, ``pipeline.py:12`` or ``survey.yaml:7:11``."""
    line: int = 0
    source: tuple[tuple[int, str], ...] = field(default=(), repr=False)
    """Source lines around the location, with their line numbers."""
    cell: str = field(default="", repr=False)
    """Id, in the front end, of the notebook cell with the failed code."""
    traceback: str = field(default="", repr=False)
    """Traceback without frames of divebook, innermost frame last."""
    sequence: int = field(default=0, repr=False)
    """Sequence number of the event that records the failure."""
    failed_us: int = field(default=0, repr=False)
    """Time of the failure in microseconds since 1970; see `failed_at`."""
    span: int = field(default=-1, repr=False)
    """Index of the span of the call, item or step that failed."""
    handled: Handled = ""
    """Reaction of the run: ``skipped``, ``kept`` as data, or ``caught``; empty if the failure ended the path."""
    child: str = ""
    """Id of the child execution in which the error occurred; empty if it occurred in this execution."""

    @property
    def failed_at(self) -> datetime:
        """Time of the failure in UTC."""
        return to_datetime(self.failed_us)

    @property
    def headline(self) -> str:
        """Class and message of the error: ``KeyError: 'b'``."""
        return headline(self.error_type, self.message)

    @property
    def means(self) -> str:
        """Explanation of the error in plain words, such as ``answer has no key 'label'``; empty if none is certain."""
        line = dict(self.source).get(self.line, "")
        return meaning(self.error_type, self.message, self.arguments or {}, line)

    @property
    def where(self) -> str:
        """Location in the workflow: step, item, path, call and attempt, such as ``step parse, rows[1342],
        attempt 2``.
        """
        called = "" if self.called in ("", self.step) else f"call of {self.called}"
        attempt = f"attempt {self.attempt}" if self.attempt > 1 else ""
        step = f"step {self.step}" if self.step else ""
        return ", ".join(filter(None, (step, self.item, branch_name(self.path), called, attempt)))

    @property
    def lines(self) -> str:
        """Source lines around the failed line, with line numbers, as text; the failed line is marked with ``>``."""
        return "\n".join(f"{'>' if n == self.line else ' '} {n:>4}  {text}" for n, text in self.source)

    @property
    def details(self) -> str:
        """Complete failure except the headline, as text: explanation, location, arguments, source lines, traceback."""
        arguments = "\n".join(f"  {name} = {_indented(text)}" for name, text in (self.arguments or {}).items())
        parts = (
            f"means: {self.means}" if self.means else "",
            f"where: {self.where}" if self.where else "",
            f"arguments:\n{arguments}" if arguments else "",
            f"{self.place or 'source'}:\n{self.lines}" if self.lines else self.place,
            f"traceback:\n{self.traceback.rstrip()}" if self.traceback else "",
        )
        return "\n".join(filter(None, parts))

    @property
    def next_step(self) -> str:
        """Advice for a person: how to continue the run, or how the run dealt with the failure."""
        if self.handled:
            return f"nothing to do: the run continued, and the failure was {_HANDLED[self.handled]}"
        way_on = advised("resume", "run.resume()")
        return f"correct the cause, then {way_on} continues the run without repeating the completed steps"

    def report(self) -> Report:
        """Return the error, its meaning, its location, the arguments and the next step."""
        arguments = ", ".join(f"{name} = {one_line(text, WIDTH)}" for name, text in (self.arguments or {}).items())
        facts = {
            "means": self.means,
            "where": ", ".join(filter(None, (self.where, one_line(self.place, WIDTH)))),
            "arguments": arguments,
            "next": self.next_step,
        }
        title, *more = self.headline.splitlines() or [""]
        return Report(title, blocks=(Items((*more, *(f"{name}: {text}" for name, text in facts.items() if text))),))

    def in_words(self) -> str:
        """Return the complete failure as text: the headline and the details."""
        return f"{self.headline}\n{self.details}"


def failures_of(events: Sequence[Event]) -> list[Failure]:
    """Return the failures in the log of an execution, in the order in which the failed items and steps started."""
    spans = ReadLog.of(events).spans
    names = ItemNames.of(events)
    return [failure_of(span, leaf_of(span, spans), names) for span in spans if span.is_failure]


def as_exception(failure: Failure) -> Exception:
    """Return a recorded error as an exception, for ``__cause__``. It has its own class if that is a built-in one that
    takes a message, else it is a `StepError`. Its notes have the location and the traceback.
    """
    error_class = getattr(builtins, failure.error_type, StepError)
    message: Any = failure.message.removeprefix(f"{failure.error_type}: ")
    if error_class is KeyError:
        with suppress(ValueError, SyntaxError):  # the message is the key as Python text
            message = ast.literal_eval(message)
    error: Exception = StepError(failure.headline)
    if isinstance(error_class, type) and issubclass(error_class, Exception) and error_class is not StepError:
        with suppress(TypeError):  # some classes, such as UnicodeDecodeError, need more than a message
            error = error_class(message)
    for note in (failure.where, failure.traceback):
        if note:
            error.add_note(note)
    return error


def failure_in(events: Sequence[Event], error: str) -> Failure:
    """Return the failure that ended an execution. `error` is the error text of its last event.

    If no step or item failed, the failure is built from the event of the failed path.
    """
    # A run may have caught or skipped earlier failures. The last one that it did not handle ended it.
    unhandled = [failure for failure in failures_of(events) if not failure.handled]
    if unhandled:
        return unhandled[-1]
    failure_event = next((event for event in reversed(events) if isinstance(event.data, catalog.PathFailed)), None)
    sequence, moment = (failure_event.sequence, failure_event.recorded_at) if failure_event else (0, 0)
    reason = getattr(failure_event.data, "reason", None) if failure_event else None
    return Failure(
        reason or "", error, "", failure_event.path if failure_event else "", sequence=sequence, failed_us=moment
    )


OPENINGS = (catalog.ExecutionStarted, catalog.ExecutionForked)
"""Events that may contain the definition of the workflow. The definition in the newest event counts."""


class ItemNames(NamedTuple):
    """Labels for the items of steps with ``Each``, taken from the definition of the workflow."""

    place_of: PlaceOf
    # {"parse": "row"}: the name under which an item is shown among the arguments.
    variables: Mapping[str, str]
    """Name of the variable with the current item, by step."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> ItemNames:
        """Return the item labels from the newest definition that a log contains. If it contains none, items are
        labelled with the names of their spans.
        """
        # A fork may have changed the definition, so that the newest one counts.
        for event in reversed(events):
            definition = getattr(event.data, "definition", None) if isinstance(event.data, OPENINGS) else None
            if definition:
                return cls.of_workflow(Workflow.from_dict(definition))
        # A log without a definition was cut, or is that of another system.
        return cls(lambda span: span.name, {})

    @classmethod
    def of_workflow(cls, workflow: Workflow) -> ItemNames:
        """Return the item labels according to the definition of a workflow."""
        variables = {step.name: step.each.as_ for step in workflow.steps if step.each is not None and step.each.as_}
        return cls(places_in(workflow), variables)


def leaf_of(span: Span, spans: Sequence[Span]) -> Span:
    """Return the innermost failed call that caused the failure of a span (a step, item or call in the log). If no call
    caused it, return the span itself.
    """
    # 0 is a valid index, and -1 means that no call caused the failure.
    while 0 <= span.cause < len(spans):
        span = spans[span.cause]
    return span


def failure_of(span: Span, leaf: Span, names: ItemNames) -> Failure:
    """Create the failure record for the span of a failed step or item.

    `leaf` is the innermost span that caused the failure (`leaf_of`). Its parameters and its item must be loaded.
    """
    place = leaf.place or {}
    signal = (leaf.parameters or {}).get("signal")
    first = place.get("first", 1)
    lines = place.get("lines", ())
    return Failure(
        error_type=leaf.error_type or span.error_type or "",
        # The message of the innermost call has no text of the steps around it.
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
        # The arguments and lines are those of this span.
        span=leaf.index,
        handled=span.handled,
        child=str(signal) if leaf.type == CHILD_WORKFLOW and signal else "",
    )


def arguments_of(leaf: Span, names: ItemNames) -> dict[str, str] | None:
    """Return the arguments of a failed call by name, each as Python text. For a script or a step, which have no
    arguments, return the item that it processed.
    """
    parameters = leaf.parameters or {}
    arguments: Any = operation_arguments(parameters)
    # An agent is shown with its prompt, which is its only argument.
    if arguments is None and leaf.type == AGENT_TURN:
        arguments = {name: parameters[name] for name in ("agent", "prompt") if name in parameters}
    if arguments is None and leaf.item is not None:
        arguments = {names.variables.get(leaf.step, "item"): leaf.item}
    if not arguments:
        return None
    first = list(arguments)[:MOST_ARGUMENTS]
    return {str(name): _text(str(name), arguments[name]) for name in first}


def _text(name: str, value: Any) -> str:
    """Return a value as Python source text. If the value has no such form, return a short description of it."""
    # Redaction by name as well: an argument `password` is hidden whatever its value is.
    clean = shared().under(name, value)
    is_plain = isinstance(clean, str | int | float | bool | list | dict | type(None))
    # The width is that of the text behind the name; at least 20 characters for a long name.
    room = max(20, WIDTH - len(name))
    return cut(pprint.pformat(clean, width=room, sort_dicts=False) if is_plain else readable(clean), MOST_ARGUMENT)


def _indented(text: str) -> str:
    # Six spaces: continuation lines are indented below the value.
    return text.replace("\n", "\n      ")


def kept_in(spans: Iterable[Span]) -> str:
    """Describe in words how many completed items and calls a resumed run reuses. Return an empty string after a
    rollback, because it has undone them.
    """
    spans = list(spans)
    if any(map(is_undoing, spans)):
        return ""
    reused = [span for span in spans if is_kept(span)]
    items = sum(span.kind == "item" for span in reused)
    return shown_kept(items, len(reused) - items)


def is_undoing(span: Span) -> bool:
    """Return whether a span (a step, item or call in the log) ran as part of a rollback, which undoes earlier calls."""
    return span.path.startswith(catalog.ROLLBACK_PATH)


def is_kept(span: Span) -> bool:
    """Return whether a span of the log is a completed item or call, whose result a resumed run reuses."""
    is_done = span.status == catalog.COMPLETED and span.kind in ("item", "operation")
    return is_done and span.type not in _NO_CALLS and not span.is_pause


def shown_kept(items: int, calls: int) -> str:
    """Return in words how many items and calls are reused, such as ``2 items and 1 call``; an empty string if both
    numbers are 0.
    """
    parts = []
    if items:
        parts.append(plural(items, "item"))
    if calls:
        parts.append(plural(calls, "call"))
    return " and ".join(parts)


def summary(failures: Sequence[Failure], most: int = 3) -> str:
    """Return one line about several failures: ``3 failed: rows[4321], rows[17] and 1 more``."""
    names = [failure.item or f"step {failure.step}" for failure in failures[:most]]
    more = [f"{len(failures) - most:,} more"] if len(failures) > most else []
    return f"{len(failures):,} failed: {one_line(', '.join([*names, *more]), 200)}" if failures else ""


# --- code locations in the text of a failure -------------------------------------------------------------------------
#
# The text of a failure ends with the location of the code: ``ZeroDivisionError: division by zero (step a,
# survey.yaml:7:11)``. The location changes with a comment above the line, with the name of the file, and when the
# definition is read from the log instead of the file. Comparisons remove it.


def place_label(data: Payload) -> str:
    """Return the code location that a failure event contains, such as ``survey.yaml:7:11``; empty if it
    contains none.
    """
    match data:
        # An operation has the location in the data from which its error is raised again.
        case catalog.OperationFailed():
            place = (data.raised or {}).get("place")
        case catalog.StepFailed() | catalog.IterationFailed():
            place = data.place
        case _:
            return ""
    return str(place.get("label", "")) if isinstance(place, Mapping) else ""


def without_places(error: str, labels: Iterable[str]) -> str:
    """Remove the code locations from an error text, so that errors of two runs can be compared. `labels` are the
    locations of earlier failures in the log.

    >>> without_places("ZeroDivisionError: division by zero (step a, survey.yaml:7:11)", ["survey.yaml:7:11"])
    'ZeroDivisionError: division by zero (step a)'
    """
    for label in labels:
        # The last occurrence: the location stands at the end, and the message may contain the same text.
        head, mark, advice = error.rpartition(f", {label})")
        error = f"{head}){advice}" if mark else error
    return error


# --- explanations of common errors -----------------------------------------------------------------------------------
#
# An explanation is returned only if the class and the message of an error leave no doubt. The arguments of a call are
# Python literals in the log. They are parsed with `ast.literal_eval` and never evaluated.
# (`tests/projections/test_meanings.py`)


MOST_KEYS = 8
VALUE_WIDTH = 60
_TRY_AGAIN = "Continue the run to try again."


class ErrorFacts(NamedTuple):
    """Facts about an error (message, arguments, source line), from which the functions of this module explain it."""

    message: str
    """Message of the error, without the name of its class."""
    arguments: Mapping[str, str]
    """Arguments of the failed call by name, as Python text."""
    line: str
    """Source line that raised the error."""


def meaning(error_type: str, message: str, arguments: Mapping[str, str], line: str) -> str:
    """Return an explanation of an error in plain words; an empty string if no explanation is certain.

    >>> meaning("KeyError", "'label'", {"answer": "{'kind': 'bill'}"}, 'return answer["label"]')
    "answer has no key 'label'. It has: kind."
    """
    # "KeyError: 'b'" -> "'b'".
    facts = ErrorFacts(message.removeprefix(error_type).removeprefix(": "), arguments, line)
    # An `AttributeError` or `TypeError` about None is explained without its class being listed.
    explain = _MEANINGS.get(error_type, _of_none)
    return explain(facts)


def _of_key(facts: ErrorFacts) -> str:
    """Return an explanation of a `KeyError`: the dict that was accessed, and the keys that it has. Return an empty
    string if they are not known.

    The message of a KeyError contains the key. The source line may contain ``name[index]``, and the arguments the
    value of ``name``. If the value is a dict without that key, the text names the dict and its keys.
    """
    # The message of a `KeyError` is the `repr` of the key.
    key = _literal(facts.message)
    if not isinstance(key, str | int):
        return ""
    # `answer["label"]`, `rows[i]`: names with a simple index. Nested brackets are not matched.
    for name, index in re.findall(r"\b(\w+)\[([^\[\]]+)\]", facts.line):
        value = _literal(facts.arguments.get(name, ""))
        if isinstance(value, dict) and key not in value and _literal(index.strip()) == key:
            keys = one_line(", ".join(map(str, [*value][:MOST_KEYS])), 200)
            more = f" and {len(value) - MOST_KEYS:,} more" if len(value) > MOST_KEYS else ""
            contents = f"It has: {keys}{more}." if value else "It is empty."
            return f"{name} has no key {key!r}. {contents}"
    # A line with `raise` has raised the error itself, and perhaps with another meaning.
    is_looked_up = facts.line != "" and not re.search(r"\braise\b", facts.line)
    return f"The key {_short(key)} does not exist in the mapping that was read." if is_looked_up else ""


def _of_zero(facts: ErrorFacts) -> str:
    divided = re.findall(r"[/%]\s*([A-Za-z_]\w*)", facts.line)
    # The arguments are Python text, so that zero is one of these three.
    zero = next((name for name in divided if facts.arguments.get(name) in ("0", "0.0", "False")), "")
    return (
        f"A number was divided by zero: {zero} is {facts.arguments[zero]}." if zero else "A number was divided by zero."
    )


def _of_module(facts: ErrorFacts) -> str:
    match = re.fullmatch(r"No module named '([\w.]+)'", facts.message)
    if match is None:
        return ""
    advice = "Install the package that contains it (%pip install ...), then continue."
    return f"Python does not find the module {match[1]}. {advice}"


def _of_file(facts: ErrorFacts) -> str:
    # `repr` uses double quotes for a name that contains a single one.
    match = re.search(r"No such file or directory: ('.*'|\".*\")$", facts.message)
    name = _literal(match[1]) if match else None
    if not isinstance(name, str):
        return ""
    # A relative path depends on the working directory.
    place = "" if name.startswith(("/", "~")) else " in the working directory of the call"
    return f"There is no file or folder {_short(name)}{place}."


def _of_none(facts: ErrorFacts) -> str:
    return "A value is None, but the code expected another value." if "'NoneType' object" in facts.message else ""


def _always(text: str) -> Callable[[ErrorFacts], str]:
    return lambda _: text


def _if_matches(pattern: str, text: str) -> Callable[[ErrorFacts], str]:
    return lambda facts: text if re.search(pattern, facts.message) else _of_none(facts)


_UNREACHABLE = f"The server could not be reached. {_TRY_AGAIN}"
_MEANINGS: Mapping[str, Callable[[ErrorFacts], str]] = {
    "KeyError": _of_key,
    "ZeroDivisionError": _of_zero,
    "ModuleNotFoundError": _of_module,
    "FileNotFoundError": _of_file,
    "IndexError": _if_matches(
        r"(list|tuple|string) index out of range", "The sequence has fewer elements than the index requires."
    ),
    "JSONDecodeError": _if_matches(r"char 0\)$", "The text is empty, or it is not JSON."),
    "RecursionError": _always("A function calls itself endlessly."),
    "PermissionError": _always("The operating system does not allow this access."),
    "ConnectionError": _always(_UNREACHABLE),
    "ConnectionRefusedError": _always(_UNREACHABLE),
    "ConnectError": _always(_UNREACHABLE),
    "TimeoutError": _always(f"No answer came in time. {_TRY_AGAIN}"),
}


def _literal(text: str) -> Any:
    """Parse a text as a Python literal; return None if the text is not a literal, for example because it was cut
    off.
    """
    try:
        return ast.literal_eval(text)
    # These are the errors of `literal_eval` for text that is not a literal, too long, or too deeply nested.
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _short(value: Any) -> str:
    return one_line(repr(value), VALUE_WIDTH)
