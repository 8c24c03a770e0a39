"""Names and forms of the pai-agent-sdk that workspaces accept: each is mapped to one of ours."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from divebook import workspaces as public
from divebook.errors import WorkspaceGoneError, WorkspaceNotEnteredError
from divebook.workspaces import (
    AgentContext,
    AgentSession,
    DockerEnvironment,
    DockerWorkspace,
    Environment,
    FileOperator,
    LocalEnvironment,
    LocalFileOperator,
    LocalShell,
    LocalWorkspace,
    PathPolicy,
    Root,
    Workspace,
)
from tests.workspace.fake_engine import FakeEngine


def test_names_that_are_others_for_the_same():
    assert (Environment, LocalEnvironment, AgentContext) == (Workspace, LocalWorkspace, AgentSession)
    assert issubclass(DockerEnvironment, DockerWorkspace)
    assert {"AgentContext", "DockerEnvironment", "Root"} <= set(public.__all__)


def test_an_environment_and_a_context_in_an_exit_stack(tmp_path):
    async def used():
        async with AsyncExitStack() as stack:
            env = await stack.enter_async_context(
                LocalEnvironment(allowed_paths=[tmp_path], default_path=tmp_path, tmp_base_dir=tmp_path)
            )
            parts = {"file_operator": env.file_operator, "shell": env.shell, "resources": env.resources}
            ctx = await stack.enter_async_context(AgentContext(**parts))
            await ctx.file_operator.write_file("a.txt", "text")
            code, stdout, stderr = await ctx.shell.execute("cat a.txt")
            return code, stdout, stderr, ctx.resources is env.resources

    assert asyncio.run(used()) == (0, "text", "", True)


class Closed:
    def __init__(self):
        self.is_closed = False

    async def close(self):
        self.is_closed = True


class Custom(Environment):
    """Sets up and tears down, and nothing else."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.database, self.events = folder, Closed(), []

    async def _setup(self):
        self.events.append("setup")
        self._file_operator = LocalFileOperator(self.folder)
        self._shell = LocalShell(self.folder)
        self._resources.set("database", self.database)

    async def _teardown(self):
        self.events.append("teardown")
        self._file_operator = None
        self._shell = None


def test_a_custom_environment_needs_only_setup_and_teardown(tmp_path):
    custom = Custom(tmp_path)

    async def used():
        for _ in range(2):
            async with custom as entered:
                await entered.file_operator.write_file("a.txt", "text")
                assert (await entered.shell.execute(["cat", "a.txt"])).stdout == "text"
                assert entered.resources.get_typed("database", Closed) is custom.database
                assert entered.root.path == str(tmp_path)
                assert entered.reference == {"folder": str(tmp_path)}
                await entered.require_there()

    asyncio.run(used())
    assert custom.events == ["setup", "teardown"] * 2
    assert custom.database.is_closed
    assert custom.reference == {}
    with pytest.raises(WorkspaceNotEnteredError):
        _ = custom.root


def test_an_environment_without_a_folder_here_says_so():
    class Elsewhere(FileOperator):
        async def close(self):
            return None

    Elsewhere.__abstractmethods__ = frozenset()

    class Remote(Environment):
        async def _setup(self):
            self._file_operator = Elsewhere()
            self._shell = LocalShell(".")

    async def used():
        async with Remote() as entered:
            assert entered.reference == {}
            with pytest.raises(WorkspaceGoneError, match="Remote has no folder on this machine"):
                _ = entered.root

    asyncio.run(used())


def test_files_and_shell_of_a_folder_or_of_a_policy(tmp_path):
    async def used():
        policy = PathPolicy(Root(tmp_path))
        for files in (LocalFileOperator(policy), LocalFileOperator(tmp_path), LocalFileOperator(str(tmp_path))):
            await files.write_file("a.txt", "text")
            await files.close()

    asyncio.run(used())
    assert (tmp_path / "a.txt").read_text() == "text"


@pytest.mark.parametrize(
    ("given", "kept", "brought"),
    [
        ({"image": "python:3.11"}, False, None),
        ({"image": "python:3.11", "cleanup_on_exit": False}, True, None),
        ({"container_id": "abc123"}, False, "abc123"),
        ({"container_id": "abc123", "image": "python:3.11", "cleanup_on_exit": False}, False, "abc123"),
    ],
)
def test_the_parameters_of_a_docker_environment(tmp_path, given, kept, brought):
    env = DockerEnvironment(mount_dir=tmp_path, container_workdir="/code", engine=FakeEngine(), **given)
    same = DockerWorkspace(
        tmp_path,
        workdir="/code",
        image=given.get("image"),
        container=given.get("container_id"),
        keep=kept,
        engine=FakeEngine(),
    )
    assert (env.reference, env._plan, env._keep, env._remove) == (same.reference, same._plan, same._keep, False)
    assert env.reference.get("container") == brought


def test_a_docker_environment_needs_an_image_or_a_container(tmp_path):
    with pytest.raises(ValueError, match=r"needs image=\.\.\. or container="):
        DockerEnvironment(mount_dir=tmp_path)
