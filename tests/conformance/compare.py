"""What was observed against what is expected: one function per key of `expect`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.conformance.outcome import Evaluation, ObservedEvent, Outcome

NEWER_EVENTS = frozenset(
    {
        "condition_evaluated",
        "execution_cancelled",
        "execution_resumed",
        "iteration_completed",
        "iteration_started",
        "path_cancelled",
        "path_joined",
        "path_waiting",
    }
)
"""Types that the catalogue of the case files never emitted."""

OLD_PARAMETERS = {
    "agent_response": ("agent", "prompt"),
    "action_execution": ("action_name", "params"),
    "script_execution": ("script",),
}
"""The parameters that enter an operation's old id, by its type. Other operations (a script's clock, say) are newer."""

REMARKS = frozenset({"events_note"})
"""Keys of `expect` that are prose."""

UNKNOWN_KEY = "<this runner does not know that key>"

ENVELOPE_KEYS = ("path", "step")
"""Keys of a payload check that name a field of the event itself."""


class Difference(NamedTuple):
    """One place where a case was not met."""

    key: str
    expected: Any
    got: Any


Differences = Iterator[Difference]


def compare_outcome(expect: Mapping[str, Any], outcome: Outcome) -> list[Difference]:
    """Return every difference; a key nobody knows is one."""
    found: list[Difference] = []
    for key, expected in expect.items():
        if key in REMARKS:
            continue
        check = _CHECKS.get(key)
        found += [Difference(key, expected, UNKNOWN_KEY)] if check is None else check(expected, outcome)
    return found


def compare_evaluation(expect: Mapping[str, Any], evaluation: Evaluation) -> list[Difference]:
    """Return every difference between an expected and an observed value, text or error."""
    found: list[Difference] = []
    for key, expected in expect.items():
        if key == "error":
            met, got = bool(expected) == (evaluation.error is not None), evaluation.error
        elif key == "error_contains":
            met, got = contains(evaluation.error, expected), evaluation.error
        elif key == "non_empty":
            met, got = evaluation.error is None and bool(evaluation.value), _shown(evaluation)
        elif key in ("value", "text"):
            met, got = evaluation.error is None and same(expected, evaluation.value), _shown(evaluation)
        else:
            met, got = False, UNKNOWN_KEY
        if not met:
            found.append(Difference(key, expected, got))
    return found


def same(expected: Any, got: Any) -> bool:
    """Whether two values are the same JSON; True is not 1, while 2 and 2.0 are one number."""
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return expected.keys() == got.keys() and all(same(value, got[key]) for key, value in expected.items())
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        return len(expected) == len(got) and all(map(same, expected, got))
    return bool(expected == got)


def old_catalogue(events: Sequence[ObservedEvent]) -> list[ObservedEvent]:
    """Return the events that the system of the case files emitted: of its types, and of its types of operation."""
    return [event for event in events if event.event_type not in NEWER_EVENTS and _is_old_operation(event)]


def _is_old_operation(event: ObservedEvent) -> bool:
    return event.data.get("operation_type", "agent_response") in OLD_PARAMETERS


def _shown(evaluation: Evaluation) -> Any:
    return evaluation.value if evaluation.error is None else f"error: {evaluation.error}"


def contains(text: str | None, part: str) -> bool:
    return text is not None and part in text


def _status(expected: Any, outcome: Outcome) -> Differences:
    if outcome.status != expected:
        yield Difference("status", expected, outcome.status + (f" ({outcome.error})" if outcome.error else ""))


def _error_contains(expected: Any, outcome: Outcome) -> Differences:
    if not contains(outcome.error, expected):
        yield Difference("error_contains", expected, outcome.error)


def _stats(expected: Mapping[str, Any], outcome: Outcome) -> Differences:
    yield from _listed("stats", expected, outcome.stats)


def _non_empty(expected: str | Sequence[str], outcome: Outcome) -> Differences:
    """Check that something stands in each place: ``outputs``, ``state.result``, or ``result`` of the variables."""
    for name in [expected] if isinstance(expected, str) else expected:
        head, *rest = name.split(".")
        value = getattr(outcome, head, None) if hasattr(outcome, head) else outcome.state.get(head)
        for part in rest:
            value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
        if not value:
            yield Difference(f"non_empty.{name}", "something", value)


def _whole(key: str, observed: Callable[[Outcome], Any]) -> Callable[[Any, Outcome], Differences]:
    """Make a check that wants exactly the expected value."""

    def check(expected: Any, outcome: Outcome) -> Differences:
        got = observed(outcome)
        if not same(expected, got):
            yield Difference(key, expected, got)

    return check


def _paths(expected: Mapping[str, Mapping[str, Any]], outcome: Outcome) -> Differences:
    if expected.keys() != outcome.paths.keys():
        yield Difference("paths", sorted(expected), sorted(outcome.paths))
    for path_id in expected.keys() & outcome.paths.keys():
        yield from _listed(f"paths.{path_id}", expected[path_id], outcome.paths[path_id])


def _listed(key: str, expected: Mapping[str, Any], got: Mapping[str, Any]) -> Differences:
    """Compare the listed keys only."""
    for name, value in expected.items():
        if not same(value, got.get(name)):
            yield Difference(f"{key}.{name}", value, got.get(name))


def _usage(expected: Mapping[str, Any], outcome: Outcome) -> Differences:
    yield from _listed("usage", expected, {**dict.fromkeys(expected, 0), **outcome.usage})


def _agent_calls(expected: Sequence[Mapping[str, Any]], outcome: Outcome) -> Differences:
    calls = list(outcome.agent_calls)
    if len(expected) != len(calls):
        yield Difference("agent_calls", expected, calls)
        return
    for index, wanted in enumerate(expected):
        found = _take(calls, wanted, anywhere=len(outcome.paths) > 1)
        if not found:
            yield Difference(f"agent_calls[{index}]", wanted, list(outcome.agent_calls))
            return


def _take(calls: list[Mapping[str, Any]], wanted: Mapping[str, Any], *, anywhere: bool) -> bool:
    """Remove the next call (or one anywhere) that has what is wanted; say whether there was one."""
    for index in range(len(calls) if anywhere else 1):
        if not any(_listed("call", wanted, calls[index])):
            del calls[index]
            return True
    return False


def _in_order_of_path(key: str, observed: Callable[[Outcome], Sequence[str]]) -> Callable[[Any, Outcome], Differences]:
    """Make a check of a list of texts whose order counts only if there was one path."""

    def check(expected: Sequence[str], outcome: Outcome) -> Differences:
        got = list(observed(outcome))
        met = list(expected) == got if len(outcome.paths) < 2 else sorted(expected) == sorted(got)
        if not met:
            yield Difference(key, list(expected), got)

    return check


def _documents(expected: Mapping[str, str], outcome: Outcome) -> Differences:
    """Compare the listed documents; others may only be those that were there before."""
    wanted = {**outcome.initial_documents, **expected}
    if not same(wanted, outcome.documents):
        yield Difference("documents", wanted, outcome.documents)


def _types(events: Sequence[ObservedEvent]) -> list[str]:
    return [event.event_type for event in old_catalogue(events)]


def _events_by_path(expected: Mapping[str, list[str]], outcome: Outcome) -> Differences:
    got: dict[str, list[ObservedEvent]] = {}
    for event in outcome.events:
        got.setdefault(event.path, []).append(event)
    for path in sorted(expected.keys() | got.keys()):
        wanted, types = expected.get(path, []), _types(got.get(path, []))
        if wanted != types:
            yield Difference(f"events_by_path[{path!r}]", wanted, types)


def _required_events(expected: Sequence[str], outcome: Outcome) -> Differences:
    missing = sorted(set(expected) - {event.event_type for event in outcome.events})
    if missing:
        yield Difference("required_events", missing, [event.event_type for event in outcome.events])


def _has(wanted: Any, got: Any) -> bool:
    """Whether a payload has what is wanted: of mappings the listed keys, also inside others."""
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        return all(_has(value, got.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list | tuple) and isinstance(got, list | tuple):
        return len(wanted) == len(got) and all(map(_has, wanted, got))
    return same(wanted, got)


def _event_payload_checks(expected: Mapping[str, Mapping[str, Any]], outcome: Outcome) -> Differences:
    for event_type, wanted in expected.items():
        candidates = [_flat(event) for event in outcome.events if event.event_type == event_type]
        if not any(_has(wanted, candidate) for candidate in candidates):
            yield Difference(f"event_payload_checks.{event_type}", wanted, candidates)


def _flat(event: ObservedEvent) -> dict[str, Any]:
    return {**event.data, **{key: getattr(event, key) for key in ENVELOPE_KEYS}}


_CHECKS: Mapping[str, Callable[[Any, Outcome], Differences]] = {
    "status": _status,
    "error_contains": _error_contains,
    "stats": _stats,
    "non_empty": _non_empty,
    "state": _whole("state", lambda outcome: outcome.state),
    "outputs": _whole("outputs", lambda outcome: outcome.outputs),
    "effective_inputs": _whole("effective_inputs", lambda outcome: outcome.inputs),
    "status_sequence": _whole("status_sequence", lambda outcome: list(outcome.status_sequence)),
    "paths": _paths,
    "usage": _usage,
    "agent_calls": _agent_calls,
    "operation_ids": _in_order_of_path("operation_ids", lambda outcome: outcome.operation_ids),
    "printed": _in_order_of_path("printed", lambda outcome: outcome.printed),
    "documents": _documents,
    "events": _whole("events", lambda outcome: _types(outcome.events)),
    "events_by_path": _events_by_path,
    "required_events": _required_events,
    "event_count": _whole("event_count", lambda outcome: len(_types(outcome.events))),
    "event_payload_checks": _event_payload_checks,
}
