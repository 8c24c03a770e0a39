"""Commands of the shell load only the libraries that they need."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "pandas", "pyarrow", "pydantic_ai", "jupyterlab", "IPython", "ipywidgets"}
"""Libraries that take longer to load than the commands below take to run."""
PROGRAM = """
import sys
from divebook.cli.main import main
sys.argv = ["divebook", *{words!r}]
try:
    main()
except SystemExit:
    pass
print(sorted({{*sys.modules}} & {heavy!r}))
"""


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["runs"], ["inbox"], ["keys", "Step"]])
def test_a_command_loads_no_heavy_library(words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=words, heavy=HEAVY)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path)},
        cwd=tmp_path,
    )
    assert done.stdout.splitlines()[-1] == "[]"
