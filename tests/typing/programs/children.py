"""Child workflows: called directly, by object and by name, and workflows with options."""

from divebook import Context, Environment, step, workflow


@step
def add(one: int, other: int) -> int:
    return one + other


@workflow
async def sum_of(ctx: Context, one: int, other: int = 1) -> int:
    return await add(one, other)


@workflow("named")
async def with_name(ctx: Context, text: str) -> str:
    return text


@workflow
async def parent(ctx: Context, n: int) -> list[int]:
    called: int = await sum_of(n, other=2)
    outputs = await ctx.run(sum_of, {"one": n})
    word: str = await with_name("x")
    one, two = await ctx.gather(sum_of(n), with_name("y"))
    return [called, int(outputs["result"]), len(word), one, len(two)]


if __name__ == "__main__":
    with Environment(store="memory:") as environment:
        assert environment.start(parent, {"n": 5}).result() == [7, 6, 1, 6, 1]
