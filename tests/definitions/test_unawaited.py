"""Calls of a workflow function that lack their await: lint names them, and so does the error of the run."""

import pytest

from divebook import Environment
from divebook.definitions import lint, step, workflow

pytestmark = pytest.mark.filterwarnings("ignore::divebook.errors.DeterminismWarning")


@step
def double(n):
    return 2 * n


@workflow
async def inner(ctx, n: int = 1):
    return n


async def alone(ctx):
    double(3)


async def assigned(ctx):
    twice = double(3)
    return twice  # noqa: RET504


async def added(ctx):
    twice = double(3)
    return twice + 1


async def returned(ctx):
    return double(3)


async def condition(ctx):
    if double(0):
        return "yes"
    return "no"


async def in_a_text(ctx):
    return f"{double(3)}"


async def argument(ctx):
    return await double(double(1))


async def subscript(ctx):
    return (ctx.run("inner"))["result"]


async def sleeping(ctx):
    ctx.sleep(3)


async def running(ctx):
    found = ctx.run("inner")
    return found["result"]


async def looped(ctx):
    for n in range(2):
        last = double(n)
    return last


async def compared(ctx):
    return ctx.random() < 0.5


LACKING = [
    (alone, "double()"),
    (assigned, "double()"),
    (added, "double()"),
    (returned, "double()"),
    (condition, "double()"),
    (in_a_text, "double()"),
    (argument, "double()"),
    (subscript, "ctx.run()"),
    (sleeping, "ctx.sleep()"),
    (running, "ctx.run()"),
    (looped, "double()"),
    (compared, "ctx.random()"),
]


@pytest.mark.parametrize(("function", "call"), LACKING, ids=lambda value: getattr(value, "__name__", value))
def test_a_call_without_its_await_is_named_by_lint_and_by_the_error(function, call):
    assert [found.message.partition(" ")[0] for found in lint(function)] == [call]
    run = Environment(store="memory:", workflows=[workflow(function), inner]).start(function.__name__).wait(10)
    assert run.status == "failed"
    assert "await" in run.error
    assert call in run.error or "write `await` before the call that returned it" in run.error


async def gathered(ctx):
    calls = [double(n) for n in range(3)]
    return await ctx.gather(*calls)


async def awaited_later(ctx):
    first, second = double(1), double(2)
    return [await second, await first]


async def chosen(ctx):
    return await (double(1) if True else double(2))


async def given_on(ctx):
    made = make()
    return await made


async def reassigned(ctx):
    n = double(1)
    n = await n
    return n + 1


async def failing_meanwhile(ctx):
    first, second = double(1), double(2)
    try:
        int("x")
    except ValueError:
        return [await first, await second]


def make():
    return double(3)


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (gathered, [0, 2, 4]),
        (awaited_later, [4, 2]),
        (chosen, 2),
        (given_on, 6),
        (reassigned, 3),
        (failing_meanwhile, [2, 4]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_call_that_is_awaited_later_is_not_named(function, result):
    assert lint(function) == []
    run = Environment(store="memory:", workflows=[workflow(function)]).start(function.__name__).wait(10)
    assert (run.status, run.outputs) == ("completed", {"result": result})


def test_a_failure_of_its_own_is_not_hidden_by_calls_that_were_not_awaited_yet():
    @workflow
    async def failing(ctx):
        later = double(1)
        int("x")
        return await later

    run = Environment(store="memory:").start(failing).wait(10)
    assert "invalid literal for int()" in run.error
    assert "was not awaited" not in run.error
