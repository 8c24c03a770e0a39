"""divebook.testing.Context: the function of a workflow without a store."""

import asyncio
import inspect
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

import divebook
from divebook import step, workflow
from divebook.errors import InterruptError, InterruptExpiredError, OperationError, SetupError, StepError
from divebook.steps.function import Context as WorkflowContext
from divebook.testing import START, Context, ContinuedAsNew, EmittedEvent, StepCall


@dataclass
class Verdict:
    score: int


@step
def length(text: str) -> int:
    return len(text)


@step
async def doubled(number: int) -> int:
    return 2 * number


@step
def keyed(text: str, idempotency_key: str) -> str:
    return f"{text} {idempotency_key}"


@step(retry=3)
def refusing() -> None:
    raise ValueError("not today")


def outcome(function, context, *args, **kwargs):
    return asyncio.run(function.fn(context, *args, **kwargs))


@workflow
async def child_of_test(ctx, n: int) -> int:
    return await doubled(n)


def test_steps_run_directly_and_are_seen_by_the_test():
    @workflow
    async def total(ctx, texts: list[str]) -> int:
        lengths = await ctx.gather(*[length(text) for text in texts])
        return await doubled(sum(lengths))

    context = Context()
    assert outcome(total, context, ["a", "bcd"]) == 8
    assert context.calls == [
        StepCall("length", {"text": "a"}),
        StepCall("length", {"text": "bcd"}),
        StepCall("doubled", {"number": 4}),
    ]
    # Outside of the function, a step is an ordinary function again.
    assert length("four") == 4
    assert length.fn("four") == 4


def test_a_step_gets_an_idempotency_key():
    @workflow
    async def with_key(ctx):
        return await keyed("a")

    assert outcome(with_key, Context()) == "a test-1"


def test_a_failure_has_the_class_that_a_run_raises():
    @workflow
    async def failing(ctx):
        with pytest.raises(OperationError) as caught:
            await refusing()
        assert isinstance(caught.value, ValueError)
        return str(caught.value)

    assert outcome(failing, Context()) == "not today"


def test_questions_get_the_answers_of_the_test_and_check_them():
    @workflow
    async def asking(ctx):
        verdict = await ctx.ask("How good?", Verdict)
        return verdict, await ctx.confirm("Publish?"), await ctx.ask("Why?")

    answers = {"How good?": {"score": 4}, "Publish?": "no", "Why?": "it is dull"}
    assert outcome(asking, Context(answers=answers)) == (Verdict(4), False, "it is dull")
    assert outcome(asking, Context(answers=[*answers.values()])) == (Verdict(4), False, "it is dull")
    with pytest.raises(InterruptError):
        outcome(asking, Context(answers={"How good?": {"score": "good"}}))
    with pytest.raises(SetupError, match="no answer to 'How good"):
        outcome(asking, Context())
    with pytest.raises(SetupError, match="must be a mapping or a list"):
        Context(answers="yes")


def test_a_question_without_an_answer_expires():
    @workflow
    async def expiring(ctx):
        first = await ctx.ask("Colour?", expires_in=60, default="red")
        with pytest.raises(InterruptExpiredError):
            await ctx.ask("Size?", expires_in=60)
        return first

    assert outcome(expiring, Context()) == "red"


def test_time_and_chance_are_those_of_the_test():
    @workflow
    async def timed(ctx):
        before = await ctx.now()
        await ctx.sleep(90)
        return (await ctx.now() - before).total_seconds(), await ctx.random()

    assert outcome(timed, Context(seed=1)) == outcome(timed, Context(seed=1))
    assert outcome(timed, Context(seed=1)) != outcome(timed, Context(seed=2))
    assert outcome(timed, Context())[0] == 90
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)

    @workflow
    async def reads(ctx):
        return await ctx.now()

    assert (outcome(reads, Context()), outcome(reads, Context(now=noon))) == (START, noon)


def test_signals_agents_workflows_versions_and_events():
    @workflow
    async def everything(ctx):
        ctx.emit("began", {"n": 1})
        payload = await ctx.wait_signal("paid")
        with pytest.raises(OperationError, match="no signal"):
            await ctx.wait_signal("paid", within=5)
        reply = await ctx.agent("critic").run("Good?", output=Verdict)
        outputs = await ctx.run("elsewhere", {"n": 1})
        inner = await child_of_test(n=4), (await ctx.run(child_of_test, {"n": 5}))["result"]
        version = await ctx.version("faster", 1, 3), await ctx.version("fixed", 1, 3)
        app = ctx.workspace("app")
        return payload, reply, outputs, inner, version, app

    context = Context(
        signals={"paid": [12]},
        agents={"critic": lambda prompt: {"score": len(prompt)}},
        workflows={"elsewhere": {"x": 1}},
        workspaces={"app": "the workspace"},
        versions={"fixed": 2},
    )
    expected = (12, Verdict(5), {"x": 1}, (8, 10), (3, 2), "the workspace")
    assert outcome(everything, context) == expected
    assert context.events == [EmittedEvent("began", {"n": 1})]
    with pytest.raises(SetupError, match="no more signals 'paid'"):
        outcome(everything, Context())


def test_continue_as_new_ends_the_function():
    @workflow
    async def endless(ctx, since: int):
        await ctx.continue_as_new({"since": since + 1}, reason="long log")

    with pytest.raises(ContinuedAsNew) as caught:
        outcome(endless, Context(), 4)
    assert (caught.value.inputs, caught.value.reason) == ({"since": 5}, "long log")


def test_a_call_with_wrong_arguments_fails_as_in_a_run():
    @workflow
    async def wrong(ctx):
        return await length(texts="a")

    with pytest.raises(StepError, match="step length"):
        outcome(wrong, Context())


def test_a_workflow_is_called_inside_a_workflow_only():
    with pytest.raises(SetupError, match=r"divebook\.run\(child_of_test"):
        child_of_test(n=1)


def test_a_workflow_function_runs_as_a_child_when_it_is_called():
    @workflow
    async def parent_of_test(ctx, n: int):
        return [await child_of_test(n), await child_of_test(n=n + 1)]

    with divebook.Environment(store="memory:") as environment:
        run = environment.start(parent_of_test, {"n": 1}).wait(check=True)
        assert run.outputs["result"] == [2, 4]
        assert len(environment.store.records()) == 3


def test_the_context_of_tests_has_every_method_of_the_real_one():
    """A method that the test context inherits would look for the log of a run."""
    inherited = {"ask", "confirm"}
    names = {name for name in vars(WorkflowContext) if not name.startswith("_")} | {
        "_start_step",
        "_start_child",
        "_ask",
    }
    assert names - set(vars(Context)) == inherited
    for name in names & set(vars(Context)):
        if inspect.isfunction(vars(Context)[name]):
            own, real = (inspect.signature(vars(cls)[name]) for cls in (Context, WorkflowContext))
            assert [*own.parameters] == [*real.parameters], name
