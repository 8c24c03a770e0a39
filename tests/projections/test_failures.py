"""A failure is one record, whatever failed: a function, script, template, condition, action, tool, item or child."""

import re

import pytest

from divebook import Agent, Catch, Each, Environment, ScriptedModel, Step, Workflow, tool
from divebook.definitions import read_definitions, step, workflow
from divebook.projections.failures import failures_of
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from divebook.text.redaction import shared

HERE = "tests/projections/test_failures.py"
DEFINITION = """
Workflows:
- Name: scripted
  Steps:
  - Name: calc
    Script: |
      x = 1
      y = x // 0
      y
- Name: templated
  Steps:
  - Name: ask
    Action: Print
    Parameters:
      Text: Dear ${3 // 0}
- Name: conditional
  Steps:
  - Name: first
    Script: "3"
    Store: n
    Next:
    - Step: second
      Condition: $(state.n // 0 > 1)
  - Name: second
    Script: "2"
- Name: looped
  Inputs: [{Name: rows}]
  Steps:
  - Name: each
    Each: {Items: $(inputs.rows), As: row, Parallel: 3}
    Script: 10 // row
"""


@step
def boom(x):
    return {"a": 1}["b"]


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return {"a": 1}["b"]


def environment(**contents):
    world = Environment(store=MemoryStore(), **contents)
    world.define(read_definitions(DEFINITION, source_name="survey.yaml"))
    return world


def failed(world, name, inputs=None):
    execution = world.start(name, inputs).wait(20)
    assert execution.status == "failed"
    return execution


def test_a_function_shows_type_step_arguments_line_and_calls():
    @workflow
    async def flow(ctx, n: int):
        return await boom(n)

    execution = failed(environment(), "flow", {"n": 7})
    failure = execution.failure
    assert (failure.error_type, failure.message, failure.headline) == ("KeyError", "KeyError: 'b'", "KeyError: 'b'")
    assert (failure.step, failure.called, failure.arguments) == ("flow", "boom", {"x": "7"})
    assert re.fullmatch(rf"{HERE}:\d+", failure.place)
    assert dict(failure.source)[failure.line] == '    return {"a": 1}["b"]'
    assert 'in boom\n    return {"a": 1}["b"]\n' in failure.traceback
    assert execution.error == f"KeyError: 'b' (step boom, {failure.place})"


@pytest.mark.parametrize(
    ("name", "inputs", "kind", "place", "line"),
    [
        ("scripted", None, "ZeroDivisionError", "survey.yaml:8:7", "      y = x // 0"),
        ("templated", None, "ZeroDivisionError", "survey.yaml:15:20", "      Text: Dear ${3 // 0}"),
        ("conditional", None, "ZeroDivisionError", "survey.yaml:23:18", "      Condition: $(state.n // 0 > 1)"),
        ("looped", {"rows": [1, 0, 2]}, "ZeroDivisionError", "survey.yaml:31:13", "    Script: 10 // row"),
    ],
)
def test_a_definition_is_at_fault_in_a_line_of_its_file(name, inputs, kind, place, line):
    execution = failed(environment(), name, inputs)
    failure = execution.failure
    assert (failure.error_type, failure.place, dict(failure.source)[failure.line]) == (kind, place, line)
    assert execution.error.startswith(f"{kind}: ")
    assert place in execution.error


def test_a_failure_prints_as_error_place_item_arguments_and_next_step():
    looped = failed(environment(), "looped", {"rows": [1, 0, 2]}).failure
    assert str(looped).splitlines() == [
        "ZeroDivisionError: division by zero",
        "  means: A number was divided by zero: row is 0.",
        "  where: step each, rows[1], survey.yaml:31:13",
        "  arguments: row = 0",
        "  next: correct the cause, then run.resume() continues the run without repeating the completed steps",
    ]
    assert "step='each'" in repr(looped)
    assert not {"source", "traceback"} & set(repr(looped).replace("=", " ").split())
    skipping = Workflow("w", [Step("s", each=Each([1, 0], on_item_error="skip"), script="1 // item")])
    skipped = environment().start(skipping).wait(20).failures[0]
    assert str(skipped).endswith("next: nothing to do: the run continued, and the failure was skipped")


def test_without_its_file_a_definition_is_at_fault_in_a_line_of_its_script():
    failure = failed(environment(), Workflow("w", [Step("calc", script="x = 1\nx // 0")])).failure
    assert (failure.place, failure.source) == ("line 2 of the script", ((1, "x = 1"), (2, "x // 0")))


def test_an_item_is_named_by_what_its_loop_goes_over_and_shown_with_its_value():
    failure = failed(environment(), "looped", {"rows": [1, 0, 2]}).failure
    assert (failure.item, failure.iteration, failure.arguments) == ("rows[1]", 1, {"row": "0"})


def test_an_action_shows_what_it_was_given():
    act = Action("divide", lambda a, b: a // b)
    flow = Workflow("w", [Step("halve", action="divide", parameters={"a": 1, "b": 0})])
    execution = failed(environment(actions=[act]), flow)
    assert execution.failure.arguments == {"a": "1", "b": "0"}
    assert execution.error.startswith(f"ZeroDivisionError: integer division or modulo by zero (step halve, {HERE}:")


def test_a_tool_of_an_agent_is_what_failed_and_not_the_turn_around_it():
    agent = Agent("poet", model=ScriptedModel([{"call": {"look_up": {"word": "owl"}}}, "done"]), tools=[look_up])
    execution = failed(environment(agents=[agent]), Workflow("w", [Step("ask", agent="poet", prompt="Owls?")]))
    failure = execution.failure
    assert (failure.headline, failure.called, failure.arguments) == ("KeyError: 'b'", "look_up", {"word": "'owl'"})
    assert failure.traceback.startswith(f'  File "{__file__}"')
    assert execution.error.startswith(f"KeyError: 'b' (step ask, tool look_up of agent poet, {HERE}:")


def test_of_a_child_the_failure_is_that_inside_it():
    @workflow
    async def inner(ctx):
        return await boom("deep")

    @workflow
    async def outer(ctx):
        return await ctx.run("inner")

    execution = failed(environment(), "outer")
    failure = execution.failure
    assert (failure.headline, failure.called, failure.arguments) == ("KeyError: 'b'", "boom", {"x": "'deep'"})
    assert failure.child.startswith("exec_")
    assert execution.error.startswith(f"KeyError: 'b' (step boom, {failure.place}), in child execution {failure.child}")


def test_an_error_of_the_function_itself_shows_what_it_was_raised_from():
    @workflow
    async def own(ctx):
        try:
            return {}["q"]
        except KeyError as error:
            raise ValueError("row 3 is bad") from error

    failure = failed(environment(), "own").failure
    assert (failure.error_type, failure.headline) == ("ValueError", "ValueError: row 3 is bad")
    assert "KeyError: 'q'\n\nThe above exception was the direct cause" in failure.traceback


def test_a_run_that_goes_on_after_failures_has_them_all_and_none_that_ended_it():
    def refuse(i):
        if i % 2:
            raise ValueError(f"odd: {i}")

    each = Each("$(inputs.numbers)", as_="i", on_item_error="skip")
    caught = Step("next", action="refuse", parameters={"i": 5}, catch=[Catch(step="end")])
    steps = [Step("all", action="refuse", parameters={"i": "$(state.i)"}, each=each), caught, Step("end", script="1")]
    flow = Workflow("w", steps, inputs=["numbers"])
    execution = environment(actions=[Action("refuse", refuse)]).start(flow, {"numbers": [1, 2, 3]}).wait(20)
    assert (execution.status, execution.failure) == ("completed", None)
    told = [(found.item, found.handled, found.message) for found in execution.failures]
    assert told == [
        ("numbers[0]", "skipped", "odd: 1"),
        ("numbers[2]", "skipped", "odd: 3"),
        ("", "caught", "odd: 5"),
    ]


def test_what_succeeds_when_it_is_resumed_has_failed_no_more():
    broken = [True]

    @step
    def mended(x):
        return 1 // (not broken[0])

    @workflow
    async def flow(ctx):
        return await mended(1)

    world = environment()
    execution = failed(world, "flow")
    broken.clear()
    broken.append(False)
    again = world.run_of(execution.id).resume().wait(20)
    assert (again.status, again.failure, again.failures) == ("completed", None, [])


def test_secrets_are_neither_in_arguments_nor_in_lines():
    shared().know("swordfish-42")

    @step
    def login(password, user):
        return {}["swordfish-42"]

    @workflow
    async def flow(ctx):
        return await login("swordfish-42", "ann")

    execution = failed(environment(), "flow")
    told = execution.failure.in_words()
    assert "swordfish-42" not in told
    assert "swordfish-42" not in execution.error
    assert execution.failure.arguments == {"password": "'[redacted]'", "user": "'ann'"}


def test_the_same_is_told_of_a_log_that_another_process_reads():
    execution = failed(environment(), "looped", {"rows": [0]})
    assert failures_of([*execution.history()]) == [execution.failure]
    other = Environment(store=execution.store).run_of(execution.id)
    assert other.failure == execution.failure
