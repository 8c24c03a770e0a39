"""Questions of steps and functions: asked once, answered once; waiting costs nothing, nothing runs twice."""

import asyncio
import threading
from typing import Literal

import pydantic
import pytest

from divebook import Each, Environment, Retry, Rollback, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.errors import InterruptError, NotFoundError
from divebook.runtime.loop import ENGINE
from divebook.steps.actions import Action
from tests.runtime.worlds import Calls, Gate, becomes, environment, event_types, question_of, unwind


def asking(**ask):
    """Return a workflow that notes, asks, and notes again."""
    question = Step("ask", type="interrupt", ask={"question": "Which ${inputs.what}?", **ask}, store="answer")
    note = {"action": "note"}
    return Workflow("w", [Step("before", **note), question, Step("after", **note)], inputs=["what"])


def asked(**ask):
    """Return the world, the calls of its action, and an execution that waits for an answer."""
    calls = Calls()
    world = environment(asking(**ask), actions=[calls.action()])
    execution = world.start("w", {"what": "folder"}).wait(20)
    return world, calls, execution


# --- each kind and its answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "answer", "value"),
    [
        ({}, "src", "src"),
        ({}, 3, "3"),
        ({}, {"text": "src"}, "src"),
        ({"schema": {"type": "integer"}}, 3, 3),
        ({"schema": {"type": "integer"}}, {"data": 3}, 3),
        ({"schema": {"type": "object", "required": ["a"]}}, {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        ({"kind": "confirmation"}, True, True),
        ({"kind": "confirmation"}, "Yes", True),
        ({"kind": "confirmation"}, "no", False),
        ({"kind": "confirmation"}, {"approved": False, "text": "not today"}, False),
        ({"kind": "agent_review"}, "approve", {"decision": "approve", "approved": True}),
        ({"kind": "agent_review"}, False, {"decision": "reject", "approved": False}),
        ({"kind": "agent_review"}, {"decision": "modify", "data": {"n": 2}}, {"decision": "modify", "data": {"n": 2}}),
        ({"kind": "checkpoint"}, "seen", "seen"),
        ({"kind": "checkpoint"}, None, None),
        ({"kind": "timeout"}, "again", {"text": "again"}),
        ({"kind": "system_error"}, {"tries": 2}, {"data": {"tries": 2}}),
        ({"kind": "resource_exhausted"}, "stop", {"decision": "stop"}),
        ({"kind": "resource_exhausted"}, 9, {"decision": "raise", "data": {"to": 9}}),
    ],
)
def test_every_kind_of_question_takes_its_answers(ask, answer, value):
    _, calls, execution = asked(**ask)
    assert question_of(execution).question == "Which folder?"
    done = execution.answer(question_of(execution).id, answer).wait(20)
    assert (done.status, done.variables["answer"]) == ("completed", value)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("ask", "answer", "message"),
    [
        ({}, "", "an answer is missing: answer with"),
        ({}, "  \n", "an answer is missing: answer with"),
        ({}, None, "an answer is missing: answer with"),
        ({}, {}, "an answer is missing: answer with"),
        ({}, {"text": " "}, "an answer is missing: answer with"),
        ({}, True, "answer with text, not True"),
        ({}, ["a"], "answer with text"),
        ({}, {"text": 3}, "text must be a string, not 3"),
        ({}, "x" * 100_001, "100,000 characters"),
        ({}, {"data": {"a": ["x" * 60_000, "y" * 60_000]}}, "100,000 characters"),
        ({}, "a\x00b", r"control character U\+0000"),
        ({}, "a\x1b[31m", r"control character U\+001B"),
        ({"schema": {"type": "integer"}}, "three", "does not fit: 'three' is not of type 'integer'"),
        ({"schema": {"properties": {"n": {"type": "integer"}}}}, {"n": "x"}, "n: 'x' is not of type 'integer'"),
        ({"schema": {"type": "integer"}}, {"data": "x"}, "data does not fit"),
        ({"kind": "confirmation"}, "perhaps", "answer with yes or no, not 'perhaps'"),
        ({"kind": "confirmation"}, 1, "answer with yes or no, not 1"),
        ({"kind": "confirmation"}, {"approved": "yes"}, "approved must be true or false"),
        ({"kind": "confirmation"}, {"text": "ok"}, "answer with yes or no"),
        ({"kind": "agent_review"}, "maybe", "approve, reject or modify"),
        ({"kind": "agent_review"}, {"decision": "maybe"}, "approve, reject or modify"),
        ({"kind": "resource_exhausted"}, "more", "raise, the new bound as a number, or stop"),
        ({"kind": "resource_exhausted"}, 0, "above 0"),
        ({"kind": "checkpoint", "optional": False}, None, "an answer is missing: answer with"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open(ask, answer, message):
    world, calls, execution = asked(**ask)
    question = question_of(execution)
    with pytest.raises(InterruptError, match=message) as raised:
        world.answer(question.id, answer)
    assert "still open" in str(raised.value)
    assert (world.run_of(execution.id).open_questions, execution.status) == ([question], "waiting")
    assert len(calls) == 1


def test_an_answer_that_is_no_plain_data_is_refused():
    world, _, execution = asked()
    with pytest.raises(Exception, match="response"):
        world.answer(question_of(execution).id, object())
    assert len(world.run_of(execution.id).open_questions) == 1


def test_line_breaks_and_every_script_are_text():
    _, _, execution = asked()
    text = "one\r\n\ttwo 日本語 🙂 עברית"
    assert execution.answer(question_of(execution).id, text).wait(20).variables["answer"] == text


def test_optional_questions_take_an_empty_answer():
    _, _, execution = asked(optional=True)
    assert execution.answer(question_of(execution).id, "").wait(20).variables["answer"] is None


# --- exactly once --------------------------------------------------------------------------------------------------


def test_a_second_answer_is_refused_and_shows_the_first_and_who_gave_it():
    world, _, execution = asked()
    question = question_of(execution)
    world.answer(question.id, "src", by="ann").wait(20)
    with pytest.raises(InterruptError, match=r"already answered by ann, with {'text': 'src'}"):
        world.answer(question.id, "lib", execution.id)
    assert world.run_of(execution.id).variables["answer"] == "src"


def test_of_many_answers_at_once_one_counts():
    world, calls, execution = asked()
    question = question_of(execution)
    outcomes = []

    def answer(number):
        try:
            world.answer(question.id, f"{number}", execution.id)
            outcomes.append(number)
        except InterruptError:
            pass

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = outcomes
    done = world.run_of(execution.id).wait(20)
    assert (done.status, done.variables["answer"], len(calls)) == ("completed", str(winner), 2)


def test_an_answer_needs_a_question_of_that_execution():
    world, _, execution = asked()
    other = world.start("w", {"what": "file"}).wait(20)
    with pytest.raises(NotFoundError, match="question not found"):
        world.answer(question_of(execution).id, "src", other.id)
    with pytest.raises(NotFoundError):
        world.answer(question_of(execution).id, "src", "exec_nobody")
    assert (execution.status, other.status) == ("waiting", "waiting")


def test_a_cancelled_execution_takes_no_answer_until_it_is_resumed():
    world, _, execution = asked()
    question = question_of(execution)
    world.run_of(execution.id).cancel().wait(20)
    with pytest.raises(InterruptError, match="is cancelled; resume it"):
        world.answer(question.id, "src", execution.id)
    resumed = world.run_of(execution.id).resume().wait(20)
    assert resumed.open_questions == [question]
    assert world.answer(question.id, "src").wait(20).status == "completed"


# --- waiting -------------------------------------------------------------------------------------------------------


def threads():
    """Count threads without the one of a store that was listened to a moment ago."""
    return sum(thread.name != "divebook-news" for thread in threading.enumerate())


def test_waiting_needs_neither_task_nor_thread():
    unwind()
    before = threads()

    async def tasks():
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return [task.get_name() for task in others if "divebook" in task.get_name()]

    _, _, execution = asked()
    assert execution.status == "waiting"
    execution.wait(20)
    assert becomes(lambda: ENGINE.submit(tasks()).result() == [])  # the inbox delivery looks for the last time
    assert becomes(lambda: threads() <= before + 2)  # the engine's own and a worker that waits for more to do


def test_the_lease_is_given_back_while_it_waits():
    world, _, _ = asked()
    assert world.store.live_leases() == []


def test_code_before_a_question_never_runs_again():
    ran = []

    @step
    async def fetch(n: int) -> int:
        ran.append(n)
        return n

    @workflow("asks_twice")
    async def asks_twice(ctx):
        first = await fetch(1)
        name = await ctx.ask("Who?")
        second = await fetch(2)
        sure = await ctx.confirm("Sure?")
        third = await fetch(3)
        return [first, name, second, sure, third]

    execution = environment().start(asks_twice).wait(20)
    execution = execution.answer(question_of(execution).id, "ann").wait(20)
    execution = execution.answer(question_of(execution).id, True).wait(20)
    assert (execution.outputs, ran) == ({"result": [1, "ann", 2, True, 3]}, [1, 2, 3])


def test_a_later_environment_on_the_same_store_answers():
    world, calls, execution = asked()
    later = Environment(store=world.store, workflows=[asking()], actions=[calls.action()])
    ((asking_id, question),) = later.inbox()
    assert asking_id == execution.id
    assert later.answer(question.id, "src").wait(20).status == "completed"
    assert (world.run_of(execution.id).status, len(calls)) == ("completed", 2)


def test_other_paths_go_on_while_one_waits():
    gate, calls = Gate(), Calls()
    steps = [
        Step("s", script="1", next=["ask", "slow"]),
        Step("ask", type="interrupt", ask="Who?", next=["end"]),
        Step("slow", action="gate", next=["end"]),
        Step("end", action="note", join=True),
    ]
    world = environment(Workflow("w", steps), actions=[gate.action(), calls.action()])
    execution = world.start("w")
    assert gate.reached.wait(20)
    assert (execution.status, len(execution.open_questions)) == ("running", 1)
    world.answer(execution.open_questions[0].id, "ann")
    assert not execution.open_questions
    gate.opened.set()
    assert (execution.wait(20).status, len(calls)) == ("completed", 1)


def test_an_answer_that_another_environment_posts_reaches_the_one_that_drives():
    gate = Gate()
    steps = [
        Step("s", script="1", next=["ask", "slow"]),
        Step("ask", type="interrupt", ask="Who?", store="who", next=["note"]),
        Step("note", action="note", next=["end"]),
        Step("slow", action="gate", next=["end"]),
        Step("end", script="1", join=True),
    ]
    calls = Calls()
    world = environment(Workflow("w", steps), actions=[gate.action(), calls.action()])
    execution = world.start("w")
    assert gate.reached.wait(20)
    other = Environment(store=world.store, actions=[gate.action(), calls.action()])
    other.answer(execution.open_questions[0].id, "ann", execution.id)
    assert becomes(lambda: calls)
    gate.opened.set()
    assert (execution.wait(20).status, execution.variables["who"], len(calls)) == ("completed", "ann", 1)
    assert event_types(execution).count("execution_resumed") == 0


# --- identity ------------------------------------------------------------------------------------------------------


def test_a_retried_attempt_asks_no_second_time():
    failures = []

    async def flaky(value=None):
        failures.append(1)
        if len(failures) < 3:
            raise ValueError("not yet")

    workflow = Workflow("w", [Step("pay", action="flaky", retry=Retry(3, 0.0))])
    world = environment(workflow, actions=[Action("flaky", flaky, idempotent=True, approval=True)])
    execution = world.start("w").wait(20)
    done = world.answer(question_of(execution).id, "yes").wait(20)
    assert (done.status, len(failures)) == ("completed", 3)
    assert event_types(done).count("interrupt_raised") == 1


def test_each_visit_of_a_step_asks_anew():
    steps = [
        Step("ask", type="interrupt", ask="Again?", store="again", next=[("ask", "$(state.again == 'yes')"), "end"]),
        Step("end", script="1"),
    ]
    execution = environment(Workflow("w", steps)).start("w").wait(20)
    ids = set()
    for text in ("yes", "yes", "no"):
        ids.add(question_of(execution).id)
        execution = execution.answer(question_of(execution).id, text).wait(20)
    assert (execution.status, len(ids)) == ("completed", 3)


@pytest.mark.parametrize("parallel", [1, 3])
def test_each_item_asks_its_own_question(parallel):
    each = Each(["a", "b", "c"], as_="item", parallel=parallel)
    workflow = Workflow("w", [Step("ask", type="interrupt", ask="${item}?", each=each, store="answers")])
    execution = environment(workflow).start("w").wait(20)
    assert len(execution.open_questions) == parallel
    while execution.status == "waiting":
        question = execution.open_questions[-1]
        execution = execution.answer(question.id, f"re {question.question}").wait(20)
    assert execution.variables["answers"] == ["re a?", "re b?", "re c?"]


def test_questions_asked_side_by_side_keep_their_answers_whatever_ended_first():
    order = []

    @step
    async def fetch(name: str) -> str:
        order.append(name)
        if name == "slow":
            await asyncio.sleep(0.05)
        return name

    async def one(ctx, name):
        found = await fetch(name)
        answer = await ctx.ask(f"{found}?")
        return f"{name}: {answer}"

    @workflow("side_by_side")
    async def side_by_side(ctx):
        return await ctx.gather(one(ctx, "slow"), one(ctx, "quick"))

    execution = environment().start(side_by_side).wait(20)
    by_text = {question.question: question.id for question in execution.open_questions}
    assert set(by_text) == {"slow?", "quick?"}
    for text in ("quick?", "slow?"):
        execution = execution.answer(by_text[text], f"re {text}").wait(20)
    assert execution.outputs == {"result": ["slow: re slow?", "quick: re quick?"]}
    assert sorted(order) == ["quick", "slow"]


# --- types ---------------------------------------------------------------------------------------------------------


class Licence(pydantic.BaseModel):
    name: str
    risk: Literal["low", "high"] = "low"


def test_a_pydantic_model_is_asked_for_and_given_back():
    @workflow("typed")
    async def typed(ctx):
        found = await ctx.ask("Which licence?", Licence)
        return f"{type(found).__name__} {found.name} {found.risk}"

    world = environment()
    execution = world.start(typed).wait(20)
    question = question_of(execution)
    assert question.schema["properties"]["name"] == {"title": "Name", "type": "string"}
    with pytest.raises(InterruptError, match="risk: 'none' is not one of"):
        world.answer(question.id, {"name": "MIT", "risk": "none"})
    with pytest.raises(InterruptError, match="'name' is a required property"):
        world.answer(question.id, {"risk": "low"})
    done = world.answer(question.id, {"name": "MIT"}).wait(20)
    assert done.outputs == {"result": "Licence MIT low"}


@pytest.mark.parametrize("has_rollback", [False, True])
def test_an_answer_after_another_process_has_cancelled_is_refused_and_not_kept(tmp_path, has_rollback):
    """The process that asked last knows nothing of the cancellation before it looks."""
    path, calls = str(tmp_path / "log.db"), Calls()
    actions = [calls.action("book"), calls.action("undo")]
    book = Step("book", action="book", rollback=Rollback("undo") if has_rollback else None)
    flow = Workflow("w", [book, Step("ask", type="interrupt", ask={"question": "Go on?", "kind": "confirmation"})])
    with Environment(store=path, actions=actions) as first, Environment(store=path, actions=actions) as other:
        run = first.start(flow).wait(20)
        (question,) = run.open_questions
        other.run_of(run.id).cancel().wait(20)
        with pytest.raises(InterruptError, match="withdrawn" if has_rollback else "resume it, and answer then"):
            run.answer(question, True)
        assert other.store.inbox(run.id) == []
