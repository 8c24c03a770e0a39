"""What leaves a store in a file goes on in one place at most, wherever the process that moves it dies."""

import functools
from concurrent.futures import ThreadPoolExecutor

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.functions import workflow
from divebook.documents import private_files
from divebook.errors import DivebookError, ExecutionError, InterruptError, InvalidEventError, StoreError
from divebook.events import catalog
from divebook.runtime import queueing
from divebook.stores import MemoryStore, Message, Owner, SqliteStore, transfer
from divebook.stores.embedded import LineWriter
from tests.runtime.racing_moves import race
from tests.runtime.worlds import Calls, becomes, environment

PAYS = Workflow(
    "pays",
    [
        Step("pay", action="note", parameters={"value": "paid"}),
        Step("ask", ask="Go on?", store="answer"),
        Step("ship", action="note", parameters={"value": "shipped"}),
    ],
    outputs=["answer"],
)


class Death(BaseException):
    """The process ends."""


@pytest.fixture
def calls():
    return Calls()


def world(calls):
    return environment(PAYS, actions=[calls.action()])


@pytest.fixture
def source(calls):
    return world(calls)


@pytest.fixture
def waiting(source):
    return source.start("pays").wait(20)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "moved.jsonl"


def finish(environment, execution):
    (question,) = execution.open_questions
    return environment.answer(question.id, "yes", execution.id).wait(20)


def test_what_moves_ends_here_and_goes_on_there(source, waiting, file, calls):
    assert source.run_of(waiting.id).export(file, move=True) == waiting.refresh().state.last_sequence
    assert source.store.record(waiting.id).status == "moved"
    assert source.store.asking() == []
    target = world(calls)
    arrived = target.open(file, keep=True)
    assert (arrived.id, arrived.status) == (waiting.id, "waiting")
    assert target.store.read(arrived.id) == source.store.read(waiting.id)[:-1]
    assert finish(target, arrived).outputs == {"answer": "yes"}
    assert calls == ["paid", "shipped"]


ACTS = {
    "resume": lambda world, execution, question: world.run_of(execution).resume(),
    "answer": lambda world, execution, question: world.answer(question, "yes", execution),
    "signal": lambda world, execution, question: world.run_of(execution).signal("go"),
    "cancel": lambda world, execution, question: world.run_of(execution).cancel(),
    "pause": lambda world, execution, question: world.run_of(execution).pause(),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_snapshot_cannot_go_on_and_says_what_can(source, waiting, file, calls, act):
    source.run_of(waiting.id).export(file)
    target = world(calls)
    snapshot = target.open(file, keep=True)
    assert (snapshot.status, target.inbox(), target.queues.recoverable()) == ("snapshot", [], [])
    with pytest.raises((ExecutionError, InterruptError)) as refused:
        ACTS[act](target, snapshot.id, waiting.open_questions[0].id)
    if act != "pause":
        assert "--as-fork" in str(refused.value)
    assert target.store.leases() == []
    assert calls == ["paid"]


def test_what_has_moved_cannot_go_on_here(source, waiting, file):
    source.run_of(waiting.id).export(file, move=True)
    for act in ("resume", "answer", "signal"):
        with pytest.raises(ExecutionError, match="where its file was imported"):
            ACTS[act](source, waiting.id, waiting.open_questions[0].id)


def test_a_fork_goes_on_beside_the_original(source, waiting, file, calls):
    source.run_of(waiting.id).export(file)
    fork = source.open(file, as_fork=True, keep=True)
    assert (fork.status, fork.open_questions[0].id) == ("waiting", waiting.open_questions[0].id)
    for execution in (fork, waiting):
        assert finish(source, execution).status == "completed"
    assert calls == ["paid", "shipped", "shipped"]


def test_an_answer_reaches_what_moved_into_a_store_of_few_messages(source, file, calls):
    """The log has taken message 5 of its old store; the first answer in the new one is message 1."""
    for _ in range(4):
        finish(source, source.start("pays").wait(20))
    twice = Workflow("twice", [Step("one", ask="One?"), Step("two", ask="Two?", store="two")], outputs=["two"])
    execution = source.start(twice).wait(20)
    source.answer(execution.open_questions[0].id, "first").wait(20)
    source.run_of(execution.id).export(file, move=True)
    target = world(calls)
    assert finish(target, target.open(file, keep=True)).outputs == {"two": "yes"}


# --- what cannot move


def test_what_has_ended_does_not_move(source, waiting, file):
    finish(source, waiting)
    with pytest.raises(ExecutionError, match="is completed; export it without --move"):
        source.run_of(waiting.id).export(file, move=True)
    assert not file.exists()


def test_an_answer_that_is_kept_is_not_left_behind(source, waiting, file):
    payload = {"response": {"text": "yes"}, "by": "ann"}
    source.store.post(Message(waiting.id, "answer", waiting.open_questions[0].id, payload, "ann", 1))
    with pytest.raises(ExecutionError, match="has received an answer or a signal that is not in its log yet"):
        source.run_of(waiting.id).export(file, move=True)
    assert (source.store.record(waiting.id).status, source.store.leases()) == ("waiting", [])


@workflow("parent_of_one")
async def parent_of_one(ctx):
    return await ctx.run("pays")


def test_a_child_that_is_under_way_is_not_left_behind(source, file):
    parent = source.start("parent_of_one").wait(20)
    with pytest.raises(ExecutionError, match="export it with --move after the child has ended"):
        source.run_of(parent.id).export(file, move=True)


def test_a_child_for_which_its_parent_waits_does_not_move(source, file):
    parent = source.start("parent_of_one").wait(20)
    (child,) = [record.execution_id for record in source.store.records() if record.execution_id != parent.id]
    with pytest.raises(ExecutionError, match=f"is a child of execution {parent.id}, which waits for it"):
        source.run_of(child).export(file, move=True)
    assert finish(source, source.run_of(child)).status == "completed"
    assert source.run_of(parent.id).wait(20).status == "completed"


# --- messages that arrive while an execution moves


@pytest.fixture(params=["memory", "file"])
def stores(request, tmp_path):
    """Return two stores of the same executions: one whose executions move, and one for other processes."""
    if request.param == "memory":
        store = MemoryStore()
        yield store, store
        return
    with SqliteStore(tmp_path / "store.db") as store, SqliteStore(tmp_path / "store.db") as other:
        yield store, other


def before_the_move(store, act):
    """Call `act` directly before the store appends a move, once. Return the list of the attempts to append it."""
    append = store.append_all
    attempts = []

    def acting(batches):
        if any(isinstance(event.data, catalog.ExecutionMoved) for batch in batches for event in batch.events()):
            attempts.append(batches)
            if len(attempts) == 1:
                act()
        return append(batches)

    store.append_all = acting
    return attempts


MESSAGES = {
    "answer": lambda execution: Message(
        execution.id, "answer", execution.open_questions[0].id, {"response": {"text": "yes"}, "by": "ann"}, "ann", 1
    ),
    "signal": lambda execution: Message(execution.id, "signal", "sig_1", {"name": "go", "payload": 1}, "ann", 1),
    "revocation": lambda execution: Message(execution.id, "revocation", "rule_1", {"by": "ann"}, "ann", 1),
    "annotation": lambda execution: Message(execution.id, "annotation", "note_1", {"note": "late"}, "ann", 1),
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_that_arrives_between_the_check_and_the_move_is_not_lost(stores, file, calls, kind):
    store, other = stores
    source = environment(PAYS, actions=[calls.action()], store=store)
    waiting = source.start("pays").wait(20)
    message = MESSAGES[kind](waiting)
    attempts = before_the_move(store, lambda: other.post(message))
    with pytest.raises(ExecutionError, match="has received an answer or a signal that is not in its log yet"):
        source.run_of(waiting.id).export(file, move=True)
    assert len(attempts) == 1
    assert not file.exists()
    assert (store.record(waiting.id).status, store.leases()) == ("waiting", [])
    resumed = source.run_of(waiting.id).resume().wait(20)
    assert store.record(waiting.id).taken == store.inbox(waiting.id)[0].number
    if kind == "answer":
        assert resumed.outputs == {"answer": "yes"}
        return
    assert source.run_of(waiting.id).export(file, move=True) == resumed.refresh().state.last_sequence
    target = world(calls)
    assert finish(target, target.open(file, keep=True)).status == "completed"


def test_a_message_that_adds_nothing_to_the_log_does_not_keep_an_execution_from_moving(stores, file, calls):
    store, other = stores
    source = environment(PAYS, actions=[calls.action()], store=store)
    waiting = source.start("pays").wait(20)
    useless = Message(waiting.id, "answer", "ask_of_nothing", {"response": {}, "by": "ann"}, "ann", 1)
    attempts = before_the_move(store, lambda: other.post(useless))
    assert source.run_of(waiting.id).export(file, move=True) == waiting.refresh().state.last_sequence
    assert len(attempts) == 2
    target = world(calls)
    assert finish(target, target.open(file, keep=True)).status == "completed"
    assert calls == ["paid", "shipped"]


def test_who_answers_while_an_execution_moves_continues_it(stores, file, calls):
    """The answer finds the lease of the move, which the store then refuses."""
    store, other = stores
    source = environment(PAYS, actions=[calls.action()], store=store)
    waiting = source.start("pays").wait(20)
    (question,) = waiting.open_questions
    elsewhere = environment(PAYS, actions=[calls.action()], store=other)

    def answer():
        with ThreadPoolExecutor(1) as thread:
            thread.submit(elsewhere.answer, question.id, "yes", waiting.id).result(20)

    before_the_move(store, answer)
    with pytest.raises(ExecutionError, match="has received an answer or a signal that is not in its log yet"):
        source.run_of(waiting.id).export(file, move=True)
    assert becomes(lambda: store.record(waiting.id).status == "completed")
    assert calls == ["paid", "shipped"]


def move_before_posting(source, other, execution, file, lease=None):
    """Move the execution directly before the next message is posted to it."""
    names = ("post", "post_and_acquire")

    def moving(send, *args):
        for name in names:
            delattr(other, name)
        if lease is not None:
            source.store.release(lease)
        source.run_of(execution.id).export(file, move=True)
        return send(*args)

    for name in names:
        setattr(other, name, functools.partial(moving, getattr(other, name)))


SENDS = {
    "answer": lambda world, execution, question: world.answer(question, "yes", execution),
    "signal": lambda world, execution, question: world.run_of(execution).signal("go"),
    "revocation": lambda world, execution, question: world._control.answering.revoke(execution, "rule_1"),
}


@pytest.mark.parametrize("kind", SENDS)
def test_who_sends_a_message_directly_after_the_move_is_told(stores, file, calls, kind):
    store, other = stores
    source = environment(PAYS, actions=[calls.action()], store=store)
    waiting = source.start("pays").wait(20)
    elsewhere = environment(PAYS, actions=[calls.action()], store=other)
    move_before_posting(source, other, waiting, file)
    with pytest.raises(ExecutionError, match=f"{waiting.id} was moved before the {kind} .*arrived"):
        SENDS[kind](elsewhere, waiting.id, waiting.open_questions[0].id)
    assert store.inbox(waiting.id) == []
    target = world(calls)
    assert finish(target, target.open(file, keep=True)).status == "completed"


def test_an_annotation_directly_after_the_move_is_in_the_log_of_what_has_moved(stores, file, calls):
    store, other = stores
    source = environment(PAYS, actions=[calls.action()], store=store)
    waiting = source.start("pays").wait(20)
    lease = store.acquire(waiting.id, Owner("elsewhere", 11, 1, "kernel"), 30)
    move_before_posting(source, other, waiting, file, lease)
    environment(PAYS, store=other).run_of(waiting.id).annotate(note="late")
    assert store.inbox(waiting.id) == []
    moved, note = store.read(waiting.id)[-2:]
    assert (moved.event_type, note.data.note) == ("execution_moved", "late")


def test_a_question_of_an_execution_that_has_moved_does_not_expire(source, waiting, file):
    (question,) = waiting.open_questions
    source.run_of(waiting.id).export(file, move=True)
    source._control.answering.claim_expired(waiting.id, question.id)
    assert source.store.inbox(waiting.id) == []


def test_no_answer_of_another_process_is_lost(tmp_path):
    assert race(tmp_path / "store.db", 9).total() == 9


def test_a_file_that_is_there_is_not_overwritten_and_nothing_moves(source, waiting, file):
    file.write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        source.run_of(waiting.id).export(file, move=True)
    assert (file.read_text(), source.store.record(waiting.id).status) == ("mine", "waiting")


# --- dying in between


def die(*_, **__):
    raise Death


def dying_append(store, after):
    append = store.append_all

    def dying(batches):
        if any(isinstance(event.data, catalog.ExecutionMoved) for batch in batches for event in batch.events()):
            if after:
                append(batches)
            raise Death
        return append(batches)

    store.append_all = dying


def at_the_events(_, monkeypatch):
    monkeypatch.setattr(LineWriter, "events", die)


def at_the_flush(_, monkeypatch):
    monkeypatch.setattr(queueing, "flush", die)


def before_the_append(store, _):
    dying_append(store, after=False)


def after_the_append(store, _):
    dying_append(store, after=True)


def at_the_end_line(_, monkeypatch):
    monkeypatch.setattr(LineWriter, "end", die)


def at_the_last_flush(_, monkeypatch):
    monkeypatch.setattr(private_files, "_complete", die)


def at_the_renaming(_, monkeypatch):
    monkeypatch.setattr("pathlib.Path.replace", die)


DEATHS = [
    (at_the_events, "waiting"),
    (at_the_flush, "waiting"),
    (before_the_append, "waiting"),
    (after_the_append, "moved"),
    (at_the_end_line, "moved"),
    (at_the_last_flush, "moved"),
    (at_the_renaming, "moved"),
]


@pytest.mark.parametrize(("death", "status"), DEATHS)
def test_a_death_in_between_leaves_one_place_to_go_on(source, waiting, file, calls, monkeypatch, death, status):
    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.unlink", lambda *_, **__: None)  # a killed process tidies nothing up
        death(source.store, patched)
        with pytest.raises(Death):
            source.run_of(waiting.id).export(file, move=True)
    source.store.__dict__.pop("append_all", None)
    assert not file.exists()
    assert (source.store.record(waiting.id).status, source.store.leases()) == (status, [])
    is_whole = death in (at_the_last_flush, at_the_renaming)
    for part in file.parent.iterdir() if not is_whole else ():
        with pytest.raises(InvalidEventError):
            transfer.read(part)
    source.run_of(waiting.id).export(file, move=True)
    target = world(calls)
    assert finish(target, target.open(file, keep=True)).status == "completed"
    assert calls == ["paid", "shipped"]
    with pytest.raises(DivebookError):
        source.run_of(waiting.id).resume()


def test_moving_again_writes_the_same_file(source, waiting, file, tmp_path):
    source.run_of(waiting.id).export(file, move=True)
    source.run_of(waiting.id).export(tmp_path / "again.jsonl", move=True)
    assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()
    assert isinstance(Environment(store=MemoryStore()).open(file, keep=True).id, str)


def test_a_plain_export_of_what_has_moved_goes_on_nowhere(source, waiting, file, tmp_path, calls):
    source.run_of(waiting.id).export(file, move=True)
    source.run_of(waiting.id).export(tmp_path / "audit.jsonl")
    assert world(calls).open(tmp_path / "audit.jsonl", keep=True).status == "moved"


@pytest.mark.parametrize("as_fork", [False, True])
@pytest.mark.parametrize("continues", [False, True])
def test_what_has_arrived_does_not_arrive_again(source, waiting, file, calls, continues, as_fork):
    source.run_of(waiting.id).export(file, move=True)
    there = world(calls)
    arrived = there.open(file, keep=True)
    if continues:
        assert finish(there, arrived).status == "completed"
    status = arrived.refresh().status if continues else "waiting"
    before = list(calls)
    with pytest.raises(
        StoreError,
        match=f"already contains it with status {status}: an execution can continue in only one place. "
        "Nothing was imported",
    ):
        there.open(file, as_fork=as_fork, keep=True)
    assert ([record.execution_id for record in there.store.records()], calls) == ([waiting.id], before)


def test_what_was_imported_as_a_fork_does_not_arrive_as_itself_as_well(source, waiting, file, calls):
    source.run_of(waiting.id).export(file, move=True)
    there = world(calls)
    fork = there.open(file, as_fork=True, keep=True)
    with pytest.raises(
        StoreError,
        match=f"contains execution {fork.id}. That execution was created from the same file, so both would continue",
    ):
        there.open(file, keep=True)
    assert finish(there, fork).status == "completed"


def test_what_has_moved_away_may_come_back_where_it_was_deleted(source, waiting, file):
    source.run_of(waiting.id).export(file, move=True)
    with pytest.raises(StoreError, match="the execution has moved away from this store; delete it in this store"):
        source.open(file, keep=True)
    source.store.delete(waiting.id)
    assert source.open(file, keep=True).status == "waiting"
