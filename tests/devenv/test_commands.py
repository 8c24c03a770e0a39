"""The commands of `dev_env`: what they print, and what they exit with."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import divebook
from divebook.cli.dev_env import COMMANDS, DevEnvCommand, app, page
from tests.devenv.conftest import PROGRAM, run, template


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one native environment, which tests leave as it is."""
    folder = tmp_path_factory.mktemp("root")
    assert run(folder, "--quiet", "create", "a", "native") == (0, f"{folder}/.dev_env_state/a\n", "")
    return folder


REFUSED = {
    "usage": (["bogus"], 1, "No such command"),
    "words": (["execute", "a", "ls", "x"], 1, "2 words are not a single command"),
    "option": (["execute", "--passthrough", "--bogus", "a"], 121, "No such option"),
    "name": (["create", "../x", "native"], 1, "is not allowed"),
    "taken": (["create", "A", "native"], 1, "the environment 'a' already exists"),
    "profile": (["create", "b", "native", "nope"], 1, "existing profiles: default, high-resource, minimal, standard"),
    "status": (["list", "bogus"], 1, "unknown status 'bogus'"),
    "environment": (["execute", "no", "true"], 2, "no environment 'no'"),
    "environment, destroyed": (["destroy", "no"], 2, "no environment 'no'"),
    "template": (["create", "b", "nope"], 3, "no template 'nope'"),
    "command": (["execute", "a", "exit 3"], 6, "command exited with status 3"),
    "time": (["execute", "--timeout", "0.1", "a", "exec tail -f /dev/null"], 6, ""),
    "tenant": (["--tenant", "t", "execute", "a", "true"], 8, "another tenant"),
    "tenants": (["list", "all", "t"], 8, "only operators can list the environments"),
    "built in": (["template", "delete", "native"], 8, "the built-in template 'native'"),
    "passed through": (["execute", "--passthrough", "a", "exit 3"], 3, "status 3"),
    "own, apart": (["execute", "--passthrough", "no", "true"], 122, "no environment"),
}


@pytest.mark.parametrize(("words", "code", "told"), REFUSED.values(), ids=REFUSED)
def test_each_refusal_has_its_code_and_prints_nothing(root: Path, words: list[str], code: int, told: str) -> None:
    ended, printed, said = run(root, *words)
    assert (ended, printed, told in said) == (code, "", True), said


def test_two_tenants_do_not_see_each_other(root: Path) -> None:
    assert json.loads(run(root, "--tenant", "t", "list")[1]) == []
    assert [state["name"] for state in json.loads(run(root, "list")[1])] == ["a"]


def test_what_a_command_reads_and_prints_passes_through_a_process_of_its_own(root: Path) -> None:
    words = [*PROGRAM, "--root", str(root), "execute", "a"]
    done = subprocess.run([*words, "cat; echo told >&2"], input=b"in", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"in", b"told\n")
    done = subprocess.run([*words, "--", "printf", "%s;", "a b", "$HOME"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"a b;$HOME;")


def test_a_command_loads_no_grammars(root: Path) -> None:
    look = PROGRAM[2].replace(
        "; main()", "\nimport sys\ntry: main()\nfinally: print(sorted({'lark', 'jsonschema'} & set(sys.modules)))"
    )
    words = ["--root", str(root), "template", "show", "native", "--resolved"]
    done = subprocess.run([PROGRAM[0], "-c", look, *words], capture_output=True, check=True)
    assert done.stdout.endswith(b"\n['jsonschema']\n")


def test_a_command_of_init_that_fails_leaves_nothing(tmp_path: Path, dev_env) -> None:
    template(dev_env, "fails", {"extends": "native", "native": {"init": ["exit 7"]}})
    ended, printed, said = dev_env("create", "b", "fails")
    assert (ended, printed, "'exit 7' failed with exit code 7" in said) == (6, "", True)
    assert list((tmp_path / ".dev_env_state").glob("[!.]*")) == []


def test_a_create_that_was_killed_does_not_block_the_next(tmp_path: Path, dev_env) -> None:
    template(dev_env, "hangs", {"extends": "native", "native": {"init": ["exec tail -f /dev/null"]}})
    config = tmp_path / ".dev_env_state" / "b" / "config.json"
    with subprocess.Popen([*PROGRAM, "--root", str(tmp_path), "create", "b", "hangs"]) as made:
        while not config.exists():
            assert made.poll() is None
            time.sleep(0.02)
        os.kill(made.pid, signal.SIGKILL)
    assert dev_env("execute", "b", "true")[0] == 2
    assert dev_env("create", "b", "native")[0] == 0
    assert dev_env("destroy", "b")[:2] == (0, "Environment 'b' destroyed\n")


@pytest.mark.parametrize("declared", COMMANDS.values(), ids=COMMANDS)
def test_a_command_has_the_help_the_options_and_the_example_of_its_declaration(declared: DevEnvCommand) -> None:
    group = typer.main.get_command(app)
    *names, last = declared.name.split()
    for name in names:
        group = group.commands[name]  # type: ignore[attr-defined]
    options = {spelling for entry in group.commands[last].params for spelling in entry.opts}  # type: ignore[attr-defined]
    shown = CliRunner().invoke(app, [*names, last, "--help"]).stdout
    assert f"Example: dev_env {declared.example}" in " ".join(shown.split())
    for parameter in declared.parameters:
        assert parameter.help
        assert set(parameter.spellings) <= options
        assert all(spelling in shown for spelling in parameter.spellings or [parameter.metavar])
    _, *words = shlex.split(declared.example.removeprefix(" ".join([*names, ""])))
    assert group.commands[last].make_context(last, words).args == []  # type: ignore[attr-defined]


def test_the_page_lists_the_declared_commands() -> None:
    written = (Path(divebook.__file__).parents[1] / "notebooks" / "DEV_ENV.md").read_text(encoding="utf-8")
    assert written == page(), "python -m divebook.cli.dev_env"


COMPLETED = [
    ("start ", ["a"]),
    ("create b na", ["native"]),
    ("create b native hi", ["high-resource"]),
    ("restore a be", ["before"]),
    ("checkpoint show a ", ["before"]),
    ("restore no ", []),
    ("job output a ", []),
]


@pytest.mark.parametrize(("line", "names"), COMPLETED)
def test_names_are_completed_from_the_root(tmp_path: Path, dev_env, line: str, names: list[str]) -> None:
    dev_env("create", "a", "native")
    dev_env("save", "a", "before")
    words = f"dev_env --root {tmp_path} {line}"
    environ = {"_DEV_ENV_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    done = subprocess.run([*PROGRAM], env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (names, "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], "Usage: dev_env [OPTIONS] COMMAND"),
        (["help"], "Usage: dev_env [OPTIONS] COMMAND"),
        (["help", "create"], "Usage: dev_env create "),
        (["help", "job"], "Usage: dev_env job "),
        (["job"], "Usage: dev_env job "),
    ],
)
def test_help_is_shown_by_its_command_and_where_a_command_lacks(dev_env, words, shown) -> None:
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.lstrip().startswith(shown)
    if words:
        # Behind global options, too.
        code, printed, errors = dev_env(*words)
        assert (code, errors, printed.split()) == (0, "", result.stdout.split())
