"""An execution on stdout, for people or as JSON, and the exit code it means."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from rich.text import Text

from divebook.cli.questions import awaited_signals_of
from divebook.cli.screen import columns, note, say, section, status_text, write
from divebook.cli.text import as_json, one_line, pairs, secrets, shown
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.records import Usage
from divebook.engine.state import PathState
from divebook.errors import StoreError
from divebook.events import Event, catalog
from divebook.events.codec import event_to_dict
from divebook.execution.execution import Execution
from divebook.history.course import course_of
from divebook.history.failures import summary
from divebook.store.durability import RELAXED
from divebook.text.durations import between
from divebook.text.shown import branch_name, price, visible
from divebook.text.times import json_time, local_clock, local_time, local_zone
from divebook.workflow.pipeline_steps import hidden_in

EXIT_CODES = {catalog.COMPLETED: 0, catalog.FAILED: 1, catalog.WAITING: 3, catalog.CANCELLED: 130}
_CELL = 120


def print_result(execution: Execution, *, json: bool) -> int:
    """Print how a run ended; return the exit code."""
    secrets.learn(execution.state.inputs, execution.state.variables)
    if json:
        write(as_json(facts(execution), indent=2))
    else:
        _print_heading(execution)
        section("outputs", pairs(execution.state.outputs))
        if not execution.workflow.outputs:
            section("variables", pairs(_variables(execution)))
            section("output of the last step", pairs(last_outputs(execution)))
        section("questions", _questions(execution))
        section("waits for", _signals(execution))
        _print_error(execution)
    return EXIT_CODES.get(execution.status, 1)


def print_details(execution: Execution, *, json: bool, events: bool, damage: Exception | None = None) -> None:
    """Print all there is to know of an execution."""
    secrets.learn(execution.state.inputs, execution.state.variables)
    if json:
        history = {"events": [event_to_dict(event) for event in execution.history()]} if events else {}
        paths = [path.to_dict() for path in execution.paths.values()]
        fault = {"damage": str(damage)} if damage is not None else {}
        write(as_json({**facts(execution), "paths": paths, **history, **fault}, indent=2))
        return
    _print_heading(execution)
    section("inputs", pairs(execution.state.inputs))
    section("outputs", pairs(execution.state.outputs))
    section("variables", pairs(_variables(execution)))
    section("usage", _usage(execution.usage))
    say(Text("branches", "bold"))
    columns(
        ("branch", "status", "step", "took"),
        [_path_cells(path, hidden_in(execution.workflow)) for path in execution.paths.values()],
    )
    section("questions", _questions(execution))
    section("waits for", _signals(execution))
    _print_error(execution)
    if events:
        _print_events(execution)


def _usage(usage: Usage) -> list[tuple[str, str]]:
    """Return what models consumed, in words; empty where none was asked."""
    told = {name.replace("_", " "): f"{value:,}" for name, value in usage.to_dict().items()}
    return [*(told | ({"cost": price(usage.cost / NANODOLLARS)} if usage.cost else {})).items()]


def _path_cells(path: PathState, hidden: Container[str]) -> tuple[Text | str, ...]:
    took, step = between(path.started_at, path.ended_at), "" if path.current_step in hidden else path.current_step
    return branch_name(path.id) or path.id, status_text(path.status), one_line(step), took


def facts(execution: Execution) -> dict[str, Any]:
    """Return what ``--json`` prints of an execution."""
    return {
        "id": execution.id,
        "workflow": execution.workflow.name,
        "status": execution.status,
        "error": execution.error,
        "failure": None if (failure := execution.failure) is None else asdict(failure),
        "inputs": dict(execution.state.inputs),
        "outputs": dict(execution.state.outputs),
        "variables": _variables(execution),
        "last_output": last_outputs(execution),
        "usage": execution.usage.to_dict(),
        "durability": _durability(execution),
        "signals": [awaited.name for awaited in awaited_signals_of(execution)],
        "questions": {question.id: question.question for question in execution.interrupts},
        "started_at": json_time(execution.started_at),
        "ended_at": json_time(execution.ended_at),
    }


def _variables(execution: Execution) -> dict[str, Any]:
    """Return the variables in their recorded form, which is shown without being opened."""
    return dict(sorted(execution.state.variables.items()))


def _print_heading(execution: Execution) -> None:
    took = _times(execution)
    say(status_text(execution.status), one_line(execution.workflow.name), execution.id, took)
    started = local_time(execution.started_at)
    if started and not took:
        say(f"started {started}")
    if _durability(execution) == RELAXED:
        say("durability: relaxed")


def _times(execution: Execution) -> str:
    """Return how long it took; where it waited for people, or rested, that apart, for which its log is read."""
    if execution.started_at is not None and execution.state.paused_us and execution.damage is None:
        return ", ".join(course_of(execution.history()).times)
    return between(execution.started_at, execution.ended_at)


def _durability(execution: Execution) -> str:
    return execution.store.record(execution.id).durability


def _print_error(execution: Execution) -> None:
    if execution.error and execution.status == catalog.FAILED:
        note(f"error: {execution.error}", "bold red")
        with suppress(StoreError):  # of a damaged log its beginning is shown
            failure, failures = execution.failure, execution.failures
            told = [] if failure is None else failure.details.splitlines()
            for line in [*told, *([summary(failures)] if len(failures) > 1 else [])]:
                note(f"  {line}")


def last_outputs(execution: Execution) -> dict[str, str]:
    """Return what the last step of each path put out, by step, where it is stored in no variable."""
    stored = {step.name for step in execution.workflow.steps if step.store}
    ends = [path for path in execution.paths.values() if path.status == catalog.COMPLETED and not path.children]
    told = {path.last_step: path.step_outputs.get(path.last_step, "") for path in ends if path.last_step is not None}
    return {step: text for step, text in told.items() if text and step not in stored}


def _signals(execution: Execution) -> list[tuple[str, str]]:
    return [(one_line(awaited.step), str(awaited)) for awaited in awaited_signals_of(execution)]


def _questions(execution: Execution) -> list[tuple[str, str]]:
    return [(question.id, visible(question.question)) for question in execution.interrupts]


def _print_events(execution: Execution) -> None:
    say(Text("events", "bold"))
    events = execution.history()
    rows = [_event_cells(event) for event in events]
    time = f"time ({local_zone(events[0].timestamp)})" if events else "time"
    columns(("#", time, "path", "step", "type", "data"), rows, whole=("#", time, "type"))


def _event_cells(event: Event) -> tuple[str, ...]:
    time = local_clock(event.timestamp)
    data = one_line(shown(event.data.to_data()), _CELL)
    return str(event.sequence), time, event.path, one_line(event.step, 40), event.event_type, data
