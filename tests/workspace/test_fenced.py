"""A fence shows commands what they need, and no Unix socket, pipe or file of others."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from divebook.errors import ShellExecutionError
from divebook.workspaces import FencedWorkspace, process_manager

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
ASK = """
import socket, sys
kind, address = sys.argv[1:]
address = "\\0" + address[1:] if address.startswith("@") else address
asks = socket.socket(socket.AF_UNIX, getattr(socket, kind))
asks.settimeout(5)
if kind == "SOCK_DGRAM":
    asks.sendto(b"write this outside", address)
else:
    asks.connect(address)
    asks.send(b"write this outside")
print("reached")
"""


class Service:
    """A service of this machine on a Unix socket, and what it has heard."""

    def __init__(self, address, kind=socket.SOCK_STREAM):
        self.heard, self._socket = [], socket.socket(socket.AF_UNIX, kind)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        if kind != socket.SOCK_DGRAM:
            self._socket.listen()
        threading.Thread(target=self._serve, args=(kind,), daemon=True).start()

    def _serve(self, kind):
        with contextlib.suppress(OSError):
            while True:
                connection = self._socket if kind == socket.SOCK_DGRAM else self._socket.accept()[0]
                self.heard.append(connection.recv(100))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()


@pytest.fixture
def place():
    """Return a folder outside of /tmp, of which a fence has its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(os.path.realpath(folder))


@pytest.fixture
def project(place):
    (place / "project").mkdir()
    (place / "project" / "ask.py").write_text(ASK)
    return place / "project"


def inside(workspace, work):
    async def entered():
        async with workspace:
            return await work(workspace)

    return asyncio.run(entered())


def ask(address, kind="SOCK_STREAM"):
    return [sys.executable, "ask.py", kind, str(address)]


# --- sockets of others -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET"])
@pytest.mark.parametrize("where", ["beside", "inside", "deep inside", "allowed", "abstract", "tmp"])
def test_no_socket_of_others_is_reached(place, project, tmp_path, where, kind):
    (project / "a" / "b").mkdir(parents=True)
    (place / "allowed").mkdir()
    address = {
        "beside": str(place / "s"),
        "inside": str(project / "s"),
        "deep inside": str(project / "a" / "b" / "s"),
        "allowed": str(place / "allowed" / "s"),
        "abstract": f"@divebook-test-{os.getpid()}",
        "tmp": tempfile.mktemp(dir="/tmp"),
    }[where]
    with Service(address, getattr(socket, kind)) as service:
        workspace = FencedWorkspace(project, allowed_paths=[place / "allowed"])
        said = inside(workspace, lambda made: made.shell.execute(ask(address, kind)))
        assert (said.stdout, service.heard) == ("", [])
        assert said.exit_code != 0


@pytest.mark.parametrize("folder", ["/usr/local", "/opt", "/run", "/var/lib", "/srv", os.path.expanduser("~")])
def test_no_socket_in_folders_of_the_system_is_reached(project, folder):
    if not os.access(folder, os.W_OK):
        pytest.skip(f"{folder} cannot be written here")
    address = f"{folder}/divebook-test-{os.getpid()}"
    try:
        with Service(address) as service:
            said = inside(FencedWorkspace(project), lambda made: made.shell.execute(ask(address)))
            assert (said.stdout, service.heard) == ("", [])
    finally:
        os.unlink(address)


def test_a_socket_that_was_bound_by_a_relative_path_is_hidden(place, project, monkeypatch):
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    with Service("s") as service:
        said = inside(FencedWorkspace(project), lambda made: made.shell.execute(ask(project / "sub" / "s")))
        assert (said.stdout, service.heard) == ("", [])


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_socket_that_is_made_while_the_fence_stands_is_refused(project, monkeypatch, is_relative):
    monkeypatch.chdir(project)

    async def work(made):
        assert (await made.shell.execute("echo before")).stdout == "before\n"
        with Service("late" if is_relative else str(project / "late")) as service:
            with pytest.raises(ShellExecutionError, match=r"another program has created the Unix socket .*/late"):
                await made.shell.execute(ask(project / "late"))
            (project / "late").unlink()
        assert (await made.shell.execute("echo after")).stdout == "after\n"
        return service.heard

    assert inside(FencedWorkspace(project), work) == []


def test_a_hidden_socket_that_is_made_anew_is_refused(project):
    address = str(project / "s")

    async def work(made):
        await made.shell.execute("true")
        (project / "s").unlink()
        with Service(address) as service, pytest.raises(ShellExecutionError, match="another program has created"):
            await made.shell.execute(ask(address))
        return service.heard

    with Service(address):
        assert inside(FencedWorkspace(project), work) == []


def test_a_named_pipe_that_others_read_is_hidden(project):
    os.mkfifo(project / "pipe")
    reader = os.open(project / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        inside(FencedWorkspace(project), lambda made: made.shell.execute("echo out > pipe", timeout=20))
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


def test_variables_that_lead_to_services_are_left_out(project, place, monkeypatch):
    with Service(str(place / "s")):
        for name, value in {
            "DOCKER_HOST": "unix:///var/run/docker.sock",
            "SSH_AUTH_SOCK": "/run/ssh",
            "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
            "XDG_RUNTIME_DIR": "/run/user/0",
            "MY_SERVICE": str(place / "s"),
            "OTHER_SERVICE": f"unix:{place}/s",
            "TMUX_LIKE": f"{place}/s,123,0",
            "HARMLESS": "/usr/bin",
        }.items():
            monkeypatch.setenv(name, value)
        said = inside(FencedWorkspace(project), lambda made: made.shell.execute("env"))
    names = {line.partition("=")[0] for line in said.stdout.splitlines()}
    assert not names & {"DOCKER_HOST", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"}
    assert not names & {"MY_SERVICE", "OTHER_SERVICE", "TMUX_LIKE"}
    assert "HARMLESS" in names


def test_no_descriptor_is_inherited(project):
    outside, other = socket.socketpair()
    with outside, other:
        os.set_inheritable(outside.fileno(), True)
        said = inside(FencedWorkspace(project), lambda made: made.shell.execute("ls /proc/self/fd | wc -l"))
    assert int(said.stdout) <= 4  # its input, output and errors, and the folder that ls reads


# --- files of others -------------------------------------------------------------------------------------------------


def test_nothing_is_read_but_what_is_mounted(project, place):
    (place / "secret").write_text("mine")
    home = Path.home() / f".divebook-test-{os.getpid()}"
    home.write_text("mine")
    try:
        files = [
            place / "secret",
            home,
            "/etc/shadow",
            "/etc/ssl/private",
            "/root/.ssh",
            "/var/log",
            "/run",
            "/proc/1/root/run",
        ]
        said = inside(FencedWorkspace(project), lambda made: made.shell.execute(["ls", "-d", *map(str, files)]))
    finally:
        home.unlink()
    assert said.stdout.split() == [] or set(said.stdout.split()) <= {"/root/.ssh"} - {"/root/.ssh"}


def test_root_in_the_fence_cannot_mount_anything_again(project):
    tries = (
        "mount -o remount,rw,bind /usr /usr; umount -l /dev/null; touch /usr/x-divebook; grep CapEff /proc/self/status"
    )
    said = inside(FencedWorkspace(project), lambda made: made.shell.execute(tries))
    assert said.stdout.split() == ["CapEff:", "0000000000000000"]
    assert not os.path.exists("/usr/x-divebook")


# --- what commands need ----------------------------------------------------------------------------------------------


def test_programs_libraries_and_this_python_are_there(project):
    commands = [
        "sh -c 'ls / | head -1' && env true && id -un && date >/dev/null",
        f"{sys.executable} -c 'import ssl, sqlite3, json; print(ssl.create_default_context())'",
        "python3 -c 'print(1)'",
        "cd ~ && pwd",
        "head -c 4 /dev/urandom >/dev/null && echo x > /tmp/x && echo x > /dev/shm/x",
    ]

    async def work(made):
        return [(await made.shell.execute(command)).exit_code for command in commands]

    assert inside(FencedWorkspace(project), work) == [0] * len(commands)


def test_the_python_of_a_virtual_environment_in_the_workspace_is_there(place, project):
    """As a project has it whose environment was made of another Python than runs here."""
    base = place / "python"
    shutil.copytree(
        sys.base_prefix, base, symlinks=True, ignore=shutil.ignore_patterns("site-packages", "test", "__pycache__")
    )
    (base / "secret").write_text("mine")
    program = base / "bin" / f"python3.{sys.version_info.minor}"
    subprocess.run([program, "-m", "venv", "--without-pip", project / ".venv"], check=True)

    async def work(made):
        ran = await made.shell.execute([".venv/bin/python", "-c", "import sys; print(sys.base_prefix)"])
        return ran, await made.shell.execute(["cat", str(base / "secret")])

    ran, secret = inside(FencedWorkspace(project), work)
    assert (ran.stdout, secret.stdout) == (f"{base}\n", "")


def test_an_environment_may_not_name_any_folder_as_its_python(place, project):
    (place / "home" / "bin").mkdir(parents=True)
    (place / "home" / "bin" / "secret").write_text("mine")
    (project / "venv").mkdir()
    (project / "venv" / "pyvenv.cfg").write_text(f"home = {place}/home/bin\n")
    said = inside(FencedWorkspace(project), lambda made: made.shell.execute(["cat", f"{place}/home/bin/secret"]))
    assert said.stdout == ""


def test_sockets_of_commands_themselves_work(project):
    serve = (
        "import socket as k; s = k.socket(1); s.bind('own'); s.listen(); print(1, flush=True); s.accept()[0].recv(9)"
    )

    async def work(made):
        manager = process_manager(made)
        started = await manager.spawn(sys.executable, ["-c", serve])
        assert [line.text for line in await started.next_output(30)] == ["1"]
        said = await made.shell.execute(ask("own"))
        await started.wait()
        return said.stdout

    assert inside(FencedWorkspace(project), work) == "reached\n"
