"""Files at the root of the repository that other programs read: hooks for pre-commit, and the citation."""

import shlex
import tomllib
from pathlib import Path

import pytest
import typer.main
from ruamel.yaml import YAML
from typer.testing import CliRunner

from divebook import Environment, Step, Workflow, __version__
from divebook.cli.main import app
from divebook.config import save
from divebook.definitions import Definitions

ROOT = Path(__file__).parents[1]
LANGUAGES = ("python", "system")


def read(name):
    return YAML(typ="safe").load((ROOT / name).read_text(encoding="utf-8"))


HOOKS = {hook["id"]: hook for hook in read(".pre-commit-hooks.yaml")}


def run_hook(hook, *arguments):
    """Run the command of a hook, as pre-commit does with `args` of a configuration; return exit code and output."""
    program, *words = shlex.split(HOOKS[hook]["entry"])
    assert program == "divebook"
    result = CliRunner().invoke(app, [*words, *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def adding(script):
    return Workflow("add", [Step("add", script=script, store="sum")])


def write(script, file):
    save(Definitions(workflows=[adding(script)]), file)


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "runs.db"
    with Environment(store=path, workflows=[adding("1 + 1")]) as environment:
        environment.start("add").wait()
    return path


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_the_entry_of_a_hook_is_a_command_with_its_options(hook):
    _, name, *words = shlex.split(hook["entry"])
    command = typer.main.get_command(app).commands[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options
    # Neither command takes names of files, which pre-commit would append.
    assert hook["pass_filenames"] is False
    assert hook["language"] in LANGUAGES
    assert hook["name"]
    assert hook["description"]


def test_the_hook_verify_passes_until_a_definition_differs(store, tmp_path):
    file = tmp_path / "flow.yaml"
    write("1 + 1", file)
    assert run_hook("divebook-verify", "--store", store)[0] == 0
    assert run_hook("divebook-verify", "--store", store, "--definitions", file)[0] == 0
    write("1 + 2", file)
    code, output = run_hook("divebook-verify", "--store", store, "--definitions", file)
    assert code == 1
    assert "differs" in output


def test_the_hook_check_passes_until_the_store_is_damaged(store):
    assert run_hook("divebook-check", "--store", store)[0] == 0
    with store.open("r+b") as file:
        file.truncate(5000)
    assert run_hook("divebook-check", "--store", store)[0] != 0


def test_the_citation_names_this_version_and_its_licence():
    citation = read("CITATION.cff")
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert citation["license"] == project["license"]
    assert citation["authors"] == project["authors"]
    assert citation["abstract"] == project["description"]
