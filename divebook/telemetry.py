"""Export of executions as OpenTelemetry traces and metrics.

Each event is reported once, by the process that recorded it. A listener of the store receives the events that this
process appended. Results that a replay takes from the log are not appended again, so that nothing is reported twice.
Reports of several processes about one execution belong to the same trace.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

from opentelemetry.metrics import Meter

from divebook._version import __version__
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, TOOL_CALL
from divebook.errors import MissingLibraryError, SetupError
from divebook.events import Event, catalog
from divebook.libraries import install_command
from divebook.projections.spans import Span, Spans
from divebook.questions.bounds import dollars
from divebook.runtime.leases import DRIVEN_LEASES
from divebook.stores import EventStore
from divebook.text.redaction import logger, shared

__all__ = ["Telemetry"]


class Telemetry:
    """Exporter of executions, steps and recorded calls to OpenTelemetry.

    The spans of models, agents and tools have the attributes of the GenAI conventions: model, tokens, duration, error,
    without prompts and answers. Each execution has one trace, whichever processes drive it.

    Parameters
    ----------
    processors
        Span processors, which the caller closes; by default one that sends batches by OTLP over HTTP. Nothing is sent
        if ``OTEL_SDK_DISABLED`` is ``true``. No spans are sent if ``OTEL_TRACES_EXPORTER`` is ``none``, and no metrics
        if ``OTEL_METRICS_EXPORTER`` is ``none``.
    meter_provider
        Provider of metrics; by default a provider that exports by OTLP, or none if `processors` are given.
    resource
        Resource of the spans; by default from ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES``.
    address
        Address of the collector, ``http://HOST:4318``; by default from ``OTEL_EXPORTER_OTLP_ENDPOINT``.

    Examples
    --------
    ::

        environment = Environment(telemetry=True)  # or DIVEBOOK_TELEMETRY=1
    """

    def __init__(
        self,
        processors: Iterable[SpanProcessor] | None = None,
        *,
        meter_provider: MeterProvider | None = None,
        resource: Resource | None = None,
        address: str | None = None,
    ) -> None:
        self.resource = Resource.create() if resource is None else resource
        self._closers: list[Callable[[], object]] = []
        if processors is None:
            processors, meter_provider = self._by_otlp(meter_provider, address)
        self._processors = tuple(processors)
        self._failing: set[int] = set()
        """Indexes of the span processors that have raised an error."""
        self._threads: weakref.WeakSet[ReportingThread] = weakref.WeakSet()
        atexit.register(self._leave)  # processes of notebooks end without closing anything
        self._measures = None if meter_provider is None else Measures(meter_provider.get_meter("divebook", __version__))

    def _by_otlp(
        self, meter_provider: MeterProvider | None, address: str | None
    ) -> tuple[list[SpanProcessor], MeterProvider | None]:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk import metrics
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # The variables are read here, since the exporters are created here and not by the SDK's own configuration.
        is_off = _variable("OTEL_SDK_DISABLED") == "true"
        at = None if address is None else address.rstrip("/") + "/v1/"
        processors: list[SpanProcessor] = []
        if not is_off and _variable("OTEL_TRACES_EXPORTER") != "none":
            batches = BatchSpanProcessor(OTLPSpanExporter(endpoint=at and f"{at}traces"))
            processors.append(batches)
            self._closers.append(batches.shutdown)
        if meter_provider is None and not is_off and _variable("OTEL_METRICS_EXPORTER") != "none":
            readers = [PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=at and f"{at}metrics"))]
            provider = metrics.MeterProvider(
                readers, resource=self.resource, shutdown_on_exit=False
            )  # which waits for long
            self._closers.append(provider.shutdown)
            meter_provider = provider
        return processors, meter_provider

    def listen_to(self, store: EventStore) -> list[Callable[[], object]]:
        """Report those executions in a store that this process drives. Return functions that end the reporting, which
        the caller calls in reverse order: the subscriptions end before the processors are closed.
        """
        if not self._processors and self._measures is None:
            _log.info("telemetry is switched off by OpenTelemetry's environment variables")
            return []
        listener = _Listener(self, store)
        return [listener.close, store.subscribe(listener)]

    @contextmanager
    def surround(self, execution_id: str, sequence: int) -> Iterator[None]:
        """Make a call the parent of all OpenTelemetry spans that other libraries create inside the ``with`` block.
        `sequence` is the number of the event that started the call.
        """
        call = _context(trace_id(execution_id), span_id(execution_id, place_of_call(sequence)))
        # The call has no span yet: its span is reported when it ends. Its ids are known from its place, and a span
        # without recording is enough as a parent.
        token = context.attach(set_span_in_context(NonRecordingSpan(call)))
        try:
            yield
        finally:
            context.detach(token)

    def flush(self) -> None:
        """Send everything that was reported so far. This waits at most a few seconds."""
        run_in_time("sending the telemetry data", [processor.force_flush for processor in self._processors])

    def close(self) -> None:
        """Send everything that was reported, and close the default exporters. The first call waits at most a few
        seconds; a second call does not wait.
        """
        atexit.unregister(self._leave)
        closers = self._closers
        self._closers = []
        run_in_time("sending the telemetry data", closers)

    def add_reporting_thread(self, thread: ReportingThread) -> None:
        """Register a reporting thread that works for this object. It is closed when the process ends."""
        self._threads.add(thread)

    def _leave(self) -> None:
        """Report and send everything that remains. Called when the process ends."""
        for thread in list(self._threads):
            thread.close()
        self.close()

    def tell(self, execution_id: str, followed: TracedLog, ended: EndedSpan) -> None:
        """Report a span that has ended to the span processors of OpenTelemetry and to the metrics.

        A processor that raises is logged once and does not affect the others. Metrics are not recorded for calls that
        were answered from another log.
        """
        span = ended.span
        trace = trace_id(execution_id)
        if span is None:
            name, attributes, status, error = _execution_attributes(ended, followed)
        else:
            name = name_of(span)
            attributes = attributes_of(span)
            status = span.status
            error = error_of(span)
        attributes |= {"divebook.execution.id": execution_id, "divebook.workflow": followed.workflow}
        if ended.served:
            attributes["divebook.served"] = True
        links: tuple[Link, ...] = ()
        if span is None and followed.came_from:
            # Each execution has a trace of its own. A link leads from a child or a fork to the trace from which it
            # came.
            links = (Link(_context(trace_id(followed.came_from), span_id(followed.came_from, place_of(ROOT)))),)
        readable_span = ReadableSpan(
            name,
            context=_context(trace, span_id(execution_id, ended.place)),
            parent=None if ended.parent is None else _context(trace, span_id(execution_id, ended.parent)),
            resource=self.resource,
            attributes=attributes,
            links=links,
            kind=SpanKind.CLIENT if attributes.get("gen_ai.operation.name") == "chat" else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, error) if status == catalog.FAILED else Status(StatusCode.UNSET),
            start_time=ended.began_us * 1000,
            end_time=ended.ended_us * 1000,
            instrumentation_scope=_SCOPE,
        )
        for number, processor in enumerate(self._processors):
            try:
                processor.on_end(readable_span)
            except Exception:  # noqa: BLE001 - a person's own: what it lacks, others have
                if number not in self._failing:
                    self._failing.add(number)
                    _log.warning(
                        "span processor %r raised an error, so it misses some data; this warning appears only once",
                        processor,
                        exc_info=True,
                    )
        if self._measures is not None and not ended.served:
            self._measures.take(ended, followed.workflow, status)


# --- spans of a trace ------------------------------------------------------------------------------------------------
#
# A span is reported once, when it ends, with its parent. Ids are derived from the execution's id and from places in its
# log. A process that continues an execution, perhaps days later, therefore adds to the same trace, and a process that
# reads older events knows their ids.


ROOT = -1
"""Number that stands for the execution itself, among the numbers of its spans."""
_ENDS = (catalog.ExecutionCompleted, catalog.ExecutionFailed, catalog.ExecutionCancelled)


class EndedSpan(NamedTuple):
    """Span that has ended and is to be reported to OpenTelemetry. A span that restarts and ends again is reported
    again.
    """

    place: str
    """Position of the start of the span in the log. The id of the span is derived from it."""
    began_us: int
    ended_us: int
    """Start (`began_us`) and end (`ended_us`) in microseconds since 1970."""
    parent: str | None
    """Place of the parent span; None for the execution itself."""
    span: Span | None
    """Span of the log; None for the execution itself."""
    end: catalog.Payload | None = None
    """Last event of the execution, if this is the span of the execution."""
    served: bool = False
    """True if the call was answered from another log, in a what-if."""


class TracedLog:
    """Computes the spans to report to OpenTelemetry from the events of one execution, one event at a time."""

    def __init__(self) -> None:
        self.workflow = ""
        self.came_from: str | None = None
        """Id of the parent of a child execution, or of the source of a fork."""
        self.last = 0
        """Sequence number of the last event that was applied."""
        self._spans = Spans()
        self._began: dict[int, int] = {}
        self._began_at: dict[int, int] = {}
        """Sequence number of the event that last started a call, by number of its span."""
        self._again: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        self._over: set[int] = set()
        self._places: dict[tuple[str, int | None], int] = {}
        """Number of the current step span by path, and of its item spans by path and item."""

    def take(self, event: Event) -> list[EndedSpan]:
        """Apply the next event of the execution. Return the spans that ended with it, the innermost first.

        A span may end, restart (after a resumption) and end again; each end is reported. At a fork the spans that are
        still open start at the fork, because the time before belongs to the source.
        """
        data = event.data
        self.last = event.sequence
        if isinstance(data, catalog.ExecutionStarted):
            self.workflow = data.workflow_name
            self.came_from = data.parent
        elif isinstance(data, catalog.ExecutionForked):
            self.workflow = data.workflow_name or self.workflow
            self.came_from = data.source
        if ROOT not in self._began or (ROOT in self._over and isinstance(data, catalog.ExecutionResumed)):
            self._begin(ROOT, event.recorded_at)
        if isinstance(data, catalog.ExecutionForked):  # what it has of its source is told of that, and took its time
            self._over.discard(ROOT)
            self._began |= {number: event.recorded_at for number in self._began if number not in self._over}
        # The projection knows which spans an event has begun or ended. Here only ends count, each once.
        self._spans.take(event)
        served = isinstance(data, catalog.OperationCompleted | catalog.OperationFailed) and data.served is not None
        changed = sorted(self._spans.changed.values(), key=lambda span: span.index)
        self._spans.changed.clear()
        # Three cases: a new start of a call, a span that is seen for the first time, and one that has ended and runs
        # again.
        for span in changed:
            if isinstance(data, catalog.OperationStarted) and span.operation_id == data.operation_id:
                self._began_at[span.index] = event.sequence
            if span.index not in self._began:
                self._enter(span)
                self._begin(span.index, span.started_us)
            elif span.ended_us is None and span.index in self._over:
                self._begin(span.index, event.recorded_at)
        # In reverse order of their starts, so that an inner span is reported before the span around it.
        ended = [self._end(span)._replace(served=served) for span in reversed(changed) if self._is_newly_over(span)]
        if isinstance(data, _ENDS):
            self._over.add(ROOT)
            ended.append(EndedSpan(self._place(ROOT), self._began[ROOT], event.recorded_at, None, None, data))
        return ended

    def _enter(self, span: Span) -> None:
        # The parent of a step is the execution, of an item its step, of a call its enclosing call, its item or its
        # step.
        step = self._places.get((span.path, None), ROOT)
        if span.kind == "step":
            parent = ROOT
            self._places[span.path, None] = span.index
        elif span.kind == "item":
            parent = step
            self._places[span.path, span.iteration] = span.index
        else:
            item = step if span.iteration is None else self._places.get((span.path, span.iteration), step)
            parent = item if span.holder < 0 else span.holder
        self._parents[span.index] = parent

    def _begin(self, number: int, at: int) -> None:
        self._began[number] = at
        self._again[number] = self._again.get(number, -1) + 1
        self._over.discard(number)

    def _is_newly_over(self, span: Span) -> bool:
        return span.ended_us is not None and span.index not in self._over

    def _end(self, span: Span) -> EndedSpan:
        assert span.ended_us is not None  # noqa: S101 - whoever calls has looked
        self._over.add(span.index)
        parent = self._parents[span.index]
        began = min(self._began[span.index], span.ended_us)
        return EndedSpan(self._place(span.index), began, span.ended_us, self._place(parent), span)

    def _place(self, number: int) -> str:
        began_at = self._began_at.get(number)
        return place_of(number, self._again[number]) if began_at is None else place_of_call(began_at)


def place_of(number: int, again: int = 0) -> str:
    """Return a text that identifies a span within its log. Its OpenTelemetry id is derived from this text. `again` is
    how often the span has ended before.
    """
    # "3/0" is the first run of span 3, "3/1" the run after a resumption. Each has an id of its own, so that a collector
    # does not get two spans with one id.
    return f"{number}/{again}"


def place_of_call(sequence: int) -> str:
    """Return a text that identifies a call within its log, made from the number of the event that started the call. The
    OpenTelemetry id of the call is derived from this text.
    """
    return f"event {sequence}"


def trace_id(execution_id: str) -> int:
    """Return the 128-bit OpenTelemetry trace id for an execution."""
    return int.from_bytes(_digest(execution_id)[:16])


def span_id(execution_id: str, place: str) -> int:
    """Return the 64-bit OpenTelemetry span id for a place in the log of an execution."""
    return int.from_bytes(_digest(f"{execution_id}/{place}")[:8])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


# --- names and attributes of spans -----------------------------------------------------------------------------------
#
# Attributes of models, agents and tools follow OpenTelemetry's conventions for GenAI. Prompts and answers are not
# reported, because they are in the log.
# (https://opentelemetry.io/docs/specs/semconv/gen-ai/)


Attributes: TypeAlias = Mapping[str, str | int | float | bool]

CHAT = "chat"
INVOKE_AGENT = "invoke_agent"
EXECUTE_TOOL = "execute_tool"
_DOES = {AGENT_RESPONSE: CHAT, CACHED_RESPONSE: CHAT, AGENT_TURN: INVOKE_AGENT, TOOL_CALL: EXECUTE_TOOL}
TOKENS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
}


def name_of(span: Span) -> str:
    """Return the OpenTelemetry name of a span: ``chat gpt-5-mini``, ``execute_tool search``, ``step classify``."""
    does = _DOES.get(span.type) if span.kind == "operation" else None
    if does == CHAT:
        return f"{CHAT} {model_of(span)[1]}".rstrip()
    # Calls of the GenAI conventions first: chat, execute_tool, invoke_agent. All other spans have names of divebook.
    if does is not None:
        return f"{does} {span.called or ''}".rstrip()
    if span.kind in ("step", "item"):
        return f"{span.kind} {span.name}"
    return f"{span.type} {span.called or ''}".rstrip()


def model_of(span: Span) -> tuple[str, str]:
    """Return the provider and the name of the model that the call of a span requested."""
    provider, _, name = (span.model or "").rpartition(":")
    return provider or name, name


def attributes_of(span: Span) -> dict[str, str | int | float | bool]:
    """Return the OpenTelemetry attributes of a span, such as its kind, step and status."""
    # OpenTelemetry has no attribute value for None, so these attributes are removed at the end.
    attributes: dict[str, str | int | float | bool | None] = {
        "divebook.kind": span.kind,
        "divebook.type": span.type,
        "divebook.path": span.path,
        "divebook.step": span.step,
        "divebook.status": span.status,
        "divebook.item": span.iteration,
        "divebook.operation.id": span.operation_id,
        "divebook.attempts": span.attempts if span.attempts > 1 else None,
        "error.type": span.error_type,
    }
    does = _DOES.get(span.type) if span.kind == "operation" else None
    if does is not None:
        attributes["gen_ai.operation.name"] = does
        attributes["gen_ai.agent.name"] = span.agent
    if does == CHAT:
        provider, model = model_of(span)
        attributes["gen_ai.provider.name"] = provider
        attributes["gen_ai.request.model"] = model
        attributes |= {TOKENS[name]: count for name, count in span.usage.items() if name in TOKENS}
        attributes["divebook.cached"] = span.type == CACHED_RESPONSE or None
        attributes["divebook.cost"] = cost_of(span)
    elif does == EXECUTE_TOOL:
        attributes["gen_ai.tool.name"] = span.called
    return {name: value for name, value in attributes.items() if value is not None}


def cost_of(span: Span) -> float | None:
    """Return the cost of a model call in US dollars; None if no price is known."""
    return dollars(span.usage.get("cost"))


def error_of(span: Span) -> str | None:
    """Return the error text of a failed span, without secrets; None if it did not fail."""
    return None if span.error is None else str(shared().text(span.headline))[:1000]


# --- background work -------------------------------------------------------------------------------------------------
#
# Daemon threads do the work, so that they do not keep the process alive. At its end the process waits a few seconds for
# them. A collector that does not answer, or a user's exporter that fails, does not affect executions.


REPORTING_SECONDS = 2.0
"""Seconds to wait at the end of the process until all spans have been passed to the span processors."""
SENDING_SECONDS = 3.0
"""Seconds to wait after that until the span processors have sent the spans."""
_log = logger(__name__)


class ReportingThread:
    """Daemon thread that runs queued jobs, which report to OpenTelemetry, one after another."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._has_begun = self._is_given_up = False

    def do(self, thing: Callable[[], object]) -> None:
        """Add a job (a function) to the queue of the thread. The function must not raise an exception."""
        # The thread starts with the first job, so an environment that runs nothing has no thread. The lock lets only
        # one of several callers start it.
        self._jobs.put(thing)
        with self._lock:
            if not self._has_begun:
                self._has_begun = True
                self._thread.start()

    def close(self) -> None:
        """Wait at most `REPORTING_SECONDS` until all jobs are done. Jobs that remain then are dropped."""
        # None ends the thread after all jobs before it.
        self._jobs.put(None)
        with self._lock:
            if not self._has_begun:
                return
        self._thread.join(REPORTING_SECONDS)
        if self._thread.is_alive():
            self._is_given_up = True
            _log.warning(
                "the spans of %d events are missing in the telemetry, because the span processor did not accept them "
                "within %g seconds. Use a BatchSpanProcessor, which does not block",
                self._jobs.qsize(),
                REPORTING_SECONDS,
            )

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None or self._is_given_up:
                return
            job()


def run_in_time(what: str, things: Sequence[Callable[[], object]]) -> None:
    """Run functions concurrently, and wait at most `SENDING_SECONDS` for all of them. If a function fails or takes
    longer, this is logged.
    """
    until = time.monotonic() + SENDING_SECONDS
    threads = [threading.Thread(target=_run_logged, args=(what, thing), daemon=True) for thing in things]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        _log.warning("the latest telemetry data may be missing: %s took longer than %g seconds", what, SENDING_SECONDS)


def _run_logged(what: str, thing: Callable[[], object]) -> None:
    try:
        thing()
    except Exception as error:  # noqa: BLE001 - an exporter's, which may be a person's own
        _log.warning("the latest telemetry data may be missing: %s failed: %s: %s", what, type(error).__name__, error)


# --- metrics -------------------------------------------------------------------------------------------------------


_TOKENS = {"input_tokens": "input", "output_tokens": "output"}


class Metrics:
    """OpenTelemetry metrics of executions, updated with each span that ends."""

    def __init__(self, meter: Meter) -> None:
        self._executions = meter.create_histogram(
            "divebook.execution.duration", "s", "Duration of executions, from start or resumption to end"
        )
        self._steps = meter.create_histogram("divebook.step.duration", "s", "Duration of steps, for each visit")
        self._operations = meter.create_histogram("divebook.operation.duration", "s", "Duration of recorded calls")
        self._cost = meter.create_counter("divebook.cost", "USD", "Cost of model calls with a known price")
        self._chats = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "Duration of model requests, as measured by the client"
        )
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of each model call")

    def take(self, ended: EndedSpan, workflow: str, status: str) -> None:
        """Update the metrics with a span (execution, step or call) that has ended."""
        seconds = (ended.ended_us - ended.began_us) / 1e6
        about: Attributes = {"divebook.workflow": workflow, "divebook.status": status}
        span = ended.span
        if span is None:
            self._executions.record(seconds, about)
        elif span.kind == "step":
            self._steps.record(seconds, {**about, "divebook.step": span.step})
        elif span.kind == "operation":
            self._operations.record(seconds, {**about, "divebook.type": span.type})
            if span.type == AGENT_RESPONSE:
                self._take_chat(span, seconds)

    def _take_chat(self, span: Span, seconds: float) -> None:
        provider, model = model_of(span)
        about: dict[str, str] = {
            "gen_ai.operation.name": CHAT,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
        }
        if span.agent:
            about["gen_ai.agent.name"] = span.agent
        self._chats.record(seconds, about if span.error_type is None else {**about, "error.type": span.error_type})
        for name, kind in _TOKENS.items():
            if name in span.usage:
                self._tokens.record(span.usage[name], {**about, "gen_ai.token.type": kind})
        cost = cost_of(span)
        if cost:
            self._cost.add(cost, about)


try:
    from opentelemetry import context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
        set_span_in_context,
    )

    Measures = Metrics
except MissingLibraryError:
    raise
except ImportError as error:  # only a part of the SDK is installed
    raise SetupError(
        f"telemetry needs OpenTelemetry's SDK ({error}); install it: {install_command('opentelemetry')}"
    ) from error

_STATUS = {
    catalog.ExecutionCompleted: catalog.COMPLETED,
    catalog.ExecutionFailed: catalog.FAILED,
    catalog.ExecutionCancelled: catalog.CANCELLED,
}
_SCOPE = InstrumentationScope("divebook", __version__)


class _Listener:
    """Store listener that reports the executions that this process drives. The work happens in a separate thread."""

    def __init__(self, telemetry: Telemetry, store: EventStore) -> None:
        self._telemetry = telemetry
        self._store = store
        self._thread = ReportingThread("divebook-telemetry")
        telemetry.add_reporting_thread(self._thread)
        self._heard: set[str] = set()
        self._followed: dict[str, TracedLog] = {}

    def __call__(self, execution_id: str, events: Sequence[Event]) -> None:
        """Put new events of an execution into the queue for reporting. Executions that this process does not drive
        (copied or imported ones) are ignored.
        """
        # The last events of an execution may arrive after its lease was released, so an execution stays known until its
        # end was reported.
        if execution_id in self._heard or DRIVEN_LEASES.drives(self._store, execution_id):
            self._heard.add(execution_id)
            self._thread.do(functools.partial(self._take, execution_id, events))

    def close(self) -> None:
        """Wait at most `REPORTING_SECONDS` until all queued events are reported."""
        self._thread.close()

    def _take(self, execution_id: str, events: Sequence[Event]) -> None:
        try:
            traced_log = self._followed.setdefault(execution_id, TracedLog())
            # A process that continues an execution reads the events before it, so that starts and parents of its spans
            # are known. It reports none of these spans: the process that recorded them has done so.
            missed = events[0].sequence - 1 - traced_log.last if events else 0
            for event in self._store.read(execution_id, traced_log.last, missed) if missed else ():
                traced_log.take(event)
            for event in events:
                for ended in traced_log.take(event):
                    self._telemetry.tell(execution_id, traced_log, ended)
                    if ended.span is None:
                        self._heard.discard(execution_id)
                        self._followed.pop(execution_id, None)
                    elif ended.span.kind != "step":
                        ended.span.parameters = ended.span.result = None  # what is told need not be held
        except Exception:  # noqa: BLE001 - the run must not depend on who is told of it
            last = events[-1].sequence if events else 0
            _log.exception("telemetry of execution %s is missing the events up to %d", execution_id, last)
            self._followed.pop(execution_id, None)


def _variable(variable: str) -> str:
    return os.environ.get(variable, "").strip().lower()


def _execution_attributes(
    ended: EndedSpan, traced_log: TracedLog
) -> tuple[str, dict[str, str | int | float | bool], str, str | None]:
    status = _STATUS[type(ended.end)]
    attributes: dict[str, str | int | float | bool] = {"divebook.kind": "execution", "divebook.status": status}
    error = ended.end.error if isinstance(ended.end, catalog.ExecutionFailed) else None
    return (
        f"workflow {traced_log.workflow}",
        attributes,
        status,
        None if error is None else str(shared().text(error))[:1000],
    )


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
