"""What telemetry must not do to the runs that it tells of: wait, fail, or be on where it was said that it is off."""

import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from divebook import Environment, Step, Workflow
from divebook import telemetry as leaving
from divebook.errors import SetupError
from divebook.steps import Action
from divebook.telemetry import Telemetry
from tests.telemetry.test_telemetry import Collector, Heard

STEPS = Workflow("w", [Step(name, script="1") for name in ("one", "two", "three")])


def told_by(telemetry):
    """Run a workflow of three steps to its end, and close what it ran in."""
    with Environment(store="memory:", telemetry=telemetry) as environment:
        assert environment.start(STEPS).wait(20).status == "completed"


def test_what_takes_spans_slowly_keeps_nobody_waiting_for_long(monkeypatch, caplog):
    monkeypatch.setattr(leaving, "REPORTING_SECONDS", 0.05)
    go_on = threading.Event()

    class Slow(SpanProcessor):
        def on_end(self, span):
            go_on.wait(60)

    told_by(Telemetry([Slow()]))
    go_on.set()
    assert "because the span processor did not accept them within 0.05 seconds" in caplog.text


def test_a_collector_that_does_not_answer_keeps_nobody_waiting_for_long(monkeypatch, caplog):
    monkeypatch.setattr(leaving, "SENDING_SECONDS", 0.05)
    told_by("http://127.0.0.1:9")
    assert "sending the telemetry data took longer than 0.05 seconds" in caplog.text


def test_what_raises_is_named_once_and_others_are_told_all(caplog):
    class Raises(SpanProcessor):
        def on_end(self, span):
            raise ValueError("no")

        def force_flush(self, timeout_millis=0):
            raise ValueError("not that either")

    caplog.set_level(logging.WARNING)
    exporter = InMemorySpanExporter()
    told_by(Telemetry([Raises(), SimpleSpanProcessor(exporter)]))
    assert len(exporter.get_finished_spans()) == 7
    first, second = [record.getMessage() for record in caplog.records]
    assert "raised an error, so it misses some data; this warning appears only once" in first
    assert (
        second
        == "the latest telemetry data may be missing: sending the telemetry data failed: ValueError: not that either"
    )


@pytest.mark.parametrize("off", ["", "0", "false", "No", "off", "none"])
def test_words_that_say_no_turn_it_off(off, monkeypatch):
    assert sent(monkeypatch, {"DIVEBOOK_TELEMETRY": off}) == set()


@pytest.mark.parametrize(
    ("variable", "value", "paths"),
    [
        ("OTEL_SDK_DISABLED", "true", set()),
        ("OTEL_TRACES_EXPORTER", "none", {"/v1/metrics"}),
        ("OTEL_METRICS_EXPORTER", "none", {"/v1/traces"}),
        ("OTEL_TRACES_EXPORTER", "otlp", {"/v1/traces", "/v1/metrics"}),
    ],
)
def test_the_variables_of_opentelemetry_hold(variable, value, paths, monkeypatch):
    assert sent(monkeypatch, {"DIVEBOOK_TELEMETRY": "yes", variable: value}) == paths


def sent(monkeypatch, variables):
    """Return where a run has something sent to, as variables say."""
    server = Collector()
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, **variables}.items():
        monkeypatch.setenv(name, value)
    told_by(None)
    server.close()
    return set(server.bodies)


def test_the_address_of_a_collector_may_be_given():
    server = Collector()
    told_by(server.url)
    server.close()
    assert set(server.bodies) == {"/v1/traces", "/v1/metrics"}


@pytest.mark.parametrize("given", [3, "collector:4318", ["http://collector:4318"]])
def test_what_is_no_telemetry_is_refused(given):
    with pytest.raises(SetupError, match="telemetry must be True, False, the address of a collector"):
        Environment(store="memory:", telemetry=given)


def test_a_fork_takes_its_own_time():
    """What it shares with its source has taken that of the source, perhaps days ago."""
    ask = Workflow("w", [Step("ask", ask="Sure?", store="sure"), Step("after", script="1")])
    with Environment(store="memory:") as silent:
        source = silent.start(ask).wait(20)
        source.answer(source.open_questions[0].id, "yes").wait(20)
        heard = Heard()
        with Environment(store=silent.store, telemetry=heard.telemetry) as environment:
            (asked,) = [e.sequence for e in source.history() if e.event_type == "interrupt_raised"]
            fork = environment.run_of(source.id).fork(asked).wait(20)
            fork.answer(fork.open_questions[0].id, "yes").wait(20)
        (forked,) = [e.recorded_at for e in fork.history() if e.event_type == "execution_forked"]
    began = {span.name: span.start_time // 1000 for span in heard.spans}
    assert {name: at >= forked for name, at in began.items()} == dict.fromkeys(
        ("step ask", "step after", "script_execution", "workflow w"), True
    )
    ((_, _, seconds),) = heard.metric("divebook.execution.duration")
    assert seconds == pytest.approx((heard.named("workflow w").end_time // 1000 - forked) / 1e6)


def test_what_libraries_tell_of_in_a_thread_that_was_given_is_a_part_of_the_call():
    heard = Heard()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(heard._exporter))

    def fetch():
        with provider.get_tracer("a library").start_as_current_span("GET"):
            return 1

    workflow = Workflow("w", [Step("s", action="fetch")])
    with (
        ThreadPoolExecutor(1) as pool,
        Environment(
            store="memory:", telemetry=heard.telemetry, executor=pool, actions=[Action("fetch", fetch)]
        ) as environment,
    ):
        environment.start(workflow).wait(20)
    assert heard.tree()["GET", "action_execution fetch"] == 1


PROGRAM = """
from divebook import Environment, Step, Workflow
from divebook.telemetry import Telemetry
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

class Prints(SpanProcessor):
    def on_end(self, span):
        print(span.name, flush=True)

world = Environment(store="memory:", telemetry=Telemetry([Prints()]))
world.start(Workflow("w", [Step("one", script="1")])).wait(20)
"""


def test_a_process_that_ends_without_closing_anything_has_told_all():
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, env=environ)  # noqa: PLW1510
    assert done.stderr == ""
    assert done.stdout.split("\n") == ["script_execution", "step one", "workflow w", ""]
