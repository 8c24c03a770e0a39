"""Executions as traces and metrics of OpenTelemetry: what is recorded is told once, by the process that recorded it.

A listener of the store hears what this process has written. What a replay takes from the log is not written again, so
nothing is told twice; and what another process tells of the same execution belongs to the same trace.
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
from divebook.errors import SetupError
from divebook.events import Event, catalog
from divebook.projections.spans import Span, Spans
from divebook.runtime.leases import DRIVEN_LEASES
from divebook.store import EventStore
from divebook.text.redaction import logger, shared

__all__ = ["Telemetry"]

# The spans of one log as traces have them: each with the one that holds it, told once, when it ends.
#
# Ids are made of the execution's id and of places in its log, so that whichever process goes on with an execution, days
# later perhaps, adds to the same trace; and a process that reads what was recorded before it knows them as well.


ROOT = -1
"""Number of the whole execution among its spans."""
_ENDS = (catalog.ExecutionCompleted, catalog.ExecutionFailed, catalog.ExecutionCancelled)


class EndedSpan(NamedTuple):
    """A span that has ended; of what was begun again after its end there is another one."""

    place: str
    """Where in the log it began, which its id is made of."""
    began_us: int
    ended_us: int
    """Both in microseconds since 1970."""
    parent: str | None
    """The place of what holds it."""
    span: Span | None
    """None for the execution."""
    end: catalog.Payload | None = None
    """How the execution ended."""
    served: bool = False
    """Whether the call was answered from another log, in a what-if, and not made."""


class TracedLog:
    """One execution, as far as its log was heard."""

    def __init__(self) -> None:
        self.workflow = ""
        self.came_from: str | None = None
        """The execution that it is a child or a fork of."""
        self.last = 0
        """Number of the last event that was heard."""
        self._spans = Spans()
        self._began: dict[int, int] = {}
        self._began_at: dict[int, int] = {}
        """The event with which a call began, the last time."""
        self._again: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        self._over: set[int] = set()
        self._places: dict[tuple[str, int | None], int] = {}
        """The step that a path is in, and its items, by their numbers."""

    def take(self, event: Event) -> list[EndedSpan]:
        """Return what has ended with an event, the innermost first."""
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
        self._spans.take(event)
        served = isinstance(data, catalog.OperationCompleted | catalog.OperationFailed) and data.served is not None
        changed = sorted(self._spans.changed.values(), key=lambda span: span.index)
        self._spans.changed.clear()
        for span in changed:
            if isinstance(data, catalog.OperationStarted) and span.operation_id == data.operation_id:
                self._began_at[span.index] = event.sequence
            if span.index not in self._began:
                self._enter(span)
                self._begin(span.index, span.started_us)
            elif span.ended_us is None and span.index in self._over:
                self._begin(span.index, event.recorded_at)
        ended = [self._end(span)._replace(served=served) for span in reversed(changed) if self._is_newly_over(span)]
        if isinstance(data, _ENDS):
            self._over.add(ROOT)
            ended.append(EndedSpan(self._place(ROOT), self._began[ROOT], event.recorded_at, None, None, data))
        return ended

    def _enter(self, span: Span) -> None:
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
    """Return the place of a span by its number, and how often it had ended before; the execution is `ROOT`."""
    return f"{number}/{again}"


def place_of_call(sequence: int) -> str:
    """Return the place of a call by the number of the event with which it began."""
    return f"event {sequence}"


def trace_id(execution_id: str) -> int:
    """Return the number of an execution's trace, 128 bits."""
    return int.from_bytes(_digest(execution_id)[:16])


def span_id(execution_id: str, place: str) -> int:
    """Return the number of a span, 64 bits."""
    return int.from_bytes(_digest(f"{execution_id}/{place}")[:8])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


# What a span is called in traces, and what is said of it: of models, agents and tools in the words of GenAI.
#
# What models were asked and answered is not said: it is in the log.
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
    """Return what a span is called: ``chat gpt-5-mini``, ``execute_tool search``, ``step classify``."""
    does = _DOES.get(span.type) if span.kind == "operation" else None
    if does == CHAT:
        return f"{CHAT} {model_of(span)[1]}".rstrip()
    if does is not None:
        return f"{does} {span.called or ''}".rstrip()
    if span.kind in ("step", "item"):
        return f"{span.kind} {span.name}"
    return f"{span.type} {span.called or ''}".rstrip()


def model_of(span: Span) -> tuple[str, str]:
    """Return provider and name of the model that was asked."""
    provider, _, name = (span.model or "").rpartition(":")
    return provider or name, name


def attributes_of(span: Span) -> dict[str, str | int | float | bool]:
    """Return what is said of a span."""
    told: dict[str, str | int | float | bool | None] = {
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
        told["gen_ai.operation.name"] = does
        told["gen_ai.agent.name"] = span.agent
    if does == CHAT:
        told["gen_ai.provider.name"], told["gen_ai.request.model"] = model_of(span)
        told |= {TOKENS[name]: count for name, count in span.usage.items() if name in TOKENS}
        told["divebook.cached"] = span.type == CACHED_RESPONSE or None
        told["divebook.cost"] = cost_of(span)
    elif does == EXECUTE_TOOL:
        told["gen_ai.tool.name"] = span.called
    return {name: value for name, value in told.items() if value is not None}


def cost_of(span: Span) -> float | None:
    """Return what a model call cost, in US dollars; None where no price is known."""
    cost = span.usage.get("cost")
    return None if cost is None else cost / 1e9


def error_of(span: Span) -> str | None:
    """Return the error of a span that has failed, without secrets."""
    return None if span.error is None else str(shared().text(span.headline))[:1000]


# What is done for telemetry beside the run: in threads that keep no process, and waited for a few seconds at the end.
#
# A collector that does not answer, or an exporter of a person's that fails, is no matter of what is told of.


TELLING_SECONDS, SENDING_SECONDS = 2.0, 3.0
"""How long is waited at the end until all is told, and then until it is sent."""
_log = logger(__name__)


class TellingThread:
    """Does one thing after the other in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._left: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._has_begun = self._is_given_up = False

    def do(self, thing: Callable[[], object]) -> None:
        """Have something done, which raises nothing."""
        self._left.put(thing)
        with self._lock:
            if not self._has_begun:
                self._has_begun = True
                self._thread.start()

    def close(self) -> None:
        """Return when all is done, or when it takes too long: what is left then is not done any more."""
        self._left.put(None)
        with self._lock:
            if not self._has_begun:
                return
        self._thread.join(TELLING_SECONDS)
        if self._thread.is_alive():
            self._is_given_up = True
            _log.warning(
                "telemetry lacks what %d events came to: it was not told within %g seconds, as what takes the spans "
                "is slow. A BatchSpanProcessor keeps nobody waiting",
                self._left.qsize(),
                TELLING_SECONDS,
            )

    def _work(self) -> None:
        while (thing := self._left.get()) is not None and not self._is_given_up:
            thing()


def done_in_time(what: str, things: Sequence[Callable[[], object]]) -> None:
    """Do things beside each other, and wait for all of them a few seconds; one that fails, or stays, is logged."""
    until = time.monotonic() + SENDING_SECONDS
    threads = [threading.Thread(target=_done, args=(what, thing), daemon=True) for thing in things]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        _log.warning("telemetry may lack the end: %s took longer than %g seconds", what, SENDING_SECONDS)


def _done(what: str, thing: Callable[[], object]) -> None:
    try:
        thing()
    except Exception as error:  # noqa: BLE001 - an exporter's, which may be a person's own
        _log.warning("telemetry may lack the end: %s failed: %s: %s", what, type(error).__name__, error)


# What is counted and measured of executions.


_TOKENS = {"input_tokens": "input", "output_tokens": "output"}


class Metrics:
    """Instruments of a meter, and what is recorded with them of each span that ends."""

    def __init__(self, meter: Meter) -> None:
        self._executions = meter.create_histogram(
            "divebook.execution.duration", "s", "How long executions took, from their start or resumption to their end"
        )
        self._steps = meter.create_histogram("divebook.step.duration", "s", "How long visits of steps took")
        self._operations = meter.create_histogram("divebook.operation.duration", "s", "How long recorded calls took")
        self._cost = meter.create_counter("divebook.cost", "USD", "What model calls cost whose price is known")
        self._chats = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "How long models took to answer, as the client saw it"
        )
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of each model call")

    def take(self, ended: EndedSpan, workflow: str, status: str) -> None:
        """Record one span."""
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
except ImportError as error:
    raise SetupError(
        f"telemetry needs OpenTelemetry's SDK ({error}); install it: pip install 'divebook[otel]'"
    ) from error

_STATUS = {
    catalog.ExecutionCompleted: catalog.COMPLETED,
    catalog.ExecutionFailed: catalog.FAILED,
    catalog.ExecutionCancelled: catalog.CANCELLED,
}
_SCOPE = InstrumentationScope("divebook", __version__)


class Telemetry:
    """Tells OpenTelemetry of executions, steps and recorded calls.

    Of models, agents and tools it speaks in the words of GenAI: models, tokens, durations and errors, and nothing of
    what was asked and answered. A trace is of one execution, whichever processes carry it on.

    Parameters
    ----------
    processors
        Processors of spans, which who gives them closes; by default one that sends batches by OTLP over HTTP. Nothing
        is sent where ``OTEL_SDK_DISABLED`` says so, or for spans ``OTEL_TRACES_EXPORTER`` and for metrics
        ``OTEL_METRICS_EXPORTER`` is ``none``.
    meter_provider
        Where metrics go; by default by OTLP as well, or nowhere where `processors` are given.
    resource
        What the spans are of; by default what ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` say.
    address
        Of the collector, ``http://HOST:4318``; by default ``OTEL_EXPORTER_OTLP_ENDPOINT`` says it.

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
        """Numbers of the processors that have raised."""
        self._tellers: weakref.WeakSet[TellingThread] = weakref.WeakSet()
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

        is_off = _said("OTEL_SDK_DISABLED") == "true"
        at = None if address is None else address.rstrip("/") + "/v1/"
        processors: list[SpanProcessor] = []
        if not is_off and _said("OTEL_TRACES_EXPORTER") != "none":
            batches = BatchSpanProcessor(OTLPSpanExporter(endpoint=at and f"{at}traces"))
            processors.append(batches)
            self._closers.append(batches.shutdown)
        if meter_provider is None and not is_off and _said("OTEL_METRICS_EXPORTER") != "none":
            readers = [PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=at and f"{at}metrics"))]
            own = metrics.MeterProvider(readers, resource=self.resource, shutdown_on_exit=False)  # which waits for long
            self._closers.append(own.shutdown)
            meter_provider = own
        return processors, meter_provider

    def listen_to(self, store: EventStore) -> list[Callable[[], object]]:
        """Tell of what this process does with the executions of a store; return what ends that, from the last on."""
        if not self._processors and self._measures is None:
            _log.info("telemetry is off, as the variables of OpenTelemetry say")
            return []
        listener = _Listener(self, store)
        return [listener.close, store.subscribe(listener)]

    @contextmanager
    def surround(self, execution_id: str, sequence: int) -> Iterator[None]:
        """Let what libraries tell of, while a call is made, be a part of it; it began with an event of that number."""
        call = _context(trace_id(execution_id), span_id(execution_id, place_of_call(sequence)))
        token = context.attach(set_span_in_context(NonRecordingSpan(call)))
        try:
            yield
        finally:
            context.detach(token)

    def flush(self) -> None:
        """Send what was told so far; waits a few seconds at most."""
        done_in_time("to send what was told", [processor.force_flush for processor in self._processors])

    def close(self) -> None:
        """Send what was told, and end what was made here; waits a few seconds at most, and the second time none."""
        atexit.unregister(self._leave)
        closers = self._closers
        self._closers = []
        done_in_time("to send what was told", closers)

    def runs(self, teller: TellingThread) -> None:
        """Know of what tells of executions, for the end of the process."""
        self._tellers.add(teller)

    def _leave(self) -> None:
        """Have all told and sent that the process has done; it ends."""
        for teller in list(self._tellers):
            teller.close()
        self.close()

    def tell(self, execution_id: str, followed: TracedLog, ended: EndedSpan) -> None:
        """Tell of one span that has ended."""
        span = ended.span
        trace = trace_id(execution_id)
        if span is None:
            name, attributes, status, error = _execution_told(ended, followed)
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
            links = (Link(_context(trace_id(followed.came_from), span_id(followed.came_from, place_of(ROOT)))),)
        told = ReadableSpan(
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
                processor.on_end(told)
            except Exception:  # noqa: BLE001 - a person's own: what it lacks, others have
                if number not in self._failing:
                    self._failing.add(number)
                    _log.warning("%r lacks what it refuses; this is said once", processor, exc_info=True)
        if self._measures is not None and not ended.served:
            self._measures.take(ended, followed.workflow, status)


class _Listener:
    """Follows the executions of a store that this process drives, in a thread of its own."""

    def __init__(self, telemetry: Telemetry, store: EventStore) -> None:
        self._telemetry = telemetry
        self._store = store
        self._teller = TellingThread("divebook-telemetry")
        telemetry.runs(self._teller)
        self._heard: set[str] = set()
        self._followed: dict[str, TracedLog] = {}

    def __call__(self, execution_id: str, events: Sequence[Event]) -> None:
        """Hear of events that were written; what is copied or imported is of another time."""
        if execution_id in self._heard or DRIVEN_LEASES.drives(self._store, execution_id):
            self._heard.add(execution_id)
            self._teller.do(functools.partial(self._take, execution_id, events))

    def close(self) -> None:
        """Return when all was told, or a little later."""
        self._teller.close()

    def _take(self, execution_id: str, events: Sequence[Event]) -> None:
        try:
            followed = self._followed.setdefault(execution_id, TracedLog())
            missed = events[0].sequence - 1 - followed.last if events else 0
            for event in self._store.read(execution_id, followed.last, missed) if missed else ():
                followed.take(event)  # others have told of it
            for event in events:
                for ended in followed.take(event):
                    self._telemetry.tell(execution_id, followed, ended)
                    if ended.span is None:
                        self._heard.discard(execution_id)
                        self._followed.pop(execution_id, None)
                    elif ended.span.kind != "step":
                        ended.span.parameters = ended.span.result = None  # what is told need not be held
        except Exception:  # noqa: BLE001 - the run must not depend on who is told of it
            last = events[-1].sequence if events else 0
            _log.exception("telemetry of %s lacks what it would tell of its events up to %d", execution_id, last)
            self._followed.pop(execution_id, None)


def _said(variable: str) -> str:
    return os.environ.get(variable, "").strip().lower()


def _execution_told(
    ended: EndedSpan, followed: TracedLog
) -> tuple[str, dict[str, str | int | float | bool], str, str | None]:
    status = _STATUS[type(ended.end)]
    told: dict[str, str | int | float | bool] = {"divebook.kind": "execution", "divebook.status": status}
    error = ended.end.error if isinstance(ended.end, catalog.ExecutionFailed) else None
    return f"workflow {followed.workflow}", told, status, None if error is None else str(shared().text(error))[:1000]


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
