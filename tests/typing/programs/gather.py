"""Concurrent calls: of a fixed number with different types, of any number, and with errors as results."""

from divebook import Context, Environment, step, workflow


@step
def size(text: str) -> int:
    return len(text)


@step
def upper(text: str) -> str:
    if not text:
        raise ValueError("empty")
    return text.upper()


@workflow
async def both(ctx: Context, texts: list[str]) -> dict[str, int]:
    first, second = await ctx.gather(size(texts[0]), upper(texts[0]))
    number: int = first
    word: str = second
    sizes: list[int] = await ctx.gather(*[size(text) for text in texts])
    outcomes = await ctx.gather(*[upper(text) for text in texts], return_exceptions=True)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    return {word: number, "all": sum(sizes), "failed": len(failed)}


if __name__ == "__main__":
    with Environment(store="memory:") as environment:
        assert environment.start(both, {"texts": ["ab", ""]}).result() == {"AB": 2, "all": 2, "failed": 1}
