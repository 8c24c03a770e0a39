"""What nobody would type behind a magic ends it with an error in words, never with a traceback of ours."""

import pytest
from IPython.core.error import UsageError

from divebook.errors import DivebookError
from divebook.notebook.magics import COMMANDS

NASTY = [
    *(
        "''",
        "'",
        "\\",
        "--",
        "-",
        "=",
        "a=",
        "=a",
        "@",
        "a@b",
        "{",
        "{}",
        "$",
        "$nobody",
        "{nobody}",
        "${x}",
        "%",
        "!",
        "?",
    ),
    *("\x00", "\ud800", "\u202e", "x" * 5000, "9" * 5000, "[" * 500, "~nobody/x", "../..", "/proc/self/mem", "memory:"),
    *(
        "--store",
        "--store ''",
        "--store \x00",
        "--store nosuch://x",
        "--bounds x",
        "--bounds {",
        "--answer",
        "--answer x",
    ),
    *(
        "--limit x",
        "--limit -1",
        "--limit " + "9" * 400,
        "--status x",
        "--tag \x00",
        "--note \ud800",
        "--model x",
        "--by ''",
    ),
    *(
        "a b c d e f",
        "a=1 a=2",
        "x --as json",
        "x --result {",
        "--new --new",
        "--changed x",
        "--durability x",
        "--all x",
    ),
]


HELLO = (
    "Workflows:\n- Name: hello\n  Inputs: [{Name: a, Required: false}]\n  Steps:\n  - {Name: s, Script: '1', Store: n}"
)


def raw_errors(call, *begin):
    """Return what is raised that is no error in words, with the nonsense that raised it."""
    raw = []
    for nasty in NASTY:
        try:
            call(*begin, nasty)
        except (DivebookError, UsageError) as error:
            raw += [] if str(error) else [(nasty[:40], "no words")]
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            raw.append((nasty[:40], repr(error)[:200]))
    return raw


@pytest.mark.parametrize("name", [*COMMANDS, "run hello", "nonsense", ""])
def test_nonsense_behind_a_magic_ends_without_a_traceback(shell, capsys, name):
    shell.run_cell_magic("dive", "", HELLO)
    dive = shell.magics_manager.magics["line"]["dive"]
    assert raw_errors(lambda nasty: dive(f"{name} {nasty}")) == []


@pytest.mark.parametrize(
    "head", ["", "workflow", "agent", "workflow \x00", "--dialect x", "--dialect dive", "nonsense"]
)
def test_nonsense_in_a_cell_ends_without_a_traceback(shell, capsys, head):
    assert raw_errors(shell.magics_manager.magics["cell"]["dive"], head) == []
