"""Files are copied into an environment and out of it by its ``tar``: with their modes, and as its commands may."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from divebook.errors import DevEnvError
from divebook.workspace.shell import ShellResult

Run = Callable[..., Awaitable[ShellResult]]
"""Runs a command in the environment."""
_PIECE = 1 << 16


async def copy_in(run: Run, source: Path, target: str) -> str:
    """Copy a file or folder of this machine; return where it is in the environment.

    Where `target` is a folder it gets below that, else that is what it is called.
    """
    into, name = posixpath.split(target)
    if target.endswith("/") or not (await run(f"test -d {shlex.quote(target)}")).exit_code:
        into, name = target, _name_of(source)
    with tempfile.TemporaryFile() as file:
        await asyncio.to_thread(_pack, source, name, file)
        place = shlex.quote(into or ".")
        await _done(run, f"mkdir -p {place} && tar -xof - -C {place}", stdin=_pieces(file))
    return posixpath.join(into, name)


async def copy_out(run: Run, source: str, target: Path) -> Path:
    """Copy a file or folder of the environment; return where it is on this machine, as `copy_in` says of names."""
    folder, name = posixpath.split(source.rstrip("/") or "/")
    with _beside(target) as passing:
        archive = passing / "archive"
        with archive.open("wb") as file:

            def keep(stream: str, text: str) -> None:
                if stream == "stdout":
                    file.write(text.encode(errors="surrogateescape"))

            command = f"tar -cf - -C {shlex.quote(folder or '.')} {shlex.quote(name or '.')}"
            await _done(run, command, listen=keep, undecodable="surrogateescape")
        return await asyncio.to_thread(_put, archive, name or ".", target)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Give a folder for what is passing, on the disk on which the files are to be."""
    place = target if target.is_dir() else target.parent
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".dev_env-") as passing:
            yield Path(passing)
    except FileNotFoundError as error:
        raise DevEnvError(f"there is no folder {place} on this machine: make it first") from error


async def _done(run: Run, command: str, **options: object) -> None:
    ended = await run(command, **options)
    if ended.exit_code:
        raise DevEnvError(f"the files cannot be copied: {ended.stderr.strip()[-2000:] or 'tar has failed'}")


def _name_of(source: Path) -> str:
    return source.resolve().name


def _pack(source: Path, name: str, file: BinaryIO) -> None:
    try:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(source, name)
    except OSError as error:
        raise DevEnvError(f"{source} of this machine cannot be read: {error}") from error
    file.seek(0)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece


def _put(archive: Path, name: str, target: Path) -> Path:
    """Put at its place what an archive has, which may hold anything; return the place."""
    folder = archive.with_name("files")
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")  # refuses what would lead out
        found = folder / name
        place = target / name if target.is_dir() and name not in (".", "..") else target
        if found.is_dir() and not found.is_symlink():
            shutil.copytree(found, place, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.move(found, place)
    except (tarfile.TarError, OSError) as error:
        raise DevEnvError(f"the files cannot be written at {target}: {error}") from error
    return place
