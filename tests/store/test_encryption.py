"""Values are encrypted at rest: nothing of them lies in the file, and without the key nothing is read."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import DecryptionError, SetupError
from divebook.events import catalog
from divebook.events.codec import by_hash
from divebook.stores import MemoryStore, Message, SqliteStore, open_store
from divebook.stores.backend import StoredSummary
from divebook.stores.codec import KEY_VARIABLE, UNREADABLE, FernetCodec
from divebook.stores.maintenance import check
from tests.store.large_promises import text
from tests.store.logs import ONE, TWO, event, failed, log

SECRET = "the patient is Ada Lovelace"
LARGE = SECRET + text(200_000)
KEY, OTHER = FernetCodec.new_key(), FernetCodec.new_key()


def fill(store):
    begun = catalog.ExecutionStarted("greet", inputs={"name": SECRET}, note=SECRET, tags=["clear"])
    done = event(2, catalog.StepCompleted(output=LARGE))
    store.append(ONE, [event(1, begun, path=""), done], 0)
    store.post(Message(ONE, "signal", "1", {"said": SECRET}, "ann", 1))
    store.put_checkpoint(ONE, 1, SECRET.encode())
    store.put_summaries({ONE: StoredSummary(1, SECRET.encode())})
    store.append(ONE, [failed(3, error=SECRET)], 2)
    return [event(1, begun, path=""), done, failed(3, error=SECRET)]


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    made = SqliteStore(tmp_path / "x.db") if request.param == "file" else MemoryStore()
    with made as store:
        store.sealing.codec = FernetCodec(KEY)
        yield store


def test_what_is_sealed_is_read_back(store):
    events = fill(store)
    assert store.read(ONE) == events
    assert store.inbox(ONE)[0].payload == store.new_messages(0)[0].payload == {"said": SECRET}
    assert store.checkpoint(ONE) == (1, SECRET.encode())
    assert store.summaries([ONE]) == {ONE: (1, SECRET.encode())}
    assert (store.record(ONE).error, store.record(ONE).note) == (SECRET, SECRET)
    assert store.records() == [store.record(ONE)]
    assert check(store).all_damages() == []


def test_what_is_kept_by_its_hash_is_sealed_as_well(tmp_path):
    told = event(2, catalog.OperationCompleted("op", "x", 1, by_hash({"said": SECRET})))
    with SqliteStore(tmp_path / "x.db") as store:
        store.sealing.codec = FernetCodec(KEY)
        store.append(ONE, [*log(1), told], 0)
        assert store.read(ONE)[1] == told
        assert len(store.blobs()) == 1
    assert all(SECRET.encode() not in file.read_bytes() for file in tmp_path.iterdir())


def test_nothing_of_it_lies_in_the_file(tmp_path):
    with SqliteStore(tmp_path / "x.db") as store:
        store.sealing.codec = FernetCodec(KEY)
        fill(store)
        written = b"".join(entry.read_bytes() for entry in tmp_path.iterdir())
    assert b"clear" in written
    for part in (SECRET, "Lovelace", LARGE[1000:1040]):  # long enough not to occur by chance in what is encrypted
        assert part.encode() not in written


def test_without_the_key_it_is_refused_and_check_still_works(store):
    fill(store)
    for codec, why in (
        (None, f"is encrypted, but no key is set. Set {KEY_VARIABLE}"),
        (OTHER, "with another key"),
    ):
        store.sealing.codec = codec and FernetCodec(codec)
        for read in (store.read, store.checkpoint, store.inbox):
            with pytest.raises(DecryptionError, match=why):
                read(ONE)
        assert store.new_messages(0) == []
        assert store.summaries([ONE]) == {}
        assert (store.record(ONE).error, store.record(ONE).status) == (UNREADABLE, "failed")
        assert check(store).ok


def test_a_new_key_opens_what_the_old_one_sealed(store):
    events = fill(store)
    store.sealing.codec = FernetCodec(OTHER, KEY)
    assert store.read(ONE) == events


def test_clear_and_sealed_logs_stand_in_one_store(store):
    store.sealing.codec = None
    store.append(TWO, log(3, TWO), 0)
    store.sealing.codec = FernetCodec(KEY)
    fill(store)
    store.sealing.codec = None
    assert store.read(TWO) == log(3, TWO)


def test_an_environment_takes_the_key_from_its_variable(tmp_path, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with open_store(tmp_path / "x.db") as store:
        run = Environment(store=store).start(Workflow("w", [Step("a", script=f"{SECRET!r}", store="v")])).wait()
        assert run.variables == {"v": SECRET}
        monkeypatch.delenv(KEY_VARIABLE)
    assert SECRET.encode() not in (tmp_path / "x.db").read_bytes()
    with open_store(tmp_path / "x.db") as store:
        environment = Environment(store=store, codec=FernetCodec(KEY))
        assert environment.run_of(run.id).variables == {"v": SECRET}


def test_a_key_that_is_none_is_an_error(monkeypatch):
    with pytest.raises(SetupError, match=r"the key for encryption is invalid .*FernetCodec\.new_key"):
        FernetCodec("short")
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(SetupError, match=f"environment variable {KEY_VARIABLE} is not set"):
        FernetCodec.from_environment()


def test_runs_lists_runs_that_cannot_be_decrypted(tmp_path):
    path = str(tmp_path / "x.db")
    with Environment(store=path, codec=FernetCodec(KEY)) as environment:
        encrypted = environment.start(Workflow("w", [Step("s", script="1 / 0")])).wait(20).id
    with Environment(store=path) as environment:
        plain = environment.start(Workflow("plain", [Step("s", script="1")])).wait(20).id
        assert [run.id for run in environment.runs()] == [plain, encrypted]
        run = environment.run_of(encrypted)
        assert run.status == "failed"
        assert "of 'w': failed; its log cannot be read" in repr(run)
        for read in (lambda: run.inputs, lambda: run.workflow, lambda: run.events, run.result):
            with pytest.raises(DecryptionError):
                read()


def test_a_run_that_was_listed_without_its_key_is_read_once_the_key_is_there(tmp_path):
    path = str(tmp_path / "x.db")
    with Environment(store=path, codec=FernetCodec(KEY)) as environment:
        encrypted = environment.start(Workflow("w", [Step("s", script="1", store="y")])).wait(20).id
    with Environment(store=path) as environment:
        (run,) = environment.runs()
        environment.store.sealing.codec = FernetCodec(KEY)
        assert (run.id, run.variables) == (encrypted, {"y": 1})
