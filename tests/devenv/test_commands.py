"""The commands of `dev_env`: what they print, and what they exit with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.devenv.conftest import PROGRAM, run, template


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one native environment, which tests leave as it is."""
    folder = tmp_path_factory.mktemp("root")
    assert run(folder, "--quiet", "create", "a", "native") == (0, f"{folder}/.dev_env_state/a\n", "")
    return folder


REFUSED = {
    "usage": (["bogus"], 1, "No such command"),
    "words": (["execute", "a", "ls", "x"], 1, "2 words are not a command"),
    "option": (["execute", "--passthrough", "--bogus", "a"], 121, "No such option"),
    "name": (["create", "../x", "native"], 1, "is not allowed"),
    "taken": (["create", "A", "native"], 1, "there is an environment 'a'"),
    "profile": (["create", "b", "native", "nope"], 1, "known are default, high-resource, minimal, standard"),
    "status": (["list", "bogus"], 1, "no status 'bogus'"),
    "environment": (["execute", "no", "true"], 2, "no environment 'no'"),
    "environment, destroyed": (["destroy", "no"], 2, "no environment 'no'"),
    "template": (["create", "b", "nope"], 3, "no template 'nope'"),
    "command": (["execute", "a", "exit 3"], 6, "command exited with status 3"),
    "time": (["execute", "--timeout", "0.1", "a", "exec tail -f /dev/null"], 6, ""),
    "tenant": (["--tenant", "t", "execute", "a", "true"], 8, "another tenant"),
    "tenants": (["list", "all", "t"], 8, "can be listed by operators only"),
    "built in": (["template", "delete", "native"], 8, "built in"),
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
    assert (ended, printed, "'exit 7' failed with code 7" in said) == (6, "", True)
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
