"""Workspaces of ours as pydantic-ai's: a part of its suite for them, which `python -m tests.workspace.backends` runs.

To make an environment takes seconds, so that virtualenvs are left to that command.
"""

from __future__ import annotations

import asyncio
import os

import pydantic_ai
import pytest
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import WorkspaceRef
from pydantic_ai.models.test import TestModel
from pydantic_ai.workspaces import WorkspaceOutputLimitError, WorkspaceUnavailableError

from divebook import ScriptedModel
from divebook.agents.pydantic_workspaces import BackendOfWorkspace, InWorkspace
from divebook.agents.scripted_model import ScriptedFunction
from divebook.workspaces import FencedWorkspace, LocalWorkspace, VirtualenvWorkspace
from tests.agents.test_taking_agents import ASK
from tests.agents.test_turns import started
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment
from tests.workspace import backends
from tests.workspace.backends import anyio_backend, without_rights

__all__ = ["anyio_backend"]  # a fixture of the public suite


def sampled(suite, *names):
    """Return some of the public suite."""
    tests = [f"test_{name}" for name in names]
    assert set(tests) <= set(dir(suite))
    left_out = {each: None for each in dir(suite) if each.startswith("test_") and each not in tests}
    return type(suite.__name__, (suite,), left_out)


FILES = (
    "missing_paths_raise_file_not_found",
    "writing_to_a_directory_raises_is_a_directory",
    "symlink_loop_does_not_break_listing",
    "fifo_read_does_not_wait_for_writer",
    "file_as_parent_raises_not_a_directory",
    "realpath_and_entries_follow_symlinks",
    "writes_go_through_a_symlink",
    "remove_refuses_the_working_dir_and_its_ancestors",
)
COMMANDS = (
    "a_missing_program_exits_127",
    "commands_and_files_share_one_environment",
    "background_child_does_not_hold_up_completed_command",
    "a_backend_attached_by_ref_reaches_a_detached_process",
    "destroying_environment_during_command_raises_unavailable",
)
TestLocal = backends.TestLocal
TestLocalByWalk = sampled(backends.TestLocalByWalk, *FILES)
TestFenced = sampled(backends.TestFenced, *COMMANDS, "cancellation_stops_foreground_work")
TestDocker = sampled(backends.TestDocker, *COMMANDS, "cancellation_stops_foreground_work", *FILES[-3:])


def test_the_public_suite_passes_for_a_user_who_is_not_root(require):
    require("bubblewrap, or a user who is not root", backends.can_be_without_rights())
    assert without_rights("-q", "-k", "permission or detached", "-x") == 0


def given(workspace, work):
    async def opened():
        async with BackendOfWorkspace(workspace) as backend:
            return await work(backend)

    return asyncio.run(opened())


def test_nothing_outside_is_reached(tmp_path):
    root, out = tmp_path / "w", tmp_path / "out"
    root.mkdir()
    out.mkdir()
    (out / "secret").write_text("x")
    (root / "link").symlink_to(out)

    async def work(backend):
        calls = [backend.read_bytes, backend.stat, backend.list_dir, backend.remove, backend.realpath, backend.make_dir]
        calls += [backend.exists, lambda path: backend.write_bytes(path, b"")]
        places = ("link/secret", "../out/secret", "./link/../../out/secret")
        for call in calls:
            for path in (*(f"{root}/{place}" for place in places), f"{out}/secret", "/etc/passwd"):
                with pytest.raises(PermissionError):
                    await call(path)
        return await backend.list_dir(str(root))

    (found,) = given(LocalWorkspace(root), work)
    assert (found.name, found.is_dir, found.size) == ("link", False, None)
    assert os.listdir(out) == ["secret"]


def test_the_working_folder_is_not_removed_by_another_name(tmp_path):
    root = tmp_path / "around" / "w"
    root.mkdir(parents=True)
    (tmp_path / "around" / "again").symlink_to(".")

    async def work(backend):
        for path in (f"{tmp_path}/around/again/w", f"{tmp_path}/around/again/../around/w"):
            with pytest.raises(ValueError, match="is the working folder"):
                await backend.remove(path)
        await backend.remove(f"{tmp_path}/around/again")

    given(LocalWorkspace(root, allowed_paths=[tmp_path]), work)
    assert os.listdir(tmp_path / "around") == ["w"]


def test_output_that_is_too_long_is_an_error_that_says_where_the_whole_is(tmp_path):
    async def work(backend):
        with pytest.raises(WorkspaceOutputLimitError, match="more than the limit of 1,048,576 bytes") as raised:
            await backend.run("head -c 3000000 /dev/zero | tr '\\0' x; echo end", shell=True)
        path = str(raised.value).rpartition(" ")[2]
        return raised.value.stdout, len(await backend.read_bytes(path))

    held, whole = given(LocalWorkspace(tmp_path), work)
    assert held.startswith("xxx")
    assert whole == 3_000_004


def test_a_signal_is_128_and_its_number_and_limits_of_time_are_checked(tmp_path):
    async def work(backend):
        for seconds in (0, -1, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="timeout must be"):
                await backend.run(["true"], timeout=seconds)
        return [(await backend.run(f"kill -{number} $$", shell=True)).exit_code for number in (9, 15)]

    assert given(LocalWorkspace(tmp_path), work) == [137, 143]


def test_a_workspace_that_is_entered_is_used_and_left_to_who_entered_it(tmp_path):
    async def work():
        async with LocalWorkspace(tmp_path) as workspace:
            async with BackendOfWorkspace(workspace) as backend:
                assert await backend.exists(str(tmp_path))
            assert workspace.is_entered
            assert await backend.working_dir() == str(tmp_path)
        with pytest.raises(WorkspaceUnavailableError, match="is no longer entered"):
            await backend.working_dir()

    asyncio.run(work())


@pytest.mark.parametrize("kind", [LocalWorkspace, FencedWorkspace, VirtualenvWorkspace])
def test_a_reference_names_kind_and_folder(kind, tmp_path):
    ref = BackendOfWorkspace(kind(tmp_path)).ref
    assert ref.provider == f"divebook-{kind.kind}"
    again = BackendOfWorkspace.of(ref)
    assert type(again._workspace) is kind
    assert again.ref == ref
    with pytest.raises(ValueError, match="'daytona' of workspace x1; expected one of: divebook-local"):
        BackendOfWorkspace.of(WorkspaceRef(provider="daytona", id="x1"))


class Noting(AbstractCapability):
    """One of pydantic-ai's capabilities: it works in whatever workspace a run has."""

    async def before_run(self, ctx):
        await ctx.workspace.write_text("begun/note.txt", f"from {await ctx.workspace.working_dir()}")


def look(ctx: RunContext[None]) -> str:
    """Look."""
    return str(ctx.workspace.ref.provider)


async def count(ctx: RunContext[None]) -> str:
    """Count the files."""
    return (await ctx.workspace.run("echo ran >> ran.txt; ls | wc -l", shell=True)).stdout.strip()


def test_capabilities_of_theirs_work_in_it(tmp_path):
    async def work():
        async with LocalWorkspace(tmp_path) as workspace:
            agent = pydantic_ai.Agent(TestModel(), tools=[look, count], capabilities=[Noting()])
            return (await agent.run("Go", workspace=BackendOfWorkspace(workspace))).output

    assert asyncio.run(work()) == '{"look":"divebook-local","count":"2"}'
    assert (tmp_path / "begun" / "note.txt").read_text() == f"from {tmp_path}"


def test_in_a_run_of_ours_what_they_do_is_recorded_and_not_done_again(tmp_path):
    def agent():
        model = ScriptedFunction(ScriptedModel([{"call": {"count": {}}}, "done"]))
        capabilities = [InWorkspace(LocalWorkspace(tmp_path)), Noting()]
        return pydantic_ai.Agent(model, name="critic", tools=[count], capabilities=capabilities)

    execution = environment(ASK, agents=[agent()]).start("ask").wait(20)
    assert execution.variables == {"said": "done"}, execution.error
    asked = [o.parameters["arguments"] for o in started(execution) if o.operation_type == "agent_step"]
    assert [(each["method"], each.get("path")) for each in asked] == [
        ("ensure", None),
        ("write_bytes", "begun/note.txt"),
    ]
    (tmp_path / "begun" / "note.txt").unlink()
    at = [e.sequence for e in execution.history() if e.event_type == "operation_started"][-1] - 1
    again = environment(ASK, agents=[agent()], store=cut(execution.store, execution, at))
    assert again.run_of(execution.id).resume().wait(20).variables == {"said": "done"}
    assert (tmp_path / "ran.txt").read_text() == "ran\n"
    assert not (tmp_path / "begun" / "note.txt").exists()
