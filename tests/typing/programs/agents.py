"""Agents with typed output, a scripted model, and a tool with a context."""

from pydantic import BaseModel

from divebook import Agent, Context, Environment, ScriptedModel, tool, workflow
from divebook.tools import ToolContext


class Verdict(BaseModel):
    score: int


@tool(read_only=True)
def passages(query: str, context: ToolContext) -> list[str]:
    """Find passages."""
    return [f"{query} in {context.run_id[:5]}"]


@workflow
async def judge(ctx: Context, text: str) -> int:
    verdict = await ctx.agent("critic").run(f"Is this good? {text}", output=Verdict)
    return verdict.score


if __name__ == "__main__":
    critic = Agent("critic", model=ScriptedModel(['{"score": 7}']), tools=[passages])
    with Environment(store="memory:", agents=[critic]) as environment:
        score: int = environment.start(judge, {"text": "a river"}).result()
    assert score == 7
