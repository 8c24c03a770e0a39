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
from divebook.pipeline.compiled import BATCH, NAME, PART, RUN
from divebook.workflow.definition import Workflow

LAST = "__end__"
"""What comes behind the last stage."""


@dataclass(frozen=True, slots=True)
class StageOutput:
    """What one stage put out; behind the last comes one named ``__end__``, which says whether it was terminated."""

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
        self._workflow = workflow
        self._items: dict[int, str] = {}

    def read(self, events: Sequence[Event]) -> Iterator[StageOutput]:
        """Return the outputs that are in some events."""
        for event in events:
            found = self._output_in(event)
            if found is not None and found[1]:
                yield StageOutput(found[0], json.loads(found[1]))

    def _output_in(self, event: Event) -> tuple[str, str] | None:
        """Return a stage and its output as text; an empty one stands for none."""
        data = event.data
        if isinstance(data, catalog.IterationStarted):
            self._items[data.iteration_index] = str(data.item)
        if isinstance(data, catalog.IterationCompleted) and self._part(event) == BATCH:
            return self._items[data.iteration_index], data.result["text"]
        if isinstance(data, catalog.StepCompleted) and self._part(event) == RUN:
            return str(self._workflow.step(event.step).parameters[NAME]), data.output
        return None

    def _part(self, event: Event) -> Any:
        return self._workflow.step(event.step).parameters.get(PART)
