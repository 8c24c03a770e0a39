"""Whether a definition still does what its log says: driven again without a call, the first difference in its place."""

import random

import pytest

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import ApprovalRule
from divebook.definitions.functions import step, workflow
from divebook.definitions.reader import read_definitions
from divebook.definitions.step import Catch, Retry
from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.errors import ExecutionError
from divebook.runtime.loop import ENGINE
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.replay.worlds import random_workflow, world

CALLS = []
NAME = "survey.yaml"
SURVEY = """\
Workflows:
- Name: survey
  Inputs: [{Name: n}]
  Outputs: [{Name: total}]
  Steps:
  - Name: count
    Script: |
      seen = inputs.n + 1
      seen * 2
    Store: counted
  - Name: each
    Each: {Items: "$([1, state.counted])", As: item}
    Action: work
    Parameters: {x: "$(item)"}
    Store: worked
  - Name: ask
    Ask: {Question: "How many after ${state.counted}?"}
    Store: said
  - Name: tell
    Prompt: Tell ${state.said}
    Store: told
  - Name: rest
    Seconds: 0.001
  - Name: flaky
    Action: flaky
    Retry: {Attempts: 3, Seconds: 0.0}
    Store: got
  - Name: choose
    Script: "1"
    Next:
    - Step: low
      Condition: $(state.counted < 100)
    - Step: high
      Condition: $(state.counted >= 100)
  - Name: low
    Action: broken
    Catch:
    - Step: last
      Store: problem
  - Name: high
    Script: "2"
    Next: [{Step: last}]
  - Name: last
    Script: sum(state.worked)
    Store: total
"""


@pytest.fixture(autouse=True)
def _fresh():
    CALLS.clear()


def read(text):
    return read_definitions(text, source_name=NAME).workflows[0]


def surveyed(text=SURVEY):
    """Run the survey; return its environment and its execution, which has ended."""
    made = world()
    made.add_workflow(read(text))
    execution = made.start("survey", {"n": 3}).wait(20)
    execution.answer(execution.open_questions[0].id, "four").wait(20)
    assert execution.status == "completed", execution.error
    return made, execution


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_random_executions_are_equal_without_a_call(first, blocked):
    kept = []
    for seed in range(first, first + 30):
        rng = random.Random(seed)
        made = world()
        execution = made.start(random_workflow(rng, seed), {"n": rng.randint(1, 9)}).wait(20)
        while execution.open_questions:
            execution.answer(execution.open_questions[0].id, "three").wait(20)
        kept.append((made, execution))
    blocked()
    with pytest.raises(Exception, match="the outside was reached"):
        ScriptedModel(["x"]).reply("y")
    for made, execution in kept:
        found = made.run_of(execution.id).verify()
        assert (found.equal, found.calls) == (True, 0), str(found)
        outside = ("execution_", "interrupt_resolved", "path_cancelled")
        assert found.compared == sum(not e.event_type.startswith(outside) for e in execution.history())
        made.close()


MUTATIONS = {
    "another script": (("seen * 2", "seen * 2 + 0"), "count", "operation_started", f"{NAME}:8"),
    "another result": (("seen * 2", "seen * 3"), "count", "operation_started", f"{NAME}:8"),
    "another variable": (("Store: counted", "Store: kept"), "count", "state_mutated", f"{NAME}:10"),
    "other items": (("[1, state.counted]", "[2, state.counted]"), "each", "iteration_started", f"{NAME}:12"),
    "another argument": (('x: "$(item)"', 'x: "$(item + 1)"'), "each", "step_started", f"{NAME}:14"),
    "another question": (("How many after", "How much after"), "ask", "interrupt_raised", f"{NAME}:17"),
    "another prompt": (("Tell ${", "Say ${"), "tell", "operation_started", f"{NAME}:20"),
    "another pause": (("Seconds: 0.001", "Seconds: 0.002"), "rest", "operation_started", f"{NAME}:23"),
    "fewer attempts": (("Attempts: 3", "Attempts: 1"), "flaky", "step_retried", f"{NAME}:26"),
    "another condition": (("state.counted < 100", "state.counted < 99"), "choose", "condition_evaluated", f"{NAME}:31"),
    "another way out": (("- Step: last\n      Store", "- Step: high\n      Store"), "low", "step_caught", f"{NAME}:38"),
    "another output": (
        ("Outputs: [{Name: total}]", "Outputs: [{Name: got}]"),
        "",
        "execution_completed",
        f"{NAME}:4:12",
    ),
}


def test_what_changed_is_told_once_with_both_texts_in_one():
    made, execution = surveyed()
    with made:
        first = made.run_of(execution.id).verify(read(SURVEY.replace("How many after", "How much after"))).divergence
        assert first.changed[0].startswith("question: How [-many-]{+much+} after")
        assert str(first).endswith(f": {'; '.join(first.changed)}")
        gone = made.run_of(execution.id).verify(read(SURVEY.replace("Attempts: 3", "Attempts: 1"))).divergence
        assert (gone.changed, ": expected step_retried " in str(gone)) == ((), True)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_definition_differs_at_the_event_and_the_line_of_the_change(name):
    (old, new), changed_step, event_type, place = MUTATIONS[name]
    made, execution = surveyed()
    with made:
        assert made.run_of(execution.id).verify().equal
        assert old in SURVEY
        found = made.run_of(execution.id).verify(read(SURVEY.replace(old, new)))
        first = found.divergence
        assert (first.event_type, first.step) == (event_type, changed_step), str(found)
        assert first.place.startswith(place), str(found)
        assert execution.history()[first.sequence - 1].event_type == event_type
        assert (found.outcome, found.calls) == ("differs", 0)


def test_each_first_difference_is_told_in_words():
    made, execution = surveyed()
    with made:
        told = str(made.run_of(execution.id).verify(read(SURVEY.replace("seen * 2", "seen * 3"))))
        assert "differs" in told
        assert "0 calls made" in told
        assert "event 4 (operation_started), step 'count', survey.yaml:8" in told


@pytest.mark.parametrize("swallowed", ["catch", "retry"])
def test_a_difference_stays_one_though_the_step_handles_its_own_failures(swallowed):  # trap 3
    def made_of(x):
        handled = {"catch": Catch("end"), "retry": Retry(3, seconds=0.0)}
        asked = Step("call", action="work", parameters={"x": x}, store="v", **{swallowed: handled[swallowed]})
        return Workflow("handles", [asked, Step("end", script="1")])

    with Environment(store=MemoryStore(), actions=[Action("work", counted)]) as made:
        execution = made.start(made_of("${1}")).wait(20)
        assert made.run_of(execution.id).verify().equal
        found = made.run_of(execution.id).verify(made_of("$(2)")).divergence
        assert (found.event_type, found.step) == ("step_started", "call")


async def counted(x: object = 0) -> int:
    """Count its calls."""
    CALLS.append(x)
    return len(CALLS)


async def fails_twice(x: object = 0) -> int:
    """Fail twice in a row, with an error of its own."""
    CALLS.append(x)
    if CALLS.count(x) % 3:
        raise LookupError(f"nothing at {x}")
    return len(CALLS)


@step(idempotent=True, retry=Retry(4, seconds=0.001))
async def measure(n: int) -> int:
    """Fail twice, then measure."""
    return await fails_twice(n)


@workflow
async def inner_verified(ctx: object, n: int) -> int:
    """Be a child."""
    return await measure(n)


@workflow
async def outer_verified(ctx, n: int) -> int:
    """Do what Python workflows do."""
    found = await ctx.gather(measure(n), measure(n + 1), measure(n + 2))
    await ctx.sleep(0.002)
    moment, chance = await ctx.now(), await ctx.random()
    ctx.emit("half", {"found": found})
    child = await ctx.run("inner_verified", {"n": n})
    said = await ctx.ask("How many?")
    sent = await ctx.wait_signal("go")
    return sum(found) + int(moment.timestamp() > 0) + int(chance < 2) + len(str(said)) + sent + len(child)


def test_functions_with_everything_are_equal_and_so_are_their_children():  # traps 1, 2 and 9
    with Environment(store=MemoryStore(), workflows=[inner_verified, outer_verified]) as made:
        execution = made.start("outer_verified", {"n": 3}).wait(20)
        execution.answer(execution.open_questions[0].id, "three").wait(20)
        execution.signal("go", 4).wait(20)
        assert execution.status == "completed", execution.error
        called = len(CALLS)
        for record in made.store.records():
            found = made.run_of(record.execution_id).verify()
            assert found.equal, str(found)
        assert len(CALLS) == called
        assert sum(e.event_type == "step_retried" for e in execution.history()) >= 6


def test_a_line_of_a_function_is_named():
    def define(plus):
        @workflow(name="lined")
        async def lined(ctx, n: int) -> int:
            first = await measure(n)
            return first + await measure(n + plus)

        return lined

    with Environment(store=MemoryStore()) as made:
        made.add_workflow(define(1))
        execution = made.start("lined", {"n": 3}).wait(20)
        assert made.run_of(execution.id).verify().equal
        define(2)
        found = made.run_of(execution.id).verify()
        assert found.divergence.event_type == "operation_started"
        line = define.__code__.co_firstlineno + 4
        assert found.divergence.place.endswith(f"test_verify.py:{line}"), found
        assert found.unchecked == ("workflow lined: the code has changed since the run",)


def test_functions_and_agents_that_are_not_here_are_not_checked_and_never_count_as_equal():
    store = MemoryStore()
    with Environment(store=store, actions=[Action("work", counted)]) as made:
        execution = made.start(Workflow("far", [Step("call", action="work")])).wait(20)
        with Environment(store=store) as elsewhere:
            found = elsewhere.run_of(execution.id).verify()
        assert (found.outcome, found.equal, found.compared) == ("not checked", False, 0)
        assert 'action "work"' in str(found)


def test_an_execution_that_waits_is_equal_as_far_as_it_has_come():
    with world() as made:
        made.add_workflow(read(SURVEY))
        execution = made.start("survey", {"n": 3}).wait(20)
        assert made.run_of(execution.id).verify().equal
        found = made.run_of(execution.id).verify(read(SURVEY.replace("How many after", "How few after")))
        assert found.divergence.event_type == "interrupt_raised"


def test_on_the_engines_own_thread_it_is_refused():
    with world() as made:
        execution = made.start(Workflow("short", [Step("add", script="1")])).wait(20)
        with pytest.raises(ExecutionError, match="use another thread"):
            ENGINE.call(lambda: made.run_of(execution.id).verify())


def test_which_rule_allowed_a_call_is_no_difference():
    """Rules are not asked again: what was allowed was allowed."""
    model = ScriptedModel(turns=[[{"call": {"wipe": {"x": 1}}}, "done"]])
    with Environment(store="memory:", approvals=[ApprovalRule("wipe")]) as made:
        made.add_agent(
            Agent("cleaner", model=model, tools=[ToolFunction("wipe", _wipe, hints=ToolHints(destructive=True))])
        )
        execution = made.start(Workflow("clean", [Step("go", prompt="clean", agent="cleaner")])).wait()
        (called,) = [
            event
            for event in execution.history()
            if event.event_type == "operation_started" and event.data.setting == {"rule": "allow wipe"}
        ]
        assert called.data.name == "wipe"
        assert made.run_of(execution.id).verify().equal


def _wipe(x: int) -> int:
    """Wipe."""
    return x


@pytest.mark.parametrize("waits_at", [0, 1, 2])
def test_items_whose_agent_waited_in_the_middle_are_equal(waits_at):
    calls = []

    async def buy(word: str) -> str:
        calls.append(word)
        if len(calls) == waits_at + 1:
            raise TimeoutError("no answer came")
        return word

    model = ScriptedModel([{"call": {"buy": {"word": "owl"}}}, "done"])
    bought = Step("s", prompt="hi", agent="a", store="r", each=Each([1, 2, 3], as_="i"))
    agents = [Agent("a", model=model, tools=[buy])]
    with Environment(store=MemoryStore(), agents=agents, workflows=[Workflow("w", [bought])]) as environment:
        waiting = environment.start("w").wait(20)
        assert (waiting.status, len(calls)) == ("waiting", waits_at + 1)
        assert waiting.verify()
        assert waiting.verify().equal
        done = waiting.answer(waiting.open_questions[0].id, "retry").wait(20)
        verified = done.verify()
        assert (done.status, verified.equal) == ("completed", True), str(verified)
