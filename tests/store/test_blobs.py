import base64
import io
import random
import sqlite3
from contextlib import closing

import pytest

from divebook.errors import CorruptStoreError, StoreError
from divebook.events.catalog import StepCompleted
from divebook.events.classes import Instance
from divebook.events.codec import decode
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.encoding import Packed, embed, encode_large, references
from divebook.stores.encoding import pack_blob as pack
from divebook.stores.encoding import unpack_blob as unpack
from divebook.stores.transfer import export, import_
from tests.store.connections import writer_of
from tests.store.large_promises import text
from tests.store.logs import ONE, TWO, event, log

LARGE = text(300_000)


def large_log(execution=ONE, output=LARGE):
    return [*log(1, execution), event(2, StepCompleted(output=output), execution)]


def test_what_compresses_is_compressed():
    packed = pack(b"abc" * 100_000)
    assert packed.compressed
    assert len(packed.data) < 10_000
    assert unpack(packed) == b"abc" * 100_000


def test_what_is_dense_but_for_base64_gets_no_larger_than_its_bytes():
    dense = random.Random(0).randbytes(300_000)
    content = b'"' + base64.b64encode(dense) + b'"'
    packed = pack(content)
    assert unpack(packed) == content
    assert len(packed.data) < 1.02 * len(dense)


def test_what_does_not_compress_is_kept_as_it_is():
    content = bytes(text(200_000).encode())
    noise = bytes(int(content[n : n + 2], 16) for n in range(0, 200_000, 2))
    assert pack(noise) == Packed(compressed=False, data=noise)


def test_damaged_compression_is_an_error():
    with pytest.raises(CorruptStoreError, match="a large value is damaged"):
        unpack(Packed(compressed=True, data=b"oops"))


def test_a_payload_names_what_it_refers_to():
    payload, blobs = encode_large({"a": LARGE, "b": [LARGE, "x" * 100_000]})
    assert len(payload) < 500
    assert references(payload) == [*list(blobs)[:1], *blobs]
    assert len(embed(payload, blobs.get)) > 700_000


def test_a_missing_content_is_an_error():
    payload, _ = encode_large({"a": LARGE})
    with pytest.raises(CorruptStoreError, match=r"the large value [0-9a-f]{12}\.\.\. is missing"):
        embed(payload, lambda _: None)


def test_a_missing_large_value_names_its_event(path):
    with SqliteStore(path) as store:
        store.append(ONE, large_log(), 0)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM blobs")
            connection.commit()
        with pytest.raises(CorruptStoreError, match=f"event 2 of execution {ONE} is damaged: the large value"):
            store.read(ONE)
        assert len(store.read(ONE, limit=1)) == 1


def test_the_same_large_value_again_takes_next_to_nothing(path):
    with SqliteStore(path, durability="relaxed") as store:
        store.append(ONE, large_log(), 0)
    before = path.stat().st_size
    with SqliteStore(path, durability="relaxed") as store:
        store.append(TWO, large_log(TWO), 0)
    assert path.stat().st_size - before < 10_000


def test_exports_hold_the_values_themselves(path):
    stream = io.BytesIO()
    with SqliteStore(path) as store, MemoryStore() as other:
        store.append(ONE, large_log(), 0)
        export(store, ONE, stream)
        assert LARGE.encode() in stream.getvalue()
        stream.seek(0)
        import_(stream, other)
        assert other.read(ONE)[1:-1] == large_log()[1:]  # between a beginning and an end that say it is a snapshot
        assert len(other.blobs()) == 1


def test_a_full_disk_leaves_no_part_of_a_large_value(path):
    with SqliteStore(path, durability="relaxed") as store:
        store.append(TWO, log(1, TWO), 0)
        (pages,) = writer_of(store).execute("PRAGMA page_count").fetchone()
        writer_of(store).execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreError, match="cannot grow"):
            store.append(ONE, large_log(), 0)
        assert store.blobs() == []
        writer_of(store).execute("PRAGMA max_page_count = 1000000")
        store.append(ONE, large_log(), 0)
        assert store.read(ONE) == large_log()


def test_two_stores_share_large_values(path):
    with SqliteStore(path) as here, SqliteStore(path) as there:
        here.append(ONE, large_log(), 0)
        there.append(TWO, large_log(TWO), 0)
        here.delete(ONE)
        assert here.drop_blobs() == 0
        there.delete(TWO)
        assert here.drop_blobs() == 1
        there.append(TWO, large_log(TWO), 0)
        assert here.read(TWO) == large_log(TWO)


def test_a_large_field_of_an_instance_is_a_blob_of_its_own():
    inside = Instance("dataclass", "app.Page", {"number": 1, "text": LARGE})
    payload, blobs = encode_large({"page": inside, "text": LARGE})
    assert len(blobs) == 1
    assert len(references(payload)) == 2
    assert decode(embed(payload, blobs.get)) == {"page": inside, "text": LARGE}
