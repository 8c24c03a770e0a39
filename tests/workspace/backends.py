"""pydantic-ai's own suite for workspace backends, on every kind of workspace: ``python -m tests.workspace.backends``.

It is a command of its own, since all of it on all kinds takes longer than the suite has
(`tests/workspace/test_backends.py` runs a part). A user who is not root is made of nobody, in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from divebook.agents.pydantic_workspaces import BackendOfWorkspace
from divebook.workspaces import DockerWorkspace, FencedWorkspace, LocalWorkspace, VirtualenvWorkspace
from tests.workspace.containers import containers, removed

HERE = Path(__file__)


@pytest.fixture
def anyio_backend():
    return "asyncio"


class OfLocal(WorkspaceBackendSuite):
    """The suite on the local kind; what the others do otherwise is the fixture `made`."""

    @pytest.fixture
    def made(self, tmp_path):
        return LocalWorkspace

    @pytest.fixture
    async def opened(self):
        """Return what makes backends that are closed at the end."""
        found = []

        def opened(backend):
            found.append(backend)
            return backend

        yield opened
        for backend in found:
            await backend.close()

    @pytest.fixture
    def backend(self, made, opened, tmp_path):
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        return opened(BackendOfWorkspace(made(folder)))

    @pytest.fixture
    def destructive_backend(self, made, opened, tmp_path):
        return lambda: opened(BackendOfWorkspace(made(tempfile.mkdtemp(dir=tmp_path))))

    @pytest.fixture
    def attach_backend(self, opened):
        return lambda ref: opened(BackendOfWorkspace.of(ref))

    @pytest.fixture
    def destroy_environment(self):
        async def destroy(backend):
            shutil.rmtree(json.loads(backend.ref.id)["folder"])

        return destroy


class TestLocal(OfLocal):
    """By the kernel's way to open files."""


class TestLocalByWalk(OfLocal):
    @pytest.fixture
    def made(self, tmp_path):
        return lambda folder: LocalWorkspace(folder, openat2=False)


class TestFenced(OfLocal):
    @pytest.fixture
    def made(self, require):
        require("bubblewrap", shutil.which("bwrap") is not None)
        return FencedWorkspace

    @pytest.fixture
    def destructive_backend(self, made, opened):
        # Below /tmp a fence has a folder of its own for it, which stays: the command would see no end of it.
        with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as folder:
            yield lambda: opened(BackendOfWorkspace(made(folder)))


class TestVirtualenv(OfLocal):
    @pytest.fixture
    def made(self, venv):
        return lambda folder: VirtualenvWorkspace(folder, venv_path=venv)


class TestDocker(OfLocal):
    @pytest.fixture
    async def made(self, image):
        folders = []

        def made(folder):
            folders.append(folder)
            return DockerWorkspace(folder, image=image, keep=True)

        yield made
        for folder in folders:
            await removed(folder)

    @pytest.fixture
    def fresh_backend(self, destructive_backend):
        return destructive_backend

    @pytest.fixture
    def destroy_environment(self):
        async def destroy(backend):
            folder = json.loads(backend.ref.id)["folder"]
            assert containers(folder)
            await removed(folder)

        return destroy


def can_be_without_rights() -> bool:
    """Return whether tests can be run as such a user here."""
    return os.getuid() != 0 or shutil.which("bwrap") is not None


def without_rights(*options: str) -> int:
    """Run the local part of the suite as a user who is not root and has no rights of its; return pytest's exit code."""
    # not by setuid: such a user may not be able to read the Python that runs this
    user = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", "1000", "--gid", "1000"]
    paths = [f"{HERE}::{kind.__name__}" for kind in (TestLocal, TestLocalByWalk, TestFenced)]
    return _tested(*options, *paths, prefix=user if os.getuid() == 0 else [])


def _tested(*options: str, prefix: Sequence[str] = ()) -> int:
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={folder}/base", *options]
        return subprocess.run([*prefix, *argv], check=False).returncode


if __name__ == "__main__":
    sys.exit(max(_tested("-q", str(HERE), *sys.argv[1:]), without_rights("-q")))
