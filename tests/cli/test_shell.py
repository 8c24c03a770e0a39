"""What a shell is offered: the version as an option, and completion that installs itself."""

import os
import subprocess
import sys

from divebook._version import __version__


def divebook(*words, home, **variables):
    environ = {**os.environ, "HOME": str(home), **variables}
    command = [sys.executable, "-m", "divebook", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_version_is_an_option_too(tmp_path):
    assert divebook("--version", home=tmp_path) == divebook("version", home=tmp_path) == f"{__version__}\n"


def test_completion_is_installed_and_offers_commands_and_options(tmp_path):
    unasked = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # what runs the tests may be another shell
    told = divebook("--install-completion", "bash", home=tmp_path, **unasked)
    (script,) = tmp_path.rglob("divebook.sh")
    assert str(script) in told
    assert "_DIVEBOOK_COMPLETE=complete_bash" in script.read_text()
    asked = {"_DIVEBOOK_COMPLETE": "complete_bash", "COMP_CWORD": "1", "COMP_WORDS": "divebook ru"}
    assert divebook(home=tmp_path, **asked).split() == ["run", "runs", "rules"]
    assert "--durability" in divebook(home=tmp_path, **asked | {"COMP_CWORD": "2", "COMP_WORDS": "divebook run --dur"})
