"""Every way to make a variant of a run begins it with an event that fits one table, also if the source is a variant."""

import random

import pytest

from divebook import Step, Workflow
from divebook.engine.forks import Change
from divebook.events import catalog
from divebook.runtime.forks import prefix_of
from tests.replay.random_worlds import environment, ran, random_workflow

RUNS = 12

TABLE = {
    # way: origin, tools, whether the seed of the source is recorded, whether only one step is run
    "fork": ("fork", None, False, False),
    "fork without failed steps": ("fork", None, False, False),
    "what-if": ("what-if", "recorded", True, False),
    "what-if that may read": ("what-if", "read-only", True, False),
    "trial": ("trial", "recorded", True, True),
    "run again": ("resume", "unedited", False, False),
    "resumption with a new definition": ("resume", "reuse", False, False),
}


def variants(world, source, rng):
    """Yield the name of each way and the execution that it makes of a source that has completed."""
    step = source.workflow.steps[0].name
    yield "fork", world.run_of(source.id).fork(rng.randint(1, source.state.last_sequence)).wait(20)
    yield "what-if", world.run_of(source.id).what_if({"inputs": {"n": rng.randint(4, 9)}}).run
    yield "what-if that may read", world.run_of(source.id).what_if(tools="read-only").run
    yield "trial", world.run_of(source.id).try_step(step).runs[0]
    yield "run again", world.run_of(source.id).run_again().wait(20)


def require_fit(way, source, variant):
    """Assert that the first own event of a variant fits the table and the events that it shares."""
    opening = max(
        (event for event in variant.history() if isinstance(event.data, catalog.ExecutionForked)),
        key=lambda event: event.sequence,
    )
    forked = opening.data
    origin, tools, has_seed, is_of_one_step = TABLE[way]
    assert (forked.origin, forked.tools, forked.only is not None) == (origin, tools, is_of_one_step)
    assert forked.seed == (source.state.seed if has_seed else None)
    assert (forked.awaited_by, forked.bounds) == (None, None)
    assert (forked.key is not None) == (way == "resumption with a new definition")
    shared = prefix_of(source.store, source.id, forked.at, Change())
    assert (forked.source, forked.at, forked.previous) == (source.id, shared.at, shared.opened)
    assert opening.sequence == forked.at + 1


@pytest.mark.parametrize("seed", range(RUNS))
def test_the_first_event_of_each_variant_fits_the_table(seed):
    definition, rng = random_workflow(seed), random.Random(seed)
    with environment(definition) as world:
        source = ran(world, definition)
        made = list(variants(world, source, rng))
        for way, variant in made:
            require_fit(way, source, variant)
        # A variant of a variant: its prefix contains the first events of both.
        variant = rng.choice([variant for way, variant in made if way != "trial" and variant.status == "completed"])
        for way, second in variants(world, variant, rng):
            require_fit(way, variant, second)


def failing(action):
    return Workflow("failing", [Step("a", script="1", store="a"), Step("b", action=action)])


def test_the_first_event_of_a_variant_of_a_failed_run_fits_the_table():
    with environment(failing("broken")) as world:
        source = world.start(failing("broken"), {}).wait(20)
        assert source.status == "failed"
        require_fit("fork without failed steps", source, world.run_of(source.id).retry("skip_failed").wait(20))
        changed = world.run_of(source.id).resume(definition=failing("tick")).wait(20)
        require_fit("resumption with a new definition", source, changed)
