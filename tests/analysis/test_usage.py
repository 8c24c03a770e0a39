"""What model calls consumed."""

from divebook.analysis.usage import total_usage, usage_by_model, usage_by_step
from divebook.engine.state import Usage
from divebook.events import catalog
from tests.engine.history import begun, events


def call(step, number, model, tokens):
    place = ("main", step)
    return (
        (catalog.OperationStarted(f"op_{number}", "agent_response", {"model": model}), *place),
        (catalog.OperationCompleted(f"op_{number}", "agent_response", 1, "x", {"requests": 1, **tokens}), *place),
    )


LOG = events(
    *begun(),
    (catalog.StepStarted("prompt"), "main", "a"),
    *call("a", 1, "m1", {"input_tokens": 10, "output_tokens": 1}),
    *call("a", 2, "m2", {"input_tokens": 20}),
    (catalog.StepCompleted("x", None, {"requests": 2, "input_tokens": 30}), "main", "a"),
    (catalog.StepStarted("prompt"), "main", "b"),
    *call("b", 3, "m1", {"output_tokens": 5}),
)


def test_usage_is_counted_once_though_steps_repeat_it():
    assert total_usage(LOG) == Usage(3, 30, 6)


def test_usage_by_step():
    assert usage_by_step(LOG) == {"a": Usage(2, 30, 1), "b": Usage(1, 0, 5)}


def test_usage_by_model():
    assert usage_by_model(LOG) == {"m1": Usage(2, 10, 6), "m2": Usage(1, 20, 0)}


def test_no_calls_no_usage():
    assert total_usage([]) == Usage()
