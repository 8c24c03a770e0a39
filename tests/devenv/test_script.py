"""The shell script with every command, which ``python -m tests.devenv`` runs, leaves none out."""

import re
from pathlib import Path

import typer.main

from divebook.cli.dev_env import app

SCRIPT = Path(__file__).with_name("every_command.sh").read_text()


def test_the_script_has_every_command_and_every_exit_code():
    group = typer.main.get_command(app)
    names = {
        f"{name} {below}" if below else name
        for name, command in group.commands.items()
        for below in getattr(command, "commands", {"": None})
    }
    called = re.findall(r'(?:expect (\d+)|for words in|") (?:--\S+ )*(.+)', SCRIPT)
    assert {name for name in names if not any(re.match(rf"{name}\b", words) for _, words in called)} == set()
    assert {int(code) for code, _ in called if code} >= set(range(9))
