"""Warnings name the line of the user, whatever way leads to them."""

import ast
from pathlib import Path

import pytest

import divebook
from divebook import Environment, Step, Workflow
from divebook.errors import StartKeyWarning
from divebook.notebook.session import reset_session

FLOW = Workflow("w", [Step("s", script="inputs.n")], inputs=["n"])
WAYS = {
    "start": lambda environment: environment.start("w", {"n": 2}, key="k"),
    "enqueue": lambda environment: environment.enqueue("w", {"n": 2}, key="k"),
    "run": lambda environment: divebook.run(FLOW, n=2, key="k", store=environment.store.location),
    "fork": lambda environment: environment.run_of(environment.runs()[-1]).fork(change={"inputs": {"n": 4}}, key="f"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_start_key_that_is_taken_names_the_line_of_the_user(way, tmp_path):
    with Environment(store=str(tmp_path / "runs.db"), workflows=[FLOW]) as environment:
        run = environment.start("w", {"n": 1}, key="k").wait()
        run.fork(change={"inputs": {"n": 3}}, key="f").wait()
        with pytest.warns(StartKeyWarning) as caught:
            WAYS[way](environment)
        assert [warning.filename for warning in caught] == [__file__]
    reset_session()


def test_only_one_module_chooses_the_line_of_a_warning():
    folder = Path(divebook.__file__).parent
    places = [
        f"{file.relative_to(folder)}:{node.lineno}"
        for file in folder.rglob("*.py")
        if file.name != "user_warning.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    ]
    assert not places, "warn_user names the line of the user; a fixed stacklevel names one of divebook sooner or later"
