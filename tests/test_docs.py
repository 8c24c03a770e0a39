"""Documentation is tested: its examples run, its commands are the real ones, and nothing public goes without."""

import contextlib
import doctest
import importlib
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import divebook
from divebook.cli.main import app
from divebook.definitions.schema import reference
from divebook.definitions.stored_form import Definition
from divebook.errors import NotFoundError

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "notebooks" / "start" / "install.md").read_text(encoding="utf-8")
COMMANDS = sorted(typer.main.get_command(app).commands)
LIVE_ONLY = ("divebook.notebook",)
"""Whose examples may be skipped, since they need a live notebook."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run examples in an empty folder and a store in memory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVEBOOK_STORE", "memory:")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def modules():
    return [found.name for found in pkgutil.walk_packages(divebook.__path__, "divebook.")]


# --- the README ----------------------------------------------------------------------------------------------------


def test_the_examples_of_the_readme_are_short():
    examples = re.findall(r"^```(?:python|yaml|ipython)[^\n]*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    assert all(len(example.splitlines()) <= 15 for example in examples)
    assert 80 <= len(README.splitlines()) <= 120


def test_the_pictures_of_the_readme_are_there_and_small():
    pictures = {ROOT / name for name in re.findall(r'(?:src|srcset)="([^"]+)"', README)}
    assert [picture for picture in pictures if not picture.is_file()] == []
    moving = [picture.stat().st_size for picture in pictures if picture.suffix == ".gif"]
    assert len(moving) == 2, "one for each theme"
    assert sum(moving) <= 1_500_000


def test_the_last_command_of_the_readme_is_what_continuous_integration_runs():
    _, tests = (block.strip() for block in blocks(README, "sh"))
    assert tests == (ROOT / ".ci" / "run").read_text().splitlines()[-1]


def test_the_first_command_of_the_readme_shows_what_its_notebook_writes():
    job, _ = blocks(README, "sh")
    notebook, report = re.findall(r"notebooks/(\S+)", job)
    assert report in (ROOT / "notebooks" / notebook).read_text(encoding="utf-8")


def test_the_install_page_says_why_each_dependency_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=\[]", entry)[0] for entry in project["dependencies"]}
    table = INSTALL.partition("## Dependencies\n")[2].partition("\n## ")[0].partition("|---|---|")[2]
    rows = re.findall(r"^\| ([\w.-]+(?:, [\w.-]+)*) \| .+ \|$", table, re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} == names


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_files_that_are_linked_exist(text):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


# --- the map -------------------------------------------------------------------------------------------------------


def test_the_map_has_every_part_of_the_code_and_nothing_else():
    (drawing,) = blocks(CONTRIBUTING, "")
    drawn = set(re.findall(r"^  ([\w./]+)", drawing, re.MULTILINE))
    package = ROOT / "divebook"
    there = {path.name for path in package.glob("*.py")} | {
        f"{path.parent.name}/" for path in package.glob("*/__init__.py")
    }
    assert drawn == there


def test_every_file_of_the_map_exists():
    (drawing,) = blocks(CONTRIBUTING, "")
    gone = []
    for line in re.sub(r"\n {4,}", " ", drawing).splitlines()[1:]:
        name, _, rest = line.strip().partition(" ")
        gone += [part for part in re.findall(r"\w+\.py\b|\w+/", rest) if not (ROOT / "divebook" / name / part).exists()]
    assert gone == []


def test_every_path_that_contributing_names_exists():
    named = re.findall(r"`((?:[\w.]+/)[\w./]*|\w+\.py)`", CONTRIBUTING)
    places = (ROOT, ROOT / "divebook")
    made = ".artefacts/"
    assert len(named) > 50
    assert [n for n in named if not n.startswith(made) and not any((place / n).exists() for place in places)] == []


def test_all_files_are_listed_once_with_their_content():
    (section,) = re.findall(r"^## All files\n(.*?)(?=^## |\Z)", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^    ([\w./]+)  +(\S.*)$", section, re.MULTILINE)
    package = ROOT / "divebook"
    modules_of_package = [
        path.relative_to(package)
        for path in package.rglob("*.py")
        if path.name != "__init__.py" or path.parent == package
    ]
    scripts = [path.relative_to(ROOT) for path in (ROOT / "widgets" / "src").rglob("*.ts")]
    assert sorted(path for path, _ in lines) == sorted(path.as_posix() for path in (*modules_of_package, *scripts))
    assert [path for path, text in lines if len(text.split()) > 25] == []
    places = {path: ROOT / path if path.endswith(".ts") else package / path for path, _ in lines}
    constants = [(path, word) for path, text in lines for word in re.findall(r"\b_?[A-Z]+_[A-Z_]+\b", text)]
    assert [(path, word) for path, word in constants if word not in places[path].read_text(encoding="utf-8")] == []
    # Each line of the blocks was read.
    assert len(re.findall(r"^    ", section, re.MULTILINE)) == len(lines)


def test_a_change_begins_in_one_file_and_needs_at_most_three():
    (section,) = re.findall(r"^## Where does it go\n(.*?)(?=^## )", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    recipes = re.findall(r"^- \*\*([^*]+)\*\*(.*(?:\n  .*)*)", section, re.MULTILINE)
    names = [name for name, _ in recipes]
    assert {"An event", "A magic", "A type of step", "A kind of tool", "A store", "A widget view"} <= set(names)
    assert len(names) == len(set(names)) == len(re.findall(r"^- ", section, re.MULTILINE))
    files = {name: set(re.findall(r"`((?:[\w.]+/)[\w./]*|\w+\.py)`", text)) for name, text in recipes}
    assert {name: paths for name, paths in files.items() if not 1 <= len(paths) <= 3} == {}


def test_each_name_in_a_recipe_is_in_one_of_its_files():
    """A constant or class beside the names of files is in one of them; errors are all in `errors.py`."""
    (section,) = re.findall(r"^## Where does it go\n(.*?)(?=^## )", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    missing = []
    for name, text in re.findall(r"^- \*\*([^*]+)\*\*(.*(?:\n  .*)*)", section, re.MULTILINE):
        paths = re.findall(r"`((?:[\w.]+/)[\w./]*|\w+\.py)`", text)
        files = [place / path for path in paths for place in (ROOT, ROOT / "divebook") if (place / path).is_file()]
        files.append(ROOT / "divebook" / "errors.py")
        code = "".join(file.read_text(encoding="utf-8") for file in files)
        constants = re.findall(r"`(_?[A-Z][A-Z_]+|[A-Z][a-z]+[A-Z]\w+)`", text)
        missing += [f"{name}: {word}" for word in constants if not re.search(rf"\b{word}\b", code)]
    assert missing == []


def test_the_layers_are_those_that_are_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    kept = [re.sub(r"\(\w+\)|\b__main__\b|\b_version\b", "", layer) for layer in contracts[0]["layers"]]
    checked = [set(re.findall(r"\w+", layer)) for layer in kept]
    (drawn,) = re.findall(r"^    (cli \| .*(?:\n    .*)*)", CONTRIBUTING, re.MULTILINE)
    assert [set(re.findall(r"\w+", layer)) for layer in drawn.split(">")] == [layer for layer in checked if layer]


# --- docstrings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", modules())
def test_docstring_examples_run(name):
    module = importlib.import_module(name)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False)
    report = []
    for example in finder.find(module, name):
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("name", [name for name in modules() if not name.startswith(LIVE_ONLY)])
def test_no_example_is_skipped_that_could_run(name):
    assert "doctest: +SKIP" not in inspect.getsource(importlib.import_module(name))


@pytest.mark.parametrize("name", [name for name in divebook.__all__ if not name.startswith("_")])
def test_public_names_are_documented(name):
    assert inspect.getdoc(getattr(divebook, name))


# --- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_that_parses(command):
    shown = CliRunner().invoke(app, [command, "--help"])
    text = " ".join(shown.stdout.split())
    example = text.partition(f"Example: divebook {command}")[2]
    assert shown.exit_code == 0
    assert f"Example: divebook {command}" in text
    known = {option for parameter in typer.main.get_command(app).commands[command].params for option in parameter.opts}
    assert {word for word in example.split() if re.match("--?[a-z]", word)} <= known


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command):
    parameters = typer.main.get_command(app).commands[command].params
    assert [parameter.name for parameter in parameters if not getattr(parameter, "help", None)] == []


def test_the_list_of_commands_fits_on_one_line_each():
    listed = CliRunner().invoke(app, ["--help"]).stdout.partition("Commands:")[2]
    assert listed
    assert "..." not in listed


def test_what_is_defined_by_keys_says_where_they_are_explained():
    unexplained = []
    for name in divebook.__all__:
        found = getattr(divebook, name)
        if not (inspect.isclass(found) and issubclass(found, Definition)):
            continue
        part = name.removesuffix("Definition")
        with contextlib.suppress(NotFoundError):
            reference(part)
            unexplained += [name] if f"``divebook keys {part}``" not in (found.__doc__ or "") else []
    assert unexplained == []
