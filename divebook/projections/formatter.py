"""Formatters: objects whose methods are called while executions run, for each step that starts or ends and for each
question.

`Steps` finds the steps that start or end with an event. `Formatting` passes them to a user's formatter; the progress of
the shell (`divebook.cli.result`) uses `Steps` directly.
"""

from __future__ import annotations

from collections.abc import Sequence

from divebook.engine.operations import TIMER
from divebook.events import Event, catalog
from divebook.projections.spans import Span, Spans


class Formatter:
    """Base class for objects that receive the progress of executions. Override the methods for the events that you
    need.

    ``Environment(formatter=...)`` calls the methods for each execution that this process records, in the order of the
    logs, after the events are in the store. The calls happen on the engine's thread, so that they must return quickly.
    Exceptions are logged and do not affect the execution. A step with `Each` is one step. In a pipeline only the
    stages are steps.

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
        """Receive a step that has started, with its name, type and path."""

    def step_output(self, step: Span, output: str) -> None:
        """Receive a step that has completed; `output` is its result as text."""

    def step_error(self, step: Span, error: str) -> None:
        """Receive a step that has failed, without another attempt to come, or was cancelled."""

    def question(self, execution_id: str, question: catalog.InterruptRaised) -> None:
        """Receive a new question to a person."""


class Steps:
    """Keeps track of the running steps of several executions. The events of each execution must be applied in the order
    of its log.
    """

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], Span] = {}
        """Running steps by execution and path, oldest first."""
        self._spans: dict[str, Spans] = {}

    def see(self, event: Event) -> Span | None:
        """Apply the next event of an execution. Return the step that has started or ended with this event, or None."""
        # An event without an operation type passes because of the default. Timers pass, because a step with a timer is
        # shown as waiting.
        if getattr(event.data, "operation_type", TIMER) != TIMER:
            return None  # what is not shown need not be remembered
        spans = self._spans.setdefault(event.execution_id, Spans(for_people=True))
        spans.take(event)
        changed = spans.changed.values()
        # `changed` is emptied, so that it has only the spans of one event.
        spans.changed = {}
        return next((span for span in changed if span.kind == "step" and self._has_moved(event, span)), None)

    def _has_moved(self, event: Event, span: Span) -> bool:
        # A path is in one step at a time, so that the path identifies the step.
        place = (event.execution_id, span.path)
        if span.ended_us is None:
            # A step that started again after a retry is still the same step for a formatter.
            was_open = place in self.open
            self.open[place] = span
            return not was_open
        # The end of a step that was not open has been reported before.
        return self.open.pop(place, None) is not None


class Formatting:
    """Subscriber to a store that calls the methods of a formatter for each step and question."""

    def __init__(self, formatter: Formatter) -> None:
        self._formatter = formatter
        self._steps = Steps()

    def __call__(self, execution_id: str, events: Sequence[Event]) -> None:
        """Call the methods of the formatter for the steps and questions in new events of an execution."""
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
