"""What made a value: `why` against interventions, and each way in which a value can depend on another (trap 22)."""

from dataclasses import replace

import pandas as pd
import pytest

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.definitions.step import Catch
from divebook.errors import NotFoundError
from divebook.events import Event, catalog
from divebook.replay.provenance import why
from divebook.steps.actions import Action
from tests.pipeline.worlds import Script, chain, envelope, pipeline, world
from tests.replay.truth import compared


def run_of(steps, inputs=None, **given):
    """Return an execution of steps that has ended."""
    environment = Environment(store="memory:", **given)
    return environment.start(Workflow("w", steps, inputs=list(inputs or {})), inputs or {}).wait(10)


def named(found):
    return {origin.name for origin in found.origins if origin.name}


@pytest.mark.parametrize("seed", [2, 9, 11])
def test_whatever_changes_a_variable_is_named_among_its_causes(seed):
    counts, missed = compared(seed, most=20)
    assert missed == []
    assert counts["changed, named"] > 5
    assert counts["same, not named"] > counts["same, named"]  # it does not simply name everything


@pytest.mark.parametrize("text", ["state.x + 1", "state['x'] + 1", "state.get('x', 0) + 1", "1 if 'x' in state else 0"])
def test_a_key_of_the_state_is_what_a_step_reads(text):
    run = run_of(
        [Step("a", script="1", store="x"), Step("b", script="2", store="z"), Step("c", script=text, store="y")]
    )
    assert named(run.why("y")) == {"y", "x"}


def test_a_step_that_takes_the_state_as_a_whole_reads_all_of_it():
    run = run_of(
        [Step("a", script="1", store="x"), Step("b", script="2", store="z"), Step("c", script="len(state)", store="y")]
    )
    assert named(run.why("y")) == {"y", "x", "z"}
    assert named(run.why("state")) == {"state", "x", "y", "z"}


@pytest.mark.parametrize("side_by_side", [1, 2])
@pytest.mark.parametrize("x", ["$(item)", "$(state.item)"])
def test_the_name_of_an_item_leads_to_where_the_items_came_from(x, side_by_side):
    each = Each("$(state.rows)", as_="item", parallel=side_by_side)
    steps = [
        Step("rows", script="[1, 2]", store="rows"),
        Step("other", script="1", store="other"),
        Step("do", action="work", parameters={"x": x}, each=each, store="done"),
    ]
    run = run_of(steps, actions=[Action("work", doubled)])
    assert named(run.why("done")) - {"item"} == {"done", "rows"}
    assert [call.item for call in run.why("done").root.calls] == [0, 1]


async def doubled(x: int) -> int:
    return 2 * x


def test_an_item_does_not_come_from_another():
    each = Each("$(inputs.rows)", as_="item")
    run = run_of([Step("do", script="state.item + 1", each=each, store="done")], {"rows": [1, 2, 3]})
    items = [origin for origin in run.why("done").origins if origin.name == "item"]
    assert [origin.item for origin in items] == [0, 1, 2]
    for event in (origin.sequence for origin in items):
        assert named(run.why("item", event)) == {"item", "inputs.rows"}


def test_a_variable_that_was_deleted_and_set_again_comes_from_where_it_was_set_last():
    steps = [
        Step("a", script="inputs.n", store="x"),
        Step("d", script="state.delete('x')"),
        Step("g", script="state.get('x', 5)", store="y"),
        Step("s", script="state.set('x', 7)"),
    ]
    run = run_of(steps, {"n": 1})
    assert named(run.why("x")) == {"x"}
    assert run.why("x").root.step == "s"
    assert run.why("x", at=run.why("y").root.sequence).root.kind == "deleted"
    assert "x was deleted by step d" in str(run.why("y"))


def test_a_choice_is_why_a_step_ran_and_why_a_variable_was_not_set():
    steps = [
        Step("a", script="inputs.n", store="x", next=[("low", "$(state.x < 5)"), ("high", "$(state.x >= 5)")]),
        Step("low", script="1", store="y", next=["end"]),
        Step("high", script="2", store="z", next=["end"]),
        Step("end", script="3", store="last"),
    ]
    run = run_of(steps, {"n": 1})
    assert run.why("y").inputs == ["n"]
    assert "because step a went to low" in str(run.why("y"))
    assert "z was not set" in str(run.why("z"))
    assert run.why("z").inputs == ["n"]
    assert named(run.why("last")) == {"last"}, "it runs whatever is chosen"


def test_a_step_after_two_ways_of_which_both_may_be_taken_depends_on_the_choice():
    ways = [("b", "$(state.x % 2 == 0)"), ("c", "$(state.x % 3 == 0)")]
    steps = [
        Step("a", script="inputs.n", store="x", next=ways),
        Step("b", script="1", next=["d"]),
        Step("c", script="1", next=["d"]),
        Step("d", script="state.set('count', state.get('count', 0) + 1)"),
    ]
    assert run_of(steps, {"n": 4}).why("count").inputs == ["n"]


def test_a_join_ends_what_was_chosen_before_it():
    steps = [
        Step("a", script="1", next=["l", "r"]),
        Step("l", script="inputs.n", store="l", next=["j"]),
        Step("r", script="2", store="r", next=["j"]),
        Step("j", script="state.l + state.r", store="sum", join=True),
    ]
    assert named(run_of(steps, {"n": 4}).why("sum")) == {"sum", "l", "r", "inputs.n"}


def test_what_was_caught_is_why_the_step_ran_that_catches_it():
    steps = [
        Step("a", script="1 // inputs.n", store="x", catch=Catch("c", store="error"), next=["e"]),
        Step("c", script="7", store="x", next=["e"]),
        Step("e", script="0"),
    ]
    failed, fine = run_of(steps, {"n": 0}), run_of(steps, {"n": 1})
    assert failed.why("x").inputs == ["n"]
    assert "because step a failed" in str(failed.why("x"))
    assert failed.why("error").inputs == ["n"]
    assert fine.why("error").inputs == ["n"]
    assert "because step a did not fail" in str(fine.why("error"))


def test_an_output_that_is_no_variable_is_the_text_of_the_last_step():
    environment = Environment(store="memory:")
    made = Workflow("w", [Step("a", script="inputs.n + 1")], inputs=["n"], outputs=["answer"])
    found = environment.start(made, {"n": 1}).wait().why("answer")
    assert (found.root.kind, found.root.step, found.inputs) == ("output", "a", ["n"])


@step
async def measured(n: int) -> int:
    """Measure."""
    return n * 2


@workflow
async def measuring(ctx, n: int) -> int:
    """Measure twice."""
    return await measured(await measured(n))


def test_of_a_function_the_calls_before_are_known_and_it_is_said_what_is_not():
    execution = Environment(store="memory:", workflows=[measuring]).start("measuring", {"n": 1}).wait()
    found = execution.why("result")
    assert [call.name for call in found.root.calls] == ["measured", "measured"]
    assert found.inputs == ["n"]
    assert "what the function did between its calls is not recorded" in str(found)


def test_an_agent_is_told_with_its_prompt_and_its_answer():
    poet = Agent("poet", model=ScriptedModel(["roses"]))
    steps = [Step("a", script="'love'", store="x"), Step("p", prompt="Write of ${state.x}", agent="poet", store="y")]
    found = run_of(steps, agents=[poet]).why("y")
    assert named(found) == {"y", "x"}
    assert 'model call poet "Write of love" -> "roses"' in str(found)


def test_a_child_is_named_so_that_it_can_be_asked():
    child = Workflow("inner", [Step("c", script="inputs.m + 1", store="out")], inputs=["m"], outputs=["out"])
    steps = [Step("w", workflow="inner", inputs={"m": "$(inputs.n)"}, store="got")]
    environment = Environment(store="memory:", workflows=[child, Workflow("w", steps, inputs=["n"])])
    found = environment.start("w", {"n": 1}).wait().why("got")
    (name,) = [record.execution_id for record in environment.store.records(origin="child")]
    assert f"divebook.show({name!r}).why(NAME)" in str(found)
    assert environment.run_of(name).why("out").inputs == ["m"]


def test_a_name_that_nothing_sets_is_refused_with_the_nearest():
    run = run_of([Step("a", script="1", store="total")])
    with pytest.raises(NotFoundError, match=r"no event up to event 9 sets a variable totl .did you mean 'total'"):
        run.why("totl")


def test_an_index_goes_on_with_a_log_that_grows():
    environment = Environment(store="memory:")
    steps = [
        Step("a", script="1", store="x"),
        Step("q", ask="How many?", store="q"),
        Step("b", script="state.q", store="y"),
    ]
    execution = environment.start(Workflow("w", steps)).wait()
    assert environment.run_of(execution.id).why("x").root.step == "a"
    with pytest.raises(NotFoundError, match="step b sets it, but that step had not ended"):
        environment.run_of(execution.id).why("y")
    execution.answer(execution.open_questions[0].id, "three").wait()
    assert named(environment.run_of(execution.id).why("y")) == {"y", "q"}
    assert named(why(list(execution.history()), "y")) == {"y", "q"}


def test_a_long_story_is_folded_and_the_frame_has_all_of_it():
    steps = [Step("s0", script="0", store="x"), *(Step(f"s{n}", script="state.x + 1", store="x") for n in range(1, 40))]
    found = run_of(steps).why("x")
    assert str(found).endswith("... 40 values and choices in all; .frame() lists them")
    frame = found.frame()
    assert list(frame["event"]) == sorted(frame["event"], reverse=True)
    assert (len(frame), frame["value"][0], frame["depth"].max()) == (40, 39, 39)


def test_secrets_of_inputs_are_told_nowhere():
    run = run_of([Step("a", script="inputs.api_key + '!'", store="x")], {"api_key": "sk-12345-very-secret"})
    found = run.why("x")
    assert "very-secret" not in str(found) + found.graph + found._repr_html_()


def test_html_and_graph_hold_what_was_written_as_text():
    run = run_of([Step("a", script="'<b>\"#'", store="x"), Step("c", script="state.x", store="y")])
    found = run.why("y")
    assert "<b>" not in found._repr_html_()
    assert "&lt;b&gt;" in found._repr_html_()
    assert found.graph.startswith("flowchart LR\n")
    assert "<b>" not in found.graph


def test_what_a_fork_has_otherwise_is_where_its_values_come_from():
    """Also what is read by a step that was open when it forked."""
    source = run_of([Step("a", script="inputs.n", store="x"), Step("b", script="state.x + 1", store="y")], {"n": 1})
    log = list(source.history())
    begun = next(event.sequence for event in log if event.step == "b")
    change = {"variables": {"x": 5}, "inputs": {"n": 7}}
    forked = catalog.ExecutionForked(source=source.id, at=begun, workflow_name="w", change=change)
    fork = [*log[:begun], Event("event_f", source.id, begun + 1, log[begun].recorded_at, forked)]
    fork += [replace(event, sequence=event.sequence + 1) for event in log[begun:]]
    found = why(fork, "y")
    assert [(origin.name, origin.step) for origin in found.origins] == [("y", "b"), ("x", "")]
    assert "x = 5: changed by a fork at event" in str(found)
    assert str(why(fork, "inputs.n")) == f"inputs.n = 7: changed by a fork at event {begun + 1}"


def test_one_event_of_a_long_log_is_read_alone():
    """Words of a few values must not cost the pages that they stand in (`python -m benchmarks --only why`)."""
    run = run_of([Step("a", script="1", store="x"), Step("b", script="state.x", store="y")])
    found, asked = run.why("y"), []
    read = run.store.read
    run.store.read = lambda *place: asked.append(place) or read(*place)
    assert str(found).startswith("y = 1")
    assert {limit for _, _, limit in asked} == {1}


async def labelled(text: str) -> dict:
    """Label a text; fail for one."""
    if text == "bad":
        raise ValueError(text)
    return {"text": text, "label": len(text)}


async def as_frame(rows: list, column: str = "label"):
    """Make a frame of labels."""
    return pd.DataFrame({"n": range(len(rows)), column: [row["label"] for row in rows]})


async def mean(rows: list):
    """Make of rows what says nothing about one of them."""
    return pd.DataFrame({"mean": [sum(row["label"] for row in rows) / len(rows)] * len(rows)})


def labels():
    """Return a run in which items make rows, of which one is skipped, and an action makes frames of them."""
    actions = [Action("labelled", labelled), Action("as_frame", as_frame), Action("mean", mean)]
    each = Each("$(state.texts)", as_="text", on_item_error="skip")
    steps = [
        Step("texts", script="['a', 'bad', 'ccc']", store="texts"),
        Step("label", action="labelled", parameters={"text": "$(text)"}, each=each, store="rows"),
        Step("table", action="as_frame", parameters={"rows": "$(state.rows)"}, store="df"),
        Step("means", action="mean", parameters={"rows": "$(state.rows)"}, store="means"),
    ]
    return run_of(steps, actions=actions)


def test_a_row_comes_from_its_item_also_where_another_was_skipped():
    found = labels().why("rows", row=1)
    assert (found.name, found.root.step, found.root.item) == ("rows[1]", "label", 2)
    assert [call.item for call in found.root.calls] == [2]
    assert found.value(found.root) == {"text": "ccc", "label": 3}
    assert labels().why("rows", row=0, column="label").value(labels().why("rows", row=0, column="label").root) == 1


@pytest.mark.parametrize("column", [None, "label"])
def test_a_row_of_a_frame_comes_from_the_item_whose_values_stand_in_its_column(column):
    found = labels().why("df", row=1, column=column)
    made = [
        origin for origin in found.origins if origin.step == "label" and origin.kind == "set" and origin.items == ()
    ]
    assert [(origin.name, origin.item) for origin in made][:1] == [("rows[1]['label']", 2)]
    assert "rows[1]['label'] = 3: step label[2]" in str(found)


@pytest.mark.parametrize(
    ("name", "row", "column", "said"),
    [
        ("rows", 2, None, "rows has 2 rows, so it has no row 2"),
        ("rows", 0, "lable", "row 0 of rows has no column lable .did you mean 'label'"),
        ("means", 0, None, "the log does not record which item produced row 0 of means"),
        (
            "df",
            0,
            "n",
            "the log does not record which item produced row 0 of df, because no step with items set the values in its",
        ),
    ],
)
def test_a_row_of_which_the_log_does_not_say_who_made_it(name, row, column, said):
    with pytest.raises(NotFoundError, match=said):
        labels().why(name, row=row, column=column)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_an_envelope_leads_back_through_the_stages_that_made_it(mode):
    script = Script(a=[{"x": 1}], b=[{"y": 2}])
    with world() as environment:
        pipeline(chain("a", "b"), script, environment=environment).run(envelope(), mode=mode)
        found = environment.run_of(environment.store.records()[0].execution_id).why("pipeline")
    calls = [call.type for origin in found.origins for call in origin.calls]
    assert calls.count("stage_call") == 2
    assert {origin.step for origin in found.origins} >= (
        {"a", "b", "route"} if mode == "sequential" else {"batch", "merge"}
    )
    assert "inputs.envelope" in named(found)
