"""Exports of every form load for ever, into every store: files in `recorded` are never edited."""

import io
from itertools import groupby
from pathlib import Path

import pytest

from divebook import Environment
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ExecutionEndedError
from divebook.events.catalog import ExecutionContinuedAsNew
from divebook.events.codec import decode_line
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.embedded import FORM
from divebook.stores.maintenance import check
from divebook.stores.transfer import import_, read

RECORDED = Path(__file__).parent / "recorded"
EXPORTS = sorted(RECORDED.glob("form_*.jsonl"))
FILES = sorted(RECORDED.glob("version_*.jsonl"))
STORES = {"memory": lambda _: MemoryStore(), "sqlite": lambda folder: SqliteStore(folder / "s.db")}


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    with STORES[request.param](tmp_path) as opened:
        yield opened


def test_every_form_is_recorded_ended_and_not():
    expected = [f"form_{form}_{status}" for form in range(FORM + 1) for status in ("completed", "waiting")]
    assert [path.stem for path in EXPORTS] == expected


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_a_recorded_export_comes_in_as_what_it_is(path, store):
    log = read(path)
    assert log.is_verified is not path.stem.startswith("form_0")
    execution = Environment(store=store).run_of(import_(path, store))
    status = path.stem.split("_")[2]
    assert execution.status == ("completed" if status == "completed" else "snapshot")
    assert execution.variables["counts"] == [10, 20, 30]
    assert store.read(execution.id)[1 : len(log.events)] == log.events[1:]
    assert check(store).ok


@pytest.mark.parametrize("path", [path for path in EXPORTS if "waiting" in path.stem], ids=lambda path: path.stem)
def test_a_fork_of_a_recorded_export_goes_on(path, store):
    environment = Environment(store=store)
    fork = environment.open(path, as_fork=True, keep=True)
    assert fork.status == "waiting"
    environment.answer(fork.open_questions[0].id, "four", fork.id, "ann").wait(20)
    ended = environment.run_of(fork.id).signal("go").wait(20)
    assert ended.outputs == {"all": ["four", 10, 20, 30]}
    assert check(store).ok


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_logs_of_older_stores_come_in(path, store):
    lines = path.read_bytes().splitlines(keepends=True)
    for name, mine in groupby(lines, lambda line: decode_line(line).execution_id):
        log = read(io.BytesIO(b"".join(mine)))
        if any(type(event.data) is ExecutionContinuedAsNew for event in log.events[:-1]):
            with pytest.raises(ExecutionEndedError):  # what followed an end then follows none now
                import_(log, store)
            continue
        assert import_(log, store) == name
        assert store.record(name).status in TERMINAL
