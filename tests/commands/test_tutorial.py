"""``divebook tutorial``: copies the notebooks, keeps what was changed, opens JupyterLab."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.commands import tutorial

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, ["tutorial", *arguments])


def test_the_notebooks_and_what_they_read_are_copied(folder):
    result = call("--no-open")
    assert result.exit_code == 0, result.output
    copied = {path.relative_to(folder / "divebook-tutorial").as_posix() for path in folder.rglob("*") if path.is_file()}
    notebooks = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert copied == notebooks | {f"example_sundial-1.0.dist-info/{name}" for name in ("LICENSE", "METADATA", "RECORD")}
    assert result.stdout.strip() == str(Path("divebook-tutorial", "01_quickstart.ipynb"))
    assert "jupyter lab divebook-tutorial/01_quickstart.ipynb" in result.stderr


def test_a_changed_file_is_kept(folder):
    call("here", "--no-open")
    mine = folder / "here" / "02_agents_and_tools.ipynb"
    mine.write_text("mine")
    (folder / "here" / "03_find_the_fault.ipynb").unlink()
    result = call("here", "--no-open", "--json")
    states = {each["file"]: each["state"] for each in json.loads(result.stdout)["files"]}
    assert states.pop("02_agents_and_tools.ipynb") == "kept"
    assert states.pop("03_find_the_fault.ipynb") == "copied"
    assert set(states.values()) == {"unchanged"}
    assert mine.read_text() == "mine"
    assert "02_agents_and_tools.ipynb was changed by you and is not overwritten" in result.stderr


def test_jupyterlab_opens_the_first_notebook(folder, monkeypatch):
    opened = []

    class Lab:
        def __init__(self, command):
            opened.append(command)
            self.codes = iter([KeyboardInterrupt, 0])

        def wait(self):
            code = next(self.codes)
            if code is KeyboardInterrupt:
                raise code
            return code

    monkeypatch.setattr(tutorial.subprocess, "Popen", Lab)
    assert call().exit_code == 0
    assert opened == [[sys.executable, "-m", "jupyterlab", str(Path("divebook-tutorial", "01_quickstart.ipynb"))]]


def test_without_jupyterlab_nothing_is_copied(folder, monkeypatch):
    monkeypatch.setattr(tutorial.importlib.util, "find_spec", lambda _: None)
    result = call()
    assert result.exit_code == 2
    assert "pip install 'jupyterlab>=" in result.stderr
    assert not (folder / "divebook-tutorial").exists()


def test_the_wheel_contains_what_the_command_copies():
    hook = (ROOT / "hatch_build.py").read_text()
    assert f"TUTORIAL = {tutorial.PATTERNS!r}".replace("'", '"') in hook
