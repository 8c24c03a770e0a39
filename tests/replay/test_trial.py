"""A step of a run tried again: with the state it had, alone, beside what is recorded; the run stays as it is."""

from collections import Counter

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.agents import Agent, ScriptedModel
from divebook.definitions import step, workflow
from divebook.definitions.tools import tool
from divebook.engine.lifecycle import violations
from divebook.errors import DefinitionError, NotFoundError, SetupError
from divebook.events.codec import encode_line
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

CALLS = Counter()


@pytest.fixture(autouse=True)
def _fresh():
    CALLS.clear()


async def double(x: object = 0) -> object:
    CALLS["double"] += 1
    return x * 2


@tool
async def weigh(what: str) -> str:
    """Weigh something."""
    CALLS["weigh"] += 1
    return f"{what} weighs {CALLS['weigh']}"


AGAIN = [("count", "$(state.n < 2)"), ("each", "$(state.n > 1)")]
LOOP = Workflow(
    "loop",
    [
        Step("count", script="state.n + 1 if 'n' in state else 1", store="n"),
        Step("draft", agent="poet", prompt="Line ${state.n} about ${inputs.what}", store="line"),
        Step("twice", action="double", parameters={"x": "$(state.n)"}, store="m", next=AGAIN),
        Step("each", script="state.i * 10 + state.n", each=Each([1, 2, 3], as_="i"), store="items", end=True),
    ],
    inputs=["what"],
)
PARALLEL = Workflow(
    "parallel",
    [
        Step("begin", script="1", store="a", next=["left", "right"]),
        Step("left", script="state.a + 1", store="b", next=["far"]),
        Step("far", script="state.b + 1", store="d", next=["meet"]),
        Step("right", script="state.a + 2", store="c", next=["meet"]),
        Step("meet", script="[state.b, state.c, state.d]", join=True, store="all", catch=["mend"], end=True),
        Step("mend", script="0", store="mended"),
    ],
)


def poet(*replies):
    return Agent("poet", model=ScriptedModel([*replies], usage={"input_tokens": 5, "output_tokens": 2}, price=0.25))


@pytest.fixture
def looped():
    model = poet("a red rose", "two roses", "a white rose")
    known = {"agents": [model], "actions": [Action("double", double)], "workflows": [LOOP]}
    with Environment(store=MemoryStore(), **known) as world:
        source = world.start("loop", {"what": "roses"}).wait(20)
        assert (source.status, dict(source.state.variables)["items"]) == ("completed", [12, 22, 32])
        CALLS.clear()
        before = [encode_line(event) for event in source.history()]
        yield world, source
        assert [encode_line(event) for event in source.history()] == before, "the run stays as it is"


def values(trial):
    return trial.recorded.value, [tried.value for tried in trial.tries]


def test_a_step_is_tried_with_the_state_and_the_keys_that_it_is_given(looped):
    world, source = looped
    trial = world.run_of(source.id).try_step("draft", {"Prompt": "Short line ${state.n}"}, times=2, visit=1)
    assert values(trial) == ("a red rose", ["a white rose", "a white rose"])
    assert (trial.recorded.asked, trial.tries[0].asked) == ("Line 1 about roses", "Short line 1")
    assert (trial.tries[0].tokens, trial.tries[0].cost, trial.cost) == (7, 0.25, 0.5)
    assert "Prompt: Short line ${state.n}" in trial.definition
    told = str(trial)
    assert "[-Line-]{+Short line+} 1" in told
    assert "a [-red-]{+white+} rose" in told
    changed = world.run_of(source.id).try_step("draft", variables={"n": 7}, inputs={"what": "owls"})
    assert changed.tries[0].asked == "Line 7 about owls"
    assert f"step draft, visit 2 of {source.id} with n = 7, inputs.what = owls: 1 try" in str(changed)
    assert changed.recorded.value == "two roses", "the last visit, where none is named"


def test_each_try_ends_with_its_step_and_is_a_trial_that_counts_nowhere(looped):
    world, source = looped
    totals = world.store.record(source.id)
    trial = world.run_of(source.id).try_step("draft", times=3)
    for execution in trial.runs:
        record = world.store.record(execution.id)
        assert (record.origin, record.parent, execution.status) == ("trial", source.id, "completed")
        entered = [event.step for event in execution.history() if event.event_type == "step_started"]
        assert entered[-1] == "draft"
        assert not list(violations(execution.history()))
        assert world.run_of(execution.id).verify().equal
    assert world.queues.recoverable() == []
    assert world.store.record(source.id) == totals
    import divebook

    assert set(divebook.frames(world).usage["execution_id"]) == {source.id}


def test_actions_have_the_recorded_result_of_the_same_call_and_are_else_not_executed(looped):
    world, source = looped
    assert values(world.run_of(source.id).try_step("twice")) == (4, [4])
    blocked = world.run_of(source.id).try_step("twice", variables={"n": 9})
    assert (blocked.tries[0].status, blocked.tries[0].value) == ("failed", None)
    assert "not executed in a trial: no recorded result for these arguments" in blocked.tries[0].text
    assert not CALLS
    assert values(world.run_of(source.id).try_step("twice", variables={"n": 9}, tools="live")) == (4, [18])
    assert CALLS["double"] == 1


def test_all_items_are_tried_or_one_at_its_place(looped):
    world, source = looped
    assert values(world.run_of(source.id).try_step("each")) == ([12, 22, 32], [[12, 22, 32]])
    one = world.run_of(source.id).try_step("each", {"Script": "state.i * 100"}, item=1)
    assert values(one) == (22, [200])
    items = [e.data.iteration_index for e in one.runs[0].history() if e.event_type == "iteration_started"]
    assert items == [1]
    assert "each[1]" in str(one)


def test_other_paths_do_nothing_in_a_trial():
    with Environment(store=MemoryStore()) as world:
        source = world.start(PARALLEL).wait(20)
        for name, value in (("right", 3), ("far", 3), ("left", 2), ("meet", [2, 3, 3]), ("begin", 1)):
            trial = world.run_of(source.id).try_step(name)
            assert values(trial) == (value, [value]), name
            own = [e for e in trial.runs[0].history() if e.sequence >= trial.entry.began]
            assert [e.step for e in own if e.event_type == "step_started"] == [name]
            assert not list(violations(trial.runs[0].history()))


def test_a_failure_is_what_a_try_came_to_whatever_would_catch_it():
    with Environment(store=MemoryStore()) as world:
        source = world.start(PARALLEL).wait(20)
        trial = world.run_of(source.id).try_step("meet", {"Script": "1 / 0"}, times=2)
        assert [tried.status for tried in trial.tries] == ["failed"] * 2
        assert "division by zero" in trial.tries[0].text
        assert "0 completed" in str(trial)


def test_a_step_that_has_failed_is_tried_until_it_does_not():
    flow = Workflow("broken", [Step("one", script="3", store="x"), Step("two", script="state.x / 0", store="y")])
    with Environment(store=MemoryStore()) as world:
        source = world.start(flow).wait(20)
        trial = world.run_of(source.id).try_step("two", {"Script": "state.x / 2"})
        assert (trial.recorded.status, trial.tries[0].value) == ("failed", 1.5)
        assert "division by zero" in trial.recorded.text
        assert source.refresh().status == "failed"


def test_the_tools_of_an_agent_answer_from_the_log_and_its_model_is_asked():
    model = ScriptedModel([{"call": {"weigh": {"what": "a"}}}, "heavy"])
    agent = Agent("judge", model=model, tools=[weigh])
    flow = Workflow("judging", [Step("ask", agent="judge", prompt="Judge", store="said")])
    with Environment(store=MemoryStore(), agents=[agent], workflows=[flow]) as world:
        source = world.start("judging").wait(20)
        asked = source.state.ledger.llm_calls
        trial = world.run_of(source.id).try_step("ask", {"Prompt": "Judge again"}, times=2)
        assert values(trial) == ("heavy", ["heavy", "heavy"])
        assert CALLS["weigh"] == 1, "its recorded result is given"
        assert [execution.state.ledger.llm_calls for execution in trial.runs] == [asked, asked]


def test_what_each_try_may_spend_is_bounded_beside_what_the_run_had_spent(looped):
    world, source = looped
    for limit, status in ((0.1, "waiting"), (0.25, "completed")):
        trial = world.run_of(source.id).try_step("draft", bounds={"max_cost": limit}, times=2)
        assert [tried.status for tried in trial.tries] == [status] * 2
    trial = world.run_of(source.id).try_step("draft", bounds={"max_cost": 0.1})
    assert (trial.tries[0].asked, trial.tries[0].cost) == ("", None)
    assert "Budget reached: $0.25 of $0.35 spent" in trial.tries[0].text
    assert "asked: each time as recorded" in str(trial)


def test_a_question_has_its_recorded_answer_and_another_one_waits():
    flow = Workflow("asks", [Step("ask", ask="How many roses?", store="count"), Step("end", script="1")])
    with Environment(store=MemoryStore()) as world:
        source = world.start(flow).wait(20)
        world.answer(source.open_questions[0].id, "seven", source.id).wait(20)
        assert values(world.run_of(source.id).try_step("ask")) == ("seven", ["seven"])
        other = world.run_of(source.id).try_step("ask", {"Ask": "How many owls?"})
        assert other.tries[0].status == "waiting"
        assert "How many owls?" in other.tries[0].text


def test_a_try_that_is_killed_anywhere_goes_on_to_the_same(looped):
    world, source = looped
    cuts = []
    unsubscribe = world.store.subscribe(lambda name, events: cuts.append((name, events[-1].sequence)))
    trial = world.run_of(source.id).try_step("each", {"Script": "state.i * state.n"})
    unsubscribe()
    (tried,) = trial.runs
    whole = list(tried.history())
    points = [sequence for name, sequence in cuts if name == tried.id][:-1]
    assert points
    for cut in points:
        with Environment(store=MemoryStore(), agents=[poet("x")]) as other:
            other.store.append(source.id, list(source.history()), 0)
            other.store.append(tried.id, whole[:cut], 0)
            assert other.queues.recoverable() == []
            again = other.run_of(tried.id).resume().wait(20)
            assert (again.status, again.state.variables["items"]) == ("completed", trial.tries[0].value)


def test_a_trial_is_a_frame_and_a_page(looped):
    world, source = looped
    trial = world.run_of(source.id).try_step("draft", {"Prompt": "<b>${state.n}</b>"})
    frame = trial.frame()
    assert list(frame["number"]) == [0, 1]
    assert list(frame["value"]) == ["two roses", "a white rose"]
    assert dict(frame.dtypes.astype(str))["cost"] == "float64"
    page = trial._repr_html_()
    assert "<ins" in page
    assert "<script" not in page
    assert "&lt;" in page
    assert "<b>2" not in page


def test_a_trial_is_kept_as_a_file(looped, tmp_path, monkeypatch):
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: None)  # other tests have a shell
    world, source = looped
    trial = world.run_of(source.id).try_step("draft", {"Prompt": "Short line ${state.n}"})
    assert trial.keep(tmp_path / "loop.yaml") == tmp_path / "loop.yaml"
    with Environment(store=MemoryStore()) as other:
        from divebook.definitions.reader import read_definitions

        other.define(read_definitions((tmp_path / "loop.yaml").read_text()))
        kept = other.definitions.workflows["loop"]
        assert kept.step("draft").prompt == "Short line ${state.n}"
        assert kept.step("twice") == LOOP.step("twice")
    with pytest.raises(SetupError, match="a cell can be added only in a notebook"):
        trial.keep()


@pytest.mark.parametrize(
    ("step", "options", "error", "message"),
    [
        ("drft", {}, NotFoundError, "workflow 'loop' has no step 'drft' (did you mean 'draft'?)"),
        ("draft", {"times": 0}, SetupError, "a trial must run its step at least once, not 0 times"),
        ("draft", {"visit": 3}, SetupError, "entered step 'draft' 2 times; visit must be from 1 to 2, not 3"),
        ("draft", {"item": 0}, SetupError, "step 'draft' has no Each, so it has no item 0"),
        ("each", {"item": 3}, SetupError, "started items 0 to 2, not item 3"),
        (
            "draft",
            {"variables": {"nn": 1}},
            NotFoundError,
            "variable 'nn' cannot be set, because no variable of that name existed when step 'draft' was entered",
        ),
        ("draft", {"inputs": {"wat": 1}}, NotFoundError, "input 'wat' cannot be set"),
        ("draft", {"change": {}}, SetupError, "a trial has no option 'change'"),
        ("draft", {"tools": "some"}, SetupError, "a trial cannot run actions and tools as 'some'"),
        ("draft", {"changes": {"Promt": "x"}}, DefinitionError, "unknown key 'Promt' (did you mean 'Prompt'?)"),
        ("draft", {"changes": "\nPrompt: [x]"}, DefinitionError, "changes:2:9: Prompt must be a string, not a list"),
        ("draft", {"changes": {"Name": "x"}}, DefinitionError, "a step cannot be renamed"),
    ],
    ids=["step", "times", "visit", "no-each", "item", "variable", "input", "option", "tools", "key", "line", "name"],
)
def test_a_trial_that_cannot_be_says_why_and_starts_nothing(looped, step, options, error, message):
    world, source = looped
    with pytest.raises(error) as caught:
        world.run_of(source.id).try_step(step, **options)
    assert message in str(caught.value)
    assert len(world.store.records()) == 1


def test_a_step_that_was_never_entered_is_refused():
    with Environment(store=MemoryStore()) as world:
        source = world.start(PARALLEL).wait(20)
        with pytest.raises(SetupError, match="never entered step 'mend', so there is no state"):
            world.run_of(source.id).try_step("mend")


@workflow("rhymes")
async def rhymes(ctx, what: str = "roses"):
    doubled = await twice_as_many(2)
    first = await ctx.agent("poet").run(f"Line about {doubled} {what}")
    judged = await ctx.agent("judge").run("Weigh ${state.this}, which is no template")
    return [first, judged]


@step
async def twice_as_many(count: int) -> int:
    CALLS["twice"] += 1
    return count * 2


@pytest.fixture
def rhymed():
    judge = Agent("judge", model=ScriptedModel([{"call": {"weigh": {"what": "a"}}}, "heavy"]), tools=[weigh])
    with Environment(store=MemoryStore(), agents=[poet("four roses", "white roses"), judge]) as world:
        source = world.start(rhymes).wait(20)
        assert source.status == "completed", source.error
        CALLS.clear()
        before = [encode_line(event) for event in source.history()]
        yield world, source
        assert [encode_line(event) for event in source.history()] == before


def test_what_a_workflow_function_asked_an_agent_is_asked_again(rhymed, tmp_path):
    world, source = rhymed
    trial = world.run_of(source.id).try_step("poet", {"Prompt": "A short one: ${state.asked}"}, times=2)
    assert values(trial) == ("four roses", ["white roses", "white roses"])
    assert (trial.recorded.asked, trial.tries[0].asked) == ("Line about 4 roses", "A short one: Line about 4 roses")
    assert (trial.recorded.tokens, trial.tries[0].tokens) == (7, 7)
    assert "call 1 of agent poet" in str(trial)
    assert [
        str(world.run_of(made.id).verify()) for made in trial.runs if not world.run_of(made.id).verify().equal
    ] == []
    other = world.run_of(source.id).try_step("judge")
    assert other.tries[0].asked == other.recorded.asked == "Weigh ${state.this}, which is no template"
    assert values(other) == ("heavy", ["heavy"])
    assert not CALLS, "tools answer from the log, and nothing else of the function runs"
    with pytest.raises(SetupError, match="into the line of code that calls agent 'judge'"):
        other.keep(tmp_path / "kept.yaml")
    assert values(world.run_of(source.id).try_step("rhymes"))[0] == ["four roses", "heavy"]


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("poets", {}, NotFoundError, "called no agent 'poets' in this run (did you mean 'poet'?)"),
        ("poet", {"visit": 2}, SetupError, "called agent 'poet' 1 time; visit must be from 1 to 1, not 2"),
        ("twice_as_many", {}, SetupError, "call it directly, without a run: twice_as_many(count=2)"),
    ],
    ids=["agent", "visit", "step-function"],
)
def test_a_call_of_a_function_that_cannot_be_tried_says_what_to_do(rhymed, name, options, error, message):
    world, source = rhymed
    with pytest.raises(error) as caught:
        world.run_of(source.id).try_step(name, **options)
    assert message in str(caught.value)
