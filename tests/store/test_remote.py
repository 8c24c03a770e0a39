"""A store on a server keeps every promise, and a commit whose connection was lost is settled exactly."""

import asyncio
import threading
from contextlib import aclosing

import pytest

from divebook.errors import ConnectionLostError
from divebook.stores.follow import follow
from tests.store.conformance import StorePromises
from tests.store.logs import ONE, batch, completed, log
from tests.store.remote import AFTER, BEFORE, RemoteStore


class TestRemoteStore(StorePromises):
    def make_store(self, folder):
        return RemoteStore()


@pytest.mark.parametrize("loss", [BEFORE, AFTER])
def test_a_batch_whose_commit_nobody_knows_of_is_written_once(loss):
    with RemoteStore() as store:
        heard = []
        store.subscribe(lambda _, events: heard.extend(entry.sequence for entry in events))
        store.losses["_write"].append(loss)
        with pytest.raises(ConnectionLostError):
            store.append_all([batch(ONE, 0, log(2))])
        assert store.append_all([batch(ONE, 0, log(3), again=True)]) == [None]
        assert store.read(ONE) == log(3)
        assert heard == [1, 2, 3]


def test_a_reader_does_not_hold_up_its_loop():
    async def main(store):
        turned = []
        async with aclosing(follow(store, ONE)) as stream:
            first = asyncio.create_task(anext(stream))
            with store.gates["_read_records"].closed() as gate:
                await asyncio.to_thread(gate.reached.wait, 20)
                turned.append(first.done())
            assert (await first).sequence == 1
        assert turned == [False]

    with RemoteStore() as store:
        store.append(ONE, [*log(2), completed(3)], 0)
        asyncio.run(main(store))


def test_listening_does_not_wait_for_a_commit():
    with RemoteStore() as store:
        writing = threading.Thread(target=store.append, args=(ONE, log(2), 0))
        with store.gates["_write"].closed() as gate:
            writing.start()
            assert gate.reached.wait(20)
            heard = []
            store.subscribe(lambda _, events: heard.extend(events))
            assert heard == []
        writing.join(20)
        assert heard == log(2)
