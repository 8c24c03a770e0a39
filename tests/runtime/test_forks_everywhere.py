"""A fork at any event of executions with branches, items, questions, children and calls that fail."""

import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from random import Random
from threading import Barrier

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.definitions import step, workflow
from divebook.definitions.definition import InputDefinition
from divebook.engine.checkpoint import dump_state
from divebook.engine.lifecycle import violations
from divebook.errors import ExecutionNotFoundError, InputError, InterruptError, SetupError, StoreError
from divebook.events import catalog
from divebook.events.codec import encode_line
from divebook.runtime.run import asked_questions
from divebook.steps.actions import Action
from divebook.stores.maintenance import check
from divebook.stores.sqlite import SqliteStore, back_up

MADE = []
MOST_BYTES = 1500
"""What a fork may take in the file, however long what it shares is: its line, its indexes and its two first events."""


def everywhere_make(n):
    MADE.append(n)
    return {"n": n, "text": "t" * 200}


@step
async def everywhere_note(value):
    MADE.append(value)
    return value


@workflow
async def everywhere_asking(ctx, n: int = 1):
    first = await everywhere_note(n)
    said = await ctx.ask("Which city?")
    both = await ctx.gather(everywhere_note(first + 1), everywhere_note(first + 2))
    return [said, *both]


BRANCHES = Workflow(
    "branches",
    [
        Step("a", action="everywhere_make", parameters={"n": "$(inputs.n)"}, store="a", next=["left", "right"]),
        Step("left", script="state.a['n'] + 1", store="left", end=True),
        Step("right", each=Each([1, 2, 3], as_="item", parallel=2), action="everywhere_make", next=["ask"],
             parameters={"n": "$(item)"}, store="items"),
        Step("ask", type="interrupt", ask={"question": "Fine?"}, store="fine", next=["child"]),
        Step("child", workflow="inner", inputs={"n": "$(inputs.n)"}, store="child", end=True),
    ],
    inputs=[InputDefinition("n", type="int")],
)  # fmt: skip
INNER = Workflow(
    "inner", [Step("one", action="everywhere_make", parameters={"n": "$(inputs.n)"}, store="one")], inputs=["n"]
)


def answered(environment, execution):
    """Answer all that is asked, until it has ended."""
    asked = []
    for _ in range(20):
        execution.wait(20)
        for question in list(execution.open_questions):
            asked.append(question.question)
            execution = environment.answer(question.id, "Bonn", execution.id)
        if execution.refresh().state.is_over:
            return execution.wait(20), asked  # what has ended may still be on its way to the store
    raise AssertionError(execution.internals.standing)


@pytest.fixture
def world(tmp_path):
    MADE.clear()
    store = SqliteStore(tmp_path / "s.db", durability="relaxed")
    with Environment(
        store=store, workflows=[BRANCHES, INNER], actions=[Action("everywhere_make", everywhere_make)]
    ) as environment:
        yield environment


def lines(execution):
    return [encode_line(event) for event in execution.history()]


def used(path):
    with closing(sqlite3.connect(path)) as connection:
        (pages,) = connection.execute(
            "SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count"
        )
        return pages[0] * 4096


def test_forks_at_a_hundred_random_events_share_what_was_and_go_on_live(world):
    """Traps 10 to 14 and 16: the prefix is shared, the suffix live, the original untouched, questions asked once."""
    random = Random(15)
    sources = [answered(world, world.start("branches", {"n": 7}))[0] for _ in range(2)]
    sources += [answered(world, world.start("everywhere_asking"))[0] for _ in range(2)]
    before = {source.id: (lines(source), source.outputs) for source in sources}
    for source in sources:
        log = source.history()
        for at in (random.randint(1, len(log)) for _ in range(25)):
            MADE.clear()
            fork = world.run_of(source.id).fork(at)
            opened = world.store.record(fork.id).opened
            asked_before = sum(isinstance(event.data, catalog.InterruptResolved) for event in log[: opened - 1])
            done = sum(
                isinstance(event.data, catalog.OperationCompleted)
                and event.data.operation_type in ("action_execution", "step_execution")
                for event in log[: opened - 1]
            )
            fork, asked = answered(world, fork)
            assert (fork.status, fork.outputs) == ("completed", source.outputs), (at, fork.error)
            assert at <= opened - 1 or opened - 1 == len(log) - 1
            assert len(asked) + asked_before == 1, at
            all_made = 4 if source.workflow.name == "branches" else 3
            own_child = 1 if "branches" in source.workflow.name and _child_before(log[: opened - 1]) else 0
            assert len(MADE) + done + own_child == all_made + 1 * (source.workflow.name == "branches"), at
            assert not list(violations(fork.history()))
            shared = fork.history()[: opened - 1]
            assert [event.data for event in shared] == [event.data for event in log[: opened - 1]]
    assert {source.id: (lines(source), source.outputs) for source in sources} == before
    report = check(world.store)
    assert report.ok, report.all_damages()


def _child_before(events):
    return any(
        isinstance(event.data, catalog.OperationCompleted) and event.data.operation_type == "child_workflow"
        for event in events
    )


def test_a_fork_takes_the_same_few_bytes_however_long_what_it_shares_is(tmp_path):
    from tests.store.fork_promises import forked
    from tests.store.logs import ONE, batch, execution_id, log

    taken = {}
    for length in (100, 4000):
        path = tmp_path / f"{length}.db"
        with SqliteStore(path, durability="relaxed") as store:
            store.append(ONE, log(length), 0)
            before = used(path)
            forks = [execution_id(number) for number in range(10, 510)]
            own = [batch(name, length - 3, [forked(ONE, length - 3, name)], source=ONE) for name in forks]
            assert store.append_all(own) == [None] * len(forks)
            taken[length] = (used(path) - before) / len(forks)
    sys.stdout.write(f"bytes of a fork, by how many events its source has: {taken}\n")
    assert max(taken.values()) < MOST_BYTES
    assert abs(taken[100] - taken[4000]) < 50


def test_a_flipped_byte_in_a_shared_prefix_is_found_for_source_and_fork(world, tmp_path):
    """Trap 16: a fork of a damaged log goes up to the damage."""
    source, _ = answered(world, world.start("branches", {"n": 7}))
    fork, _ = answered(world, world.run_of(source.id).fork(20))
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        connection.execute(
            "UPDATE events SET path = 'mein' WHERE place = (SELECT key << 32 | 3 FROM executions WHERE id = ?)"
            " OR place = (SELECT key << 32 | 2 FROM executions WHERE id = ?)",
            (source.id, source.id),
        )
    found = {damage.execution_id for damage in check(world.store).all_damages()}
    assert found == {source.id, fork.id}


def test_an_open_question_is_answered_once_in_each(world):
    """Trap 13: an answer without an execution's id is refused where two could take it."""
    source = world.start("everywhere_asking").wait(20)
    fork = world.run_of(source.id).fork().wait(20)
    (question,) = source.open_questions
    assert [asked.id for asked in fork.open_questions] == [question.id]
    with pytest.raises(InterruptError, match="2 executions ask this question; choose one"):
        world.answer(question.id, "Bonn")
    for execution, city in ((source, "Bonn"), (fork, "Kiel")):
        ended = world.answer(question.id, city, execution.id).wait(20)
        assert (ended.status, ended.outputs["result"][0]) == ("completed", city)


def test_its_child_is_a_new_one_and_the_sources_goes_on(world):
    """Trap 14: a fork's child is not the source's child at that place."""
    source, _ = answered(world, world.start("branches", {"n": 7}))
    begun = next(
        event.sequence
        for event in source.history()
        if isinstance(event.data, catalog.OperationStarted) and event.data.operation_type == "child_workflow"
    )
    fork = world.run_of(source.id).fork(begun).wait(20)
    children = {record.parent: record.execution_id for record in world.store.records(origin="child")}
    assert (children.keys(), fork.status) == ({source.id, fork.id}, "completed")
    assert children[fork.id] not in str(source.history()[begun - 1].data.parameters)


def test_usage_and_size_are_its_own(world):
    source, _ = answered(world, world.start("branches", {"n": 7}))
    fork = world.run_of(source.id).fork(len(source.history()) - 1).wait(20)
    assert world.store.record(fork.id).size < world.store.record(source.id).size / 2
    assert (fork.status, fork.state.own_usage.to_dict()) == ("completed", {})


def test_a_fork_inside_a_record_has_a_copy_of_its_beginning(world):
    source, _ = answered(world, world.start("branches", {"n": 7}))
    inside = [
        number
        for number in range(2, len(source.history()))
        if world.store.read_records(source.id, number - 1, number)[0].last_sequence > number
    ]
    for at in inside[:2]:
        fork, _ = answered(world, world.run_of(source.id).fork(at))
        assert (fork.status, world.store.stored_log(fork.id).shared < at) == ("completed", True)
        prefixes = ([(e.path, e.step, e.data) for e in log[:at]] for log in (fork.history(), source.history()))
        assert next(prefixes) == next(prefixes)
    assert check(world.store).ok


def test_one_forks_at_the_end_of_a_failed_run_with_a_mended_definition(world):
    failing = Workflow("w", [
        Step("make", action="everywhere_make", parameters={"n": 1}, store="made", next=["use"]),
        Step("use", script="state.made['none']", store="used"),
    ])  # fmt: skip
    mended = Workflow("w", [failing.steps[0], Step("use", script="state.made['n']", store="used")])
    source = world.start(failing).wait(20)
    assert (source.status, MADE) == ("failed", [1])
    fork = world.run_of(source.id).fork(change={"definition": mended.to_dict()}).wait(20)
    assert (fork.status, fork.variables["used"], MADE) == ("completed", 1, [1])
    assert fork.workflow == mended
    again = Environment(store=world.store)
    assert again.run_of(fork.id).workflow == mended
    assert world.run_of(fork.id).fork(3).workflow == failing


def test_a_result_and_an_answer_are_changed_before_what_follows_from_them(world):
    source, _ = answered(world, world.start("everywhere_asking"))
    (question,) = asked_questions(source)
    fork = world.run_of(source.id).fork(change={"answers": {question.id: "Kiel"}}).wait(20)
    assert (fork.status, fork.outputs["result"][0]) == ("completed", "Kiel")
    made = next(event.data for event in source.history() if isinstance(event.data, catalog.OperationCompleted))
    fork, asked = answered(world, world.run_of(source.id).fork(change={"results": {made.operation_id: 50}}))
    assert (fork.outputs["result"], asked) == (["Bonn", 51, 52], ["Which city?"])


def test_variables_inputs_and_prompts_are_changed(world):
    source, _ = answered(world, world.start("branches", {"n": 7}))
    fork, _ = answered(world, world.run_of(source.id).fork(2, {"inputs": {"n": 9}}))
    assert (fork.variables["a"]["n"], fork.inputs) == (9, {"n": 9})
    assert Environment(store=world.store).run_of(fork.id).inputs == {"n": 9}
    entered = next(event.sequence for event in source.history() if event.step == "left")
    fork, _ = answered(world, world.run_of(source.id).fork(entered, {"variables": {"a": {"n": 70}}}))
    assert fork.variables["left"] == 71


@pytest.mark.parametrize("given", ["text", True, [1]], ids=repr)
@pytest.mark.parametrize("how", ["fork", "what_if"])
def test_a_changed_input_must_be_of_its_declared_type(world, how, given):
    source, _ = answered(world, world.start("branches", {"n": 7}))
    before = world.store.ids()
    with pytest.raises(InputError, match=r'input "n" must be of type int, got'):
        getattr(source, how)(change={"inputs": {"n": given}})
    assert world.store.ids() == before


@pytest.mark.parametrize("how", ["fork", "what_if", "option", "try"])
@pytest.mark.parametrize(("model", "said"), [("nope:x", "there is no model provider 'nope'"), ("x", "has no provider")])
def test_a_model_that_nobody_has_is_refused_as_at_a_start(world, how, model, said):
    source, _ = answered(world, world.start("branches", {"n": 7}))
    before = world.store.ids()
    asked = {
        "fork": partial(source.fork, change={"model": model}),
        "option": partial(source.fork, at=3, model=model),
        "what_if": partial(source.what_if, change={"model": model}),
        "try": partial(source.try_step, step="left", model=model),
    }
    with pytest.raises(SetupError, match=said):
        asked[how]()
    assert world.store.ids() == before


def test_of_two_processes_that_fork_with_one_key_one_begins_it(world, tmp_path):
    """Each environment has a connection of its own, as in two processes."""
    source, _ = answered(world, world.start("branches", {"n": 7}))
    with (
        SqliteStore(tmp_path / "s.db", durability="relaxed") as second,
        Environment(store=second, workflows=[BRANCHES, INNER], actions=[*world.definitions.actions.values()]) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        together = Barrier(2)

        def fork(environment):
            together.wait(20)
            return environment.run_of(source.id).fork(len(source.history()) - 1, key="once")

        made = [*threads.map(fork, [world, other])]
        assert {fork.id for fork in made} == {record.execution_id for record in second.records(origin="fork")}
        assert len({fork.id for fork in made}) == 1
        assert [fork.wait(20).outputs for fork in made] == [source.outputs] * 2


def test_a_source_that_is_deleted_while_its_fork_is_made_leaves_no_half_of_it(world, tmp_path, monkeypatch):
    """Trap 16: another process deletes it after its events were read, and before the fork is written."""
    source, _ = answered(world, world.start("branches", {"n": 7}))
    whole = world.store.append_all

    def append_all(batches):
        with SqliteStore(tmp_path / "s.db") as other:
            other.delete(source.id)
        return whole(batches)

    monkeypatch.setattr(world.store, "append_all", append_all)
    with pytest.raises(ExecutionNotFoundError, match=source.id):
        world.run_of(source.id).fork(9)
    monkeypatch.undo()
    assert not list(world.store.records(origin="fork"))
    assert check(world.store).ok


def test_a_source_that_is_deleted_while_its_fork_waits_is_not_missed(world, tmp_path):
    """Trap 16: another process deletes it while a fork of it is driven."""
    source = world.start("everywhere_asking").wait(20)
    fork = world.run_of(source.id).fork().wait(20)
    world.run_of(source.id).cancel()
    with SqliteStore(tmp_path / "s.db") as other:
        other.delete(source.id)
    fork, _ = answered(world, fork)
    assert (fork.status, fork.outputs["result"][0]) == ("completed", "Bonn")
    assert check(world.store).ok


def test_a_backup_has_forks_with_what_they_share(world, tmp_path):
    """Trap 16: the copy is whole, also where the source is deleted in it or in the original."""
    source, _ = answered(world, world.start("branches", {"n": 7}))
    fork, _ = answered(world, world.run_of(source.id).fork(9))
    kept = lines(fork)
    back_up(tmp_path / "s.db", tmp_path / "copy.db")
    world.store.delete(source.id)
    with SqliteStore(tmp_path / "copy.db") as copy, Environment(store=copy) as other:
        assert lines(other.run_of(fork.id)) == kept
        copy.delete(source.id)
        assert lines(other.run_of(fork.id)) == kept
        assert check(copy).ok
    assert lines(world.run_of(fork.id)) == kept


def test_a_fork_begins_before_the_checkpoint_of_its_source(world):
    """Trap 16: what the source knew later is not known to the fork."""
    source, _ = answered(world, world.start("branches", {"n": 7}))
    state = world.run_of(source.id).state
    world.store.put_checkpoint(source.id, state.last_sequence, dump_state(state))
    assert world.store.checkpoint(source.id)[0] == len(source.history()) > 3
    fork, asked = answered(world, world.run_of(source.id).fork(3))
    assert (fork.status, fork.outputs, len(asked)) == ("completed", source.outputs, 1)


def test_a_full_disk_begins_no_fork(world):
    source, _ = answered(world, world.start("branches", {"n": 7}))
    (pages,) = world.store._writer.execute("PRAGMA page_count").fetchone()
    world.store._writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="Nothing was written; free some space"):
        world.run_of(source.id).fork(3, note="n" * 60_000)
    world.store._writer.execute("PRAGMA max_page_count = 1000000")
    fork, _ = answered(world, world.run_of(source.id).fork(3))
    assert fork.status == "completed"
    assert check(world.store).ok


def test_a_text_from_a_shell_becomes_what_its_input_declares(world):
    source, _ = answered(world, world.start("branches", {"n": 7}))
    fork, _ = answered(world, world.run_of(source.id).fork(1, {"inputs": {"n": "9"}}, coerce_text=True))
    assert (fork.inputs, fork.variables["a"]["n"]) == ({"n": 9}, 9)


def test_a_change_of_a_run_that_is_done_has_an_effect_wherever_it_is_forked(world):
    source, _ = answered(world, world.start("branches", {"n": 7}))
    assert source.status == "completed"
    fork, _ = answered(world, world.run_of(source.id).fork(change={"inputs": {"n": 9}}))
    assert (fork.status, fork.variables["a"]["n"]) == ("completed", 9)
