"""Installation of packages with plugins on the path of this process, without network."""

import tomllib
from pathlib import Path

EXAMPLE = Path(__file__).parent / "example"


def install(folder, name, entry_points, code="", version="1.0"):
    """Make a package with a ``dist-info`` in a folder. `entry_points` are ``{group: {name: target}}``."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {target}" for key, target in entries.items())]
    info.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n")
    if code:
        folder.joinpath(f"{name.replace('-', '_')}.py").write_text(code)


def install_example(folder):
    """Install the example as a build of its ``pyproject.toml`` does."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    package = folder / "acme_divebook"
    package.mkdir()
    package.joinpath("__init__.py").write_text((EXAMPLE / "acme_divebook" / "__init__.py").read_text())
    install(folder, project["name"], project["entry-points"], version=project["version"])
