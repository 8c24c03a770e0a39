"""What workspaces in containers reach, and who uses them: named hosts, ports, agents of a run."""

import asyncio
import os
import socket

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions.resources import WorkspaceDefinition
from divebook.errors import ContainerError
from divebook.events import catalog
from divebook.replay.files import KeptFiles
from divebook.stores import MemoryStore
from divebook.workspaces.docker.workspace import DockerWorkspace
from tests.workspace.containers import inside, inspected
from tests.workspace.images import python_image
from tests.workspace.sequences import KeptTrees, from_scratch

INSIDE = """
import os, socket, urllib.parse, base64, sys
at = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
user = base64.b64encode(f"{at.username}:{at.password}".encode()).decode()
with socket.create_connection((at.hostname, at.port)) as s:
    s.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nProxy-Authorization: Basic {user}\\r\\n\\r\\nhello".encode())
    said = s.makefile("rb")
    print(said.readline().decode().strip(), said.read()[2:] if len(sys.argv) > 2 else "")
"""


def test_hosts_that_are_allowed_are_reached_without_a_network(image, tmp_path, monkeypatch):
    answers = []

    async def main():
        async def echo(reader, writer):
            writer.write((await reader.read(5)).upper())
            await writer.drain()
            writer.close()

        async def resolve(_host):
            return ["127.0.0.1"]

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        made = DockerWorkspace(tmp_path / "p", image=python_image(), allow=[f"good.test:{port}"], told=answers.append)
        monkeypatch.setattr(made._egress._proxy, "_resolve", resolve)
        monkeypatch.setattr(made._egress._proxy, "_public", lambda _: True)
        async with made:
            good = await made.shell.execute(["python3", "-I", "-c", INSIDE, f"good.test:{port}", "read"])
            other = await made.shell.execute(["python3", "-I", "-c", INSIDE, f"other.test:{port}"])
            network = await made.shell.execute("ls /sys/class/net; echo $HTTPS_PROXY")
        server.close()
        await server.wait_closed()
        return good, other, network, made._egress._proxy.token

    good, other, network, token = asyncio.run(main())
    assert good.stdout == "HTTP/1.1 200 Connection established b'HELLO'\n", good
    assert other.stdout.startswith("HTTP/1.1 403")
    assert network.stdout.startswith("lo\n")
    assert token not in network.stdout
    assert [(answer.host, answer.refused) for answer in answers] == [
        ("good.test", None),
        ("other.test", "not on the list"),
    ]


FLIGHTS = """
import socket, sys
def tried(name, way):
    try:
        print(name, "OUT", way())
    except OSError as error:
        print(name, "refused")
host = int(sys.argv[1])
tried("names", lambda: socket.getaddrinfo("example.com", 443))
tried("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53)))
tried("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
tried("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
tried("loopback of the host", lambda: socket.create_connection(("127.0.0.1", host), 2))
tried("gateway", lambda: socket.create_connection(("172.17.0.1", host), 2))
tried("ipv6", lambda: socket.create_connection(("2606:4700::1111", 443), 2))
tried("abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[2]))
tried("engine", lambda: socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock"))
"""


def test_nothing_leaves_by_another_way(image, tmp_path):
    answers = []

    async def main():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0)
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(f"\0divebook-{os.getpid()}")
            abstract.listen()
            made = DockerWorkspace(tmp_path / "p", image=python_image(), allow=["good.test"], told=answers.append)
            async with made:
                port = server.sockets[0].getsockname()[1]
                found = await made.shell.execute(["python3", "-I", "-c", FLIGHTS, str(port), f"divebook-{os.getpid()}"])
                moved = await made.shell.execute(["python3", "-I", "-c", INSIDE, "elsewhere.test:443"])
        server.close()
        await server.wait_closed()
        return found, moved

    found, moved = asyncio.run(main())
    lines = found.stdout.splitlines()
    assert len(lines) == 9, found
    assert [line for line in lines if not line.endswith(" refused")] == []
    assert moved.stdout.startswith("HTTP/1.1 403"), "where a redirect leads is asked for anew"
    assert [answer.refused for answer in answers] == ["not on the list"]


def test_a_port_is_published_on_this_machine_only(make):
    async def work(made):
        await made.shell.execute("echo page > index.html; httpd -p 8080")
        address = inspected(made.container)["NetworkSettings"]["Ports"]["8080/tcp"][0]["HostIp"]
        reader, writer = await asyncio.open_connection("127.0.0.1", made.ports[8080])
        writer.write(b"GET /index.html HTTP/1.0\r\n\r\n")
        page = await reader.read()
        writer.close()
        await writer.wait_closed()
        return address, page

    address, page = inside(make(network="bridge", ports={8080: None}), work)
    assert address == "127.0.0.1"
    assert page.endswith(b"page\n")


def test_an_agent_works_in_a_container(image, tmp_path):
    """Its calls are recorded with the files they changed; an image that is not there is told before anything begins."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("a - b\n")
    calls = [
        {"call": {"edit": {"file_path": "/workspace/a.txt", "old_string": "-", "new_string": "+"}}},
        {"call": {"shell": {"command": "cat a.txt > b.txt; pwd; cat /proc/net/dev | wc -l"}}},
    ]

    def environment(name):
        definition = WorkspaceDefinition("app", folder=str(tmp_path / "project"), kind="docker", image=name)
        made = Environment(store=MemoryStore(), workspaces=[definition])
        agent = Agent("coder", model=ScriptedModel(turns=[[*calls, "done"]]), workspace="app")
        made.add_agent(agent)
        made.add_workflow(Workflow("fix", [Step("go", prompt="repair it", agent="coder", store="out")]))
        return made

    with environment("divebook-test:none") as lacking, pytest.raises(ContainerError, match="docker pull"):
        lacking.start("fix")
    with environment(image) as made:
        run = made.start("fix").wait(30)
        assert run.status == "completed", run.error
        kept = KeptFiles(made.store, made.store.read(run.id))
        assert kept.read("b.txt").decode() == "a + b\n"
        assert (tmp_path / "project" / "a.txt").read_text() == "a - b\n"
        events = [event.data for event in made.store.read(run.id) if isinstance(event.data, catalog.FilesChanged)]
    assert [[file[0] for file in event.files] for event in events[-2:]] == [["a.txt"], ["b.txt"]], events


def test_hosts_that_a_command_asks_for_are_in_the_log_of_its_run(image, tmp_path):
    name = python_image()
    definition = WorkspaceDefinition("app", kind="docker", image=name, hosts=("good.test",))
    command = f"python3 -I -c '{INSIDE.replace(chr(39), chr(34))}' other.test:443"
    with Environment(store=MemoryStore(), workspaces=[definition]) as made:
        asking = Step("ask", action="Workspace.Shell", parameters={"Command": command}, store="said")
        made.add_workflow(Workflow("ask", [asking], workspace="app"))
        run = made.start("ask").wait(30)
        assert "403" in run.variables["said"]["stdout"], run.error
        events = [event.data for event in run.history() if isinstance(event.data, catalog.EgressAnswered)]
    assert [(data.host, data.port, data.refused) for data in events] == [("other.test", 443, "not on the list")]


def test_snapshots_see_what_commands_inside_have_changed(make, tmp_path):
    """Also what bears a forged time, another name of a file, or the name of a folder that was there before."""
    changes = (
        "mkdir -p d/e; echo 1 > d/e/f; ln d/e/f other; ln -s d/e/f to; touch -d 2001-01-01 old",
        "echo 2 > other; touch -r old other",
        "mv d gone; mkdir -p d/e; echo 3 > d/e/f; touch -r old d/e/f",
        "chmod 700 d; rm -r gone; mv to d/to",
    )

    async def work(made):
        kept, trees = KeptTrees(tmp_path / "project"), []
        try:
            for change in changes:
                assert (await made.shell.execute(change)).exit_code == 0
                trees.append(kept.take().tree)
                assert trees[-1].entries == from_scratch(tmp_path / "project").entries
            kept.restore(trees[0])
            restored = from_scratch(tmp_path / "project").digest
            return trees, restored, (await made.shell.execute("cat d/e/f other to")).stdout
        finally:
            kept.close()

    trees, restored, text = inside(make(), work)
    assert len({tree.digest for tree in trees}) == len(changes)
    assert restored == trees[0].digest
    assert text == "1\n1\n1\n"
