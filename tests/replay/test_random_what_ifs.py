"""Random workflows: unchanged they come to the same, changed they call nothing, killed anywhere they go on."""

import random
from collections import Counter

import pytest

from divebook.events import catalog
from divebook.events.codec import encode_line
from tests.replay.random_worlds import CALLS, environment, inner, outer, ran, random_workflow

RUNS = 40
CHANGES = 5
"""Of each run."""


def lines(execution):
    return [encode_line(event) for event in execution.history()]


def changes(rng, source):
    """Return what may be changed in a run: one of its inputs, variables, results or prompts."""
    log = source.history()
    stored = [
        e.data.stored_variable for e in log if isinstance(e.data, catalog.StepCompleted) and e.data.stored_variable
    ]
    begun = [
        e.data.operation_id
        for e in log
        if isinstance(e.data, catalog.OperationStarted) and e.data.operation_type == "action_execution"
    ]
    prompts = [step.name for step in source.workflow.steps if step.prompt is not None]
    kinds = [
        "inputs",
        *(["variables"] if stored else []),
        *(["results"] if begun else []),
        *(["prompts"] * bool(prompts)),
    ]
    for _ in range(CHANGES):
        match rng.choice(kinds):
            case "inputs":
                yield {"inputs": {"n": rng.randint(4, 9)}}
            case "variables":
                yield {"variables": {rng.choice(stored): rng.randint(0, 99)}}
            case "results":
                yield {"results": {rng.choice(begun): rng.randint(0, 99)}}
            case _:
                yield {"prompts": {rng.choice(prompts): "Count something else"}}


@pytest.mark.parametrize("seed", range(RUNS))
def test_random_runs_unchanged_are_the_same_and_changed_call_nothing(seed):
    definition = random_workflow(seed)
    rng, met = random.Random(seed), Counter()
    with environment(definition) as world:
        source = ran(world, definition)
        before = lines(source)
        found = world.run_of(source.id).what_if()
        assert (found.outputs, found.diff, found.live, found.blocked, found.unused) == (source.outputs, None, 0, 0, 0)
        for change in changes(rng, source):
            found = world.run_of(source.id).what_if(change)
            assert found.run.status in ("completed", "failed", "waiting")
            met[found.run.status] += 1
        assert not CALLS
        assert lines(source) == before
    assert sum(met.values()) == CHANGES


def test_a_python_workflow_with_a_child_a_question_and_a_signal_is_the_same():  # traps 12, 21
    with environment(inner, outer) as world:
        source = ran(world, outer)
        before = lines(source)
        for at in (None, *range(1, len(before))):
            found = world.run_of(source.id).what_if(at=at)
            assert (found.outputs, found.live, found.blocked) == (source.outputs, 0, 0), at
        assert not CALLS
        assert lines(source) == before


@pytest.mark.parametrize("tools", ["recorded", "read-only", "live"])
def test_a_child_is_served_whole_or_a_what_if_and_is_never_a_run_of_its_own(tools):  # trap 21
    with environment(inner, outer) as world:
        source = ran(world, outer)
        before = len(world.store.records(origin="child"))
        whole = world.run_of(source.id).what_if(tools=tools)
        assert (whole.outputs, whole.blocked) == (source.outputs, 0)
        other = world.run_of(source.id).what_if({"inputs": {"n": 4}}, tools=tools)
        blocked = [call.what for call in other.calls if call.way == "blocked"]
        assert blocked[-1:] == ([] if tools == "live" else ["step measure"])
        assert len(world.store.records(origin="child")) == before == 1


def test_a_what_if_that_is_killed_anywhere_comes_to_the_same():  # trap 18
    flows, points = [random_workflow(seed) for seed in (1, 2, 4, 6)], 0
    with environment(*flows, inner, outer) as world:
        for flow in (*flows, outer):
            source, commits = ran(world, flow), []
            unsubscribe = world.store.subscribe(lambda name, events, to=commits: to.append((name, events[-1].sequence)))
            found = world.run_of(source.id).what_if(None if flow in (outer, flows[0]) else {"inputs": {"n": 4}})
            unsubscribe()
            whole = list(found.run.history())
            cuts = [sequence for name, sequence in commits if name == found.run.id]
            points += len(cuts) - 1
            for cut in cuts[:-1]:
                again = resumed_after(cut, source, whole, flow)
                assert [*map(outcome, (again, found.run))] == [outcome(found.run)] * 2
                assert served(again) == served(found.run), "each result is given out once"
        assert not CALLS
    assert points >= 30


def resumed_after(cut, source, whole, flow):
    """Return what a what-if comes to whose process died after a commit: another environment goes on with it."""
    with environment(*((flow,) if flow is not outer else (inner, outer))) as world:
        world.store.append(source.id, list(source.history()), 0)
        world.store.append(whole[0].execution_id, whole[:cut], 0)
        return world.run_of(whole[0].execution_id).resume().wait(20)


def outcome(execution):
    return execution.status, dict(execution.outputs), execution.error


def served(execution):
    told = (getattr(event.data, "served", None) for event in execution.history())
    return Counter(each["sequence"] for each in told if each and "sequence" in each)
