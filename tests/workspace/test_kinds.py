"""What every kind of workspace does alike: files, shell, resources, sessions, tools; and what each does otherwise."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from venv import EnvBuilder

import pytest

from divebook.errors import (
    FileOperationError,
    PathNotAllowedError,
    ShellExecutionError,
    ShellTimeoutError,
    WorkspaceEnteredError,
    WorkspaceGoneError,
    WorkspaceNotEnteredError,
)
from divebook.workspaces import (
    AgentSession,
    DockerWorkspace,
    FencedWorkspace,
    LocalWorkspace,
    VirtualenvWorkspace,
    agent_tools,
    local,
    process_manager,
)

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(params=["local", "local by walk", "fenced", "virtualenv", "docker"])
def workspace(request, tmp_path, require, venv):
    folder = tmp_path / "project"
    folder.mkdir()
    if request.param == "fenced":
        require("bubblewrap", shutil.which("bwrap") is not None)
        return FencedWorkspace(folder)
    if request.param == "virtualenv":
        return VirtualenvWorkspace(folder, venv_path=venv)
    if request.param == "docker":
        return DockerWorkspace(folder, image=request.getfixturevalue("image"))
    return LocalWorkspace(folder, openat2=False if request.param == "local by walk" else None)


def inside(workspace, work):
    async def entered():
        async with workspace:
            return await work(workspace)

    return asyncio.run(entered())


def test_files_and_commands_see_the_same(workspace):
    async def work(made):
        await made.file_operator.write_file("a.txt", "text")
        said = await made.shell.execute("cat a.txt; mkdir d; echo more > d/b")
        return said, await made.file_operator.read_file("d/b"), await made.file_operator.list_dir(".")

    assert inside(workspace, work) == ((0, "text", ""), "more\n", ["a.txt", "d"])


def test_paths_outside_are_refused(workspace):
    async def work(made):
        for path in ("/etc/passwd", "../x", "d/../../x"):
            with pytest.raises(PathNotAllowedError):
                await made.file_operator.read_file(path)
            if not (made.kind == "docker" and path.startswith("/")):  # that is the container's own
                with pytest.raises(PathNotAllowedError):
                    await made.shell.execute("true", cwd=path)

    inside(workspace, work)


def test_it_is_used_between_entering_and_leaving(workspace):
    with pytest.raises(WorkspaceNotEnteredError):
        workspace.file_operator  # noqa: B018 - asking is the test

    async def work(made):
        with pytest.raises(WorkspaceEnteredError):
            await made.__aenter__()
        return made.tmp_dir, await made.file_operator.is_dir(made.tmp_dir)

    scratch, was_there = inside(workspace, work)
    assert was_there
    assert not Path(scratch).exists()
    with pytest.raises(WorkspaceNotEnteredError):
        workspace.shell  # noqa: B018 - asking is the test
    assert inside(workspace, lambda made: made.shell.execute("echo again")).stdout == "again\n"


def test_several_sessions_share_it(workspace):
    async def work(made):
        async with AgentSession(made) as one, AgentSession(made) as two:
            await one.file_operator.write_file("a", "1")
            assert one.run_id != two.run_id
            return await two.file_operator.read_file("a")

    assert inside(workspace, work) == "1"


def test_files(workspace):
    """What a file operator does, and how it fails, on every kind."""

    async def work(made):
        files = made.file_operator
        await files.mkdir("a/b", parents=True)
        await files.write_file("a/b/one.txt", "z\u00fcrich\n")
        await files.append_file("a/b/one.txt", b"more")
        assert await files.read_file("a/b/one.txt") == "z\u00fcrich\nmore"
        assert await files.read_file("a/b/one.txt", offset=1, length=3) == "\u00fcri"
        assert await files.read_bytes("a/b/one.txt", offset=1, length=2) == "\u00fc".encode()
        assert [len(piece) async for piece in files.read_bytes_stream("a/b/one.txt", chunk_size=5)] == [5, 5, 2]
        await files.copy("a/b/one.txt", "a/two.txt")
        await files.move("a/b/one.txt", "a/b/three.txt")
        assert await files.list_dir_with_types("a") == [("b", True), ("two.txt", False)]
        assert sorted(await files.glob("**/*.txt")) == ["a/b/three.txt", "a/two.txt"]
        found = await files.stat("a/two.txt")
        assert (found["size"], found["is_file"], found["is_dir"]) == (12, True, False)
        assert [await files.exists(path) for path in ("a", "a/two.txt", "nowhere")] == [True, True, False]
        await files.delete("a/two.txt")
        failing = {
            "read": files.read_file("nowhere"),
            "write": files.write_file("no/such/folder", "x"),
            "delete": files.delete("a/b"),
            "list": files.list_dir("a/b/three.txt"),
            "mkdir": files.mkdir("c/d"),
            "move": files.move("nowhere", "x"),
            "copy": files.copy("nowhere", "x"),
            "stat": files.stat("nowhere"),
        }
        for operation, failed in failing.items():
            with pytest.raises(FileOperationError, match=f"Failed to {operation} '"):
                await failed
        path = await files.write_tmp_file("big.txt", "0123456789" * 20)
        cut = await files.truncate_to_tmp("line\n" * 100, "cut.txt", 50)
        assert await files.read_file(cut["file_path"]) == "line\n" * 100
        assert (await made.shell.execute(["wc", "-c", path])).stdout.split()[0] == "200"

    inside(workspace, work)


def test_commands(workspace):
    """What a shell does, and how it fails, on every kind."""

    async def work(made):
        shell, heard = made.shell, []
        await made.file_operator.mkdir("sub")
        found = await shell.execute("echo out; echo err >&2; exit 3", on_output=lambda *said: heard.append(said))
        assert (found, found.timed_out, found.truncated) == ((3, "out\n", "err\n"), False, False)
        assert sorted(heard) == [("stderr", "err\n"), ("stdout", "out\n")]
        assert (await shell.execute(["printf", "%s", "$HOME; ls"])).stdout == "$HOME; ls"
        assert (await shell.execute("cat", stdin="given")).stdout == "given"
        assert (await shell.execute("basename $(pwd)", cwd="sub")).stdout == "sub\n"
        assert (await shell.execute("echo $A", env={"A": "1 2"})).stdout == "1 2\n"
        assert (await shell.execute(["nonexistent_xyz"])).exit_code == 127
        with pytest.raises(ShellTimeoutError) as raised:
            await shell.execute("echo begun; sleep 60", timeout=1.5)
        assert raised.value.stdout == "begun\n"
        with pytest.raises(ShellExecutionError, match="cannot run in"):
            await shell.execute("true", cwd="nowhere")
        with pytest.raises(ShellExecutionError, match="the command is empty"):
            await shell.execute(" ")
        long = await shell.execute("head -c 3000000 /dev/zero | tr '\\0' x")
        assert (long.truncated, len(long.stdout) < 1_100_000) == (True, True)
        assert (await made.file_operator.stat(long.stdout_file))["size"] == 3_000_000

    inside(workspace, work)


class Counter:
    """A resource that counts, and says when it is closed."""

    def __init__(self, closed):
        self.count, self._closed = 0, closed

    async def export_state(self):
        return {"count": self.count}

    async def restore_state(self, state):
        self.count = state["count"]

    async def close(self):
        self._closed.append(self.count)


def test_resources_are_made_exported_restored_and_closed(workspace):
    closed = []

    async def make(_workspace):
        return Counter(closed)

    async def work(made):
        counter = await made.resources.get_or_create("counter")
        assert made.resources.get_typed("counter", Counter) is counter
        counter.count += 1
        return await made.export_resource_state()

    workspace.with_resource_factory("counter", make)
    state = inside(workspace, work)
    again = inside(workspace.with_resource_state(state), work)
    assert closed == [1, 2]
    assert again["entries"]["counter"]["state"] == {"count": 2}


def test_tools_of_agents_say_what_they_did_and_what_they_were_asked_wrongly(workspace):
    async def work(made):
        files = made.file_operator
        assert await agent_tools.edit(files, "a.py", "", "x = 1\ny = 1\n") == "File created: a.py"
        assert "-y = 1\n+y = 2" in await agent_tools.edit(files, "a.py", "y = 1", "y = 2")
        assert await agent_tools.edit(files, "a.py", "= ", "== ") == (
            "Error: old_string occurs 2 times in a.py: give more around it, or replace_all"
        )
        assert await agent_tools.view(files, "a.py") == "x = 1\ny = 2\n"
        assert (await agent_tools.grep(files, "y =", "*.py"))["a.py:2"]["matching_line"] == "y = 2"
        assert (await agent_tools.ls(files))["entries"][0]["name"] == "a.py"
        assert await agent_tools.glob(files, "*") == ["a.py"]
        assert (await agent_tools.view(files, "../a.py")).startswith("Error: Path '../a.py'")
        told = await agent_tools.shell(made.shell, files, "cat a.py; exit 4")
        assert told == {"stdout": "x = 1\ny = 2\n", "stderr": "", "return_code": 4}
        assert "Command timed out after 0.5s" in (await agent_tools.shell(made.shell, files, "sleep 60", 0.5))["error"]
        manager = process_manager(made)
        started = await agent_tools.spawn(manager, "read word; echo got $word", takes_input=True)
        assert agent_tools.write(manager, started["process_id"], "it\n")["status"] == "running"
        assert (await agent_tools.read(manager, started["process_id"], 20))["stdout"] == "got it\n"
        await manager.require(started["process_id"]).wait()
        assert [(each["status"], each["return_code"]) for each in agent_tools.list_processes(manager)] == [("ended", 0)]
        endless = await agent_tools.spawn(manager, "sleep 60")
        assert (await agent_tools.kill(manager, endless["process_id"]))["was_running"]

    inside(workspace, work)


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(WorkspaceGoneError, match="does not exist"):
        inside(LocalWorkspace(tmp_path / "gone"), None)


def test_what_was_set_up_is_undone_where_that_fails(tmp_path):
    closed = []

    class Failing(LocalWorkspace):
        async def _setup(self):
            await super()._setup()
            self.resources.set("one", Closing("one"))
            self.resources.set("two", Closing("two"))
            raise RuntimeError("no")

    class Closing:
        def __init__(self, name):
            self.name = name

        def close(self):
            closed.append(self.name)

    base = tmp_path / "base"
    base.mkdir()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            inside(Failing(tmp_path, tmp_base_dir=base), None)
    assert closed == ["two", "one"] * 2
    assert not list(base.iterdir())


def test_a_fence_keeps_commands_in(tmp_path, require):
    require("bubblewrap", shutil.which("bwrap") is not None)
    folder, outside = tmp_path / "project", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("mine")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reach = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"

        async def work(made):
            written = await made.shell.execute(f"echo x > {outside}; echo x > /etc/divebook-test; echo x > here")
            reached = await made.shell.execute([sys.executable, "-c", reach])
            seen = await made.shell.execute("ls /proc | grep -c '^[0-9]'")
            return written, reached, int(seen.stdout)

        written, reached, seen = inside(FencedWorkspace(folder), work)
    assert (folder / "here").read_text() == "x\n"
    assert outside.read_text() == "mine"
    assert not os.path.exists("/etc/divebook-test")
    assert written.stderr
    assert reached.exit_code != 0
    assert seen < 20


def test_a_fence_has_the_python_that_runs_it_below_tmp_too(tmp_path, require):
    """As in a container that has its environment there: the fence has a /tmp of its own."""
    require("bubblewrap", shutil.which("bwrap") is not None)
    program = """
import asyncio, sys
from divebook.workspaces import FencedWorkspace

async def main():
    async with FencedWorkspace(sys.argv[1]) as made:
        print(sys.prefix, await made.shell.execute(f"ls {sys.argv[2]}"))

asyncio.run(main())
"""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        (Path(folder) / "not for it").touch()
        place = Path(folder) / "environment"
        EnvBuilder(symlinks=True).create(place)
        where = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        command = [place / "bin" / "python", "-c", program, tmp_path, folder]
        told = subprocess.check_output(command, env={"PYTHONPATH": where}, text=True, timeout=60)
    assert told == f"{place} ShellResult(exit_code=0, stdout='environment\\n', stderr='')\n"


def test_a_fence_that_cannot_be_made_says_why(tmp_path, require, monkeypatch):
    require("bubblewrap", shutil.which("bwrap") is not None)
    monkeypatch.setattr(local, "_fence", lambda program, _: [program, "--bind", "/no-such-folder", "/"])
    with pytest.raises(ShellExecutionError, match=r"bwrap cannot run commands here: bwrap: .*/no-such-folder"):
        inside(FencedWorkspace(tmp_path), lambda made: made.shell.execute("true"))


def test_what_ends_at_once_in_place_of_running_commands_is_told(tmp_path, require, monkeypatch):
    require("bubblewrap", shutil.which("bwrap") is not None)
    monkeypatch.setattr(local, "_fence", lambda *_: ["true"])
    with pytest.raises(
        ShellExecutionError, match="true cannot run commands here: the program ended at once without output"
    ):
        inside(FencedWorkspace(tmp_path), lambda made: made.shell.execute("true"))


def test_a_virtualenv_is_what_its_commands_use(tmp_path, venv):
    folder = tmp_path / "project"
    folder.mkdir()
    made = VirtualenvWorkspace(folder, venv_path=venv)
    said = inside(
        made, lambda entered: entered.shell.execute("python -c 'import sys; print(sys.prefix)'; echo $VIRTUAL_ENV")
    )
    assert said.stdout == f"{venv}\n{venv}\n"
    assert made.reference == {"folder": str(folder), "virtualenv_path": str(venv)}


def test_a_folder_is_not_copied_into_itself(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)

    async def work(made):
        for target in ("a/b/c", "a"):
            with pytest.raises(FileOperationError, match="copy"):
                await made.file_operator.copy("a", target)
        await made.file_operator.mkdir("/".join("d" * 900), parents=True)
        return await made.file_operator.glob("**/d")

    assert len(inside(LocalWorkspace(tmp_path), work)) == 900
