"""A start with a key happens once, from however many threads and processes."""

import re
import threading
import warnings

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ExecutionError, SetupError, StartKeyTakenError, StartKeyWarning
from divebook.steps.actions import Action
from divebook.stores import MemoryStore, SqliteStore, transfer
from tests.runtime import starters
from tests.runtime.worlds import Calls, Gate, environment

PATIENCE = 20
KEYED = Workflow("keyed", [Step("gate", action="gate"), Step("s", script="1", store="x")])
ASKING = Workflow("asking", [Step("s", ask="Which?", store="x")])
TWO_STEPS = Workflow("two", [Step("one", script="1", store="n"), Step("two", script="state.n + 1", store="m")])

NOTING = Workflow("w", [Step("a", action="note", parameters={"value": 1})])


def test_a_second_start_with_a_key_returns_the_execution_that_exists():
    calls = Calls()
    world = environment(NOTING, actions=[calls.action()])
    first = world.start("w", key="order 7").wait(20)
    assert world.start("w", key="order 7") == first
    assert world.start("w", key="order 8").wait(20) != first
    assert calls == [1, 1]
    with pytest.raises(StartKeyTakenError, match=f"'order 7' already belongs to execution {first.id}"):
        world.create("w", key="order 7").start()
    assert world.store.leases() == []


def test_a_key_belongs_to_one_workflow():
    other, calls = Workflow("other", [Step("a", action="note", parameters={"value": 2})]), Calls()
    world = environment(NOTING, other, actions=[calls.action()])
    first = world.start("w", key="order 7").wait(20)
    told = f"'order 7' already belongs to execution {first.id} of workflow 'w', but you tried to start workflow 'other'"
    with pytest.raises(StartKeyTakenError, match=told) as refused:
        world.start("other", key="order 7")
    assert (refused.value.run_id, refused.value.workflow, refused.value.wanted) == (first.id, "w", "other")
    assert calls == [1]


def test_a_copy_of_an_execution_does_not_take_the_key_of_another_workflow():
    other, calls = Workflow("other", [Step("a", action="note", parameters={"value": 2})]), Calls()
    world = environment(NOTING, other, actions=[calls.action()])
    first, second = world.start("w", key="order 7").wait(20), world.start("other").wait(20)
    assert world.run_of(first.id).fork(1, key="order 7") == first
    with pytest.raises(StartKeyTakenError, match="but you tried to start workflow 'other'"):
        world.run_of(second.id).fork(1, key="order 7")


def test_starts_at_once_from_two_processes_are_one(tmp_path):
    calls = Calls()
    worlds = [
        Environment(store=SqliteStore(tmp_path / "s.db"), workflows=[NOTING], actions=[calls.action()])
        for _ in range(2)
    ]
    started, together = [], threading.Barrier(8)

    def start(world):
        together.wait(20)
        started.append(world.start("w", key="order 7"))

    threads = [threading.Thread(target=start, args=(world,)) for world in worlds * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len({execution.id for execution in started}) == 1
    for execution in started:
        if execution.internals.was_driven:
            execution.wait(20)
    assert calls == [1]


@pytest.mark.parametrize(
    ("way", "killed_after"), [(starters.INPUTS, None), (starters.WORKFLOW, None), (starters.CHANGE, 0.01)]
)
def test_processes_that_start_a_key_at_once_have_one_execution(tmp_path, way, killed_after):
    """All ways, with more kills: `python -m tests.runtime.starters`."""
    assert starters.faults_of(tmp_path, way, 3, killed_after) == []


def test_a_copy_leaves_the_key_to_its_original(tmp_path):
    world = environment(NOTING, actions=[Calls().action()])
    original = world.start("w", key="order 7").wait(20)
    transfer.export(world.store, original.id, tmp_path / "w.jsonl")
    copy = transfer.import_(tmp_path / "w.jsonl", world.store, rename=True)
    assert world.store.record(copy).key is None
    assert world.start("w", key="order 7") == original


def test_a_key_holds_on_the_engines_own_thread_as_well():
    calls = Calls()
    world = environment(NOTING, actions=[calls.action()], store=MemoryStore())
    before = world.start("w", key="order 7").wait(20)

    async def start():
        return world.start("w", key="order 7").id

    outer = environment(actions=[Action("start", start)]).start(Workflow("o", [Step("a", action="start", store="id")]))
    assert outer.wait(20).variables["id"] == before.id
    assert calls == [1]


def test_a_pending_execution_that_is_cancelled_never_starts_and_leaves_its_key(tmp_path):
    calls = Calls()
    store = SqliteStore(tmp_path / "s.db")
    world = environment(NOTING, actions=[calls.action()], store=store)
    created = world.create("w", key="order 7", tags=["rush"])
    assert created.cancel("not needed").wait(20).status == "cancelled"
    assert [event.event_type for event in created.history()] == ["execution_started", "execution_cancelled"]
    with pytest.raises(ExecutionError, match="is cancelled; only a pending execution can be started"):
        created.start()
    with pytest.raises(ExecutionError, match="is already cancelled"):
        created.cancel()
    later = Environment(store=SqliteStore(tmp_path / "s.db"), workflows=[NOTING], actions=[calls.action()])
    (record,) = later.store.records()
    assert (record.status, record.key, record.tags, later.queues.recoverable(), calls) == (
        "cancelled",
        None,
        ("rush",),
        [],
        [],
    )
    assert later.start("w", key="order 7").wait(20).status == "completed"


@pytest.mark.parametrize("round", range(20))
def test_to_start_and_to_cancel_at_once_ends_in_one_of_the_two(round):
    calls = Calls()
    world = environment(NOTING, actions=[calls.action()])
    created, together, told = world.create("w"), threading.Barrier(2), []

    def start():
        together.wait(20)
        try:
            created.start()
        except ExecutionError as error:
            told.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    together.wait(20)
    try:
        created.cancel()
    except ExecutionError as error:  # it has completed before
        told.append(str(error))
    thread.join(20)
    ended = created.wait(20)
    assert (ended.status, len(calls)) in {("cancelled", 0), ("cancelled", 1), ("completed", 1)}
    assert [event.event_type for event in ended.history()].count("execution_started") == 1
    assert len(told) <= 1


ASKED = Workflow("asked", [Step("a", action="note", parameters={"value": "$(inputs.city)"})], inputs=["city", "more"])
USED = [
    ({"city": "Bonn", "more": 1}, {"city": "Bonn", "more": 1}, None),
    ({"city": "Bonn", "more": [1, {"a": 2}]}, {"more": [1, {"a": 2}], "city": "Bonn"}, None),
    ({"city": "Bonn", "more": 1}, {"city": "Berlin", "more": 1}, "city: 'Bonn', now 'Berlin'"),
    ({"city": "Bonn", "more": 1}, {"city": "Bonn", "more": 1.5}, "more: 1, now 1.5"),
    ({"city": "Bonn", "more": [1]}, {"city": "Bonn", "more": [1, 2]}, r"more: \[1\], now \[1, 2\]"),
    ({"city": "Bonn", "more": None}, {"city": "Rome", "more": ""}, "city: 'Bonn', now 'Rome'; more: None, now ''"),
]


@pytest.mark.parametrize("way", ["start", "enqueue"])
@pytest.mark.parametrize(("first", "second", "told"), USED)
def test_a_key_used_again_with_other_inputs_is_never_silent_unless_that_is_asked_for(first, second, told, way):
    calls = Calls()
    world = environment(ASKED, actions=[calls.action()])
    before = getattr(world, way)("asked", first, key="order 7")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert getattr(world, way)("asked", second, key="order 7") == before
        assert getattr(world, way)("asked", second, key="order 7", on_conflict="return") == before
    ours = [one for one in warned if issubclass(one.category, StartKeyWarning)]
    assert [one.filename for one in ours] == ([] if told is None else [__file__])
    if told is None:
        assert getattr(world, way)("asked", second, key="order 7", on_conflict="refuse") == before
        return
    assert re.search(
        rf"'order 7' belongs to execution {before.id}, which .* other inputs \({told}\)", str(ours[0].message)
    )
    with pytest.raises(StartKeyTakenError, match=told) as refused:
        getattr(world, way)("asked", second, key="order 7", on_conflict="refuse")
    assert (refused.value.run_id, len(world.store.records())) == (before.id, 1)


@pytest.mark.parametrize("key", ["", " ", "\n\t"])
@pytest.mark.parametrize("way", ["start", "enqueue", "create"])
def test_a_blank_key_is_refused(key, way):
    world = environment(NOTING, actions=[Calls().action()])
    with pytest.raises(SetupError, match="a start key must not be blank"):
        getattr(world, way)("w", key=key)
    assert world.store.records() == []


def test_an_unknown_way_to_handle_a_conflict_is_refused():
    world = environment(NOTING, actions=[Calls().action()])
    with pytest.raises(SetupError, match=r"unknown on_conflict 'refuze' \(did you mean 'refuse'\?\)"):
        world.start("w", key="k", on_conflict="refuze")


def test_a_conflict_shows_no_secret():
    secret = "sk-ant-REDACTED"
    workflow = Workflow("s", [Step("a", script="1")], inputs=["api_key"])
    world = environment(workflow)
    world.start("s", {"api_key": secret}, key="k").wait(20)
    with pytest.raises(StartKeyTakenError) as refused:
        world.start("s", {"api_key": secret + "b"}, key="k", on_conflict="refuse")
    assert secret not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "other"),
    [
        ({"inputs": {"x": 9}}, {"inputs": {"x": 10}}),
        ({"inputs": {"x": 9}}, None),
        (None, {"inputs": {"x": 9}}),
        ({"variables": {"v": 1}}, {"variables": {"v": 2}}),
    ],
)
def test_a_fork_with_the_key_of_another_one_says_so(change, other):
    workflow = Workflow("w", [Step("a", script="inputs.x", store="v"), Step("b", script="state.v")], inputs=["x"])
    world = environment(workflow)
    source = world.start("w", {"x": 1}).wait(20)
    first = world.run_of(source.id).fork(2, change, key="once").wait(20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert world.run_of(source.id).fork(2, change, key="once") == first
        assert world.run_of(source.id).fork(2, other, key="once", on_conflict="return") == first
    (name,) = {*(change or {}), *(other or {})}
    shown = [str((each or {}).get(name, "none")) for each in (change, other)]
    told = re.escape(f"which was forked with another change ({name}: {shown[0]}, now {shown[1]})")
    with pytest.warns(StartKeyWarning, match=told):
        assert world.run_of(source.id).fork(2, other, key="once") == first
    with pytest.raises(StartKeyTakenError, match=told) as refused:
        world.run_of(source.id).fork(2, other, key="once", on_conflict="refuse")
    assert "was started" not in str(refused.value).replace("nothing was started", "").replace("Nothing was started", "")


def test_a_fork_with_the_key_of_an_execution_that_is_not_a_fork_says_so():
    workflow = Workflow("w", [Step("a", script="inputs.x", store="v")], inputs=["x"])
    world = environment(workflow)
    first = world.start("w", {"x": 1}, key="once").wait(20)
    told = re.escape("which is not a fork (inputs: none, now {'x': 9})")
    with pytest.warns(StartKeyWarning, match=told):
        assert world.run_of(first.id).fork(2, {"inputs": {"x": 9}}, key="once") == first
    with pytest.raises(StartKeyTakenError, match=told):
        world.run_of(first.id).fork(2, {"inputs": {"x": 9}}, key="once", on_conflict="refuse")


def test_a_start_with_the_key_of_a_fork_compares_the_inputs():
    workflow = Workflow("w", [Step("a", script="inputs.x", store="v")], inputs=["x"])
    world = environment(workflow)
    source = world.start("w", {"x": 1}).wait(20)
    first = world.run_of(source.id).fork(2, {"inputs": {"x": 9}}, key="once").wait(20)
    assert world.start("w", {"x": 9}, key="once") == first
    with pytest.raises(StartKeyTakenError, match=re.escape("which was started with other inputs (x: 9, now 1)")):
        world.start("w", {"x": 1}, key="once", on_conflict="refuse")


def test_a_conflict_of_forks_shows_no_secret():
    secrets = [f"sk-ant-REDACTED{end}" for end in "ab"]
    workflow = Workflow("s", [Step("a", script="1")], inputs=["api_key"])
    world = environment(workflow)
    source = world.start("s", {"api_key": "none"}).wait(20)
    before, now = ({"inputs": {"api_key": secret}} for secret in secrets)
    world.run_of(source.id).fork(2, before, key="k").wait(20)
    with pytest.raises(StartKeyTakenError) as refused:
        world.run_of(source.id).fork(2, now, key="k", on_conflict="refuse")
    assert not any(secret in str(refused.value) for secret in secrets)


def test_start_resume_and_wait_are_right_in_each_state(tmp_path):
    gate = Gate()
    with Environment(store=SqliteStore(tmp_path / "s.db"), workflows=[KEYED, ASKING], actions=[gate.action()]) as world:
        new = world.start(KEYED, key="a")
        assert gate.reached.wait(PATIENCE)
        running = world.start(KEYED, key="a").resume()
        gate.opened.set()
        assert (running.wait(PATIENCE).status, running) == ("completed", new)
        assert world.start(KEYED, key="a").resume().wait(PATIENCE).variables == {"x": 1}
        waiting = world.start(ASKING, key="b").resume().wait(PATIENCE)
        assert waiting.status == "waiting"
        assert world.start(ASKING, key="b").resume().wait(PATIENCE) == waiting
        assert len(waiting.open_questions) == 1


def test_the_error_about_an_interrupted_run_names_the_start_with_its_key(tmp_path):
    with Environment(store=MemoryStore(), workflows=[TWO_STEPS]) as before:
        events = before.start(TWO_STEPS, key="may").wait(PATIENCE).history()
        length = next(event.sequence for event in events if event.event_type == "step_completed")
    with Environment(store=SqliteStore(tmp_path / "s.db"), workflows=[TWO_STEPS]) as world:
        world.store.append(events[0].execution_id, events[:length], 0)
        call = "environment.start('two', ..., key='may').resume().wait()"
        for _ in range(2):
            with pytest.raises(
                ExecutionError, match=re.escape(f"run.resume(). In a script that you run again, write {call}")
            ):
                world.start("two", key="may").wait(PATIENCE)
        assert world.start("two", key="may").resume().wait(PATIENCE).status == "completed"
