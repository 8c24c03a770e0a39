"""What the fields of payloads may hold."""

import dataclasses

import pytest

from divebook.events.catalog import (
    PAYLOADS,
    ExecutionStarted,
    Mutation,
    OperationStarted,
    PathBranched,
    StateMutated,
    StepCompleted,
)
from divebook.events.shapes import wrong_field

CHECKED = {
    "new_paths": [{"id": "main-1", "current_step": "a"}],
    "mutations": (Mutation("set", "k", 1),),
    "iteration_index": 0,
    "value": "x",
}
"""Fields that payloads check themselves when they are made."""


def example(kind):
    checked = {name: value for name, value in CHECKED.items() if name in kind.field_names}
    return kind(**{**dict.fromkeys(kind.required, "x"), **checked})


EXAMPLES = [example(kind) for kind in PAYLOADS.values()]
WRONG = [
    (ExecutionStarted("w", inputs=["Ada"]), "inputs must be a mapping, got a list"),
    (ExecutionStarted("w", inputs={1: "Ada"}), "inputs must be a mapping, got a mapping"),
    (ExecutionStarted("w", inputs="Ada"), "inputs must be a mapping, got text"),
    (OperationStarted("op", "x", key=True), "key must be text or a whole number or null, got true or false"),
    (StepCompleted(output=1.5), "output must be text, got float"),
    (
        StateMutated((Mutation("set", ["x"], 1),)),
        "mutations must be a list, each entry a change of a variable, got a list",
    ),
    (PathBranched([{"id": 1, "current_step": "s"}]), "new_paths[0].id must be text, got a whole number"),
]


@pytest.mark.parametrize("payload", EXAMPLES, ids=lambda payload: payload.event_type)
def test_sound_payloads_have_no_wrong_field(payload):
    assert wrong_field(payload) is None


@pytest.mark.parametrize("payload", EXAMPLES, ids=lambda payload: payload.event_type)
def test_every_field_is_looked_at(payload):
    strange = object()
    for field in dataclasses.fields(payload):
        if field.type != "Any" and field.name not in CHECKED:
            wrong = wrong_field(dataclasses.replace(payload, **{field.name: strange}))
            assert wrong is not None
            assert wrong.startswith(f"{field.name} must be ")
            assert wrong.endswith(", got object")


@pytest.mark.parametrize(("payload", "message"), WRONG)
def test_the_field_and_what_it_holds_are_named(payload, message):
    assert wrong_field(payload) == message
