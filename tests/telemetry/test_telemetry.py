"""What OpenTelemetry is told of executions: each span once, in one trace, whichever process recorded it."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.steps import Action
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.transfer import export, import_
from divebook.telemetry import Telemetry


class Heard:
    """What OpenTelemetry was told."""

    def __init__(self):
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.telemetry = Telemetry([SimpleSpanProcessor(self._exporter)], meter_provider=MeterProvider([self._reader]))

    @property
    def spans(self):
        return self._exporter.get_finished_spans()

    def tree(self):
        """Return each span's name with that of the one that holds it."""
        names = {span.context.span_id: span.name for span in self.spans}
        return Counter((span.name, names.get(span.parent.span_id) if span.parent else None) for span in self.spans)

    def named(self, name):
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def metric(self, name):
        """Return the points of a metric, as attributes and how many values there were with their sum."""
        told = json.loads(self._reader.get_metrics_data().to_json())
        (points,) = [
            metric["data"]["data_points"]
            for scope in told["resource_metrics"][0]["scope_metrics"]
            for metric in scope["metrics"]
            if metric["name"] == name
        ]
        return [(point["attributes"], point.get("count"), point.get("sum", point.get("value"))) for point in points]


@pytest.fixture
def heard():
    return Heard()


def search(query: str) -> str:
    """Find."""
    return query


def agent(**options):
    turns = [[{"call": {"search": {"query": "owls"}}}, "Found."]]
    return Agent("finder", model=ScriptedModel(turns=turns), tools=[search], **options)


def run(heard, workflow, store="memory:", inputs=None, **options):
    with Environment(store=store, telemetry=heard.telemetry, workflows=[workflow], **options) as environment:
        return environment.start(workflow.name, inputs).wait(20)


def test_spans_hold_each_other_as_the_log_does_and_speak_of_models_in_the_words_of_genai(heard):
    execution = run(heard, Workflow("w", [Step("ask", prompt="Find owls", agent="finder")]), agents=[agent()])
    assert execution.status == "completed"
    assert heard.tree() == {
        ("workflow w", None): 1,
        ("step ask", "workflow w"): 1,
        ("invoke_agent finder", "step ask"): 1,
        ("chat scripted", "invoke_agent finder"): 2,
        ("execute_tool search", "invoke_agent finder"): 1,
    }
    tool, root = heard.named("execute_tool search"), heard.named("workflow w")
    assert tool.attributes["gen_ai.tool.name"] == "search"
    assert tool.attributes["gen_ai.agent.name"] == "finder"
    assert tool.attributes["divebook.execution.id"] == execution.id
    assert {span.context.trace_id for span in heard.spans} == {root.context.trace_id}
    chats = [span for span in heard.spans if span.name == "chat scripted"]
    assert {span.kind for span in chats} == {SpanKind.CLIENT}
    assert {span.attributes["gen_ai.request.model"] for span in chats} == {"scripted"}
    assert all(root.start_time <= span.start_time <= span.end_time <= root.end_time for span in heard.spans)
    told = str([dict(span.attributes) for span in heard.spans])
    assert "owls" not in told
    assert "Found." not in told


def test_tokens_cost_and_durations_are_measured(heard):
    writer = Agent(
        "writer", model=ScriptedModel(["Yes"], usage={"input_tokens": 1000, "output_tokens": 20}, price=0.25)
    )
    run(heard, Workflow("w", [Step("ask", prompt="Say yes", agent="writer")]), agents=[writer])
    points = {about["gen_ai.token.type"]: value for about, _, value in heard.metric("gen_ai.client.token.usage")}
    assert points == {"input": 1000, "output": 20}
    ((_, _, cost),) = heard.metric("divebook.cost")
    assert cost == pytest.approx(0.25)
    ((about, count, _),) = heard.metric("gen_ai.client.operation.duration")
    assert count == 1
    assert about["gen_ai.agent.name"] == "writer"
    ((about, count, seconds),) = heard.metric("divebook.execution.duration")
    assert (about, count) == ({"divebook.workflow": "w", "divebook.status": "completed"}, 1)
    assert seconds > 0


def test_what_fails_says_with_what_and_without_secrets(heard):
    password = "tulips in the window box"
    workflow = Workflow("w", [Step("each", script="{}[inputs.password]", each=Each(items=[1]))], inputs=["password"])
    assert run(heard, workflow, inputs={"password": password}).status == "failed"
    for name in ("script_execution", "item each[0]", "step each", "workflow w"):
        span = heard.named(name)
        assert span.status.status_code == StatusCode.ERROR
        assert "[redacted]" in span.status.description
        assert password not in str(span.to_json())
    assert heard.named("script_execution").attributes["error.type"] == "KeyError"
    assert heard.named("step each").parent.span_id == heard.named("workflow w").context.span_id


def test_what_a_replay_takes_from_the_log_is_not_told_again(heard, tmp_path):
    workflow = Workflow(
        "w", [Step("before", script="1"), Step("ask", ask="Sure?", store="sure"), Step("after", script="2")]
    )
    with SqliteStore(tmp_path / "log.db") as store:
        run(heard, workflow, store)
        assert ("step before", None) in heard.tree(), "its workflow has not ended"
        other = Heard()  # of another process
        with Environment(store=store, telemetry=other.telemetry) as environment:
            execution = environment.run_of(environment.store.records()[0].execution_id)
            execution.answer(execution.open_questions[0].id, "yes").wait(20)
            execution.verify()
    assert set(other.tree()) == {
        ("step ask", "workflow w"),
        ("step after", "workflow w"),
        ("workflow w", None),
        ("script_execution", "step after"),
    }
    root = other.named("workflow w")
    before = heard.named("step before")
    assert (before.parent.span_id, before.context.trace_id) == (root.context.span_id, root.context.trace_id)
    assert root.start_time <= before.start_time
    ((about, count, _),) = other.metric("divebook.operation.duration")
    assert (about["divebook.type"], count) == ("script_execution", 1)


def test_what_failed_and_goes_on_is_a_span_of_its_own_from_then_on(heard, tmp_path):
    gate = tmp_path / "gate"
    workflow = Workflow("w", [Step("look", action="look")])
    with Environment(
        store="memory:", telemetry=heard.telemetry, workflows=[workflow], actions=[Action("look", gate.read_text)]
    ) as environment:
        execution = environment.start("w").wait(20)
        gate.write_text("open")
        environment.run_of(execution.id).resume().wait(20)
    roots = [span for span in heard.spans if span.name == "workflow w"]
    assert [span.status.status_code for span in roots] == [StatusCode.ERROR, StatusCode.UNSET]
    assert len({span.context.span_id for span in heard.spans}) == len(heard.spans)
    steps = [span for span in heard.spans if span.name == "step look"]
    assert [span.parent.span_id for span in steps] == [root.context.span_id for root in roots]
    assert roots[0].end_time <= roots[1].start_time


def test_neither_logs_that_are_imported_nor_what_a_fork_shares_are_told(heard, tmp_path):
    workflow = Workflow("w", [Step("one", script="1", store="a"), Step("two", script="state.a + 1", store="b")])
    silent = Environment(store="memory:")
    log = silent.start(workflow).wait(20)
    lines = tmp_path / "log.jsonl"
    export(silent.store, log.id, lines)
    with Environment(store=MemoryStore(), telemetry=heard.telemetry) as environment:
        import_(lines, environment.store)
        assert environment.store.records()[0].status == "completed"
        assert heard.spans == ()
        (second,) = [event.sequence for event in environment.store.read(log.id) if event.step == "two"][:1]
        assert environment.run_of(log.id).fork(second - 1).wait(20).status == "completed"
    names = {name for name, _ in heard.tree()}
    assert "step two" in names
    assert "step one" not in names


def test_all_is_sent_by_otlp_where_the_variables_say(monkeypatch):
    server = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "labels")
    monkeypatch.setenv("DIVEBOOK_TELEMETRY", "1")
    with Environment(store="memory:") as environment:
        environment.start(Workflow("w", [Step("one", script="1")])).wait(20)
    server.close()
    traces = ExportTraceServiceRequest.FromString(server.bodies["/v1/traces"])
    (resource,) = traces.resource_spans
    service = {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"]
    assert service == "labels"
    assert {span.name for span in resource.scope_spans[0].spans} == {"script_execution", "step one", "workflow w"}
    measured = ExportMetricsServiceRequest.FromString(server.bodies["/v1/metrics"])
    names = {metric.name for metric in measured.resource_metrics[0].scope_metrics[0].metrics}
    assert "divebook.execution.duration" in names


def test_nothing_is_sent_unless_it_is_asked_for(monkeypatch):
    server = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    for off in (None, "", "0"):
        if off is not None:
            monkeypatch.setenv("DIVEBOOK_TELEMETRY", off)
        with Environment(store="memory:") as environment:
            environment.start(Workflow("w", [Step("one", script="1")])).wait(20)
    server.close()
    assert server.bodies == {}


class Collector:
    """A server that takes what is sent by OTLP over HTTP."""

    def __init__(self):
        bodies = self.bodies = {}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                bodies[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_calls_that_a_what_if_takes_from_a_log_are_marked_and_not_measured(heard):
    workflow = Workflow("w", [Step("find", prompt="Find $(inputs.what)", agent="finder")], inputs=["what"])
    silent = Environment(store=MemoryStore(), workflows=[workflow], agents=[agent()])
    log = silent.start("w", {"what": "owls"}).wait(20)
    with Environment(
        store=silent.store, telemetry=heard.telemetry, workflows=[workflow], agents=[agent()]
    ) as environment:
        found = environment.run_of(log.id).what_if({"inputs": {"what": "bats"}})
        assert found.run.status == "completed"
    assert heard.named("execute_tool search").attributes["divebook.served"]
    types = {about["divebook.type"] for about, _, _ in heard.metric("divebook.operation.duration")}
    assert "agent_turn" in types
    assert "tool_call" not in types


def test_what_libraries_tell_of_while_a_call_is_made_is_a_part_of_it(heard):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(heard._exporter))
    tracer = provider.get_tracer("a library")

    def call(name):
        with tracer.start_as_current_span(f"GET {name}"):
            return name

    async def waits(name: str) -> str:
        return call(name)

    def blocks(name: str) -> str:
        return call(name)

    def looks(query: str) -> str:
        """Find."""
        return call(query)

    script = ScriptedModel(turns=[[{"call": {"looks": {"query": "owls"}}}, "Found."]])
    steps = [
        Step("waits", action="waits", parameters={"name": "a"}),
        Step("items", action="blocks", parameters={"name": "$(state.n)"}, each=Each(["b", "c"], as_="n", parallel=2)),
        Step("ask", prompt="Find owls", agent="finder"),
    ]
    actions = [Action("waits", waits), Action("blocks", blocks)]
    agents = [Agent("finder", model=script, tools=[looks])]
    assert run(heard, Workflow("w", steps), actions=actions, agents=agents).status == "completed"
    within = {name: holder for name, holder in heard.tree() if name.startswith("GET")}
    assert within == {
        "GET a": "action_execution waits",
        "GET b": "action_execution blocks",
        "GET c": "action_execution blocks",
        "GET owls": "execute_tool looks",
    }
    assert len({span.context.trace_id for span in heard.spans}) == 1
    call("after")
    assert heard.named("GET after").parent is None


def test_a_call_that_is_made_again_holds_what_was_told_in_each_attempt(heard, tmp_path):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(heard._exporter))
    tracer, calls = provider.get_tracer("a library"), []

    def fetch() -> int:
        calls.append(1)
        with tracer.start_as_current_span(f"GET {len(calls)}"):
            if len(calls) == 1:
                raise ValueError("no")
            return 1

    workflow = Workflow("w", [Step("fetch", action="fetch")])
    actions = [Action("fetch", fetch)]
    with Environment(
        store=tmp_path / "l.db", telemetry=heard.telemetry, workflows=[workflow], actions=actions
    ) as environment:
        failed = environment.start("w").wait(20)
        assert failed.status == "failed"
        assert environment.run_of(failed.id).resume().wait(20).status == "completed"
    ids = {span.context.span_id: span for span in heard.spans}
    holders = [ids[heard.named(f"GET {number}").parent.span_id] for number in (1, 2)]
    assert [holder.name for holder in holders] == ["action_execution fetch"] * 2
    assert [holder.status.status_code for holder in holders] == [StatusCode.ERROR, StatusCode.UNSET]
