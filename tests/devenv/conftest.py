"""What tests of `dev_env` begin with: a function that runs a command in this process."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from divebook.cli.dev_env import app

PROGRAM = (sys.executable, "-c", "from divebook.cli.dev_env import main; main()")
"""``dev_env`` in a process of its own."""


def run(root, *words, stdin=None):
    """Run a command in this process; return its exit code, and what it printed and told."""
    ended = CliRunner().invoke(app, ["--root", str(root), *map(str, words)], input=stdin)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return ended.exit_code, ended.stdout, ended.stderr


@pytest.fixture
def dev_env(tmp_path):
    return lambda *words, **options: run(tmp_path, *words, **options)


def template(dev_env, name, said):
    """Keep a template."""
    assert dev_env("template", "create", name, "-", stdin=json.dumps(said))[:2] == (0, f"Template '{name}' created\n")


def plain_venv(dev_env, packages=()):
    """Make an environment ``v`` with a virtual environment; return its folder."""
    section = {"python_version": "3", "packages": list(packages)}
    template(dev_env, "plain", {"isolation_type": "virtualenv", "virtualenv": section})
    code, printed, said = dev_env("create", "v", "plain")
    assert code == 0, said
    return Path(printed.strip())
