"""What tests of workspaces begin with; those in containers are skipped where no engine answers."""

import pytest

from divebook.workspaces.docker.workspace import DockerWorkspace
from tests.workspace.images import busybox_image, engine_answers


@pytest.fixture(scope="package")
def venv(tmp_path_factory):
    """Return where a virtualenv is made once, by whoever asks for it first."""
    return tmp_path_factory.mktemp("venvs") / "one"


@pytest.fixture(scope="package")
def has_engine():
    return engine_answers()


@pytest.fixture
def image(has_engine, require):
    require("a container engine with busybox", has_engine)
    return busybox_image()


@pytest.fixture
def make(image, tmp_path):
    return lambda **options: DockerWorkspace(tmp_path / "project", **{"image": image, **options})
