"""A workflow that is edited while it waits: no answer reaches a question other than the one that was shown."""

import random

import pytest

from divebook.errors import DivergenceError
from divebook.workflow.functions import step, workflow
from tests.runtime.worlds import environment

pytestmark = pytest.mark.usefixtures("replayed")
PROGRAM, TOLD, PAID = [], [], []
"""The calls that the workflow makes; what came back for each; what was paid."""


@step(approval=True)
async def pay(amount: int, to: str):
    PAID.append((amount, to))
    return f"paid {amount} to {to}"


@step
async def note(text: str):
    return text


@workflow("edited")
async def edited(ctx):
    for kind, *said in PROGRAM:
        if kind == "confirm":
            back = await ctx.confirm(said[0], data={"about": said[1]})
        elif kind == "ask":
            back = await ctx.ask(said[0], {"type": "object", "properties": {said[1]: {"type": "string"}}})
        elif kind == "text":
            back = await ctx.ask(said[0], message=said[1])
        elif kind == "review":
            back = await ctx.interrupt("agent_review", said[0], data={"draft": said[1]})
        elif kind == "pay":
            back = await pay(*said)
        elif kind == "note":
            back = await note(said[0])
        else:
            back = await ctx.now()
        TOLD.append(((kind, *said), str(back)))


@pytest.fixture(autouse=True)
def fresh():
    for found in (PROGRAM, TOLD, PAID):
        found.clear()


KINDS = ("confirm", "ask", "text", "review", "pay", "note", "now")
ASKING = KINDS[:5]


def made(chance, kind=None):
    kind = kind or chance.choice(KINDS)
    words = f"{chance.choice(('List', 'Drop', 'Keep'))} {chance.randrange(1000)}"
    return {"pay": ("pay", chance.randrange(1, 5), words), "note": ("note", words), "now": ("now",)}.get(
        kind, (kind, f"{words}?", chance.choice(("a", "b")))
    )


def edit(chance, program):
    """Return the program with one call changed, moved, left out or put in."""
    at, other = chance.randrange(len(program)), chance.randrange(len(program))
    changed = list(program)
    match chance.choice(("text", "kind", "detail", "order", "delete", "insert")):
        case "text":
            changed[at] = made(chance, program[at][0])
        case "kind":
            changed[at] = (
                (chance.choice(KINDS[:4]), str(program[at][1]), *program[at][2:])
                if len(program[at]) == 3
                else made(chance)
            )
        case "detail":
            changed[at] = (*program[at][:-1], f"{program[at][-1]}x") if len(program[at]) > 1 else made(chance)
        case "order":
            changed[at], changed[other] = changed[other], changed[at]
        case "delete":
            del changed[at]
        case "insert":
            changed.insert(at, made(chance))
    return changed


ANSWERS = {"confirmation": True, "clarification": {"text": "yes"}, "agent_review": "approve"}


def content(question):
    """Return what was shown, as the call that shows it."""
    data = question.data or {}
    if "step" in data:
        return ("pay", *data["parameters"].values())
    if question.kind == "confirmation":
        return ("confirm", question.question, data["about"])
    if question.kind == "agent_review":
        return ("review", question.question, data["draft"])
    if question.schema is not None:
        return ("ask", question.question, *question.schema["properties"])
    return ("text", question.question, question.message)


def answered(world, execution, shown):
    """Answer the question that is open, if there is one, and note what it was."""
    for question in world.execution(execution.id).interrupts:
        shown.append(content(question))
        fields = question.schema["properties"] if question.schema and not question.data else None
        response = ANSWERS[question.kind] if fields is None else dict.fromkeys(fields, "yes")
        world.answer(question.id, response, execution.id)
        break
    return world.execution(execution.id).wait(20)


@pytest.mark.parametrize("seed", range(300))
def test_no_answer_reaches_a_question_that_differs_from_the_one_that_was_shown(seed):
    chance, shown = random.Random(seed), []
    original = [made(chance, chance.choice(ASKING) if number % 2 else None) for number in range(5)]
    PROGRAM[:] = original
    world = environment()
    execution = world.start("edited").wait(20)
    for _ in range(chance.randrange(2)):
        execution = answered(world, execution, shown)
    if execution.state.is_over:
        return
    PROGRAM[:], before = edit(chance, original), begun(execution)
    for _ in range(3):
        if not execution.state.is_over:
            execution = answered(world, execution, shown)
    for call, _ in TOLD:
        assert call[0] not in ASKING or call in shown, f"{call} got an answer, and only {shown} were shown"
    assert all(("pay", *paid) in shown for paid in PAID)
    if execution.status == "failed":
        assert "history and definition disagree" in execution.error
        if begun(execution) == before:
            restored(world, execution, original, shown)


def begun(execution):
    return [e.sequence for e in execution.history() if e.event_type in ("operation_started", "interrupt_raised")]


def restored(world, execution, original, shown):
    """With the code as it was, the execution goes on with the answers that it had."""
    PROGRAM[:] = original
    TOLD.clear()
    execution = world.resume(execution.id).wait(20)
    while not execution.state.is_over:
        execution = answered(world, execution, shown)
    assert execution.status == "completed"
    assert [call for call, _ in TOLD[-len(original) :]] == original
    assert len(PAID) == sum(call[0] == "pay" for call in original)


def failed_after(before, after):
    """Return the execution of a program that was changed while its question waited."""
    PROGRAM[:] = before
    world = environment()
    execution = world.start("edited").wait(20)
    PROGRAM[:] = after
    return answered(world, execution, [])


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (("pay", 5, "ann"), ("pay", 5000, "eve"), "data.parameters.amount was 5, is 5000"),
        (("pay", 5, "ann"), ("pay", 5000, "eve"), 'data.parameters.to was "ann", is "eve"'),
        (("confirm", "List?", "a"), ("confirm", "Drop?", "a"), 'question was "List?", is "Drop?"'),
        (("confirm", "Go?", "a"), ("text", "Go?", "a"), 'kind was "confirmation", is "clarification"'),
        (
            ("confirm", "Go?", "a"),
            ("now",),
            'recorded the confirmation "Go?" about {"about":"a"}, now asked for time access',
        ),
        (("confirm", "Go?", "a"), ("confirm", "Stop?", "a"), "Put the code back as it was and resume the execution"),
    ],
)
def test_a_divergence_shows_both_what_differs_and_what_to_do(before, after, told):
    error = failed_after([before], [after]).error
    assert "history and definition disagree at step 'edited'" in error
    assert told in error


def test_a_call_that_differs_is_shown_by_name_with_its_arguments():
    error = failed_after([("note", "a"), ("text", "Go?", "m")], [("note", "b"), ("text", "Go?", "m")]).error
    assert "recorded step 'note' with {\"text\":\"a\"}, now asked for step 'note' with" in error
    assert '(arguments.text was "a", is "b")' in error


def test_code_that_catches_a_divergence_gets_no_further():
    """Whatever it does about it: a next attempt would make the call that the log has otherwise."""

    @workflow("catches")
    async def catches(ctx):
        for amount in amounts:
            try:
                await pay(amount, "ann")
            except DivergenceError:
                await note("caught")
        return "done"

    amounts = [5]
    world = environment()
    execution = world.start("catches").wait(20)
    amounts[:] = [50, 5, 7]
    failed = answered(world, execution, [])
    assert (failed.status, PAID) == ("failed", [])
    assert "history and definition disagree" in failed.error
    assert not [event for event in failed.history() if event.event_type == "operation_started"]


def test_an_approved_call_runs_with_the_arguments_that_the_record_has():
    """Also where the code that runs again has changed what it hands on in the meantime."""
    given = {"rows": [1, 2]}

    @step(approval=True)
    async def delete(rows: list):
        PAID.append(list(rows))

    @workflow("hands_on")
    async def hands_on(ctx):
        await delete(given["rows"])

    world = environment()
    execution = world.start("hands_on").wait(20)
    (question,) = execution.interrupts
    answer = {"approved": True, "data": {"parameters": {"rows": [2]}}}
    assert world.answer(question.id, answer).wait(20).status == "completed"
    assert PAID == [[2]]
