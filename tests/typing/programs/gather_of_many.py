"""Children, gathers of up to six different calls, errors as results, continue_as_new, versions."""

from typing import NoReturn, assert_type

from divebook import Context, Environment, step, workflow


@step
def integer(n: int) -> int:
    return n


@step
async def text(n: int) -> str:
    return str(n)


@step
def real(n: int) -> float:
    if n < 0:
        raise ValueError("negative")
    return float(n)


@step
def truth(n: int) -> bool:
    return n > 0


@step
def nothing() -> None: ...


@workflow
async def child(ctx: Context, n: int) -> list[int]:
    return [n]


@workflow
async def many(ctx: Context, n: int) -> str:
    five = await ctx.gather(integer(n), text(n), real(n), truth(n), child(n))
    assert_type(five[1], str)
    a, b, c, d, e, f = await ctx.gather(integer(n), text(n), real(n), truth(n), child(n), nothing())
    assert_type((a, b, c, d, e, f), tuple[int, str, float, bool, list[int], None])
    one, two = await ctx.gather(real(-1), text(n), return_exceptions=True)
    assert isinstance(one, Exception)
    assert not isinstance(two, Exception)
    assert_type(two, str)
    only = await ctx.gather(integer(1))
    assert_type(only[0], int)
    asked, slept = await ctx.gather(ctx.random(), ctx.sleep(0))
    assert_type(asked, float)
    assert slept is None
    outputs = await ctx.run("child", {"n": 3})
    listed: list[int] = outputs["result"]
    if await ctx.version("x", 1, 2) == 1:
        return "old"
    return f"{sum(listed)}{a}{b}{c}{d}{e}{f}{two}"


async def restart(ctx: Context) -> NoReturn:
    await ctx.continue_as_new({"n": 0})


@workflow
async def loop(ctx: Context, n: int) -> int:
    if n == 0:
        return 7
    await restart(ctx)


if __name__ == "__main__":
    with Environment(store="memory:", workflows=[many, child, loop]) as environment:
        assert environment.start(many, {"n": 2}).result() == "322.0True[2]None2".replace("322", "3222")
        assert environment.start(loop, {"n": 1}).result() == 7
