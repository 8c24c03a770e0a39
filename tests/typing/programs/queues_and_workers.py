"""A queue and a worker that runs it."""

from divebook import Context, Environment, workflow
from divebook.queues import Worker


@workflow
async def greet(ctx: Context, who: str) -> str:
    return f"hello {who}"


if __name__ == "__main__":
    with Environment(store="memory:", workflows=[greet]) as environment:
        run = environment.enqueue(greet, {"who": "you"}, queue="greetings")
        with Worker(environment, ["greetings"]) as worker:
            run.wait(60)
        greeting: str = run.result()
    assert greeting == "hello you"
    assert worker is not None
