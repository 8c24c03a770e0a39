"""Questions to people, with text, types and expiry."""

from dataclasses import dataclass

from divebook import Context, Environment, allow, workflow
from divebook.errors import ExecutionWaitingError


@allow
@dataclass
class Verdict:
    score: int
    reason: str = ""


@workflow
async def review(ctx: Context, title: str) -> str:
    if not await ctx.confirm(f"Publish {title}?", message="It goes to the list."):
        return "refused"
    verdict = await ctx.ask("How good?", Verdict)
    note: str = await ctx.ask("Anything else?", expires_in=3600, default="no")
    score: int = verdict.score
    return f"{title}: {score} {note}"


if __name__ == "__main__":
    with Environment(store="memory:") as environment:
        run = environment.start(review, {"title": "Rivers"}).wait()
        try:
            run.result()
        except ExecutionWaitingError as error:
            assert "Publish Rivers?" in str(error)
        for response in ("yes", {"score": 4}, "fine"):
            (question,) = run.open_questions
            run.answer(question.id, response).wait()
        assert run.result() == "Rivers: 4 fine"
