"""Odd words and values have the same outcome in a shell and in a line of a notebook: the same data, or an error."""

import json
import re

import pytest
from IPython.core.error import UsageError
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.commands.command import NOTEBOOK, Invocation
from divebook.commands.table import COMMANDS
from divebook.errors import DivebookError
from divebook.notebook.commands import Names, line_command, objects_of, split, values_of
from divebook.notebook.session import open_session
from tests.commands.conftest import FLOWS
from tests.commands.test_same_results import data_of, steady, way

__all__ = ["way"]

LINES = """
show exec_
show ''
runs --limit -1
runs --limit 1.0
runs --status paused
runs -w ✓
runs --tag 'two words'
tag ONE ''
tag ONE 'a b' ✓
tag ONE a,b
annotate ONE --label n="2" --label m=2 --label day=2026-01-01 --label l=[1,2]
annotate ONE --label a=b=c
annotate ONE --label =3
annotate ONE --note 'it''s ✓'
annotate ONE --note ''
annotate ONE --tag ''
signal WAITS go "2"
signal WAITS go [1, "a", ✓, 2026-03-01]
signal WAITS ''
signal WAITS go x --by 'Ann ✓'
answer QUESTION maybe
answer QUESTION ''
answer QUESTION true --as json
why inputs.n ONE --at 1.0
why inputs.n ONE --at 0
why inputs.n ONE --at 99999
why '' ONE
fork ONE --at 1e1
fork ONE --input n="2"
fork ONE --input n=2.5
fork ONE --set greeting=2026-01-01
fork ONE --set nope=5
what-if ONE --repeat 0
what-if ONE -v n=-1 -v who='it''s ✓'
what-if ONE --bounds max_cost=-1
try greet ONE --times 0
try greet ONE -v n="5"
compare ONE
keys ''
keys ✓
cancel --status nope
resume ONE
resume STOPPED --bounds max_llm_calls=1.5
enqueue hello who=A --priority 1.5
enqueue hello who=A --queue ✓
enqueue hello who=A --at 2026-13-01
run hello who=A n=-1
run hello who=A n=null
run hello who="a b" --tag '' --note "one\\ntwo"
run hello who=A who=B
run echo value=[✓, "a", 'b', -1, 2026-01-01, null, yes, 1_000, 0x1f]
run echo -v "value=a\\nb"
run echo value=---
files EDITED --at 999
diff EDITED ''
restore EDITED --to then --at -1
recover --all
recover --page 0
open flows.yaml
""".strip().splitlines()
PLACE = re.compile(r" \(step [^)]*\)+")


def unquoted(word):
    """Return what a shell passes for a word, from whose ends it removes the quotes."""
    if word[:1] == "'":
        return word[1:-1].replace("''", "'")
    return json.loads(word) if word[:1] == '"' else word


def outcome_in_shell(words):
    command = COMMANDS[words[0]]
    words = [unquoted(word) for word in words[1:]]
    if command.file_help:
        words = ["flows.yaml", "--workflow", *words]
    result = CliRunner().invoke(app, [command.name, *words, *(["--quiet"] if command.drives else []), "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return json.loads(result.stdout) if result.stdout else "error"


def outcome_in_line(words):
    session = open_session("runs.db")
    session.define(FLOWS)
    command = COMMANDS[words[0]]
    try:
        arguments = line_command(command).parse(words[1:], Names())
        call = Invocation(
            NOTEBOOK,
            lambda: session.environment,
            lambda _text, _style: None,
            choose_workflow=lambda environment, name: environment.definitions.workflows[name],
            objects=objects_of(arguments),
        )
        return data_of(command, command.function(call, **values_of(command, arguments)))
    except (UsageError, DivebookError):
        return "error"


def comparable(outcome):
    """Return an outcome without the places of errors in definitions, which a line has from a cell."""
    return json.loads(PLACE.sub("", json.dumps(steady(outcome))))


@pytest.mark.parametrize("line", LINES)
def test_odd_values_have_the_same_outcome(template, way, line):
    _, names = template
    words = [names.get(word, word) for word in split(line)]
    way("shell")
    shell = outcome_in_shell(words)
    way("line")
    assert comparable(outcome_in_line(words)) == comparable(shell)
