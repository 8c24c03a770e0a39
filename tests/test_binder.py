"""What Binder does with this repository, in a clean environment; it takes minutes, so only on demand."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("DIVEBOOK_REQUIRE") != "all", reason="builds an environment: DIVEBOOK_REQUIRE=all"
    ),
    pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="no git checkout"),
    pytest.mark.timeout(1500),
]

WIDGETS = """
from pathlib import Path
import divebook
from divebook.widgets.views import built
assert Path.cwd() not in Path(divebook.__file__).parents, divebook.__file__
print(len(built("live.js")) > 1000, len(built("live.css")) > 100)
"""


@pytest.fixture(scope="module")
def binder(tmp_path_factory):
    """Return a clone in which ``binder/postBuild`` has run, and the folder of its environment's programs."""
    folder = tmp_path_factory.mktemp("binder")
    clone, environment = folder / "clone", folder / "environment"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    programs = environment / "bin"
    run(programs, clone, [str(clone / "binder" / "postBuild")])
    return clone, programs


def run(programs, folder, command):
    """Run a command with nothing of this process's environment but the way to package indexes."""
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(("HOME", "PIP_", "UV_", "npm_", "SSL"))
    }
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    environ = {**kept, **proxies, "PATH": f"{programs}:/usr/bin:/bin"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_the_widgets_are_built_and_installed(binder, tmp_path):
    _, programs = binder
    assert run(programs, tmp_path, [str(programs / "python"), "-c", WIDGETS]).split() == ["True", "True"]


def test_the_first_notebook_runs_there(binder):
    clone, programs = binder
    run(programs, clone / "notebooks", [str(programs / "jupyter"), "execute", "01_quickstart.ipynb"])
    assert (clone / "notebooks" / "licence-report.md").exists()
