"""Durations of the public API: a timedelta, a number of seconds and a text mean the same in each parameter."""

import inspect
import re
from datetime import timedelta

import pytest

import divebook
import divebook.testing
from divebook import Agent, Ask, Bounds, Context, Environment, Retry, Run, Step, Workflow, action, step, tool
from divebook.analysis import agents, columns, lists, log, store
from divebook.definitions.functions import step_of
from divebook.definitions.reader import read_definitions
from divebook.definitions.tools import tool_of
from divebook.errors import DefinitionError
from divebook.mapping import MappedRows
from divebook.pipeline import Envelope, InterruptService
from divebook.queues import Worker
from divebook.steps.actions import action_of
from divebook.steps.function import WorkspaceHandle
from divebook.stores.maintenance import gc
from divebook.text.arguments import DURATION_FORMS, plain_seconds
from divebook.text.format import parse_duration
from divebook.workspaces.shell import LocalShell, Shell
from tests.definitions.test_definitions_schema import data_of, faults
from tests.test_reference import PLUMBING, on_pages, public_objects, received

FORMS = (timedelta(minutes=1.5), 90, 90.0, "90s", "1m30s", "1 min 30 s", "1 minute 30 seconds")
NAMES = (
    *("timeout", "expires_in", "within", "patience", "duration", "max_seconds", "cache"),
    *("older_than", "default_timeout"),
)
"""Names that parameters for durations have."""


def double(x: int) -> int:
    return 2 * x


@pytest.mark.parametrize(
    ("word", "size"), [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86400), ("week", 604800)]
)
def test_durations_may_have_the_words_of_their_units(word, size):
    for text in (f"1 {word}", f"1{word}", f"1 {word}s"):
        assert plain_seconds(text) == parse_duration(text) == size
    assert parse_duration(f"2.5 {word}s 3 seconds") == 2.5 * size + 3
    for wrong in (f"{word}", f"1 {word}ss", f"1 {word[:-1]}"):
        assert plain_seconds(wrong) == wrong


def lifetime_of_question(value):
    envelope = Envelope()
    envelope.set_interrupt("confirmation", "q", expires_in=value)
    return (envelope.interrupt.expires_at - envelope.interrupt.created_at).total_seconds()


READERS = {
    "Retry(seconds)": lambda value: Retry(seconds=value).seconds,
    "Retry(max_seconds)": lambda value: Retry(max_seconds=value).max_seconds,
    "Bounds(max_seconds)": lambda value: Bounds(max_seconds=value).max_seconds,
    "Bounds.read": lambda value: Bounds.read({"MaxSeconds": value}).max_seconds,
    "Ask(expires_in)": lambda value: Ask("Which?", expires_in=value).expires_in,
    "Step(seconds)": lambda value: Step("s", seconds=value).seconds,
    "Step(timeout)": lambda value: Step("s", script="1", timeout=value).timeout,
    "action": lambda value: action_of(action(timeout=value)(double)).timeout,
    "step": lambda value: step_of(step(timeout=value)(double)).timeout,
    "tool": lambda value: tool_of(tool(timeout=value)(double)).timeout,
    "Envelope.set_interrupt": lifetime_of_question,
    "LocalShell(default_timeout)": lambda value: LocalShell(".", default_timeout=value).default_timeout,
}


@pytest.mark.parametrize("form", FORMS, ids=repr)
@pytest.mark.parametrize("reader", READERS)
def test_each_form_of_a_duration_means_the_same(reader, form):
    assert READERS[reader](form) == 90


def step_with(keys):
    return f"Workflows: [{{Name: w, Steps: [{{Name: s, {keys}}}]}}]"


def the_step(definitions):
    return definitions.workflows[0].steps[0]


KEYS = {
    # A text with the key, in which VALUE stands for its value; how to get the value from the definitions
    "Seconds": (step_with("Seconds: VALUE"), lambda read: the_step(read).seconds),
    "Timeout of a step": (step_with("Script: 1, Timeout: VALUE"), lambda read: the_step(read).timeout),
    "Seconds of Retry": (
        step_with("Script: 1, Retry: {Attempts: 2, Seconds: VALUE}"),
        lambda read: the_step(read).retry.seconds,
    ),
    "MaxSeconds of Retry": (
        step_with("Script: 1, Retry: {Attempts: 2, MaxSeconds: VALUE}"),
        lambda read: the_step(read).retry.max_seconds,
    ),
    "ExpiresIn": (
        step_with("Ask: {Question: a, ExpiresIn: VALUE}"),
        lambda read: the_step(read).ask.expires_in,
    ),
    "ResponseTimeout": ("Agents: [{Name: a, ResponseTimeout: VALUE}]", lambda read: read.agents[0].response_timeout),
    "Timeout of a server": (
        "MCPServers: [{Name: m, Type: stdio, Command: x, Timeout: VALUE}]",
        lambda read: read.mcp_servers[0].timeout,
    ),
    "Timeout of a workspace": ("Workspaces: [{Name: w, Timeout: VALUE}]", lambda read: read.workspaces[0].timeout),
    "Timeout of a tool": ("Tools: [{Name: t, Timeout: VALUE}]", lambda read: read.tools[0].timeout),
    "MaxSeconds": (
        "Workflows: [{Name: w, Bounds: {MaxSeconds: VALUE}, Steps: [{Name: s, Script: 1}]}]",
        lambda read: Bounds.read(read.workflows[0].bounds).max_seconds,
    ),
}


@pytest.mark.parametrize("form", ["90", "90.0", "90s", "1m30s", "1 min 30 s", "1.5 min", "1.5 minutes"])
@pytest.mark.parametrize("key", KEYS)
def test_each_key_for_a_duration_takes_each_form(key, form):
    text, value_of = KEYS[key]
    text = text.replace("VALUE", form)
    assert value_of(read_definitions(text)) == 90
    assert not faults(data_of(text))


@pytest.mark.parametrize("key", KEYS)
def test_an_error_about_a_duration_names_its_forms_once(key):
    text, _ = KEYS[key]
    for wrong in ("soon", "true", "[1s]", "5 parsecs"):
        with pytest.raises(DefinitionError) as caught:
            read_definitions(text.replace("VALUE", wrong))
        assert str(caught.value).count(DURATION_FORMS) == 1


@pytest.mark.parametrize("wrong", ["-1", "1e12", "99999999h", ".inf"])
@pytest.mark.parametrize("key", KEYS)
def test_an_error_about_a_duration_names_its_range(key, wrong):
    with pytest.raises(
        DefinitionError, match=r"a number of seconds (from|above) 0 (to|and at most) 3,155,760,000|a finite number"
    ):
        read_definitions(KEYS[key][0].replace("VALUE", wrong))


@pytest.mark.parametrize("text", ["30s", "5 min"])
def test_the_dialect_dive_has_durations_only_where_it_had_them_before(text):
    with pytest.raises(DefinitionError, match=f"Seconds must be a number or a template, not '{text}'"):
        read_definitions(KEYS["Seconds"][0].replace("VALUE", text), dialect="dive")
    (agent,) = read_definitions(KEYS["ResponseTimeout"][0].replace("VALUE", "30s"), dialect="dive").agents
    assert agent.response_timeout == 30


@pytest.mark.parametrize("form", [timedelta(milliseconds=10), 0.01, "10ms"], ids=repr)
def test_waits_and_sleeps_take_each_form(form):
    environment = Environment(store="memory:", workflows=[Workflow("sleeping", [Step("sleep", seconds=1000)])])
    run = environment.start("sleeping")
    for wait in (run.wait, run.result):
        with pytest.raises(TimeoutError, match=r"after 0.01 s"):
            wait(form)
    run.cancel().wait()

    @divebook.workflow
    async def resting(ctx):
        await ctx.sleep(form)
        return "rested"

    assert environment.start(resting).result() == "rested"
    environment.close()


def test_an_agent_keeps_a_lifetime_of_its_cache_as_plain_data():
    assert Agent("a", cache=timedelta(days=7)).definition.cache == 7 * 86400
    assert Agent("a", cache="7d").definition.cache == "7d"


def parameters():
    """Return the parameters for durations in the public API, with their annotations."""
    functions = [divebook.map, step, action, tool, Bounds, Ask, Step, Agent, gc, LocalShell]
    classes = (Context, divebook.testing.Context, Environment, MappedRows, Run, Worker, WorkspaceHandle)
    for cls in (*classes, Envelope, InterruptService, Shell):
        functions += [value for name, value in vars(cls).items() if inspect.isfunction(value) and name[0] != "_"]
    for function in functions:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in NAMES:
                yield f"{function.__qualname__}({parameter.name})", parameter.annotation


# A parameter that took seconds only would be a second form of durations in the same API.
@pytest.mark.parametrize(("place", "annotation"), [*parameters()])
def test_each_parameter_for_a_duration_is_declared_to_take_each_form(place, annotation):
    is_field = place == "Ask(expires_in)"  # the field of a definition, which holds seconds once it is made
    assert is_field or "DurationLike" in str(annotation), place


# --- durations that users read ---------------------------------------------------------------------------------------

DURATION_NAME = re.compile(r"(_s|_ms|_us|_ns|seconds|_delay|^delay|^took)$|duration|elapsed|timeout")
NUMERIC = re.compile(r"\b(int|float|Micros)\b")
AS_DEFINED = "the value of a key of definitions, in seconds as definitions are stored"
OF_ENGINE = "state of the engine, folded from the log, in microseconds as the log counts"
OF_ENVELOPE = "the fields of an envelope are fixed, and stored as they are"
NUMBERS_BY_REASON = {
    AS_DEFINED: (
        "Action", "AgentDefinition", "AgentStage", "Bounds", "MCPServerDefinition", "PipelineConfig", "Retry", "Step",
        "ToolDefinition", "ToolFunction", "WorkspaceDefinition", "InterruptPolicy",
    ),
    OF_ENGINE: ("ExecutionState", "Span"),
    OF_ENVELOPE: ("ProcessingRecord",),
}  # fmt: skip
NUMBERS = {name: reason for reason, names in NUMBERS_BY_REASON.items() for name in names}
"""Classes whose durations are numbers, with the reason."""


def public_classes():
    """Return the classes that users meet: those they can receive, and those on the pages of the reference."""
    shown = [value for value in (*on_pages(), *(value for _, value in public_objects())) if isinstance(value, type)]
    classes = [cls for cls in {*received(), *shown} if f"{cls.__module__}.{cls.__qualname__}" not in PLUMBING]
    return sorted((cls for cls in classes if cls.__name__[0] != "_"), key=lambda cls: cls.__qualname__)


def numbers_of(cls):
    """Yield the names of the attributes and properties of a class that hold a number and have the name of a duration.

    An integer ``x_us`` is a time if the class has it as ``x_at``, a datetime, too.
    """
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] != "divebook":
            continue
        annotations = dict(vars(base).get("__annotations__", {}))
        for name, value in vars(base).items():
            getter = value.fget if isinstance(value, property) else getattr(value, "func", None)
            if getter is not None:
                annotations[name] = getattr(getter, "__annotations__", {}).get("return", "")
        for name, annotation in annotations.items():
            is_time = name.endswith("_us") and hasattr(cls, f"{name.removesuffix('_us')}_at")
            if name[0] != "_" and DURATION_NAME.search(name) and NUMERIC.search(str(annotation)) and not is_time:
                yield name


def test_durations_of_public_objects_are_timedeltas():
    numbers = {cls.__qualname__: [*numbers_of(cls)] for cls in public_classes()}
    unexpected = {name: found for name, found in numbers.items() if found and name not in NUMBERS}
    assert unexpected == {}, "durations that users read are timedeltas, times are datetimes"
    assert [name for name in NUMBERS if not numbers[name]] == [], "the exception is not needed any more"


TABLES = {
    f"{module.__name__}.{name}": table
    for module in (agents, columns, lists, log, store)
    for name, table in vars(module).items()
    if isinstance(table, dict) and table and all(isinstance(column, columns.Column) for column in table.values())
}


@pytest.mark.parametrize("table", TABLES)
def test_durations_in_frames_are_timedeltas(table):
    name_of_span = re.compile(DURATION_NAME.pattern + "|^waited$")
    spans = {name: column.dtype for name, column in TABLES[table].items() if name_of_span.search(name)}
    assert set(spans.values()) <= {columns.SPAN}


def test_there_are_frames_with_durations():
    assert len(TABLES) > 15
    assert sum("duration" in table for table in TABLES.values()) >= 5


@pytest.mark.parametrize("error", [divebook.errors.TimedOutError, divebook.errors.StageTimeoutError])
def test_an_error_has_the_exceeded_limit_as_a_timedelta(error):
    assert error("step 'a'", 1.5).timeout == divebook.errors.ShellTimeoutError("ls", 1.5).timeout
    assert error("step 'a'", 1.5).timeout == timedelta(seconds=1.5)
