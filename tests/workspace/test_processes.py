"""Commands that go on beside others: what they print is read once, and nothing of them outlives the workspace."""

import asyncio
import sys
from pathlib import Path

import pytest

from divebook.errors import PathNotAllowedError, ProcessIdError, ProcessInputError, ShellExecutionError
from divebook.workspaces import DockerWorkspace, LocalWorkspace, agent_tools, process_manager
from divebook.workspaces.background import KEY, MOST_CHARACTERS, MOST_ENDED, ProcessManager

SAYS_AND_STAYS = "echo ready; sleep 60 & echo $!; wait"


def inside(folder, work):
    async def enter():
        async with LocalWorkspace(folder) as workspace:
            return await work(workspace, process_manager(workspace))

    return asyncio.run(enter())


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(process, manager, count):
    """Return the first lines of a process, however they come."""
    lines = []
    while len(lines) < count:
        lines += manager.read_output(process.process_id)
        await asyncio.sleep(0.01)
    return [line.text for line in lines]


def test_one_that_goes_on_is_known_and_can_be_killed_with_what_it_started(tmp_path):
    async def work(workspace, manager):
        process = await manager.spawn("sh", ["-c", SAYS_AND_STAYS])
        assert (process.is_running, process.exit_code, manager.list()) == (True, None, [process])
        said, child = await until(process, manager, 2)
        assert (said, alive(process.pid), alive(int(child))) == ("ready", True, True)
        assert (await workspace.shell.execute("echo beside")).stdout == "beside\n"
        assert await manager.kill(process.process_id) is True
        assert (process.status, alive(process.pid), alive(int(child))) == ("killed", False, False)
        assert await manager.kill(process.process_id) is False
        assert await manager.kill("nobody") is False

    inside(tmp_path, work)


def test_lines_are_read_once_each_with_its_stream_and_empty_ones_too(tmp_path):
    async def work(_workspace, manager):
        process = await manager.spawn("sh", ["-c", "printf 'a\\n\\nb\\n'; printf last; echo bad >&2"], process_id="q")
        assert (await process.wait()).exit_code == 0
        first = manager.read_output("q", 0)
        rest = manager.read_output("q")
        assert first == []
        assert sorted(rest) == sorted([("a", False), ("", False), ("b", False), ("last", False), ("bad", True)])
        assert manager.read_output("q") == []

    inside(tmp_path, work)


@pytest.mark.parametrize(
    ("args", "env", "error"),
    [([1], None, TypeError), (["a\0"], None, ShellExecutionError), ([], {"A": 1}, TypeError)],
    ids=["word", "nul", "variable"],
)
def test_one_that_makes_no_sense_keeps_no_id(tmp_path, args, env, error):
    async def work(_workspace, manager):
        with pytest.raises(error):
            await manager.spawn("echo", args, env=env, process_id="server")
        assert manager.list() == []  # it was listed as running for ever, and its id was taken
        assert (await (await manager.spawn("echo", ["a"], process_id="server")).wait()).exit_code == 0

    inside(tmp_path, work)


def test_what_nobody_reads_is_held_within_bounds(tmp_path):
    async def work(_workspace, manager):
        process = await manager.spawn("sh", ["-c", "yes 0123456789 | head -n 200000; head -c 200000 /dev/zero"])
        await process.wait()
        lines = manager.read_output(process.process_id)
        assert sum(len(line.text) + 1 for line in lines) <= MOST_CHARACTERS
        assert process.dropped_lines > 0
        assert process.dropped_lines + sum(line.text == "0123456789" for line in lines) == 200_000
        assert process.result.stdout_file is not None

    inside(tmp_path, work)


def test_all_end_when_the_workspace_is_left(tmp_path):
    async def work(_workspace, manager):
        return [(await manager.spawn("sleep", ["60"])).pid for _ in range(3)]

    pids = inside(tmp_path, work)
    assert [alive(pid) for pid in pids] == [False] * 3


def test_an_id_is_taken_while_its_process_runs_and_free_afterwards(tmp_path):
    async def work(_workspace, manager):
        old = await manager.spawn("sleep", ["60"], process_id="server")
        with pytest.raises(ProcessIdError, match="'server' is still running; kill it first"):
            await manager.spawn("sleep", ["60"], process_id="server")
        assert (manager.get("server"), old.is_running) == (old, True)
        await manager.kill("server")
        assert await manager.spawn("true", process_id="server") is manager.get("server")

    inside(tmp_path, work)


def test_what_cannot_be_run_is_an_error_and_leaves_nothing(tmp_path):
    async def work(_workspace, manager):
        with pytest.raises(PathNotAllowedError):
            await manager.spawn("sleep", ["60"], cwd="/etc")
        with pytest.raises(ShellExecutionError, match="cannot run in"):
            await manager.spawn("sleep", ["60"], cwd="nowhere")
        assert manager.list() == []
        missing = await manager.spawn("nonexistent_command_xyz")
        assert (missing.exit_code, manager.read_output(missing.process_id)[0].is_error) == (127, True)
        with pytest.raises(ProcessIdError, match=f"unknown process 'nobody'; existing processes: {missing.process_id}"):
            manager.read_output("nobody")

    inside(tmp_path, work)


def test_variables_are_added_and_not_exported(tmp_path):
    async def work(workspace, manager):
        ask = "import os; print(os.environ['TOKEN'], flush=True); input()"
        process = await manager.spawn(sys.executable, ["-c", ask], env={"TOKEN": "tulips"}, process_id="p")
        assert (await process.wait()).result is not None  # nothing is there to read: it ends
        assert manager.read_output("p")[0] == ("tulips", False)
        await manager.spawn("sleep", ["60"], env={"TOKEN": "tulips"}, process_id="q")
        state = await workspace.export_resource_state()
        assert state == {
            "entries": {KEY: {"state": {"processes": [{"process_id": "q", "command": ["sleep", "60"], "cwd": None}]}}}
        }
        return state

    state = inside(tmp_path, work)

    async def later():
        async def make(workspace):
            return ProcessManager(workspace)

        async with LocalWorkspace(tmp_path, resource_state=state, resource_factories={KEY: make}) as workspace:
            manager = process_manager(workspace)
            (gone,) = manager.list()
            assert (gone.process_id, gone.status, gone.is_running) == ("q", "gone", False)
            assert "q (gone): sleep 60" in await workspace.get_context_instructions()
            await manager.spawn("sleep", ["60"], process_id="q")
            assert manager.get("q").is_running

    asyncio.run(later())


def test_those_that_ended_first_are_forgotten(tmp_path):
    async def work(_workspace, manager):
        stays = await manager.spawn("sleep", ["60"], process_id="stays")
        for number in range(MOST_ENDED + 3):
            await (await manager.spawn("true", process_id=f"p{number}")).wait()
        known = [process.process_id for process in manager.list()]
        assert (known[0], len(known), stays.is_running) == ("stays", MOST_ENDED + 2, True)
        assert "p0" not in known

    inside(tmp_path, work)


@pytest.mark.parametrize("kind", ["local", "docker"])
def test_one_that_takes_input_answers_and_ends_with_it(kind, tmp_path, request):
    async def work():
        image = request.getfixturevalue("image") if kind == "docker" else None
        made = LocalWorkspace(tmp_path) if image is None else DockerWorkspace(tmp_path, image=image)
        async with made as workspace:
            manager = process_manager(workspace)
            talks = "while read line; do echo got $line; done; echo end"
            process = await manager.spawn("sh", ["-c", talks], takes_input=True)
            said = []
            for word in ("one", "two"):
                process.write_input(f"{word}\n")
                said += await process.next_output(20)
            process.write_input("three\n", is_last=True)
            with pytest.raises(ProcessInputError, match="is already closed"):
                process.write_input("four")
            await process.wait()
            said += await process.next_output(20)
            assert [line.text for line in said] == ["got one", "got two", "got three", "end"]
            with pytest.raises(ProcessInputError, match="its status is ended; start it again"):
                process.write_input("x")
            with pytest.raises(ProcessInputError, match="accepts no input; start it again with takes_input=True"):
                (await manager.spawn("true")).write_input("x")
            return process.exit_code

    assert asyncio.run(work()) == 0


def test_who_waits_for_output_waits_no_longer_than_said(tmp_path):
    async def work(_workspace, manager):
        process = await manager.spawn("sleep", ["60"])
        assert await process.next_output(0.05) == []
        await process.kill()
        return await process.next_output(60)

    assert inside(tmp_path, work) == []


def test_agents_are_told_what_they_asked_wrongly(tmp_path):
    async def work(_workspace, manager):
        gone = "unknown process 'p'; existing processes: none; processes end when the run rests or is interrupted"
        asked = [await agent_tools.read(manager, "p"), await agent_tools.kill(manager, "p")]
        for told in (*asked, agent_tools.write(manager, "p", "")):
            assert told["error"].startswith(gone)
        assert await agent_tools.spawn(manager, " ") == {"error": "the command is empty"}
        assert "not within allowed directories" in (await agent_tools.spawn(manager, "true", cwd="/etc"))["error"]
        started = await agent_tools.spawn(manager, "echo out; echo err >&2; exit 3")
        await manager.require(started["process_id"]).wait()
        assert "accepts no input" in agent_tools.write(manager, started["process_id"], "x")["error"]
        assert "max_lines 1 or more" in (await agent_tools.read(manager, started["process_id"], max_lines=0))["error"]
        told = await agent_tools.read(manager, started["process_id"])
        ended = {**started, "status": "ended", "return_code": 3}
        assert told == {**ended, "stdout": "out\n", "stderr": "err\n"}
        return agent_tools.list_processes(manager) == [ended]

    assert inside(tmp_path, work)
