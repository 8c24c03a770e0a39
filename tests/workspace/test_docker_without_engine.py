"""What a workspace in a container asks of the engine, with one that only notes it."""

from __future__ import annotations

import socket

import pytest

from divebook.engine.retries import Fault
from divebook.errors import ContainerError, EngineUnavailableError, ShellExecutionError, UnusableEngineError
from divebook.workspaces.docker.engine import engine_socket
from divebook.workspaces.docker.workspace import DockerWorkspace
from tests.workspace.containers import inside
from tests.workspace.fake_engine import FakeEngine

HOPELESS = ["tcp://127.0.0.1:1", "npipe:////./pipe/docker", "unix://", "unix:/run/x.sock", "nonsense", "http://[", "\t"]
HOPELESS += ["unix:///no/such/socket", "unix:///dev/null", "unix:///dev/null/x", f"unix:///{'x' * 300}", "unix://\0"]


@pytest.mark.parametrize("url", HOPELESS)
def test_an_engine_that_can_never_answer_is_not_asked_again(url):
    with pytest.raises(UnusableEngineError) as caught:
        engine_socket(url)
    assert Fault.of(caught.value, "").hopeless
    assert isinstance(caught.value, EngineUnavailableError)


def test_an_engine_that_does_not_answer_now_may_be_asked_again(tmp_path):
    with socket.socket(socket.AF_UNIX) as unheard:  # nobody listens at it
        unheard.bind(str(tmp_path / "s"))
        with pytest.raises(EngineUnavailableError) as caught:
            engine_socket(f"unix://{tmp_path}/s")
    assert not Fault.of(caught.value, "").hopeless


async def nothing(_):
    pass


def test_an_image_or_a_container_is_needed(tmp_path):
    with pytest.raises(ValueError, match="image"):
        DockerWorkspace(tmp_path)


@pytest.mark.parametrize(("there", "told"), [({"abc": "exited"}, "not running"), ({}, "not found")])
def test_a_container_that_is_brought_must_run(tmp_path, there, told):
    with pytest.raises(ContainerError, match=told) as caught:
        inside(DockerWorkspace(tmp_path, container="abc", engine=FakeEngine(there)), nothing)
    assert isinstance(caught.value, RuntimeError)


def test_a_container_that_is_brought_stays(tmp_path):
    engine = FakeEngine({"abc": "running"})
    made = DockerWorkspace(tmp_path, container="abc", engine=engine)
    inside(made, nothing)
    assert engine.calls == []
    assert made.reference == {"folder": str(tmp_path), "container": "abc"}


def test_commands_run_by_sh_in_the_folder_with_their_variables(tmp_path):
    engine = FakeEngine(answer={"stdout": "hello\n"})

    async def work(made):
        assert (await made.shell.execute("echo hello", env={"FOO": "bar"})).stdout == "hello\n"
        assert engine.last_exec == {
            "cmd": ["/bin/sh", "-c", "echo hello"],
            "workdir": "/workspace",
            "environment": {"FOO": "bar"},
        }
        await made.shell.execute("ls", cwd="/tmp")
        assert engine.last_exec["workdir"] == "/tmp"
        await made.file_operator.write_file("test.txt", "hello")
        engine.forget()
        with pytest.raises(ShellExecutionError, match="not found"):
            await made.shell.execute("ls")

    inside(DockerWorkspace(tmp_path / "ws", image="i", engine=engine), work)
    assert (tmp_path / "ws" / "test.txt").read_text() == "hello"


def test_agents_are_told_of_the_mount_and_of_resources(tmp_path):
    class Browser:
        def close(self):
            pass

        async def get_context_instructions(self):
            return "Browser on."

    async def work(made):
        made.resources.set("browser", Browser())
        return await made.get_context_instructions()

    told = inside(DockerWorkspace(tmp_path, image="i", engine=FakeEngine()), work)
    assert told.startswith("<environment-context>")
    mount = told.partition("<mount-mapping>")[2]
    assert mount.index(str(tmp_path)) < mount.index("/workspace")
    assert "Browser on." in told


def test_entered_again_it_has_a_new_container(tmp_path):
    engine = FakeEngine()
    made = DockerWorkspace(tmp_path, image="i", engine=engine)
    inside(made, nothing)
    inside(made, lambda entered: entered.shell.execute("true"))
    assert engine.runs == 2
    assert engine.calls == [("remove", "made-1"), ("remove", "made-2")]


def test_what_a_container_is_asked_to_be(tmp_path):
    engine = FakeEngine()
    inside(DockerWorkspace(tmp_path, image="i", memory="64m", cpus=1.5, pids=9, engine=engine), nothing)
    asked = engine.plans[0].arguments()
    assert {name: asked[name] for name in ("network_mode", "cap_drop", "security_opt", "pids_limit", "nano_cpus")} == {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": 9,
        "nano_cpus": 1_500_000_000,
    }
    assert asked["volumes"][str(tmp_path)] == {"bind": "/workspace", "mode": "rw"}


def test_what_begins_and_fails_leaves_no_container(tmp_path):
    engine = FakeEngine(answer={"exit_code": 127, "stderr": "python3: not found"})
    made = DockerWorkspace(tmp_path, image="i", allow=["good.test"], engine=engine)
    with pytest.raises(ContainerError, match=r"image i cannot reach the allowed hosts.*python3: not found"):
        inside(made, nothing)
    assert engine.calls == [("remove", "made-1")]
    assert made._egress.folder is None
