"""Commands of the shell load only the libraries that they need."""

import ast
import subprocess
import sys

import pytest

HEAVY = {"numpy", "pandas", "pyarrow", "pydantic_ai", "jupyterlab", "IPython", "ipywidgets"}
"""Libraries that take longer to load than the commands below take to run."""
PROGRAM = """
import sys
from divebook.cli.main import main
sys.argv = ["divebook", *{words!r}]
try:
    main()
except SystemExit:
    pass
print(sorted({{name.partition(".")[2].partition(".")[0] for name in sys.modules if name.startswith("divebook.")}}))
print(sorted({{*sys.modules}} & {heavy!r}))
"""


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["runs"], ["inbox"], ["keys", "Step"]])
def test_a_command_loads_no_heavy_library(words, tmp_path):
    assert loaded(words, tmp_path)[-1] == "[]"


DECLARATIONS = {"_version", "cli", "commands", "errors", "libraries", "report", "text"}
"""Packages that the declarations of the commands need."""


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["version"], ["run", "--help"]])
def test_what_needs_no_store_loads_the_declarations_only(words, tmp_path):
    assert set(ast.literal_eval(loaded(words, tmp_path)[-2])) <= DECLARATIONS


@pytest.mark.parametrize("words", [["runs"], ["count"], ["runs", "--json"]])
def test_a_list_of_runs_loads_neither_environment_nor_agents(words, tmp_path):
    (tmp_path / "w.yaml").write_text("Workflows: [{Name: w, Steps: [{Name: s, Script: 1 + 1}]}]", encoding="utf-8")
    loaded(["run", "w.yaml"], tmp_path)
    assert not {"environments", "runtime", "agents", "replay"} & {*ast.literal_eval(loaded(words, tmp_path)[-2])}


def loaded(words, folder):
    """Run a command in a process, and return the lines that it prints. The last two are the loaded packages of divebook
    and the loaded heavy libraries.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=words, heavy=HEAVY)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path)},
        cwd=folder,
    )
    return done.stdout.splitlines()
