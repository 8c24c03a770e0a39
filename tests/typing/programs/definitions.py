"""Workflows as data: steps, loops, edges, retries, budgets."""

from decimal import Decimal

from divebook import Ask, Bounds, Catch, Each, Edge, Environment, Retry, Step, Workflow, action


@action("Text.Count", retry=3, timeout=5)
def count(text: str) -> int:
    return len(text)


survey = Workflow(
    "survey",
    [
        Step(
            "each",
            action="Text.Count",
            parameters={"text": "${word}"},
            each=Each("$(inputs.words)", as_="word"),
            store="sizes",
        ),
        Step("total", script="sum(state.sizes)", store="total", retry=Retry(2, seconds=0), catch=Catch("failed")),
        Step("done", script="state.total", store="result", next=[]),
        Step("failed", script="-1", store="result"),
    ],
    inputs=["words"],
    outputs=["result"],
    bounds=Bounds(max_cost=2.5, max_llm_calls=10),
)
edge = Edge("done", condition="state.total > 3")
question = Ask("Go on?", kind="confirmation")

if __name__ == "__main__":
    bounds = Bounds(max_cost="0.10", edges={"a->b": 2})
    cost: Decimal | None = bounds.max_cost
    assert cost == Decimal("0.10")
    with Environment(store="memory:", workflows=[survey]) as environment:
        run = environment.start("survey", {"words": ["ab", "c"]}, bounds=Bounds(max_seconds=60))
        assert run.result() == 3
    assert count("abc") == 3
