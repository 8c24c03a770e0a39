"""What users see is as the snapshots have it; ``python -m tests.frozen`` writes them anew after a wanted change."""

import subprocess
import sys

import pytest

from tests.frozen.snapshots_of import FOLDER, ROOT, SNAPSHOTS

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="written by Python 3.11: digests of code, and texts of Python's own errors, differ between versions",
)


@pytest.mark.parametrize("name", sorted(SNAPSHOTS))
def test_what_users_see_is_as_its_snapshot(name):
    expected = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    # In a process of its own: tests of the same process leave definitions, settings and an IPython shell behind.
    command = [sys.executable, "-m", "tests.frozen", "--print", name]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=110, check=False)
    assert made.returncode == 0, made.stderr.decode()
    assert made.stdout.decode() == expected
