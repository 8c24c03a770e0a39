"""Checkpoints hold a state exactly, wherever the log stands, and nothing large that the log holds already."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook import Each, Retry, Step, Workflow
from divebook.engine.checkpoint import dump_state, load_state
from divebook.engine.evolve import evolve, fold
from divebook.engine.forks import Change, forked_from, require_reach, snapped
from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.engine.state import ExecutionState
from divebook.errors import CorruptStoreError
from divebook.events import Event, catalog
from divebook.steps.actions import Action
from divebook.stores.transfer import read
from tests.engine.history import reloaded
from tests.replay.histories import histories, log_of
from tests.runtime.test_fold import ACTIONS, workflows
from tests.runtime.test_resuming import WHOLE
from tests.runtime.test_unknown_outcomes import Bank
from tests.runtime.worlds import environment

LARGE = "a long text " * 20


def waiting_execution():
    each = Each([1, 2], as_="i", parallel=2)
    step = Step("a", action="pay", parameters={"amount": 1}, retry=Retry(3, seconds=0), each=each)
    return environment(actions=[Bank(TimeoutError("broken off")).pay()]).start(Workflow("w", [step])).wait(20)


async def echo(value: object) -> object:
    """Return what it is given."""
    return value


def large_execution():
    """Run steps whose results, items, outputs and variables are large, small, replaced and taken over at a join."""
    steps = [
        Step("a", action="echo", parameters={"value": LARGE}, store="kept", next=["b", "c"]),
        Step("b", action="echo", parameters={"value": [LARGE, 1]}, store="replaced", next="d"),
        Step("c", action="echo", parameters={"value": "$(i)"}, each=Each([LARGE, 2, [3]], as_="i"), next="d"),
        Step("d", script="1", store="replaced", join=True, next="e"),
        Step("e", script="inputs.text", store="kept"),
    ]
    workflow = Workflow("large", steps, inputs=["text"], outputs=["kept"])
    return environment(workflow, actions=[Action("echo", echo)]).start("large", {"text": LARGE + "!"}).wait(20)


@pytest.mark.parametrize(
    "execution", [WHOLE, waiting_execution(), large_execution()], ids=["branches", "questions", "large"]
)
def test_every_state_along_a_log_comes_back(execution):
    history = execution.history()
    state = ExecutionState(execution.id)
    for event in history:
        state = evolve(state, event)
        again = reloaded(state, history)
        assert again == state
        assert vars(again).keys() == vars(state).keys()
    assert execution.status == "completed" or execution.open_questions


@settings(max_examples=30, deadline=None)
@given(workflows(), st.data())
def test_a_log_folded_from_any_checkpoint_gives_the_state_of_the_whole(workflow, data):
    execution = environment(actions=ACTIONS).start(workflow, {"n": 2}).wait(30)
    history = execution.history()
    position = data.draw(st.integers(1, len(history)))
    kept = reloaded(fold(execution.id, history[:position]), history)
    assert fold(execution.id, history[position:], kept) == execution.state


TESTS = Path(__file__).parents[1]
RECORDED = [
    *histories(),
    *sorted((TESTS / "store" / "recorded").glob("form_*.jsonl")),
    *sorted((TESTS / "events" / "recorded").glob("*.jsonl")),
]


def random_change(rng, state):
    """Return a change of some of the variables, inputs, results, answers and failed steps of a state."""

    def some(names, *values):
        return {name: rng.choice(values) for name in names if rng.random() < 0.5}

    values = (1, "short", LARGE, [LARGE, 1], {"key": LARGE}, [], None)
    paths = state.paths.values()
    return Change(
        variables=some([*state.variables, "new"], *values),
        inputs=some(state.inputs, *values),
        results=some([key for path in paths if path.open for key in path.open.operations], *values),
        answers=some(state.interrupts, {"text": LARGE}, {"text": "yes"}),
        skipped={path.id: rng.choice(["short", LARGE]) for path in paths if path.status == "failed" and path.open},
    )


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.name.partition(".")[0])
def test_every_state_of_a_recorded_log_and_of_its_forks_comes_back(file):
    log = (log_of(file) if file.suffix == ".gz" else read(file)).events
    rng = random.Random(file.name)
    states = [ExecutionState(log[0].execution_id)]
    for event in log:
        states.append(evolve(states[-1], event))
        assert reloaded(states[-1], log) == states[-1], event.sequence
    points = [rng.randint(1, len(log)) for _ in range(12)]
    for at in {max(1, snapped(log, point, states.__getitem__)) for point in (*points, len(log))}:
        state = states[at]
        change = random_change(rng, state)
        require_reach(change, state)
        fork = list(log[:at])
        for fact in (
            catalog.ExecutionForked(state.execution_id, at, "w", change=change.to_data() or None),
            catalog.ExecutionResumed(),
            catalog.ExecutionAnnotated(note="forked"),
        ):
            fork.append(Event(f"event_{len(fork) + 1}", state.execution_id, len(fork) + 1, log[-1].recorded_at, fact))
            state = evolve(state, fork[-1])
            assert reloaded(state, fork) == state, (at, change)


def found_in_all_events(log, at):
    """Return the point of a fork near an event as the types of all events before it say."""
    at = snapped(log, at, lambda _: ExecutionState("exec_1"))  # of a state that says nothing
    turns = [event for event in log[:at] if type(event.data) in STATUS_AFTER]
    while turns and STATUS_AFTER[type(turns[-1].data)] in TERMINAL:
        at = turns.pop().sequence - 1
    undone = (event.sequence for event in log[:at] if isinstance(event.data, catalog.RollbackStarted))
    return min(undone, default=at + 1) - 1


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.name.partition(".")[0])
def test_a_fork_begins_with_the_state_that_the_fold_of_the_shared_events_has_under_its_id(file):
    log = (log_of(file) if file.suffix == ".gz" else read(file)).events
    rng = random.Random(file.name)
    for point in {rng.randint(1, len(log)) for _ in range(20)}:
        at = max(1, snapped(log, point, lambda at: fold(log[0].execution_id, log[:at])))
        assert at == max(1, found_in_all_events(log, point)), point
        source = fold(log[0].execution_id, log[:at])
        data = catalog.ExecutionForked(
            source.execution_id,
            at,
            "w",
            change=random_change(rng, source).to_data() or None,
            seed=rng.choice((None, "s")),
        )
        forked = Event("event_forked", "exec_fork", at + 1, log[-1].recorded_at, data)
        shared = [replace(event, execution_id="exec_fork") for event in log[:at]]
        expected = fold("exec_fork", [*shared, forked])
        assert fold("exec_fork", [forked], forked_from(source, "exec_fork")) == expected, at


def test_what_the_log_holds_is_not_copied():
    execution = large_execution()
    state = ExecutionState(execution.id)
    for event in execution.history():
        state = evolve(state, event)
        assert b"a long text" not in dump_state(state)


def test_variables_that_many_paths_have_read_are_written_once():
    names = [f"s{number}" for number in range(40)]
    steps = [Step("first", action="echo", parameters={"value": "small"}, store="seen_by_all", next=names)]
    steps += [Step(name, ask="Go on?", end=True) for name in names]
    world = environment(Workflow("wide", steps), actions=[Action("echo", echo)])
    execution = world.start("wide").wait(20)
    assert len(execution.open_questions) == 40
    assert dump_state(execution.state).count(b"seen_by_all") == 1


def test_variables_as_they_stood_when_a_step_began_come_back():
    steps = [
        Step("first", action="echo", parameters={"value": 1}, store="x", next=["asks", "writes"]),
        Step("asks", ask="Go on?", store="x", end=True),
        Step("writes", action="echo", parameters={"value": LARGE}, store="x", next="more"),
        Step("more", action="echo", parameters={"value": 2}, store="y"),
    ]
    world = environment(Workflow("both", steps), actions=[Action("echo", echo)])
    execution = world.start("both").wait(20)
    again = reloaded(execution.state, execution.history())
    assert again == execution.state
    entries = [dict(path.open.entry_variables) for path in again.paths.values() if path.open is not None]
    assert entries == [{"x": 1}]
    assert dict(again.variables) == {"x": LARGE, "y": 2}


def test_a_checkpoint_of_another_version_is_ignored():
    data = json.loads(dump_state(WHOLE.state))
    for changed in ({"version": 99}, {"version": 3}, {"state": {"teleported": 1}}, {"facts": 5}):
        assert load_state(json.dumps({**data, **changed}).encode(), lambda _: {}) is None
    assert load_state(b"[]", lambda _: {}) is None
    assert load_state(b"no JSON", lambda _: {}) is None


def test_a_checkpoint_that_does_not_fit_its_log_is_ignored():
    execution = large_execution()
    raw, history = dump_state(execution.state), execution.history()
    first = history[0].data

    def damaged(_):
        raise CorruptStoreError("event 7 is damaged")

    assert load_state(raw, lambda _: {}) is None
    assert load_state(raw, lambda numbers: dict.fromkeys(numbers, first)) is None
    assert load_state(raw, damaged) is None
