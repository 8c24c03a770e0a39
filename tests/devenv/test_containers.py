"""Environments in containers, on a real engine where one is there."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess

import pytest

from divebook.devenv import DevEnvManager
from divebook.devenv.docker import DockerIsolation, mounts_of, ports_of
from divebook.errors import ContainerError, DevEnvError, EnvironmentDeniedError, NotReplacedError
from tests.devenv.conftest import PROGRAM, run, template
from tests.workspace.images import busybox_image, engine_answers


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root with one environment in a container, ``c``, whose first command has written a file."""
    if not engine_answers():
        pytest.skip("a container engine with busybox is not available")
    folder = tmp_path_factory.mktemp("root")
    said = {"image": busybox_image(), "volumes": ["cache:/cache"], "network": "none", "env": {"KEY": "${secret:KEY}"}}
    template(
        lambda *words, **options: run(folder, *words, **options),
        "box",
        {"isolation_type": "docker", "docker": {**said, "init": ["echo $ENV_NAME > n"]}},
    )
    (folder / "config" / "dev_env" / "secrets").mkdir()
    (folder / "config" / "dev_env" / "secrets" / "KEY").write_text("kept-apart-1234")
    code, printed, said = run(folder, "create", "c", "box", "minimal")
    assert (code, printed) == (0, f"{folder}/.dev_env_state/c\n"), said
    yield folder
    assert run(folder, "destroy", "c")[0] == 0
    assert engine("images", "-q", f"--filter=label=dev_env.root={folder}") == ""
    assert run(folder, "execute", "c", "true")[0] == 2


def test_commands_run_inside_and_secrets_are_hidden(root):
    code, printed, _ = run(root, "execute", "c", "cat n; pwd; echo $KEY; test -f /etc/hostname")
    assert (code, printed) == (0, "c\n/workspace\n[redacted]\n")
    assert "kept-apart" not in json.dumps(json.loads(run(root, "inspect", "c")[1]))
    assert "kept-apart" not in (root / "logs" / "dev_env.log").read_text()


def test_a_stopped_container_is_seen_and_started_again(root):
    assert run(root, "stop", "c")[1] == "Environment 'c' stopped\n"
    assert [state["status"] for state in json.loads(run(root, "list", "stopped")[1])] == ["stopped"]
    code, _, said = run(root, "execute", "--no-start", "c", "true")
    assert (code, "is stopped" in said) == (6, True)
    assert json.loads(run(root, "resources", "c")[1])["cpu"] == "0.0%"
    assert run(root, "execute", "c", "true")[0] == 0
    assert [state["status"] for state in json.loads(run(root, "list", "running")[1])] == ["running"]


def test_a_checkpoint_has_the_image_and_the_folders(root):
    write = "echo {0} > /tmp/layer; echo {0} > /cache/f; echo {0} > f"
    assert run(root, "execute", "c", write.format("one"))[0] == 0
    assert run(root, "save", "c", "first")[0] == 0
    assert run(root, "execute", "c", write.format("two"))[0] == 0
    assert run(root, "restore", "c", "first")[:2] == (0, "Environment 'c' restored to 'first'\n")
    assert run(root, "execute", "c", "cat /tmp/layer /cache/f f")[:2] == (0, "one\none\none\n")
    assert [told["name"] for told in json.loads(run(root, "checkpoint", "list", "c")[1])] == ["first"]


def test_a_command_that_its_memory_limit_ends_is_over_a_limit(root):
    code, _, said = run(root, "execute", "c", "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done")
    assert (code, "because it reached the memory limit of 256m" in said) == (4, True)


def test_without_an_engine_it_says_so_and_changes_nothing(root, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{root}/nobody.sock")
    for words in (["create", "d", "box"], ["execute", "c", "true"], ["destroy", "c"], ["save", "c", "d"]):
        code, printed, said = run(root, *words)
        assert (code, printed, "no container engine answers" in said) == (5, "", True), words
    assert [state["name"] for state in json.loads(run(root, "list")[1])] == ["c"]


def test_an_image_that_is_not_there_leaves_nothing(root):
    words = ["create", "d", "box", "--set", "docker.image=divebook-test:nothing", "--pull", "never"]
    code, _, said = run(root, *words)
    assert (code, "image divebook-test:nothing not found" in said) == (1, True)
    assert run(root, "execute", "d", "true")[0] == 2


def test_a_command_may_run_as_another_user_and_is_ended_as_such(root):
    assert run(root, "execute", "--user", "1234", "c", "id -u")[:2] == (0, "1234\n")
    assert run(root, "execute", "--user", "1234", "--timeout", "0.5", "c", "exec tail -f /dev/null")[0] == 6
    assert "tail -f" not in run(root, "execute", "c", "ps")[1]


def test_a_command_has_a_terminal_inside(root):
    code, printed, _ = run(root, "execute", "--tty", "c", "test -t 0 && stty size; cat", stdin="typed\n\x04")
    assert (code, {"24 80", "typed"} <= {*printed.splitlines()}) == (0, True)
    assert run(root, "shell", "c", stdin="pwd; exit 3\n")[:2] == (6, "/workspace\n")


def test_files_are_copied_from_anywhere_inside_also_with_what_is_secret_elsewhere(root, tmp_path):
    (tmp_path / "f").write_bytes(b"kept-apart-1234\xff")
    assert run(root, "cp", tmp_path / "f", "c:/tmp/deep/g")[1] == "c:/tmp/deep/g\n"
    assert run(root, "cp", "c:/tmp/deep/g", tmp_path / "back")[0] == 0
    assert (tmp_path / "back").read_bytes() == b"kept-apart-1234\xff"


def test_bytes_that_are_no_text_stay_as_they_are(root):
    words = [*PROGRAM, "--root", str(root), "execute", "c", "cat; printf '\\303'"]
    assert subprocess.run(words, input=b"\xff\x00", capture_output=True, check=True).stdout == b"\xff\x00\xc3"


def test_a_checkpoint_can_be_put_back_where_only_its_file_has_the_image(root):
    assert run(root, "execute", "c", "echo layer > /tmp/layer")[0] == 0
    assert run(root, "save", "c", "moved", "--export")[0] == 0
    manifest = json.loads(run(root, "checkpoint", "show", "c", "moved")[1])
    image, archive = manifest["artefacts"][1:]
    assert (archive["path"], (root / ".dev_env_state/c/checkpoints/moved/image.tar").exists()) == ("image.tar", True)
    engine("rmi", image["image"])
    assert run(root, "execute", "c", "rm /tmp/layer")[0] == 0
    assert run(root, "restore", "c", "moved")[0] == 0
    assert run(root, "execute", "c", "cat /tmp/layer")[1] == "layer\n"


def test_a_container_that_somebody_has_removed_is_had_again_from_a_checkpoint(root):
    assert run(root, "execute", "c", "echo again > /tmp/layer")[0] == run(root, "save", "c", "again")[0] == 0
    engine("rm", "-f", json.loads(run(root, "inspect", "c")[1])["container_id"])
    assert [state["status"] for state in json.loads(run(root, "list")[1])] == ["error"]
    code, _, told = run(root, "execute", "c", "true")
    assert (code, "its container no longer exists" in told) == (6, True)
    assert run(root, "restore", "c", "nothing")[0] == 7
    code, _, told = run(root, "restore", "c", "again")
    assert (code, "no backup is saved" in told) == (0, True)
    assert run(root, "execute", "c", "cat /tmp/layer")[1] == "again\n"


def engine(*words):
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


def test_what_is_left_in_the_engine_is_found_and_removed(root):
    labels = [
        f"--label=dev_env.{key}={text}" for key, text in (("root", root), ("tenant", "default"), ("id", "env-gone"))
    ]
    left = engine("create", *labels, busybox_image(), "true").strip()
    other = engine("create", *labels[1:], "--label=dev_env.root=/elsewhere", busybox_image(), "true").strip()
    try:
        found = json.loads(run(root, "gc")[1])
        assert [(told["kind"], told["name"]) for told in found if told["kind"] != "network"] == [
            ("container", left[:12])
        ]
        assert json.loads(run(root, "gc")[1]) == []
        assert run(root, "execute", "c", "true")[0] == 0
    finally:
        engine("rm", other)


APK = """#!/bin/sh
echo "$(id -u) $*" > /tools/asked
for tool; do :; done
printf '#!/bin/sh\n' > "/tools/${tool%js}" && chmod 755 "/tools/${tool%js}"
"""


def test_services_ports_and_tools_of_a_container(tmp_path, root):
    """One environment with a command of its own, ports of all kinds, and a tool that its installer knows."""
    _ = root  # there is an engine
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "apk").write_text(APK)
    (tmp_path / "tools" / "apk").chmod(0o755)
    said = {
        "image": busybox_image(),
        "command": ["sh", "-c", "echo up > /tmp/up; exec sleep 100"],
        "ports": ["5353/udp", "0.0.0.0:8080"],
        "volumes": [f"{tmp_path}/tools:/tools"],
        "env": {"PATH": "/bin:/tools"},
    }
    template(
        lambda *words, **options: run(tmp_path, *words, **options),
        "service",
        {"isolation_type": "docker", "docker": said, "tools": {"languages": ["node", "sh"]}},
    )
    code, _, told = run(tmp_path, "create", "s", "service", "--install-tools")
    assert code == 0, told
    try:
        assert (
            run(tmp_path, "execute", "s", "cat /tmp/up; cat /proc/1/comm; command -v node")[1]
            == "up\nsleep\n/tools/node\n"
        )
        assert (tmp_path / "tools" / "asked").read_text() == "0 add --no-cache nodejs\n"
        state = json.loads(run(tmp_path, "inspect", "s")[1])
        assert sorted(state["ports"]) == ["5353/udp", "8080"]
        bound = json.loads(engine("inspect", "-f", "{{json .NetworkSettings.Ports}}", state["container_id"]))
        assert [bound[name][0]["HostIp"] for name in ("5353/udp", "8080/tcp")] == ["127.0.0.1", "0.0.0.0"]
        assert run(tmp_path, "save", "s", "c")[0] == 0
        assert run(tmp_path, "destroy", "s", "--keep-checkpoints")[0] == 0
        assert json.loads(run(tmp_path, "gc")[1]) == []
        assert run(tmp_path, "create", "s", "service")[0] == 0
        assert run(tmp_path, "restore", "s", "c")[0] == 0
    finally:
        run(tmp_path, "destroy", "s")
    # What the first one has left, since another one's checkpoint had it.
    assert [told["kind"] for told in json.loads(run(tmp_path, "gc")[1])] == ["image"]
    assert json.loads(run(tmp_path, "gc")[1]) == []


FORBIDDEN = ["/:/a", "/etc:/a", "/etc/ssl:/a", "/var/run/docker.sock:/a", "~:/a", "~/.ssh:/a", "ROOT/other:/a"]


@pytest.mark.parametrize("volume", FORBIDDEN)
def test_what_no_container_may_see_is_refused(tmp_path, volume):
    with pytest.raises(EnvironmentDeniedError, match="cannot be mounted"):
        mounts_of([volume.replace("ROOT", str(tmp_path))], tmp_path / "own")


def test_volumes_are_folders_or_names(tmp_path):
    folder = tmp_path / "state" / "own"
    found = mounts_of(["cache:/cache", f"{tmp_path}/data:/data:ro", f"{folder}/x:/x:rw"], folder)
    assert [(mount.source, mount.inside, mount.is_managed) for mount in found] == [
        (folder / "volumes" / "cache", "/cache", True),
        (tmp_path / "data", "/data:ro", False),
        (folder / "x", "/x", False),
    ]
    with pytest.raises(DevEnvError, match="write SOURCE:TARGET"):
        mounts_of(["/data"], folder)


LOOPBACK = "127.0.0.1"
PORTS = {
    "80": [(80, None, "tcp", LOOPBACK)],
    "8080:80/tcp": [(80, 8080, "tcp", LOOPBACK)],
    "127.0.0.1:8080-8081:80-81": [(80, 8080, "tcp", LOOPBACK), (81, 8081, "tcp", LOOPBACK)],
    "localhost:80": [(80, None, "tcp", LOOPBACK)],
    "53:53/udp": [(53, 53, "udp", LOOPBACK)],
    "0.0.0.0:8080:80": [(80, 8080, "tcp", "0.0.0.0")],
}


@pytest.mark.parametrize(("written", "found"), PORTS.items(), ids=PORTS)
def test_ports_are_of_this_machine_only_unless_an_address_is_written(written, found):
    assert ports_of([written]) == found


@pytest.mark.parametrize("written", ["80-82:80", "70000", "1.2.3.400:80:80", "81-80:81-80", "0"])
def test_what_is_no_port_is_refused(written):
    with pytest.raises(DevEnvError, match=r"docker\.ports"):
        ports_of([written])


@pytest.fixture
def published(tmp_path):
    """Return a root with an environment that publishes a fixed port, and has a checkpoint."""
    if not engine_answers():
        pytest.skip("a container engine with busybox is not available")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    box = {"isolation_type": "docker", "docker": {"image": busybox_image(), "ports": [f"{port}:80"]}}
    template(lambda *words, **options: run(tmp_path, *words, **options), "web", box)
    code, _, said = run(tmp_path, "create", "p", "web", "minimal")
    assert code == 0, said
    assert run(tmp_path, "execute", "p", "echo one > f; echo one > /layer")[0] == 0
    assert run(tmp_path, "save", "p", "first")[0] == 0
    assert run(tmp_path, "execute", "p", "echo two > f; echo two > /layer")[0] == 0
    yield tmp_path
    assert run(tmp_path, "destroy", "p")[0] == 0


def test_a_container_with_a_fixed_port_is_restored_again_and_again(published):
    for _ in range(2):
        assert run(published, "restore", "p", "first")[0] == 0
        assert run(published, "execute", "p", "cat f /layer")[:2] == (0, "one\none\n")
        assert run(published, "execute", "p", "echo two > f; echo two > /layer")[0] == 0
    assert len(engine("ps", "-aq", f"--filter=label=dev_env.root={published}").split()) == 1


def test_an_environment_is_as_it_was_where_its_new_container_cannot_be_made(published, monkeypatch):
    async def refuse(*_):
        raise ContainerError("the port is taken")

    with monkeypatch.context() as patch:
        patch.setattr(DockerIsolation, "_create_container", refuse)
        with pytest.raises(NotReplacedError, match="was not changed, because the restore failed: the port is taken"):
            asyncio.run(DevEnvManager(published).restore("p", "first"))
    assert run(published, "execute", "p", "cat f /layer")[:2] == (0, "two\ntwo\n")
    assert run(published, "restore", "p", "first")[0] == 0


def test_a_restore_that_was_interrupted_and_cannot_be_done_again_says_so_once(published, monkeypatch):
    async def stop(*_):
        raise KeyboardInterrupt

    async def refuse(*_):
        raise ContainerError("the port is taken")

    manager = DevEnvManager(published)
    with monkeypatch.context() as patch:
        patch.setattr(DockerIsolation, "_create_container", stop)
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(manager.restore("p", "first"))
        patch.setattr(DockerIsolation, "_create_container", refuse)
        with pytest.raises(DevEnvError, match="was interrupted, and a second attempt failed: the port is taken"):
            asyncio.run(manager.execute("p", "true"))
        assert asyncio.run(manager.execute("p", "cat f /layer")).stdout == "two\ntwo\n"
    assert run(published, "restore", "p", "first")[0] == 0
    assert run(published, "execute", "p", "cat f /layer")[:2] == (0, "one\none\n")
