"""Loading the extension costs little."""

import subprocess
import sys

HEAVY = (
    "pandas",
    "numpy",
    "pydantic",
    "pydantic_ai",
    "pydantic_monty",
    "ruamel",
    "ipywidgets",
    "sqlite3",
    "anyio",
    "referencing",
    "immutables",
)
LATER = tuple(
    f"divebook.{part}"
    for part in ("agents", "engine.state", "environments", "replay", "runtime.manager", "scripting", "stores")
)
"""Modules of divebook that a command loads when it is used. Together they double the time that loading takes."""

PROGRAM = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "divebook")
print(sorted(({{*sys.modules}} - before) & {set(HEAVY + LATER)}))
"""


def test_the_extension_loads_no_heavy_library(tmp_path):
    environ = {"IPYTHONDIR": str(tmp_path), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environ,
        cwd=tmp_path,  # a store in the current folder would be opened
    )
    assert done.stdout.strip() == "[]"
