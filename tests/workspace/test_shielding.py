"""Work that is not to be broken off goes on to its end."""

import asyncio
import gc
import os
import socket
import threading
from contextlib import suppress

import pytest

from divebook.workspaces.reaper import END_CONFIRMED
from divebook.workspaces.shell import LocalShell, shielded


def test_it_goes_on_while_whoever_waits_is_cancelled_again_and_again():
    async def main():
        gate, done = asyncio.Event(), []

        async def work():
            await gate.wait()
            done.append("done")
            return 1

        waiting = asyncio.create_task(shielded(work()))
        for _ in range(3):
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.sleep(0)
        assert (waiting.done(), done) == (False, [])
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert done == ["done"]
        assert await shielded(work()) == 1

    asyncio.run(main())


def test_what_it_raises_comes_first():
    async def main():
        gate = asyncio.Event()

        async def work():
            await gate.wait()
            raise LookupError("of the work")

        waiting = asyncio.create_task(shielded(work()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(LookupError, match="of the work"):
            await waiting

    asyncio.run(main())


def test_a_command_that_is_cancelled_while_it_is_handed_over_does_not_hand_over_what_is_others(tmp_path):
    """The descriptors that were to be handed over stay open until they have been."""
    shell = LocalShell(lambda _: str(tmp_path))
    reached, go_on, seen = threading.Event(), threading.Event(), []
    send = shell.reapers.send

    def slowly(argv, cwd, environ, streams):
        reached.set()
        go_on.wait()
        seen.append([os.fstat(end) is not None for end in streams])
        send(argv, cwd, environ, streams)

    shell.reapers.send = slowly

    async def main():
        running = asyncio.create_task(shell.execute("echo x > written; sleep 60"))
        await asyncio.to_thread(reached.wait)
        running.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        await shell.close()

    asyncio.run(main())
    assert seen == [[True] * 4]


@pytest.mark.parametrize("turns", range(12))
def test_a_command_that_is_cancelled_while_it_ends_leaves_nothing_open(tmp_path, turns, monkeypatch):
    """However far it is: after each number of turns of the loop since its end is known."""
    shell = LocalShell(lambda _: str(tmp_path))

    async def main():
        await shell.execute("true")  # has the helper begin, whose socket stays
        before = os.listdir("/proc/self/fd")
        running = asyncio.create_task(shell.execute("echo last"))

        def cancel(left):
            if left:
                asyncio.get_running_loop().call_soon(cancel, left - 1)
            else:
                running.cancel()

        send = socket.socket.send

        def told(self, data):
            if data == END_CONFIRMED:
                cancel(turns)
            return send(self, data)

        monkeypatch.setattr(socket.socket, "send", told)
        with suppress(asyncio.CancelledError):
            await running
        monkeypatch.setattr(socket.socket, "send", send)
        gc.disable()  # what it would close was left open
        try:
            assert os.listdir("/proc/self/fd") == before
        finally:
            gc.enable()
        await shell.close()

    asyncio.run(main())
