"""``python -m tests.devenv``: every command of `dev_env` from a shell script, about a minute."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.workspace.images import busybox_image, engine_answers


def main() -> int:
    """Run the script; return its exit code."""
    script = Path(__file__).with_name("every_command.sh")
    with tempfile.TemporaryDirectory() as root:
        box = {"BOX": busybox_image()} if engine_answers() else {}
        environ = {**os.environ, "ROOT": root, "PYTHON": sys.executable, **box}
        return subprocess.run(["/bin/sh", str(script)], env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
