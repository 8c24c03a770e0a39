"""What a feed reads besides spans: the header's numbers, the questions, the workflow's graph; plain data only."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, cast

from divebook.agents.limits import TURNSTILES
from divebook.engine.bounds import NANODOLLARS, spent_of
from divebook.engine.state import ExecutionState
from divebook.engine.waiting import awaited_signals
from divebook.errors import ExecutionNotFoundError
from divebook.events import Event
from divebook.events.catalog import ENQUEUED
from divebook.events.codec import encode_shown
from divebook.events.event import to_datetime, to_microseconds
from divebook.execution.dashboards import DASHBOARDS
from divebook.execution.execution import Execution
from divebook.execution.streaming import TextListener
from divebook.history.failures import ItemNames
from divebook.questions import InterruptKind, InterruptStatus, Question
from divebook.questions.wording import answer_in_words, became
from divebook.store.durability import RELAXED
from divebook.text.commands import in_notebook
from divebook.text.cuts import cut, one_line
from divebook.text.redaction import shared
from divebook.text.times import local_time
from divebook.widgets.changed_files import FilesReader
from divebook.widgets.commands import commands_of
from divebook.widgets.protocol.failures import Way
from divebook.widgets.protocol.files import WorkspaceView
from divebook.widgets.protocol.questions import QuestionView
from divebook.widgets.protocol.run import Durability, Gauge, Graph, GraphEdge, GraphStep, Header
from divebook.widgets.protocol.variables import VariableView
from divebook.widgets.variables import Setters, VariableReader
from divebook.workflow.definition import Workflow
from divebook.workflow.json_schemas import load
from divebook.workflow.pipeline_steps import hidden_in, visible_steps

MAX_ERROR = 2000
MAX_ANSWER = 400
MAX_NAME = 120
MAX_EXACT = 2**53
"""Larger whole numbers are not exact in browsers, and are sent as texts."""
MAX_DIGITS = 17
"""A sign and the digits of such a number; longer ones are not read."""
NO_QUESTION = "The engine asks how to go on."


def _no_ways(_header: Header, _kept: str) -> list[Way]:
    return []


@dataclass(frozen=True, slots=True)
class Source:
    """Where the parts of a view come from; every function may be called from any thread."""

    header: Callable[[], Header]
    questions: Callable[[], Sequence[QuestionView]]
    graph: Graph
    read: Callable[[int, int], list[Event]]
    """Events after a sequence number, at most so many."""
    total: Callable[[], int]
    """How many events there are by now."""
    subscribe: Callable[[Callable[[Sequence[Event]], None]], Callable[[], None]]
    subscribe_text: Callable[[TextListener], Callable[[], None]]
    variables: Callable[[Setters], list[VariableView]]
    files: Callable[[int, int], list[WorkspaceView]]
    """The files that were changed by an event, or by now where that is 0."""
    question_id: Callable[..., str]
    """What the id of a question about something is."""
    names: ItemNames
    """What items are called."""
    ways: Callable[[Header, str], list[Way]] = _no_ways
    """What can be done about a failure, by the header and what is kept; asked for now and then, for no event tells of
    edits."""


def source_of(execution: Execution) -> Source:
    """Return what a view of an execution is made of."""

    def read(after: int, limit: int) -> list[Event]:
        try:
            return execution.store.read(execution.id, after, limit)
        except ExecutionNotFoundError:  # its first event is still to come
            return []

    variables, hidden = VariableReader(execution.workflow, shared()), hidden_in(execution.workflow)

    def question_id(*about: object) -> str:
        return execution.state.question_id(*about)

    return Source(
        header=lambda: header_of(execution if execution.is_live else execution.refresh()),
        questions=lambda: [question_of(asked, hidden) for asked in execution.asked.values()],
        graph=graph_of(execution.workflow),
        read=read,
        total=lambda: len(execution.history()),
        subscribe=partial(heard, execution),
        subscribe_text=partial(execution.subscribe_text, parts=True),
        variables=lambda setters: variables.of(execution.state, setters),
        files=FilesReader(execution, shared()).of,
        question_id=question_id,
        names=ItemNames.of_workflow(execution.workflow),
    )


def heard(execution: Execution, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
    """Call a listener with what is appended from now on; with nothing where another process may have appended.

    Call what is returned to end it.
    """
    ends = [execution.subscribe(listener)]
    if execution.store.shared and not execution.is_live and not execution.state.is_over:
        ends.append(execution.store.on_news(lambda: listener(()), execution.id))

    def end() -> None:
        for each in ends:
            each()

    return end


def header_of(execution: Execution) -> Header:
    """Return the numbers of an execution as they stand."""
    state, usage = execution.state, execution.usage
    driven_by = None if state.is_over else execution.driven_by
    return Header(
        execution_id=execution.id,
        workflow=one_line(execution.workflow.name, MAX_NAME),
        status=state.shown_status,
        live=execution.is_live or driven_by is not None,
        error=one_line(state.error or "", MAX_ERROR),
        started_us=_micros(state.started_at),
        ended_us=_micros(state.ended_at),
        now_us=time.time_ns() // 1000,
        model_calls=usage.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost=usage.cost / NANODOLLARS if usage.cost else None,
        tool_calls=0,
        spenders=[],
        gauges=gauges_of(state),
        doing="worked",
        since_us=None,
        worked_us=0,
        waited_us=0,
        paused_us=0,
        stretches=[],
        progress=[],
        durability=durability_of(execution),
        commands=commands_of(execution, driven_by),
        failed=0,
        ways=[],
        workspaces=len(state.workspaces),
        waits=waits_of(execution, driven_by),
        dashboards=DASHBOARDS.of(execution.id) if execution.is_live else [],
    )


def waits_of(execution: Execution, driven_by: str | None = None) -> str:
    """Return where it goes on, what holds it up, its providers included, and what to type for signals it waits for."""
    state = execution.state
    held_up = execution.held_up if driven_by is None else f"goes on in {driven_by}"
    if state.status == ENQUEUED:
        due = "" if state.due_us is None else f", from {local_time(to_datetime(state.due_us))} on"
        held_up = f"waits in the queue {one_line(state.queue or '', MAX_NAME)} for a worker{due}"
    signals = [] if state.is_over else awaited_signals(state)
    waits = [f"waits for {awaited}: {in_notebook('signal', [execution.id, awaited.name])}" for awaited in signals]
    asks_models = execution.is_live and execution.state.ledger.llm_calls
    limits = [str(standing) for standing in TURNSTILES.standings()] if asks_models else []
    return "; ".join([*([] if held_up is None else [held_up]), *limits, *waits])


def durability_of(execution: Execution) -> Durability:
    """Return what a crash can take from an execution: nothing, the latest events, or everything."""
    store = execution.store
    if not store.keeps:
        return "memory"
    return "relaxed" if (execution.durability or store.durability) == RELAXED else "durable"


def gauges_of(state: ExecutionState) -> list[Gauge]:
    """Return how much of each bound is spent."""
    return [
        Gauge(name=spent.name, spent=round(float(spent.amount), 6), limit=float(spent.limit), unit=spent.unit)
        for spent in spent_of(state)
    ]


@cache
def load_soon() -> None:
    """Load what checks answers on a thread of its own, so that the first answer does not wait for that."""
    threading.Thread(target=load, name="divebook-schemas", daemon=True).start()


def question_of(asked: Question, hidden: Container[str] = ()) -> QuestionView:
    """Return a question of the engine as views know it; of a step that is `hidden` without its name."""
    if asked.is_open and asked.schema is not None:
        load_soon()  # somebody is about to answer (test_what_checks_answers_is_loaded_while_a_person_reads)
    return QuestionView(
        interrupt_id=asked.interrupt_id,
        kind=cast("InterruptKind", asked.kind),
        question=encodable(asked.question or NO_QUESTION),
        message=encodable(asked.message or ""),
        path=asked.path,
        step="" if asked.step in hidden else asked.step,
        data=shown(asked.data or {}),
        schema=None if asked.schema is None else shown(asked.schema),
        raised_us=asked.raised_us,
        expires_us=asked.expires_us,
        required=not asked.optional,
        status=cast("InterruptStatus", asked.status),
        response=shown(asked.response),
        answered_by=asked.answered_by,
        answered_us=asked.settled_us,
        became=_said(became(asked.status, asked.response)),
        fallback="" if asked.default is None else _said(answer_in_words(asked.default)),
    )


def _said(words: str) -> str:
    return encodable(cut(words, MAX_ANSWER))


def graph_of(workflow: Workflow) -> Graph:
    """Return the steps of a workflow and the ways between them; of a pipeline its stages."""
    shown_steps = visible_steps(workflow)
    steps = [GraphStep(name=step.name, type=step.type, each=step.each is not None) for step in shown_steps]
    edges = [
        GraphEdge(source=step.name, target=edge.step, kind="next", condition=one_line(edge.condition or "", 200))
        for step in shown_steps
        for edge in step.edges
    ]
    edges += [
        GraphEdge(source=step.name, target=policy.step, kind="catch", condition="")
        for step in shown_steps
        for policy in step.catch
    ]
    return Graph(steps=steps, edges=edges)


def shown(value: Any) -> Any:
    """Return recorded data as JSON that a browser reads exactly; frames and the like become a few words."""
    return json.loads(encode_shown(value), parse_int=_exact)


def _exact(digits: str) -> int | str:
    """Return a whole number as it was written if it is too large to be exact."""
    number = int(digits) if len(digits) <= MAX_DIGITS else MAX_EXACT + 1
    return number if abs(number) <= MAX_EXACT else digits


def encodable(text: str) -> str:
    """Return a text that can be sent: halves of characters become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_microseconds(moment)
