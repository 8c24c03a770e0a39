"""Images for tests, made of this machine's own programs: no registry is asked."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

from divebook.errors import EngineUnavailableError
from divebook.workspaces.docker.engine import engine_socket, engine_url

REPOSITORY = "divebook-test"
BUSYBOX, PYTHON = f"{REPOSITORY}:busybox", f"{REPOSITORY}:python"
_LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "idlelib", "tkinter", "turtledemo", "ensurepip"}
_LEFT_OUT |= {"lib2to3", "__pycache__", "pydoc_data"}


def engine_answers() -> bool:
    """Return whether a container engine answers, and what images are made of is there."""
    try:
        engine_socket(engine_url())
    except EngineUnavailableError:
        return False
    return shutil.which("busybox") is not None


def busybox_image() -> str:
    """Return the name of an image with busybox."""
    return _imported(BUSYBOX, _busybox)


def python_image() -> str:
    """Return the name of an image with busybox, and the Python that runs this."""
    return _imported(PYTHON, lambda archive: (_busybox(archive), _python(archive)))


def _imported(name, fill):
    import docker

    client = docker.from_env(timeout=60)
    try:
        if not client.images.list(name):
            content = io.BytesIO()
            with tarfile.open(fileobj=content, mode="w") as archive:
                fill(archive)
            repository, _, tag = name.partition(":")
            client.api.import_image_from_data(
                content.getvalue(), repository=repository, tag=tag, changes=["ENV PATH=/bin"]
            )
    finally:
        client.close()
    return name


def _busybox(archive):
    for name in ("bin", "tmp", "proc", "etc", "workspace"):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        archive.addfile(entry)
    program = shutil.which("busybox")
    archive.add(os.path.realpath(program), "bin/busybox")
    for name in subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            _link(archive, f"bin/{name}", "busybox")


def _python(archive):
    program, library = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
    archive.add(program, program.lstrip("/"))
    _link(archive, "bin/python3", program)
    archive.add(
        library,
        library.lstrip("/"),
        filter=lambda entry: None if _LEFT_OUT & {Path(entry.name).name} or "/config-" in entry.name else entry,
    )
    modules = (str(path) for path in Path(library, "lib-dynload").iterdir())
    needed = subprocess.run(["ldd", program, *modules], capture_output=True, text=True, check=False).stdout
    for path in sorted(set(re.findall(r"^\s(?:\S+ => )?(/\S+) \(", needed, re.MULTILINE))):
        archive.add(os.path.realpath(path), path.lstrip("/"))


def _link(archive, name, target):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)
