"""``%dev_env`` in cells: data come as values, and what a command prints is shown."""

import pytest

from divebook.errors import DevEnvError


def test_environments_are_made_used_and_listed_in_cells(cell, tmp_path):
    folder, _ = cell("folder = %dev_env create app native\nfolder")
    assert folder == f"{tmp_path}/.dev_env_state/app"
    assert cell("%%dev_env app\nfor name in one two; do\n  echo $name\ndone") == (None, "one\ntwo\n")
    assert cell("states = %dev_env list\nstates[0]['name']")[0] == "app"
    with pytest.raises(DevEnvError, match=r"command exited with status 3 \(exit code 6\)") as raised:
        cell("%dev_env execute app 'echo why >&2; exit 3'")
    assert "why" in raised.value.shown
    assert cell("%dev_env destroy app") == (None, "Environment 'app' destroyed\n")
