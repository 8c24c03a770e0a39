"""Mistakes in programs of users. Type checkers report exactly the lines that are marked with ``# error``."""

from dataclasses import dataclass

from divebook import (
    Agent,
    Ask,
    Bounds,
    Context,
    Environment,
    Retry,
    Run,
    Step,
    Workflow,
    action,
    allow,
    step,
    tool,
    workflow,
)
from divebook import map as map_rows
from divebook.definitions import MCPServerDefinition, WorkspaceDefinition
from divebook.testing import Context as TestContext


@dataclass
class Verdict:
    score: int


@step
def length(text: str) -> int:
    return len(text)


@step
async def doubled(number: int) -> int:
    return 2 * number


@step(retry="three")  # error
def wrong_retry() -> None: ...


@step(timout=3)  # error
def wrong_option() -> None: ...


def not_async(ctx: Context) -> int:
    return 1


workflow(not_async)  # error


@workflow(retry=3)  # error
async def no_such_option(ctx: Context) -> int:
    return 1


@tool(read_only="yes")  # error
def search(query: str) -> list[str]:
    return [query]


@action(timeout=["5 min"])  # error
def wait() -> None: ...


writer = Agent("writer")
clerk = Agent("clerk", output=Verdict)


@workflow
async def child(ctx: Context, n: int) -> int:
    return n


@workflow
async def mistakes(ctx: Context, text: str) -> int:
    a: int = length(text)  # error
    b: str = await length(text)  # error
    c = await length(3)  # error
    d = await doubled()  # error
    e = await doubled(1, 2)  # error
    f: str = await doubled(1)  # error
    g: str = await ctx.confirm("Sure?")  # error
    h: int = await ctx.ask("How many?")  # error
    i = await ctx.ask("How good?", Verdict)
    print(i.points)  # error
    j, k = await ctx.gather(length("a"), doubled(1))
    w: str = j  # error
    m: list[str] = await ctx.gather(*[length("a")])  # error
    await ctx.sleep(None)  # error
    await ctx.wait_signal("go", within=object())  # error
    n: str = await child(n=1)  # error
    o = await child("x")  # error
    p = await ctx.agent("critic").run("Good?", output=Verdict)
    print(p.points)  # error
    r: int = await ctx.agent(writer).run("Write.")  # error
    s = await ctx.agent(clerk).run("Good?")
    print(s.points)  # error
    t = await ctx.agent(writer).run("Good?", output=Verdict)
    print(t.points)  # error
    ctx.agent(7)  # error
    q: int = await ctx.random()  # error
    await ctx.version("change", 1)  # error
    ctx.emitted("x")  # error
    await ctx.run(["child"])  # error
    await ctx.ask("x", expires="1h")  # error
    return f"{a}{b}{c}{d}{e}{f}{g}{h}{k}{w}{m}{n}{o}{q}{r}"  # error


def program(environment: Environment) -> None:
    run = environment.start(child, {"n": 1})
    result: str = run.result()  # error
    other: Run[str] = run  # error
    environment.start(7)  # error
    environment.worker(paralel=2)  # error
    plain: str = length.fn("a")  # error
    child.fn(TestContext(), "x")  # error
    child.fn("ctx", 1)  # error
    child.fn(environment, n=1)  # error
    TestContext(answers=3)  # error
    Bounds(max_tokens="many")  # error
    Agent("x", output=Verdict, modle="test")  # error
    verdicts: Agent[Verdict] = writer  # error
    Bounds(max_price=3)  # error
    Step("s", retry=[3])  # error
    Workflow(["s"])  # error
    Retry(attempts="3")  # error
    allow("Verdict")  # error
    verification: bool = run.verify()  # error
    print(result, other, plain, verification, verdicts, run.verfy())  # error


def more(environment: Environment, frame: list[dict[str, str]]) -> None:
    result: str = environment.run(child, {"n": 1}).result()  # error
    pending: str = environment.create(child, {"n": 1}).result()  # error
    fork: Run[str] = environment.start(child, {"n": 1}).fork()  # error
    again: str = environment.start(child, {"n": 1}).again().result()  # error
    Environment(agents=["writer"])  # error
    Environment(actions=["Mail.Send"])  # error
    environment.add_agent("writer")  # error
    rows = map_rows(frame, length, prompt="Good?")  # error
    map_rows(frame, writer)  # error
    map_rows("rows.csv", length)  # error
    map_rows(frame, length, paralel=2)  # error
    count: str = map_rows(frame, length).done  # error
    Retry(errors="TimeoutError")  # error
    Retry(seconds=["1 min"])  # error
    Ask("Go?", expires_in=[3])  # error
    WorkspaceDefinition("app", packages="pytest")  # error
    MCPServerDefinition("git", "stdio", command="uvx", args="mcp-server-git")  # error
    print(result, pending, fork, again, rows, count)


@workflow
async def gathers(ctx: Context) -> None:
    one, two = await ctx.gather(length("a"), doubled(1), return_exceptions=True)
    number: int = one  # error
    five = await ctx.gather(length("a"), doubled(1), doubled(1), doubled(1), ctx.confirm("Sure?"))
    text: str = five[4]  # error
    print(number, two, text)
