"""The site of the documentation, built once for all tests of a session, also by several workers."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 600.0


def built_site(tmp_path_factory):
    """Return the folder of the site, and what the strict build complains about: nothing if it succeeds."""
    base = tmp_path_factory.getbasetemp()
    # Each worker has a folder of its own in a common one.
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = common / "built-site", common / "built-site.json"
    try:
        folder.mkdir()
    except FileExistsError:
        deadline = time.monotonic() + LIMIT
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        return folder, json.loads(done.read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    complaint = built.stderr or "no site" if built.returncode else ""
    part = done.with_suffix(".part")
    part.write_text(json.dumps(complaint), encoding="utf-8")
    part.replace(done)
    return folder, complaint
