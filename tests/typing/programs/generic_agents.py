"""Functions over agents of any output, agents in containers, and dataclass outputs with lists and options."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeVar, assert_type

from divebook import Agent, Context, Environment, Run, ScriptedModel, workflow

T = TypeVar("T")


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True)
class Note:
    text: str
    mood: Mood = Mood.GOOD


@dataclass
class Review:
    notes: list[Note] = field(default_factory=list)
    score: int | None = None
    kind: Literal["short", "long"] = "short"


REVIEW = '{"notes": [{"text": "fine", "mood": "bad"}], "score": 3, "kind": "long"}'
reviewer = Agent("reviewer", output=Review, model=ScriptedModel([REVIEW, REVIEW]))
speaker = Agent("speaker", model=ScriptedModel(["hello", "hello"]), instructions="Speak.")


async def twice(ctx: Context, agent: Agent[T], prompt: str) -> list[T]:
    first = await ctx.agent(agent).run(prompt)
    return [first, await ctx.agent(agent).run(prompt)]


async def each_of(ctx: Context, agents: dict[str, Agent[str]]) -> dict[str, str]:
    return {name: await ctx.agent(agent).run(name) for name, agent in agents.items()}


@workflow
async def judged(ctx: Context, text: str) -> Review:
    reviews = await twice(ctx, reviewer, text)
    assert_type(reviews, list[Review])
    moods = [note.mood for review in reviews for note in review.notes]
    assert moods == [Mood.BAD, Mood.BAD]
    words = await twice(ctx, speaker, text)
    assert_type(words, list[str])
    return reviews[0]


def total_of(run: Run[Review]) -> int:
    return run.result().score or 0


if __name__ == "__main__":
    with Environment(store="memory:", agents=[reviewer, speaker]) as environment:
        run = environment.start(judged, {"text": "a"})
        assert_type(run, Run[Review])
        assert_type(run.wait(), Run[Review])
        assert total_of(run) == 3
        again = environment.run(judged, {"text": "a"}, model="scripted")
        assert_type(again, Run[Review])
        pending = environment.create(judged, {"text": "a"})
        assert_type(pending.start(), Run[Review])
        pending.cancel()
