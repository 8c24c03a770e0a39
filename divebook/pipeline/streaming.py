"""What stages put out, one after the other, read from the log of an execution while it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from divebook.events import Event, catalog
from divebook.execution.execution import Execution
from divebook.history.spans import Span, Spans
from divebook.workflow.definition import Workflow
from divebook.workflow.pipeline_steps import BATCH, NAME, PART, RUN

LAST = "__end__"
"""What comes after the last stage."""


@dataclass(frozen=True, slots=True)
class StageOutput:
    """What one stage put out; after the last comes one named ``__end__``, which says whether it was terminated."""

    stage: str
    output: dict[str, Any]


async def outputs_of(execution: Execution) -> AsyncGenerator[StageOutput, None]:
    """Start an execution and yield what its stages put out, until it ends or waits for an answer."""
    reader = _Reader(execution.workflow)
    async with aclosing(_events_of(execution)) as batches:
        async for events in batches:
            for output in reader.read(events):
                yield output


async def _events_of(execution: Execution) -> AsyncGenerator[Sequence[Event], None]:
    """Start an execution and yield its events as they are committed."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Queue[Sequence[Event] | None]()

    def tell(events: Sequence[Event] | None) -> None:
        loop.call_soon_threadsafe(arrived.put_nowait, events)

    async def drive() -> None:
        try:
            await execution
        finally:
            arrived.put_nowait(None)

    unsubscribe = execution.subscribe(tell)
    execution.start()
    driving = asyncio.create_task(drive())
    last = 0
    try:
        while (events := await arrived.get()) is not None:
            last = events[-1].sequence
            yield events
        await driving
        if left := execution.history(after=last):
            yield left
    finally:
        unsubscribe()
        driving.cancel()


class _Reader:
    """Finds the outputs of stages among events."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow, self._spans = workflow, Spans()

    def read(self, events: Sequence[Event]) -> Iterator[StageOutput]:
        """Return the outputs that are in some events."""
        for event in events:
            self._spans.take(event)
            self._spans.changed.clear()
            span = self._spans.subject(event)
            if span is not None and isinstance(event.data, catalog.IterationCompleted | catalog.StepCompleted):
                yield from self._outputs_of(span)

    def _outputs_of(self, span: Span) -> Iterator[StageOutput]:
        """Yield what a stage put out, if that is what has ended, and it put out anything."""
        given = self._workflow.step(span.step).parameters
        part, stage, text = given.get(PART), "", ""
        if span.kind == "item" and part == BATCH:
            stage, text = str(span.item), span.result["text"]
        elif span.kind == "step" and part == RUN:
            stage, text = str(given[NAME]), span.result
        if text:
            yield StageOutput(stage, json.loads(text))
