"""A workflow with steps, ordinary and async, and with options."""

from divebook import Context, Environment, Run, step, workflow


@step
def length(text: str) -> int:
    return len(text)


@step
async def doubled(number: int) -> int:
    return 2 * number


@step(retry=3, timeout=20, idempotent=True)
def shout(text: str, *, marks: int = 1) -> str:
    return text.upper() + "!" * marks


@step("halve", retry=2)
async def half(number: int) -> float:
    return number / 2


@workflow
async def measure(ctx: Context, text: str, times: int = 1) -> str:
    number: int = await length(text)
    twice: int = await doubled(number)
    part: float = await half(twice)
    loud: str = await shout(text, marks=times)
    return f"{loud} {number} {twice} {part}"


if __name__ == "__main__":
    with Environment(store="memory:") as environment:
        run: Run[str] = environment.start(measure, {"text": "abc", "times": 2})
        result: str = run.result()
    assert result == "ABC!! 3 6 3.0"
    name: str = length.__name__
    assert name == "length"
    plain: int = length.fn("four")
    assert plain == 4
