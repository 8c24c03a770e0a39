"""Our workspaces over pydantic-ai's backends: the same answers for files, commands and tools of agents."""

import asyncio

import pydantic_ai
import pytest
from pydantic_ai.capabilities import LocalWorkspace as TheirLocal
from pydantic_ai.workspaces import LocalWorkspaceBackend

from divebook import ScriptedModel
from divebook.agents.pydantic_workspaces import BackendOfWorkspace, WorkspaceOfBackend, WorkspaceTools
from divebook.agents.scripted_model import ScriptedFunction
from divebook.errors import (
    FileOperationError,
    PathNotAllowedError,
    ShellExecutionError,
    ShellTimeoutError,
    WorkspaceError,
    WorkspaceGoneError,
)
from divebook.tools.workspace import edit, shell, view
from divebook.workspaces import AgentSession, LocalWorkspace, agent_tools
from tests.agents.test_taking_agents import ASK
from tests.agents.test_turns import started
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment


@pytest.fixture(params=["theirs", "ours as theirs"])
def made(request, tmp_path):
    """Return a function that calls another one in a workspace over a backend."""
    folder = tmp_path / "project"
    folder.mkdir()

    def made(work):
        async def entered():
            if request.param == "theirs":
                async with WorkspaceOfBackend(LocalWorkspaceBackend(folder)) as workspace:
                    return await work(workspace, folder)
            async with BackendOfWorkspace(LocalWorkspace(folder)) as backend, WorkspaceOfBackend(backend) as workspace:
                return await work(workspace, folder)

        return asyncio.run(entered())

    return made


def test_files_do_what_they_do_elsewhere(made):
    async def work(workspace, folder):
        files = workspace.file_operator
        await files.mkdir("a/b", parents=True)
        await files.write_file("a/b/one.txt", "one")
        await files.append_file("a/b/one.txt", b" two")
        assert await files.read_file("a/b/one.txt", offset=1, length=4) == "ne t"
        assert [piece async for piece in files.read_bytes_stream("a/b/one.txt", chunk_size=4)] == [b"one ", b"two"]
        await files.copy("a/b", "c")
        await files.copy("a/b/one.txt", "c")
        await files.move("c/one.txt", "c/two.txt")
        assert await files.list_dir_with_types("c") == [("two.txt", False)]
        assert await files.glob("**/*.txt") == ["a/b/one.txt", "c/two.txt"]
        found = await files.stat("c/two.txt")
        assert (found["size"], found["mtime"], found["is_file"]) == (7, None, True)
        (folder / "link").symlink_to("a")
        await files.delete("link")
        assert (folder / "a" / "b" / "one.txt").read_text() == "one two"
        failing = {
            "read": files.read_file("nowhere"),
            "write": files.write_file("no/such/folder", "x"),
            "delete": files.delete("a/b"),
            "list": files.list_dir("c/two.txt"),
            "mkdir": files.mkdir("d/e"),
            "move": files.move("a", "a/b/c"),
            "copy": files.copy("a", "a/b/c"),
            "stat": files.stat("nowhere"),
        }
        for operation, failed in failing.items():
            with pytest.raises(FileOperationError, match=f"Failed to {operation} '"):
                await failed
        return sorted(path.name for path in folder.rglob("*"))

    assert made(work) == ["a", "b", "c", "one.txt", "two.txt"]


def test_what_lies_outside_is_refused(made, tmp_path):
    (tmp_path / "secret").write_text("x")

    async def work(workspace, folder):
        files = workspace.file_operator
        (folder / "link").symlink_to(tmp_path)
        for path in ("link/secret", "../secret", f"{tmp_path}/secret", "/etc/passwd", "a\0b"):
            acts = [files.read_bytes(path), files.write_file(path, "y"), files.delete(path), files.stat(path)]
            acts += [files.copy(path, "here"), files.move(path, "here"), files.exists(path), files.list_dir(path)]
            acts += [workspace.shell.execute("true", cwd=path)]
            for act in acts:
                with pytest.raises(PathNotAllowedError):
                    await act
        return await files.glob("**/*")

    assert made(work) == ["link"]
    assert (tmp_path / "secret").read_text() == "x"


def test_commands_do_what_they_do_elsewhere(made):
    async def work(workspace, _folder):
        runs, heard = workspace.shell, []
        await workspace.file_operator.mkdir("sub")
        found = await runs.execute("echo out; echo err >&2; exit 3", on_output=lambda *said: heard.append(said))
        assert found == (3, "out\n", "err\n")
        assert heard == [("stdout", "out\n"), ("stderr", "err\n")]
        assert (await runs.execute(["printf", "%s", "$HOME"])).stdout == "$HOME"
        assert (await runs.execute("basename $(pwd); echo $A", cwd="sub", env={"A": "1"})).stdout == "sub\n1\n"
        assert (await runs.execute("echo $A$HOME", env={"A": "1"}, inherit_env=False)).stdout == "1\n"
        with pytest.raises(ShellTimeoutError) as raised:
            await runs.execute("echo begun; sleep 60", timeout=1.5)
        assert raised.value.stdout == "begun\n"
        with pytest.raises(ShellExecutionError, match="cannot run in nowhere"):
            await runs.execute("true", cwd="nowhere")
        with pytest.raises(ShellExecutionError, match="more than the backend keeps"):
            await runs.execute("head -c 12000000 /dev/zero")
        with pytest.raises(ShellExecutionError, match="a command that reads input"):
            await runs.execute("cat", stdin="x")
        with pytest.raises(WorkspaceError, match="no snapshots"):
            workspace.root  # noqa: B018 - asking is the test

    made(work)


def test_tools_of_agents_work_there(made):
    async def work(workspace, _folder):
        async with AgentSession(workspace) as session:
            files = session.file_operator
            assert await agent_tools.edit(files, "a.py", "", "y = 1\n") == "File created: a.py"
            assert "+y = 2" in await agent_tools.edit(files, "a.py", "y = 1", "y = 2")
            assert (await agent_tools.ls(files))["entries"] == [
                {"name": "a.py", "path": "a.py", "type": "file", "size": 6}
            ]
            assert list(await agent_tools.grep(files, "y =")) == ["a.py:1"]
            return await agent_tools.shell(session.shell, files, "cat a.py")

    assert made(work) == {"stdout": "y = 2\n", "stderr": "", "return_code": 0}


EDITS = [{"call": {"edit": {"file_path": "a.py", "old_string": "1", "new_string": "2"}}}]
EDITS += [{"call": {"shell": {"command": "cat a.py >> ran.txt"}}}, "done"]


def coder(folder, *, has_backend):
    capabilities = [WorkspaceTools(view, edit, shell), *([TheirLocal(folder)] if has_backend else [])]
    model = ScriptedFunction(ScriptedModel(EDITS))
    return pydantic_ai.Agent(model, name="critic", capabilities=capabilities)


def test_an_agent_of_theirs_has_our_tools_in_the_workspace_of_its_run(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    backend = LocalWorkspaceBackend(tmp_path)
    result = asyncio.run(coder(tmp_path, has_backend=False).run("Repair it", workspace=backend))
    assert result.output == "done"
    assert (tmp_path / "ran.txt").read_text() == "x = 2\n"


def test_in_a_run_of_ours_these_calls_are_recorded_and_not_made_again(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    execution = environment(ASK, agents=[coder(tmp_path, has_backend=True)]).start("ask").wait(20)
    assert execution.variables == {"said": "done"}, execution.error
    assert [o.key for o in started(execution) if o.operation_type == "tool_call"] == [
        "tool-1-call-1-1",
        "tool-2-call-2-1",
    ]
    at = [e.sequence for e in execution.history() if e.event_type == "operation_started"][-1] - 1
    again = environment(ASK, agents=[coder(tmp_path, has_backend=True)], store=cut(execution.store, execution, at))
    assert again.run_of(execution.id).resume().wait(20).variables == {"said": "done"}
    assert (tmp_path / "ran.txt").read_text() == "x = 2\n"


def test_one_that_is_gone_is_said(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()

    async def work():
        workspace = WorkspaceOfBackend(BackendOfWorkspace(LocalWorkspace(folder)))
        assert workspace.reference["provider"] == "divebook-local"
        with pytest.raises(WorkspaceGoneError, match="does not exist"):
            await WorkspaceOfBackend(BackendOfWorkspace(LocalWorkspace(tmp_path / "gone"))).__aenter__()
        async with BackendOfWorkspace(LocalWorkspace(folder)) as backend, WorkspaceOfBackend(backend) as made:
            folder.rmdir()
            for act in (made.require_there(), made.file_operator.read_bytes("a"), made.shell.execute("true")):
                with pytest.raises(WorkspaceGoneError, match="no longer exists"):
                    await act

    asyncio.run(work())
