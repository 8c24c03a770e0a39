"""The way out of a place without a network: offline, with the test's own names and a server on loopback behind them."""

from __future__ import annotations

import asyncio
import base64
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from divebook.documents.addresses import is_public
from divebook.errors import WorkspaceError
from divebook.workspaces.egress import relay
from divebook.workspaces.egress.proxy import Egress, EgressAnswer

PRIVATE = """
127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255
:: ::1 fe80::1 fe80::1%eth0 fd00::1 ff02::1 ::ffff:10.0.0.1 ::10.0.0.1 64:ff9b::a00:1 64:ff9b:1::808:808 2002:a00:1::
"""


class World:
    """A server that answers in capitals, names that lead to it, and the proxy's answers."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "socket")
        self.names: dict[str, list[str]] = {}
        self.looked_up: list[str] = []
        self.answers: list[EgressAnswer] = []
        self.connections = 0
        self.port = 0

    async def resolve(self, host: str) -> list[str]:
        self.looked_up.append(host)
        return self.names.get(host.lower().rstrip("."), [])

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write((await reader.read(5)).upper())
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def egress(self, *allow: str):
        server = await asyncio.start_server(self.echo, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        egress = Egress(
            [f"{name}:{self.port}" for name in allow],
            resolve=self.resolve,
            public=lambda address: address == "127.0.0.1" or is_public(address),
            on_answer=self.answers.append,
        )
        await egress.listen(self.socket)
        try:
            yield egress
        finally:
            await egress.close()
            server.close()
            await server.wait_closed()

    async def ask(self, target: str, token: str, *, method: str = "CONNECT") -> tuple[int, bytes]:
        reader, writer = await asyncio.open_unix_connection(self.socket)
        writer.write(request(target, token, method) + b"hello")
        status = int((await reader.readuntil(b"\r\n\r\n")).split()[1])
        body = await reader.read(5) if status == 200 else b""
        writer.close()
        return status, body


def request(target: str, token: str, method: str = "CONNECT") -> bytes:
    credentials = base64.b64encode(f"divebook:{token}".encode()).decode()
    return f"{method} {target} HTTP/1.1\r\nProxy-Authorization: Basic {credentials}\r\n\r\n".encode()


@pytest.mark.parametrize("address", PRIVATE.split())
def test_an_address_that_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::"]
)
def test_a_public_address(address):
    assert is_public(address)


@pytest.mark.parametrize("entry", ["", "*", "*.*.test", "a*.test", "10.0.0.1", "::1", "good.test:https"])
def test_what_is_no_name_cannot_be_allowed(entry):
    with pytest.raises(WorkspaceError, match="in the list of allowed hosts; write a host name"):
        Egress([entry])


def test_names_on_the_list_are_reached(tmp_path):
    world = World(tmp_path)
    world.names = {"good.test": ["127.0.0.1"], "a.wild.test": ["127.0.0.1"]}

    async def main():
        async with world.egress("good.test", "*.wild.test") as egress:
            for host in ("good.test", "GOOD.test.", "a.wild.test"):
                assert await world.ask(f"{host}:{world.port}", egress.token) == (200, b"HELLO"), host

    asyncio.run(main())
    assert [(answer.host, answer.refused) for answer in world.answers] == [
        ("good.test", None),
        ("GOOD.test.", None),
        ("a.wild.test", None),
    ]


def test_nothing_else_is_reached(tmp_path):
    world = World(tmp_path)
    world.names = {
        "good.test": ["127.0.0.1"],
        "meta.test": ["169.254.169.254"],
        "rebound.test": ["127.0.0.1", "10.0.0.1"],
    }
    world.names |= {"mapped.test": ["::ffff:10.0.0.1"], "nat.test": ["64:ff9b::a00:1"], "strange.test": ["no address"]}
    resolved = {"meta.test", "rebound.test", "mapped.test", "nat.test", "strange.test", "nobody.test"}

    async def main():
        async with world.egress("good.test", "*.wild.test", *sorted(resolved)) as egress:
            p = world.port
            targets = [
                f"wild.test:{p}",
                f"notwild.test:{p}",
                "good.test:22",
                f"good.test.evil.test:{p}",
                f"good.test@evil.test:{p}",
                "good.test",
            ]
            targets += [f"127.0.0.1:{p}", f"[::1]:{p}", f"2130706433:{p}", f"good.test:{p}x"]
            targets += [f"{name}:{p}" for name in sorted(resolved)]
            for target in targets:
                assert (await world.ask(target, egress.token))[0] in (403, 502), target
            assert (await world.ask(f"http://good.test:{p}/", egress.token, method="GET"))[0] == 403
            assert (await world.ask(f"good.test:{p}", "another"))[0] == 407
            return len(targets) + 2

    asked = asyncio.run(main())
    assert len(world.answers) == asked
    assert all(answer.refused for answer in world.answers)
    assert set(world.looked_up) == resolved, (
        "a name that is not on the list is not even looked up: a look-up carries data out"
    )
    assert world.connections == 0


def test_a_name_is_looked_up_once(tmp_path):
    """The connection goes to the address that was checked, whatever a second look-up would say."""
    world = World(tmp_path)
    world.names = {"good.test": ["127.0.0.1"]}

    async def main():
        async with world.egress("good.test") as egress:
            assert await world.ask(f"good.test:{world.port}", egress.token) == (200, b"HELLO")

    asyncio.run(main())
    assert world.looked_up == ["good.test"]


def test_closing_ends_open_connections(tmp_path):
    world = World(tmp_path)
    world.names = {"good.test": ["127.0.0.1"]}

    async def main():
        async with world.egress("good.test") as egress:
            reader, writer = await asyncio.open_unix_connection(world.socket)
            writer.write(request(f"good.test:{world.port}", egress.token))
            await reader.readuntil(b"\r\n\r\n")
            await egress.close()
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    asyncio.run(main())


INSIDE = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(sys.argv[1].encode()); print(s.recv(100).split(b"\\r\\n")[0])
try: socket.create_connection(("127.0.0.1", int(sys.argv[2])), 1); print("REACHED THE HOST")
except OSError: print("no host")
"""


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
@pytest.mark.parametrize(("name", "status"), [("good.test", b"200"), ("other.test", b"403")])
def test_the_door_leads_out_of_a_place_without_a_network(tmp_path, name, status):
    world = World(tmp_path)
    world.names = {"good.test": ["127.0.0.1"]}

    async def main():
        async with world.egress("good.test") as egress:
            fence = [
                "bwrap",
                "--ro-bind",
                "/",
                "/",
                "--dev",
                "/dev",
                "--proc",
                "/proc",
                "--unshare-all",
                "--die-with-parent",
            ]
            both = '"$1" -I "$2" "$3" 3128 && "$1" -I -c "$4" "$5" "$6"'
            asked = request(f"{name}:{world.port}", egress.token).decode()
            words = [sys.executable, relay.__file__, world.socket, INSIDE, asked, str(world.port)]
            process = await asyncio.create_subprocess_exec(
                *fence, "sh", "-c", both, "sh", *words, stdout=asyncio.subprocess.PIPE
            )
            return (await asyncio.wait_for(process.communicate(), 30))[0]

    out = asyncio.run(main())
    assert status in out
    assert b"no host" in out
