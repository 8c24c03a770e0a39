"""A workflow with steps, ordinary and async, and with options."""

from divebook import Context, Environment, Run, run, step, workflow
from divebook.notebook.session import open_session


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


def notebook(text: str) -> str:
    """Run the workflow as a notebook does."""
    open_session("memory:")
    first: Run[str] = run(measure, text=text)
    second: Run[str] = run(measure, text, times=1)
    third: Run[str] = run(measure, {"text": text}, tags=["mapping"])
    assert first.result() == second.result() == third.result()
    return first.result()


if __name__ == "__main__":
    assert notebook("ab") == "AB! 2 4 2.0"
    with Environment(store="memory:") as environment:
        started: Run[str] = environment.start(measure, {"text": "abc", "times": 2})
        result: str = started.result()
    assert result == "ABC!! 3 6 3.0"
    name: str = length.__name__
    assert name == "length"
    plain: int = length.fn("four")
    assert plain == 4
