"""A workflow that is edited while it waits: no answer reaches a question other than the one that was shown."""

import asyncio
import contextlib
import random

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent
from divebook.definitions.functions import step, workflow
from divebook.errors import DivergenceError, OperationError
from tests.runtime.cancelled_trees import copy_of
from tests.runtime.worlds import becomes, environment

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
    for found in (PROGRAM, TOLD, PAID, CUT_OFF, UNDONE):
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
    for question in world.run_of(execution.id).open_questions:
        shown.append(content(question))
        fields = question.schema["properties"] if question.schema and not question.data else None
        response = ANSWERS[question.kind] if fields is None else dict.fromkeys(fields, "yes")
        world.answer(question.id, response, execution.id)
        break
    return world.run_of(execution.id).wait(20)


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
        assert "the code no longer matches the log" in execution.error
        if begun(execution) == before:
            restored(world, execution, original, shown)


def begun(execution):
    return [e.sequence for e in execution.history() if e.event_type in ("operation_started", "interrupt_raised")]


def restored(world, execution, original, shown):
    """With the code as it was, the execution goes on with the answers that it had."""
    PROGRAM[:] = original
    TOLD.clear()
    execution = world.run_of(execution.id).resume().wait(20)
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
            'the log has the confirmation "Go?" about {"about":"a"}, but the code requests time access',
        ),
        (("confirm", "Go?", "a"), ("confirm", "Stop?", "a"), "Restore the old code and resume the execution"),
    ],
)
def test_a_divergence_shows_both_what_differs_and_what_to_do(before, after, told):
    error = failed_after([before], [after]).error
    assert "the code no longer matches the log at step 'edited'" in error
    assert told in error


def test_a_call_that_differs_is_shown_by_name_with_its_arguments():
    error = failed_after([("note", "a"), ("text", "Go?", "m")], [("note", "b"), ("text", "Go?", "m")]).error
    assert "the log has step 'note' with {\"text\":\"a\"}, but the code requests step 'note' with" in error
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
    assert "the code no longer matches the log" in failed.error
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
    (question,) = execution.open_questions
    answer = {"approved": True, "data": {"parameters": {"rows": [2]}}}
    assert world.answer(question.id, answer).wait(20).status == "completed"
    assert PAID == [[2]]


# --- calls that the code leaves out -----------------------------------------------------------------------------------


CUT_OFF, UNDONE = [], []


async def cut_off(name):
    """Do something of which the process dies, as long as that is wanted."""
    TOLD.append(name)
    if CUT_OFF:
        await asyncio.sleep(60)
    return name


def unbook(result):
    UNDONE.append(result)


@step(rollback=unbook)
async def book(name: str):
    return await cut_off(name)


@step
async def buy(name: str):
    return await cut_off(name)


@step  # repeatable by its parameter: declared idempotent, it could begin before its start is in the store
async def look(name: str, idempotency_key: str = ""):
    return await cut_off(name)


@workflow("looks_below")
async def looks_below(ctx):
    return await look("below")


@workflow("leaves_out")
async def leaves_out(ctx):
    await note("first")
    results = []
    for kind in PROGRAM:
        if kind == "child":
            results.append(ctx.run("looks_below"))
        elif kind == "agent":
            results.append(ctx.agent("ann").run("Hello"))
        elif kind != "nothing":
            results.append({"book": book, "buy": buy, "look": look}[kind](kind))
    return await ctx.gather(*results)


async def answer_late(_messages, _info):
    return ModelResponse([TextPart(await cut_off("agent"))])


def world_of_calls(**settings):
    return environment(agents=[Agent("ann", model=FunctionModel(answer_late))], **settings)


def died_in(definition, count):
    """Return a store with an execution whose process died when so many calls had begun, and its id."""
    CUT_OFF[:] = [True]
    world = world_of_calls()
    execution = world.start(definition)
    assert becomes(lambda: len(TOLD) >= count)
    store = copy_of(world.store)
    world.close()
    for found in (CUT_OFF, TOLD, UNDONE):
        found.clear()
    return store, execution.id


KINDS_OF_CALLS = ("book", "buy", "look", "child", "agent")


@pytest.mark.parametrize("others", [(), ("look",)])
@pytest.mark.parametrize("kind", KINDS_OF_CALLS)
def test_a_call_without_an_end_that_the_code_leaves_out_is_not_forgotten(kind, others):
    PROGRAM[:] = program = [*others, kind]
    store, name = died_in("leaves_out", len(program))
    PROGRAM[:] = others
    with world_of_calls(store=store) as world:
        failed = world.run_of(name).resume().wait(20)
        assert failed.status == "failed"
        assert "the code no longer matches the log at step 'leaves_out', call " in failed.error
        assert "the code requests nothing" in failed.error
        assert not [event for event in failed.history() if event.event_type == "step_completed"]
        # With the former code, the execution continues.
        PROGRAM[:] = program
        execution = world.run_of(name).resume().wait(20)
        for question in execution.open_questions:
            execution.answer(question.id, {"choice": "done", "result": kind}, "ann").wait(20)
        assert world.run_of(name).status == "completed"


@workflow("gives_up")
async def gives_up(ctx):
    """Begin calls and give them up, in each way that there is."""

    async def fail():
        raise ValueError("in plain code")

    async def buys(name):
        return await buy(name)

    async def gathers(*calls):
        return await ctx.gather(*calls)

    async def gathers_and_buys(name):
        await ctx.gather(note("x"), note("y"))
        await ctx.gather(note("x"), note("y"))
        return await buy(name)

    for number, calls in enumerate(
        (
            lambda: (fail(), buys("a")),
            lambda: (buys("b"), fail()),
            lambda: (fails("once"), buys("c"), ctx.run("looks_below")),
            lambda: (gathers(fail(), buys("d")), buys("e")),
            lambda: (buys("f"), gathers(buys("g"), fails("twice"))),
            lambda: (fails("h"), gathers_and_buys("h")),
            lambda: (ctx.agent("ann").run("Hello"), ctx.sleep(3600), ctx.wait_signal("go"), fail()),
        )
    ):
        with contextlib.suppress(ValueError, OperationError):
            await ctx.gather(*calls())
        await note(str(number))
    return await look("last")


@step
async def fails(name: str):
    if name == "h":  # only after the call beside it has begun
        assert await asyncio.to_thread(becomes, lambda: name in TOLD)
    raise ValueError(name)


def test_calls_that_the_code_has_given_up_are_not_missed():
    """Wherever the process died: the code that runs again ends as it did before."""
    world, copies = world_of_calls(), []
    CUT_OFF[:] = [True]
    world.store.subscribe(lambda *_: copies.append(copy_of(world.store)))
    execution = world.start("gives_up")
    assert becomes(lambda: "last" in TOLD)
    CUT_OFF.clear()
    assert becomes(lambda: len(copies) > 8)
    world.close()
    ends = set()
    for store in copies:
        with world_of_calls(store=store) as again:
            resumed = again.run_of(execution.id).resume().wait(20)
            while not resumed.state.is_over:
                resumed.answer(resumed.open_questions[0].id, {"choice": "done", "result": "x"}, "ann").wait(20)
                resumed = again.run_of(execution.id)
            ends.add((resumed.status, resumed.error))
    assert ends == {("completed", None)}
