"""Templates and values in the lists and mappings that steps are given, at any depth, wherever they are filled in."""

import asyncio

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook import Each, Environment, Step, Workflow
from divebook.definitions.graph import check_workflow
from divebook.definitions.step import Ask, Rollback
from divebook.steps.checks import workflow_problems
from divebook.steps.script_step import filled
from divebook.text.syntax import each_text
from tests.runtime.worlds import Calls, Failing, environment

GIVEN = {
    "url": "https://h/${inputs.id}",
    "headers": {"Authorization": "Bearer ${inputs.token}", "X": ["$(inputs.id)", {"deep": ["$([inputs.id, 1])"]}]},
    "ids": ["$(inputs.id)", "${inputs.id}", 3, None, True],
    "text": ["echo $${HOME}", "$$(date)", {"${inputs.id}": "a $(b)"}],
}
FILLED = {
    "url": "https://h/7",
    "headers": {"Authorization": "Bearer abc", "X": [7, {"deep": [[7, 1]]}]},
    "ids": [7, "7", 3, None, True],
    "text": ["echo ${HOME}", "$(date)", {"${inputs.id}": "a $(b)"}],
}
INPUTS = ["id", "token"]
VALUES = {"id": 7, "token": "abc"}


def started(*steps, actions=(), workflows=()):
    world = environment(*workflows, actions=actions)
    return world.start(Workflow("w", list(steps), inputs=INPUTS), VALUES).wait(20)


def test_parameters_of_an_action():
    calls = Calls()
    started(Step("s", action="note", parameters={"value": GIVEN}), actions=[calls.action()])
    assert calls == [FILLED]


def test_items_that_are_written_out():
    calls = Calls()
    each = Each([GIVEN, "$(inputs.id)"], as_="item")
    started(Step("s", action="note", parameters={"value": "$(item)"}, each=each), actions=[calls.action()])
    assert calls == [FILLED, 7]


def test_inputs_of_another_workflow():
    child = Workflow("child", [Step("s", script="inputs.x", store="x")], inputs=["x"], outputs=["x"])
    execution = started(Step("s", workflow="child", inputs={"x": GIVEN}, store="got"), workflows=[child])
    assert execution.variables["got"]["x"] == FILLED


def test_data_of_a_question():
    execution = started(Step("s", ask=Ask("Go on?", data={"x": GIVEN})))
    assert execution.open_questions[0].data["x"] == FILLED


def test_parameters_of_a_rollback():
    calls, failing = Calls(), Failing()
    undone = Rollback("note", {"value": [GIVEN, "$(result)"]})
    started(
        Step("s", script="'done ${inputs.id}'", rollback=undone),
        Step("t", action="fail"),
        actions=[calls.action(), failing.action()],
    )
    assert calls == [[FILLED, "done ${inputs.id}"]]


def test_inputs_with_which_an_execution_continues_as_new():
    steps = [
        Step("s", script="inputs.x", next=[("again", "$(inputs.x is None)"), ("end", "$(inputs.x is not None)")]),
        Step("again", "continue_as_new", inputs={"x": GIVEN}),
        Step("end", script="inputs.x", store="x"),
    ]
    inputs = [*INPUTS, {"name": "x", "default": None, "required": False}]
    world = environment()
    first = world.start(Workflow("w", steps, inputs=inputs), VALUES).wait(20)
    assert world.run_of(first.state.continued_as).wait(20).variables["x"] == FILLED


def test_a_frame_in_a_list_stays_a_frame():
    calls = Calls()
    world = Environment(store="memory:", actions=[calls.action()])
    step = Step("s", action="note", parameters={"value": {"frames": ["$(inputs.f)", "$([inputs.f])"]}})
    world.start(Workflow("w", [step], inputs=["f"]), {"f": pd.DataFrame({"a": [1]})}).wait(20)
    first, [second] = calls[0]["frames"]
    assert isinstance(first, pd.DataFrame)
    assert isinstance(second, pd.DataFrame)


@pytest.mark.parametrize(
    "keys",
    [
        {"action": "note", "parameters": {"a": [{"b": "{}"}]}},
        {"workflow": "w", "inputs": {"a": [{"b": "{}"}]}},
        {"ask": {"question": "?", "data": {"a": [{"b": "{}"}]}}},
        {"script": "1", "rollback": {"action": "note", "parameters": {"a": [{"b": "{}"}]}}},
        {"script": "1", "each": [{"b": ["{}"]}]},
    ],
)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${state.x}", "no step sets state.x"),
        ("$(state.x)", "no step sets state.x"),
        ("${HOME}", "write $${HOME} for the text ${HOME}"),
        ("$(date)", "write $$(date) for the text $(date)"),
        ("${1 +}", "failed to parse|never closed|invalid syntax"),
        ("$(1 +)", "invalid syntax"),
        ("$(date", "unclosed expression"),
        ("${x", "unclosed template expression"),
    ],
)
def test_a_mistake_in_a_nested_text_is_found_before_anything_runs(keys, text, message):
    step = Step("s", **each_text(keys, lambda written: written.replace("{}", text)))
    [problem] = workflow_problems(Workflow("w", [step]))
    assert any(part in f"{problem.message}; {problem.hint}" for part in message.split("|"))


LEAVES = {
    "plain": "plain",
    "${state.n}": "7",
    "$(state.n)": 7,
    " $(state.l) ": [1, "two"],
    "$([state.n])": [7],
    "a ${state.l} b": "a 1\n\ntwo b",
    "$${state.n}": "${state.n}",
    "$$(state.n)": "$(state.n)",
    "$$$(state.n)": "$$(state.n)",
    "$$(a ${state.n})": "$(a 7)",
    "$": "$",
    "": "",
}
NESTED = st.recursive(
    st.sampled_from([*LEAVES]) | st.integers() | st.none(),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(["a", "${b}", "$(c)"]), part),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(NESTED)
def test_every_nested_text_is_filled_in(value):
    names = {"state": {"n": 7, "l": [1, "two"]}, "inputs": {}}
    assert asyncio.run(filled({"x": value}, names)) == {"x": each_text(value, LEAVES.__getitem__)}


@settings(max_examples=100, deadline=None)
@given(NESTED, st.sampled_from(["divebook", "dive"]))
def test_a_definition_that_was_stored_before_passes_nested_texts_as_they_are_written(value, dialect):
    stored = {"name": "w", "dialect": dialect, "steps": []}
    stored["steps"] = [{"name": "s", "type": "action", "action": "note", "parameters": {"x": [value]}, "edges": []}]
    [step] = Workflow.from_dict(stored).steps
    assert asyncio.run(filled(step.parameters, {"state": {}, "inputs": {}})) == {"x": [value]}
    assert Workflow.from_dict(Workflow.from_dict(stored).to_dict()).steps == (step,)


def test_all_texts_of_a_definition_that_was_stored_before_keep_their_meaning():
    before = {"name": "a", "type": "prompt", "prompt": "$${state.n}", "thread": "t$${state.n}", "edges": []}
    ask = {"question": "$${state.n}?", "message": "$${state.n}", "data": {"d": "$$(1)", "l": ["${x}"]}}
    steps = [
        before,
        {"name": "b", "type": "interrupt", "ask": ask, "edges": []},
        {"name": "c", "type": "workflow", "workflow": "w", "inputs": {"i": {"k": "$(x)"}}, "edges": []},
        {"name": "d", "type": "wait", "signal": "$${state.n}", "edges": []},
        {"name": "e", "type": "script", "script": "'$${x}'", "each": {"items": ["${x}", "$(x)"]}, "edges": []},
        {"name": "f", "type": "script", "script": "1", "edges": [],
         "rollback": {"action": "note", "parameters": {"p": ["$(x)"]}}},
    ]  # fmt: skip
    a, b, c, d, e, f = Workflow.from_dict({"name": "w", "steps": steps}).steps
    dollar = '${"$"}${state.n}'
    assert (a.prompt, a.thread, d.signal) == (dollar, f"t{dollar}", dollar)
    assert (b.ask.question, b.ask.message, b.ask.data) == (f"{dollar}?", dollar, {"d": "$$$(1)", "l": ["$${x}"]})
    assert (c.inputs, f.rollback.parameters) == ({"i": {"k": "$$(x)"}}, {"p": ["$$(x)"]})
    assert (e.script, e.each.items) == ("'$${x}'", ["$${x}", "$$(x)"])
    assert Workflow.from_dict({"form": 1, "name": "w", "steps": [before]}).steps[0].prompt == "$${state.n}"


@pytest.mark.parametrize("key", ["prompt", "parameters"])
def test_a_dollar_sign_before_a_value_is_doubted(key):
    text = "costs $${state.price} today"
    given = {"prompt": text} if key == "prompt" else {"action": "note", "parameters": {"value": [text]}}
    script = Step("p", script="1", store="price")
    workflow = Workflow("w", [script, Step("s", **given)])
    problems = check_workflow("w", workflow.steps, workflow.steps, workflow.manner)
    [doubt] = [problem for problem in problems if problem.severity == "warning"]
    assert "is an escape for the text ${state.price}, not a value" in doubt.message
    assert doubt.hint.startswith('write ${"$"}${state.price}')
