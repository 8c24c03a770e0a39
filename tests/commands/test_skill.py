"""The skill for coding assistants and ``llms.txt``: current, and every command in the skill works."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.commands import skill
from divebook.commands.table import COMMANDS
from divebook.steps.actions import REGISTERED

ROOT = Path(__file__).parents[2]
TEXT = skill.SKILL.read_text(encoding="utf-8")
HINT = "python -m divebook.commands.skill writes it anew"


def test_the_files_are_current():
    assert skill.skill() == TEXT, HINT
    assert skill.llms(ROOT / "notebooks") == (ROOT / "notebooks" / "llms.txt").read_text(encoding="utf-8"), HINT


def test_the_skill_has_the_form_of_a_skill():
    """https://agentskills.io: a name as that of the folder, a description of at most 1,024 characters."""
    front = re.match(r"---\nname: (?P<name>[a-z0-9-]+)\ndescription: >-\n(?P<description>(  .+\n)+)---\n", TEXT)
    assert front is not None
    assert front["name"] == skill.SKILL.parent.name
    assert len(front["description"]) <= 1024
    assert len(Path(skill.__file__).with_name("skill.md").read_text().splitlines()) <= 200
    assert len(TEXT.splitlines()) <= 500


def commands():
    """Yield the divebook commands of the skill, as words."""
    code = re.findall(r"^    (divebook .*)$", TEXT, re.MULTILINE) + re.findall(r"`(divebook [a-z-]+[^`]*)`", TEXT)
    for line in code:
        yield shlex.split(line.partition("  #")[0])[1:]


def test_every_command_and_option_of_the_skill_exists():
    subcommands = typer.main.get_command(app).commands
    for name, *words in commands():
        if name == "COMMAND":
            continue
        known = {spelling for parameter in subcommands[name].params for spelling in parameter.opts} | {"--help"}
        assert {word for word in words if word.startswith("-")} <= known, (name, words)
    assert {name for name, *_ in commands()} >= {name for name in COMMANDS if name in subcommands}


def test_every_link_of_llms_leads_to_a_page():
    text = (ROOT / "notebooks" / "llms.txt").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        page = ROOT / "notebooks" / link
        assert page.with_suffix(".md").exists() or page.with_suffix(".ipynb").exists(), link


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVEBOOK_STORE", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr("divebook.environments.registry.WORKFLOW_FUNCTIONS", {})
    actions = dict(REGISTERED)
    for language, name in (("yaml", "review.yaml"), ("python", "flow.py")):
        (block,) = re.findall(rf"```{language}\n# {re.escape(name)}\n(.*?)```", TEXT, re.DOTALL)
        (tmp_path / name).write_text(block)
    yield tmp_path
    REGISTERED.clear()
    REGISTERED.update(actions)


def call(line, code=0):
    result = CliRunner().invoke(app, shlex.split(line))
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if "--json" in line else result.stdout


def test_the_workflow_of_the_skill_fails_is_fixed_and_resumed(folder):
    definition = folder / "review.yaml"
    text = definition.read_text()
    definition.write_text(text.replace("/ len(state.lengths)", "/ (len(state.lengths) - 2)"))
    run = call('run review.yaml -v \'words:=["a", "bird"]\' --json', code=3)
    (question,) = call("inbox --json")["questions"]
    assert question["run_id"] == run["id"]
    failed = call(f"answer {question['address']} yes -d review.yaml --json", code=1)
    assert (failed["failure"]["step"], failed["failure"]["error_type"]) == ("average", "ZeroDivisionError")
    assert "ZeroDivisionError" in call(f"show {run['id']}")
    definition.write_text(text)
    done = call(f"resume {run['id']} -d review.yaml --definition new --json")
    assert (done["status"], done["outputs"]["average"]) == ("completed", 2.5)
    assert "average" in call(f"why average {done['id']}")
    call(f"what-if {done['id']} -d review.yaml --prompt comment=Shorter --plan")


def test_the_function_of_the_skill_runs(folder):
    run = call('run flow.py -w total -v \'words:=["a", "bird"]\' --answer total=yes --json')
    assert run["outputs"] == {"result": 5}
