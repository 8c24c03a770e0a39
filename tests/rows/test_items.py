"""A workflow, or an agent, over the rows of a frame: each row is an item with all that runs have."""

import warnings

import pandas as pd
import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import workflow
from divebook.errors import SetupError
from divebook.events import catalog
from divebook.mapping import mapped

FRAME = pd.DataFrame({"text": list("abcd"), "n": [3, 1, 2, 0], "odd name": range(4)}, index=list("wxyz"))
INVERSE = Workflow("inverse", [Step("a", script="12 // inputs.n", store="q")], inputs=["n"], outputs=["q"])


@workflow
async def measured(ctx, text: str, more: int = 0):
    return {"size": len(text) + more}


@pytest.fixture
def environment():
    with Environment(store="memory:") as made:
        yield made


def test_a_workflow_takes_columns_by_the_names_of_its_inputs_and_gives_its_outputs(environment):
    rows = mapped(environment, FRAME, INVERSE).wait()
    assert rows.frame["q"].fillna(-1).to_dict() == {"w": 4, "x": 12, "y": 6, "z": -1}
    assert "division by zero" in rows.failed.loc["z", "error"]
    assert [record.workflow_name for record in environment.store.records(origin="child")] == ["inverse"] * 4
    outcome = "1 of which failed: .retry_failed() calls the failed rows again"
    assert repr(rows) == f"<inverse of rows: 4 of 4 rows, {outcome}>"


def test_only_rows_that_failed_run_again_with_the_workflow_of_now(environment):
    rows = mapped(environment, FRAME, INVERSE).wait()
    environment.add_workflow(
        Workflow("inverse", [Step("a", script="0", store="q")], inputs=["n"], outputs=["q"]), replace=True
    )
    assert rows.retry_failed().wait().frame["q"].to_dict() == {"w": 4, "x": 12, "y": 6, "z": 0}
    assert rows.frame["error"].isna().all()
    assert len(environment.store.records(origin="child")) == 5


def test_a_workflow_function_gives_the_columns_that_it_returns(environment):
    rows = mapped(environment, FRAME, measured, parameters={"more": 10}, parallel=2).wait()
    assert rows.frame["size"].tolist() == [11] * 4


def test_an_agent_is_asked_a_prompt_for_each_row(environment):
    agent = Agent("critic", model=ScriptedModel(["good", "bad", "so", "so"]))
    prompt = "Is ${state.row['odd name']} ${state.row.text} ${inputs.given.kind}?"
    rows = mapped(environment, FRAME, agent, prompt=prompt, parameters={"kind": "praise"}, parallel=1).wait()
    assert rows.frame["result"].tolist() == ["good", "bad", "so", "so"]
    asked = [str(request.messages) for request in environment.run_of(rows.run.id).requests]
    assert ["Is 0 a praise?" in asked[0], "Is 3 d praise?" in asked[3], len(asked)] == [True, True, 4]


def test_what_all_rows_may_spend_is_bounded(environment):
    agent = Agent("critic", model=ScriptedModel(["good"] * 4))
    rows = mapped(environment, FRAME, agent, prompt="${state.row.text}?", bounds={"max_llm_calls": 2}, parallel=1)
    (question,) = rows.run.wait().open_questions
    assert rows.done == 2
    environment.answer(question.id, 4)
    assert rows.wait().frame["result"].tolist() == ["good"] * 4


def test_the_same_line_has_the_results_and_warns_of_another_prompt(environment):
    agent = Agent("critic", model=ScriptedModel(["good"] * 4))
    mapped(environment, FRAME, agent, prompt="${state.row.text}?", store="marks").wait()
    assert mapped(environment, FRAME, agent, prompt="${state.row.text}?", store="marks").done == 4
    with pytest.warns(UserWarning, match="prompt, agent or workflow, and keeps those results."):
        mapped(environment, FRAME, agent, prompt="Really ${state.row.text}?", store="marks")
    assert len(environment.store.records(workflow="marks")) == 1


def test_what_a_run_that_was_broken_off_has_is_kept(environment):
    rows = mapped(environment, FRAME, INVERSE, store="q", parallel=1).wait()
    assert len([e for e in rows.run.history() if isinstance(e.data, catalog.IterationCompleted)]) == 3
    assert rows.run.verify().equal


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        (Agent("critic"), {}, "agent 'critic' needs a prompt; write prompt="),
        (INVERSE, {"prompt": "x"}, "prompt and output are for agents"),
        (len, {"output": {}}, "prompt and output are for agents"),
        (INVERSE, {"parameters": {"zz": 1}}, "workflow 'inverse' does not take zz; the frame has the columns text, n,"),
        (
            measured,
            {"executor": "process"},
            ("executor is only for functions, and 'measured' is not a function; remove it"),
        ),
        (3, {}, "map takes a function, a Workflow or an Agent, not 3"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_begins(environment, function, options, told):
    with pytest.raises(SetupError) as caught:
        mapped(environment, FRAME, function, **options)
    assert told in str(caught.value)
    assert environment.store.records() == []


def test_an_input_that_is_no_column_is_named(environment):
    with pytest.raises(
        SetupError, match=r"workflow 'inverse' takes n; the frame has the columns text: give the inputs of the workflow"
    ):
        mapped(environment, FRAME[["text"]], INVERSE)


def test_what_items_and_rows_gave_is_told_in_short(environment):
    assert repr(mapped(environment, FRAME, measured).wait()) == "<measured of rows: 4 of 4 rows; size: 1 4>"

    def rated(n):
        if n > 2:
            raise ValueError
        return {"label": "good" if n else "bad", "note": f"{n} stars", "token": "plain words"}

    rows = mapped(environment, pd.concat([FRAME, FRAME]), rated).wait()
    assert [spread.words for spread in rows.spread] == ["label: good 4, bad 2", "note: 0 stars 2, 1 stars 2, 2 stars 2"]
    assert repr(rows).startswith(
        "<rated: 8 of 8 rows, 2 of which failed: .retry_failed() calls the failed rows again; label: good"
    )


def critic(*answers, **own):
    return Agent("critic", model=ScriptedModel(answers), **own)


def test_an_agent_that_a_map_needs_is_not_replaced_by_another_of_its_name(environment):
    options = {"prompt": "${state.row.text}", "parallel": 1}
    rows = mapped(environment, FRAME, critic(*["first"] * 9), bounds={"max_llm_calls": 2}, store="one", **options)
    (question,) = rows.run.wait().open_questions
    other = critic(*["second"] * 9, instructions="Be harsh.")
    with pytest.raises(SetupError, match=f"execution {rows.run.id} of 'one' .* another name"):
        mapped(environment, FRAME, other, store="two", **options)
    environment.answer(question.id, 100)
    assert rows.wait().frame["result"].tolist() == ["first"] * 4
    assert mapped(environment, FRAME, other, store="two", **options).wait().frame["result"].tolist() == ["second"] * 4


@workflow
async def asks(ctx, text: str):
    return {"told": await ctx.ask("Who?")}


def test_a_workflow_that_a_map_needs_is_not_replaced_by_another_of_its_name(environment):
    rows = mapped(environment, FRAME, asks, parallel=1)
    assert rows.run.wait().status == "waiting"
    other = Workflow("asks", [Step("a", script="1", store="q")], inputs=["text"], outputs=["q"])
    with pytest.raises(SetupError, match="uses a different workflow with the same name 'asks'"):
        mapped(environment, FRAME, other, store="two")
    rows.run.cancel().wait()
    assert mapped(environment, FRAME, other, store="two").wait().frame["q"].tolist() == [1] * 4


def test_another_agent_or_workflow_of_a_map_is_told(environment):
    options = {"prompt": "${state.row.text}"}
    mapped(environment, FRAME, critic(*["x"] * 4), **options).wait()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapped(environment, FRAME, critic(*["y"] * 4), **options)  # made again, as by a cell that runs again
    with pytest.warns(UserWarning, match="agent or workflow"):
        kept = mapped(environment, FRAME, critic(*["y"] * 4, instructions="Be harsh."), **options)
    assert kept.frame["result"].tolist() == ["x"] * 4
    mapped(environment, FRAME, INVERSE).wait()
    other = Workflow("inverse", [Step("a", script="0", store="q")], inputs=["n"], outputs=["q"])
    with pytest.warns(UserWarning, match="workflow"):
        mapped(environment, FRAME, other)
