"""What a feed reads besides spans: the header's numbers, the questions, the workflow's graph; plain data only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from divebook.analysis.shown import one_line
from divebook.engine.state import Interrupt
from divebook.errors import ExecutionNotFoundError
from divebook.events import Event
from divebook.events.catalog import RUNNING, WAITING
from divebook.events.codec import encode
from divebook.events.event import to_microseconds
from divebook.execution import Execution
from divebook.store import MemoryStore
from divebook.widgets.protocol import Command, Durability, Graph, GraphEdge, GraphStep, Header, Question
from divebook.workflow.definition import Workflow

MAX_ERROR = 2000
NO_QUESTION = "The engine asks how to go on."


@dataclass(frozen=True, slots=True)
class Source:
    """Where the parts of a view come from; every function may be called from any thread."""

    header: Callable[[], Header]
    questions: Callable[[], Sequence[Question]]
    graph: Graph
    read: Callable[[int, int], list[Event]]
    """Events behind a sequence number, at most so many."""
    subscribe: Callable[[Callable[[Sequence[Event]], None]], Callable[[], None]]


def source_of(execution: Execution) -> Source:
    """Return what a view of an execution is made of."""

    def read(after: int, limit: int) -> list[Event]:
        try:
            return execution.store.read(execution.id, after, limit)
        except ExecutionNotFoundError:  # its first event is still to come
            return []

    return Source(
        header=lambda: header_of(execution),
        questions=lambda: [question_of(asked) for asked in execution.state.interrupts.values()],
        graph=graph_of(execution.workflow),
        read=read,
        subscribe=execution.subscribe,
    )


def header_of(execution: Execution) -> Header:
    """Return the numbers of an execution as they stand."""
    state, usage = execution.state, execution.usage
    return Header(
        execution_id=execution.id,
        workflow=one_line(execution.workflow.name, 120),
        status=state.status,
        live=execution.is_live,
        error=one_line(state.error or "", MAX_ERROR),
        started_us=_micros(state.started_at),
        ended_us=_micros(state.ended_at),
        now_us=time.time_ns() // 1000,
        model_calls=usage.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost=None,
        gauges=[],
        durability=durability_of(execution),
        commands=commands_of(execution),
    )


def durability_of(execution: Execution) -> Durability:
    """Return what a crash can take from an execution: nothing, the latest events, or everything."""
    if isinstance(execution.store, MemoryStore):
        return "memory"
    return "relaxed" if getattr(execution.store, "durability", "full") == "relaxed" else "durable"


def commands_of(execution: Execution) -> list[Command]:
    """Return what a person can ask of an execution now."""
    if execution.is_live:
        return ["pause", "cancel"]
    if execution.status == "completed":
        return []
    return ["resume", "cancel"] if execution.status in (RUNNING, WAITING) else ["resume"]


def question_of(asked: Interrupt) -> Question:
    """Return a question of the engine as views know it."""
    return Question(
        interrupt_id=asked.interrupt_id,
        kind=asked.kind,  # type: ignore[typeddict-item]
        question=asked.question or NO_QUESTION,
        message="",
        path=asked.path,
        step=asked.step,
        data=_plain(asked.data or {}),
        schema=None,
        raised_us=asked.raised_us,
        expires_us=None,
        required=True,
        status="completed" if asked.status == "completed" else "pending",
        response=_plain(asked.response),
        answered_by=None,
    )


def graph_of(workflow: Workflow) -> Graph:
    """Return the steps of a workflow and the ways between them."""
    steps = [GraphStep(name=step.name, type=step.type, each=step.each is not None) for step in workflow.steps]
    edges = [
        GraphEdge(source=step.name, target=edge.step, kind="next", condition=one_line(edge.condition or "", 200))
        for step in workflow.steps
        for edge in step.edges
    ]
    edges += [
        GraphEdge(source=step.name, target=policy.step, kind="catch", condition="")
        for step in workflow.steps
        for policy in step.catch
    ]
    return Graph(steps=steps, edges=edges)


def _plain(value: Any) -> Any:
    return json.loads(encode(value))


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_microseconds(moment)
