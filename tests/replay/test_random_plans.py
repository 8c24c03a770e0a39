"""Random workflows that failed anywhere, and were corrected: what their plans say is what then happens."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from divebook import Step
from divebook.events import catalog
from tests.replay.carried_out import live_in, reused_in
from tests.replay.random_worlds import CALLS, environment, random_workflow


def broken_off(seed):
    """Return a random workflow with a step that fails at a random place of its row, and how it is corrected."""
    definition = random_workflow(seed)
    steps = list(definition.steps)
    joins = {found.name for found in steps if found.join}
    ways = [n for n, found in enumerate(steps) if len(found.edges) == 1 and found.edges[0].step not in joins]
    at = random.Random(seed).choice(ways)
    (way,) = steps[at].edges
    fails = Step("fails", action="broken", parameters={"x": "$(state.v0)"}, store="fixed", next=[way.step])
    to_it = replace(steps[at], edges=(replace(way, step="fails"),))

    def row(middle, front=()):
        return replace(definition, steps=(*front, *steps[:at], to_it, middle, *steps[at + 1 :]))

    fixed = replace(fails, action="work")
    corrected = [
        row(fixed),
        row(fixed, [Step("front", script="1", next=["start"])]),
        replace(row(fixed), description="other"),
    ]
    return row(fails), corrected[seed % len(corrected)]


@pytest.mark.parametrize("seeds", [range(n, 40, 4) for n in range(4)], ids=["0", "1", "2", "3"])
def test_what_a_plan_says_is_what_then_happens(seeds):
    checked = 0
    for seed in seeds:
        before, after = broken_off(seed)
        with environment(before) as world:
            CALLS.clear()
            source = answered(world, world.start(before, {"n": 3}).wait(20))
            assert source.status == "failed", seed
            CALLS.clear()
            plan = world.run_of(source.id).resume(definition=after, plan=True)
            assert not +CALLS, seed
            again = answered(world, world.run_of(source.id).resume(definition=after).wait(20))
            assert again.status == "completed", (seed, again.error)
            check(seed, plan, source, again)
            checked += len(plan.live) > 0 and plan.reused > 0
    assert checked >= 5


def answered(world, execution):
    while execution.status == "waiting":
        for question in execution.open_questions:
            world.answer(question.id, 4 if question.schema else "four", execution)
        execution.wait(20)
    return execution


def check(seed, plan, source, again):
    live = live_in(again, plan.at)
    sure = Counter((call.operation_type, call.step) for call in plan.live)
    happened = Counter((kind, step) for kind, step, _ in live)
    assert not sure - happened, (seed, plan)
    assert {step for _, step in happened - sure} <= set(plan.behind), (seed, plan, happened)
    if not plan.at_hand:
        assert reused_in(again, plan.at) - len(plan.asked) >= plan.reused, seed
    if not plan.behind:
        assert happened == sure, (seed, plan)
    done = {e.data.operation_id for e in source.history() if isinstance(e.data, catalog.OperationCompleted)}
    assert not done & {operation for *_, operation in live}, (seed, "done twice")
