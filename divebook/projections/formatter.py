"""Formatters: objects that hear, step by step, what executions do while they run.

The shell's live list and its plain lines for pipes are two of them (`divebook.cli.result`).
"""

from __future__ import annotations

from collections.abc import Sequence

from divebook.engine.operations import TIMER
from divebook.events import Event, catalog
from divebook.projections.spans import Span, Spans


class Formatter:
    """Hears when steps begin and end, and what is asked; override what you want to hear.

    ``Environment(formatter=...)`` calls it for every execution that its process records, in the order of their logs,
    as soon as what it hears is in the store: on the engine's thread, so that it must be quick. What it raises is
    logged and stops nothing. A step with `Each` is one step. Of a pipeline only the stages are steps.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> class Lines(Formatter):
    ...     def step_started(self, step):
    ...         print("begins", step.step, step.type)
    ...     def step_output(self, step, output):
    ...         print("ends", step.step, output)
    >>> environment = Environment(store="memory:", formatter=Lines())
    >>> _ = environment.start(Workflow("sum", [Step("add", script="1 + 1")])).wait()
    begins add script
    ends add 2
    """

    def step_started(self, step: Span) -> None:
        """Hear that a step has begun; `step` has its name, type and path."""

    def step_output(self, step: Span, output: str) -> None:
        """Hear that a step has completed, and the text that it came to."""

    def step_error(self, step: Span, error: str) -> None:
        """Hear that a step has failed for good, or was cancelled."""

    def question(self, execution_id: str, question: catalog.InterruptRaised) -> None:
        """Hear that a person is asked something."""


class Steps:
    """The steps of executions whose events it sees, each execution's events in order."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], Span] = {}
        """Those that run, by execution and path, oldest first."""
        self._spans: dict[str, Spans] = {}

    def see(self, event: Event) -> Span | None:
        """Take in an event; return the step that has just begun or ended."""
        if getattr(event.data, "operation_type", TIMER) != TIMER:
            return None  # what is not shown need not be remembered
        spans = self._spans.setdefault(event.execution_id, Spans(for_people=True))
        spans.take(event)
        changed = spans.changed.values()
        spans.changed = {}
        return next((span for span in changed if span.kind == "step" and self._has_moved(event, span)), None)

    def _has_moved(self, event: Event, span: Span) -> bool:
        place = (event.execution_id, span.path)
        if span.ended_us is None:
            was_open = place in self.open
            self.open[place] = span
            return not was_open
        return self.open.pop(place, None) is not None


class Formatting:
    """Listens to a store for a formatter."""

    def __init__(self, formatter: Formatter) -> None:
        self._formatter, self._steps = formatter, Steps()

    def __call__(self, execution_id: str, events: Sequence[Event]) -> None:
        """Hear of events that were written."""
        for event in events:
            if isinstance(event.data, catalog.InterruptRaised):
                self._formatter.question(execution_id, event.data)
            step = self._steps.see(event)
            if step is not None:
                self._pass_on(step)

    def _pass_on(self, step: Span) -> None:
        if step.ended_us is None:
            self._formatter.step_started(step)
        elif step.status == catalog.COMPLETED:
            self._formatter.step_output(step, str(step.result or ""))
        else:
            self._formatter.step_error(step, step.headline or step.status)
