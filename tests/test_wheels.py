"""The wheels that the repository builds: divebook, and its JupyterLab extension alone."""

import json
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from divebook._version import __version__

ROOT = Path(__file__).parent.parent
SHARE = "data/share/jupyter/labextensions/divebook/"
LABEXTENSION = ROOT / "widgets" / "labextension"


def build(project, folder):
    """Build a wheel with the build backend of its project, and return it opened."""
    uv = Path(sys.executable).parent / "uv"
    command = [str(uv), "build", "--wheel", "-q", "--out-dir", str(folder), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    if done.returncode and "Failed to fetch" in done.stderr:
        pytest.skip("the build backend cannot be installed here")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def metadata_of(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return HeaderParser().parsestr(wheel.read(name).decode())


def labextension_in(wheel):
    """Return the files of the JupyterLab extension in a wheel."""
    return {name.partition(SHARE)[2]: wheel.read(name) for name in wheel.namelist() if SHARE in name}


def built_labextension():
    files = (path for path in LABEXTENSION.rglob("*") if path.is_file())
    return {path.relative_to(LABEXTENSION).as_posix(): path.read_bytes() for path in files}


def test_the_wheel_of_the_extension_has_its_files_alone(tmp_path):
    with build(ROOT / "widgets" / "labextension_wheel", tmp_path) as wheel:
        files = labextension_in(wheel)
        install = json.loads(files.pop("install.json"))
        expected = built_labextension()
        expected.pop("install.json")
        assert files == expected
        others = [name for name in wheel.namelist() if SHARE not in name]
        assert sorted(name.rpartition("/")[2] for name in others) == ["METADATA", "RECORD", "WHEEL"]
        metadata = metadata_of(wheel)
    assert install["packageName"] == metadata["Name"] == "divebook-labextension"
    assert metadata["Version"] == __version__
    assert metadata.get_all("Requires-Dist") is None


def test_the_wheel_of_divebook_has_all_that_works_without_the_repository(tmp_path):
    with build(ROOT, tmp_path) as wheel:
        names = set(wheel.namelist())
        assert labextension_in(wheel) == built_labextension()
    notebooks = {f"divebook/tutorial/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks <= names
    assert {"divebook/py.typed", "divebook/.agents/skills/divebook/SKILL.md"} <= names
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "divebook").rglob("*.py")}
    assert sources <= names
    assert not [name for name in names if name.startswith(("tests/", "notebooks/", "benchmarks/"))]
