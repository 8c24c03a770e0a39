"""Durations of the public API: a timedelta, a number of seconds and a text mean the same in each parameter."""

import inspect
from datetime import timedelta

import pytest

import divebook
import divebook.testing
from divebook import Agent, Ask, Bounds, Context, Environment, Retry, Run, Step, Workflow, action, step, tool
from divebook.definitions.functions import step_of
from divebook.definitions.tools import tool_of
from divebook.mapping import MappedRows
from divebook.queues import Worker
from divebook.steps.actions import action_of
from divebook.steps.function import WorkspaceHandle

FORMS = (timedelta(minutes=1.5), 90, 90.0, "90s", "1m30s", "1 min 30 s")
NAMES = ("timeout", "expires_in", "within", "patience", "duration", "max_seconds", "cache")
"""Names that parameters for durations have."""


def double(x: int) -> int:
    return 2 * x


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
}


@pytest.mark.parametrize("form", FORMS, ids=repr)
@pytest.mark.parametrize("reader", READERS)
def test_each_form_of_a_duration_means_the_same(reader, form):
    assert READERS[reader](form) == 90


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
    functions = [divebook.map, step, action, tool, Bounds, Ask, Step, Agent]
    for cls in (Context, divebook.testing.Context, Environment, MappedRows, Run, Worker, WorkspaceHandle):
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
