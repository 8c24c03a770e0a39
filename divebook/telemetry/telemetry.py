"""Executions as traces and metrics of OpenTelemetry: what is recorded is told once, by the process that recorded it.

A listener of the store hears what this process has written. What a replay takes from the log is not written again, so
nothing is told twice; and what another process tells of the same execution belongs to the same trace.
"""

from __future__ import annotations

import atexit
import functools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from divebook._version import __version__
from divebook.errors import SetupError
from divebook.events import Event, catalog
from divebook.execution.leases import HANDS
from divebook.store import EventStore
from divebook.telemetry.attributes import attributes_of, error_of, name_of
from divebook.telemetry.followed import ROOT, EndedSpan, TracedLog, place_of, place_of_call, span_id, trace_id
from divebook.telemetry.leaving import TellingThread, done_in_time
from divebook.text.logs import logger
from divebook.text.redaction import shared

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

    from divebook.telemetry.metrics import Measures
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
_log = logger(__name__)


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
        closers, self._closers = self._closers, []
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
        span, trace = ended.span, trace_id(execution_id)
        if span is None:
            name, attributes, status, error = _execution_told(ended, followed)
        else:
            name, attributes, status, error = name_of(span), attributes_of(span), span.status, error_of(span)
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
        self._telemetry, self._store = telemetry, store
        self._teller = TellingThread("divebook-telemetry")
        telemetry.runs(self._teller)
        self._heard: set[str] = set()
        self._followed: dict[str, TracedLog] = {}

    def __call__(self, execution_id: str, events: Sequence[Event]) -> None:
        """Hear of events that were written; what is copied or imported is of another time."""
        if execution_id in self._heard or HANDS.drives(execution_id):
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
