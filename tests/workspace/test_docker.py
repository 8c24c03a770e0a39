"""Workspaces in containers of a real engine; skipped where none answers."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from divebook.errors import (
    ContainerError,
    EngineUnavailableError,
    PathNotAllowedError,
    ShellExecutionError,
    ShellTimeoutError,
)
from divebook.workspaces import process_manager
from tests.workspace.containers import containers, inside, inspected, removed, said
from tests.workspace.hostile import HOSTILE, alive, ended, text_of
from tests.workspace.hostile_containers import owned

ROOT = Path(__file__).parents[2]


def test_what_commands_come_to(make):
    commands = ("echo out; echo err >&2; exit 3", "nonexistent_xyz", ["echo", "$HOME; ls"], "kill -9 $$", "pwd", "cat")
    found = said(make(), *commands)
    assert found[0] == (3, "out\n", "err\n")
    assert found[1].exit_code == 127
    assert "not found" in found[1].stderr
    assert found[2].stdout == "$HOME; ls\n"
    assert found[3].exit_code == 137
    assert found[4].stdout == "/workspace\n"
    assert found[5] == (0, "", "")


def test_input_folders_and_variables(make):
    async def work(made):
        big = await made.shell.execute("cat", stdin="x" * 300_000)
        await made.file_operator.mkdir("sub")
        below = await made.shell.execute("pwd", cwd="sub")
        anywhere = await made.shell.execute("pwd", cwd="/tmp")
        added = await made.shell.execute("echo $A-$B; env | grep -c PATH", env={"B": "2"})
        only = await made.shell.execute("echo $A-$B", env={"B": "2"}, inherit_env=False)
        with pytest.raises(PathNotAllowedError):
            await made.shell.execute("true", cwd="../..")
        with pytest.raises(ShellExecutionError, match="cannot run in folder /workspace/nowhere"):
            await made.shell.execute("true", cwd="nowhere")
        return len(big.stdout), below.stdout, anywhere.stdout, added.stdout, only.stdout

    found = inside(make(environ={"A": "1"}), work)
    assert found == (300_000, "/workspace/sub\n", "/tmp\n", "1-2\n1\n", "1-2\n")


def test_a_process_that_goes_on_is_known_by_its_number_and_ends_with_what_it_started(make):
    mark = "sleep 60.0271"

    async def work(made):
        manager = process_manager(made)
        process = await manager.spawn("sh", ["-c", f"{mark} & wait"])
        assert (await made.shell.execute("echo beside")).stdout == "beside\n"
        assert process.pid in alive(mark)
        await manager.kill(process.process_id)
        assert alive(mark) == []
        quick = await (await manager.spawn("echo", ["ready"])).wait()
        return [line.text for line in quick.read_output()], quick.status, quick.exit_code

    assert inside(make(), work) == (["ready"], "ended", 0)


def test_files_are_on_this_machine_under_their_names_inside(make, tmp_path):
    async def work(made):
        await made.file_operator.write_file("a.txt", "text")
        result = await made.shell.execute("cat /workspace/a.txt; ln -s /workspace/a.txt to; ln -s /etc/passwd out")
        with pytest.raises(PathNotAllowedError):
            await made.file_operator.read_file("out")
        scratch = await made.file_operator.write_tmp_file("note", "passing")
        passing = await made.shell.execute(f"cat {scratch}")
        instructions = await made.get_context_instructions()
        return result.stdout, await made.file_operator.read_file("/workspace/to"), passing.stdout, instructions

    text, linked, passing, instructions = inside(make(), work)
    assert (text, linked, passing) == ("text", "text", "passing")
    assert (tmp_path / "project" / "a.txt").read_text() == "text"
    assert f"<host>{tmp_path}/project</host>" in instructions


def test_long_output_is_kept_whole_where_commands_find_it(make):
    async def work(made):
        heard = []
        result = await made.shell.execute(
            "seq 1 400000", on_output=lambda stream, text: heard.append((stream, len(text)))
        )
        lines = await made.shell.execute(f"wc -l < {result.stdout_file}")
        return result, heard, int(lines.stdout)

    result, heard, lines = inside(make(), work)
    assert result.truncated
    assert len(result.stdout) < 2 << 20
    assert lines == 400_000
    assert {stream for stream, _ in heard} == {"stdout"}
    assert sum(length for _, length in heard) == 2_688_895


def test_the_container_can_do_little(make, tmp_path):
    async def work(made):
        who = await made.shell.execute("id -u; id -g; grep -e CapEff -e CapBnd -e NoNewPrivs /proc/self/status")
        network = await made.shell.execute("ls /sys/class/net; wget -T 2 http://10.0.0.1")
        many = await made.shell.execute("i=0; while [ $i -lt 99 ]; do sleep 5 & i=$((i+1)); done; echo all", timeout=20)
        return who.stdout, network, many, inspected(made.container)["HostConfig"]

    who, network, many, config = inside(make(user="4711:4712", pids=40, cpus=0.5, memory="64m"), work)
    assert who.split()[:2] == ["4711", "4712"]
    assert "CapEff:\t0000000000000000" in who
    assert "CapBnd:\t0000000000000000" in who
    assert "NoNewPrivs:\t1" in who
    assert network.stdout == "lo\n"
    assert network.exit_code != 0
    assert "all" not in many.stdout
    assert (config["Memory"], config["MemorySwap"], config["NanoCpus"]) == (64 << 20, 64 << 20, 500_000_000)
    assert containers(tmp_path / "project") == []


def test_files_that_commands_make_are_the_callers(make, tmp_path):
    said(make(), "echo x > made")
    assert (tmp_path / "project" / "made").stat().st_uid == os.getuid()


def test_secrets_are_for_commands_only_and_hidden(make):
    async def work(made):
        result = await made.shell.execute("echo $KEY; echo ${#KEY}")
        return result.stdout, str(inspected(made.container))

    stdout, config = inside(make(secrets=lambda: {"KEY": "correct-horse-battery"}), work)
    assert "correct-horse-battery" not in stdout
    assert stdout.endswith("\n21\n")
    assert "correct-horse-battery" not in config


def test_nothing_survives_a_time_limit(make):
    async def work(made):
        left = []
        for kind in HOSTILE:
            mark = f"{random.Random(kind).randrange(10**9):09}{os.getpid()}"
            with pytest.raises(ShellTimeoutError):
                await made.shell.execute(text_of(kind, mark), timeout=0.15)
            if not ended(mark, 0.1):
                left.append(kind)
        return left, (await made.shell.execute("echo again")).stdout

    assert inside(make(), work) == ([], "again\n")


def test_nothing_survives_a_cancellation_at_any_time(make):
    async def work(made):
        left = []
        for number in range(8):
            mark = f"77{number}{os.getpid()}"
            task = asyncio.create_task(made.shell.execute(f"setsid sleep 98.{mark} & sleep 97.{mark}"))
            await asyncio.sleep(0.02 * number)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if not ended(mark, 0.2):
                left.append(number)
        return left

    assert inside(make(), work) == []


def test_what_is_left_on_purpose_lives_on_and_holds_nothing_up(make):
    mark = f"55{os.getpid()}"

    async def work(made):
        await made.shell.execute(f"setsid sleep 98.{mark} >/dev/null 2>&1 & echo started")
        with pytest.raises(ShellTimeoutError):
            await made.shell.execute("sleep 9", timeout=0.2)
        started = time.monotonic()
        await made.shell.execute("setsid sleep 96 & echo started")  # it holds the streams
        return time.monotonic() - started, len(alive(mark))

    took, left = inside(make(), work)
    assert took < 2
    assert left == 1
    assert ended(mark)


def test_a_command_that_kills_all_it_can(make):
    async def work(made):
        await made.shell.execute("for i in 1 2 3; do (setsid true &); done; kill -9 -1")
        with pytest.raises(ShellTimeoutError):
            await made.shell.execute("sleep 9", timeout=0.2)
        return await made.shell.execute("echo on; ps -o stat | grep -c Z")

    assert inside(make(), work).stdout == "on\n0\n"


@pytest.mark.parametrize("keep", ["keep", "not kept"])
def test_nothing_survives_the_process_that_was_killed(image, tmp_path, keep):
    mark = f"66{len(keep)}{os.getpid()}"
    folder = tmp_path / "project"
    try:
        assert owned(folder, image, keep, f"setsid sleep 98.{mark} & sleep 97.{mark}")
        assert ended(mark, 5)
        limit = time.monotonic() + 10
        while keep != "keep" and containers(folder) and time.monotonic() < limit:
            time.sleep(0.05)
        assert len(containers(folder)) == (keep == "keep")
    finally:
        asyncio.run(removed(folder))


def test_a_container_that_is_kept_is_found_again(make, tmp_path):
    try:
        said(make(keep=True), "echo mine > /tmp/state")
        assert len(containers(tmp_path / "project")) == 1
        assert said(make(keep=True), "cat /tmp/state")[0].stdout == "mine\n"
        assert len(containers(tmp_path / "project")) == 1
    finally:
        asyncio.run(removed(tmp_path / "project"))


def test_a_container_that_was_brought_is_removed_only_if_asked(make, tmp_path):
    async def work(owner):
        brought = {"image": None, "container": owner.container}
        async with make(**brought) as made:
            assert (await made.shell.execute("echo hello")).stdout == "hello\n"
        assert containers(tmp_path / "project") == [owner.container]
        async with make(**brought, remove=True):
            pass
        assert containers(tmp_path / "project") == []

    inside(make(), work)


def test_what_is_not_there_is_said(make, monkeypatch):
    with pytest.raises(
        ContainerError, match="image divebook-test:none not found; run `docker pull divebook-test:none`"
    ):
        asyncio.run(make(image="divebook-test:none").require())
    with pytest.raises(ContainerError, match="container nope not found"):
        inside(make(container="nope"), None)
    for options in (
        {"image": None},
        {"keep": True, "allow": ["good.test"]},
        {"user": "1:1", "allow": ["good.test"]},
        {"ports": {80: None}},
    ):
        with pytest.raises(ValueError, match=r"needs image=|hosts can be allowed only|combined with user|set network="):
            make(**options)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(EngineUnavailableError, match="no container engine answers"):
        asyncio.run(make().require())
    monkeypatch.setenv("DOCKER_HOST", "tcp://example.test:2375")
    with pytest.raises(EngineUnavailableError, match="not on this machine"):
        asyncio.run(make().require())


def test_a_container_that_has_gone_is_a_fault_of_the_command(make, tmp_path):
    async def work(made):
        await removed(tmp_path / "project")
        with pytest.raises(ShellExecutionError, match=r"not found|not running"):
            await made.shell.execute("true")

    inside(make(), work)
