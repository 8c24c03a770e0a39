"""The functions of the notebook session, with typed results."""

from pathlib import Path
from typing import assert_type

import divebook
from divebook import Agent, Context, Environment, Run, ScriptedModel, Step, Workflow, action, step, tool, workflow


@step
def size(text: str) -> int:
    return len(text)


@workflow
async def total(ctx: Context, texts: list[str], factor: int = 1) -> int:
    if not await ctx.confirm("Add?"):
        return 0
    sizes = await ctx.gather(*(size(text) for text in texts))
    return factor * sum(sizes)


@action
def stamp(text: str) -> str:
    return text


@tool
def look(word: str) -> str:
    """Look."""
    return word


if __name__ == "__main__":
    from divebook.notebook.session import open_session

    open_session("memory:")
    asked = Workflow("asked", [Step("a", ask="Name?", store="name")], outputs=["name"])
    divebook.define(asked, Agent("x", model=ScriptedModel(["y"])), stamp, look, [asked])
    run = divebook.run(total, ["a", "bc"], factor=3).wait()
    assert_type(run, Run[int])
    other = divebook.run(total, {"texts": ["a"]}, tags=["t"], bounds={"max_cost": 1}).wait()
    assert_type(other, Run[int])
    for run_id, question in divebook.inbox():
        assert_type(run_id, str)
        assert divebook.answer(question, response=True).wait().id == run_id
    assert run.result() == 9
    assert other.result() == 1
    named: Run = divebook.run("asked", strict=True, answers={"a": "Ann"})
    assert named.wait().result() == "Ann"
    listed = divebook.runs(status="completed", workflow="asked", limit=3)
    assert len(listed) == 1 and listed[0].id == named.id
    assert divebook.show(named).id == divebook.show(named.id[:26]).id
    assert divebook.resume(named).id == named.id
    environment: Environment = divebook.environment()
    assert "asked" in environment.definitions.workflows
    page: Path = named.to_html("page.html")
    assert page.exists()
