"""Long data of records are written smaller where that pays, and read back as they were."""

import random
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.errors import CorruptStoreError
from divebook.events.codec import MAX_PAYLOAD_BYTES
from divebook.events.values import normalize
from divebook.stores import Batch, MemoryStore, SqliteStore
from divebook.stores.codec import FernetCodec
from divebook.stores.encoding import PACKED, PACKED_FROM, pack, unpack
from divebook.stores.maintenance import check
from tests.store.logs import ONE
from tests.store.wide_promises import done, events_of, lines, records

DIGITS = f"{random.Random(0).getrandbits(40_000):x}"
DENSE = "".join(random.Random(0).choices([chr(code) for code in range(0x4E00, 0x9F00)], k=9_000))


@given(st.binary(max_size=3000).map(lambda data: b"[" + data + b"]"), st.integers(1, 40))
def test_what_is_packed_is_what_was_there(data, times):
    long = data * times
    assert unpack(pack(long)) == long
    assert len(pack(long)) <= len(long)


def test_short_and_dense_data_stay_as_they_are():
    for data in (b"{" + b"x" * (PACKED_FROM - 2), b"[" + random.Random(0).randbytes(50_000)):
        assert pack(data) is data
    assert pack(b"{" + b"x" * PACKED_FROM).startswith(PACKED)


@pytest.mark.parametrize(
    "damaged",
    [
        pack(b"[" + DIGITS.encode())[:-9],
        pack(b"[" + DIGITS.encode()) + b"more",
        PACKED + b"oops",
        pack(b"[" + b" " * (MAX_PAYLOAD_BYTES + 1)),
    ],
    ids=["cut", "longer", "nonsense", "too large"],
)
def test_what_nobody_packed_so_is_damage(damaged):
    with pytest.raises(CorruptStoreError, match="packed data are"):
        unpack(damaged)


def written(path, value):
    """Write a log with a value, and return its records and what the file has of them."""
    kept = records(ONE, normalize(value))
    with SqliteStore(path) as store:
        assert store.append_all([Batch(ONE, 0, kept)]) == [None]
    with closing(sqlite3.connect(path)) as connection:
        return kept, connection.execute("SELECT data FROM events ORDER BY place").fetchall()


@pytest.mark.parametrize("value", [DIGITS, DENSE, {"text": "word " * 400, "$type": "mine"}, ["é\u2028"] * 900])
def test_a_long_record_is_read_as_it_was_written(path, value):
    kept, _ = written(path, value)
    with SqliteStore(path) as store:
        assert lines(store.read(ONE)) == lines(events_of(kept))
        assert store.read_records(ONE) == kept
        assert store.page(ONE, 0, 99).payloads.equals(memory_of(kept).page(ONE, 0, 99).payloads)
        assert check(store).ok


def memory_of(kept):
    store = MemoryStore()
    assert store.append_all([Batch(ONE, 0, kept)]) == [None]
    return store


def test_a_long_record_takes_less_of_the_file_and_a_short_one_stays_json(path):
    _, rows = written(path, DIGITS)
    assert [type(data) for (data,) in rows] == [str, str, bytes]
    assert len(rows[2][0]) < 0.7 * len(DIGITS)
    assert zlib.decompress(rows[2][0]).count(DIGITS.encode()) == 1


def test_the_size_of_a_log_is_that_of_what_is_written(path):
    written(path, DIGITS)
    with SqliteStore(path) as store:
        stored = store.stored_log(ONE).records
        assert store.record(ONE).size == sum(len(entry.payload) for entry in stored) < len(DIGITS)


def test_a_log_with_packed_rows_is_there_for_people_with_an_sql_shell(path):
    kept, _ = written(path, DIGITS)
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT sequence, event_type FROM log WHERE data IS NOT NULL").fetchall()
    assert found == [(event.sequence, event.event_type) for event in events_of(kept)]


def test_what_is_encrypted_is_packed_before(path):
    pytest.importorskip("cryptography")
    codec = FernetCodec(FernetCodec.new_key())
    kept = [*records(ONE, DIGITS), done(7, "x" * 30_000)]
    with SqliteStore(path) as store:
        store.sealing.codec = codec
        assert store.append_all([Batch(ONE, 0, kept)]) == [None]
        assert store.read(ONE) == events_of(kept)
        assert len(store.stored_log(ONE).records[-1].payload) < 2000
        assert check(store).ok


def test_a_checkpoint_is_packed_and_read_as_it_was(path):
    data = b'{"steps":[' + b",".join(b'"step %d"' % number for number in range(1000)) + b"]}"
    written(path, "short")
    with SqliteStore(path) as store:
        store.put_checkpoint(ONE, 6, data)
        assert store.checkpoint(ONE) == (6, data)
        assert check(store).ok
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT length(data) FROM checkpoints").fetchone()[0] < len(data) / 2


def test_a_store_that_keeps_nothing_packs_nothing():
    assert DIGITS.encode() in memory_of(records(ONE, DIGITS)).stored_log(ONE).records[-1].payload


def test_packed_data_with_a_good_checksum_that_cannot_be_read_are_named(path):
    written(path, DIGITS)
    with SqliteStore(path) as store:
        *_, before, last = store.stored_log(ONE).records
        broken = last.payload[:-9]
        checksum = replace(last, payload=broken).checksum_after(before.checksum)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                "UPDATE events SET data = ?, checksum = ? WHERE place & 4294967295 = 4", (broken, checksum)
            )
            connection.execute("UPDATE executions SET checksum = ?", (checksum,))
            connection.commit()
        with pytest.raises(CorruptStoreError, match=r"the record of events 4 to 6 .* is damaged: packed data are"):
            store.read(ONE)
        assert not check(store).ok
