"""Failed runs verify as equal wherever their code is located now, and a really different error differs."""

import subprocess
import sys

import pytest

from tests.replay.failing import (
    FUNCTION,
    FUNCTIONS,
    HEAD,
    YAML,
    check_definition,
    check_function,
    environment,
    imported,
    read,
)


@pytest.mark.parametrize("name", YAML)
def test_a_definition_that_fails_is_equal_wherever_it_stands(name):
    check_definition(name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_fails_is_equal_wherever_it_stands(name, tmp_path):
    check_function(name, tmp_path)


def test_a_failed_run_is_equal_after_the_maximum_of_a_version_was_raised(tmp_path):
    body, _, _ = FUNCTIONS["version"]
    imported(FUNCTION + body, tmp_path / "first.py")
    with environment() as world:
        run = world.start("failing", {"n": 3}).wait(90)
        imported(FUNCTION + body.replace("'change', 1, 2", "'change', 1, 3"), tmp_path / "second.py")
        assert world.run_of(run.id).verify(any_code=True).equal
        imported(FUNCTION + body.replace("'change', 1, 2", "'other', 1, 2"), tmp_path / "third.py")
        assert world.run_of(run.id).verify(any_code=True).divergence is not None


def test_items_that_fail_in_parallel_are_verified_in_their_order():
    steps, _, _ = YAML["items at once"]
    with environment() as world:
        run = world.start(read(HEAD + steps, "first.yaml")["w"]).wait(90)
        assert all(world.run_of(run.id).verify().equal for _ in range(20))


def test_a_failed_run_of_the_command_line_is_equal_without_its_file(tmp_path):
    (tmp_path / "bad.yaml").write_text("Workflows: [{Name: w, Steps: [{Name: a, Script: '1/0', Store: x}]}]")

    def divebook(*words):
        command = [sys.executable, "-m", "divebook", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)

    run = divebook("run", "bad.yaml", "--json", "-q")
    name = run.stdout.split('"id": "')[1].split('"')[0]
    verified, what_if = divebook("verify", name), divebook("what-if", name)
    assert (verified.returncode, "equal" in verified.stdout) == (0, True), verified.stdout + verified.stderr
    assert "no difference" in what_if.stdout, what_if.stdout + what_if.stderr
