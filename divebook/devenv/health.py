"""Whether this machine has what environments need: a root of one's own, room, Pythons, a container engine."""

from __future__ import annotations

import os
import shutil
from typing import Any

from divebook.devenv.containers import engine_version
from divebook.devenv.layout import Layout
from divebook.devenv.virtualenvs import found_pythons
from divebook.errors import EngineUnavailableError, EnvironmentDeniedError
from divebook.text.shown import size
from divebook.workspace.docker.engine import engine_url

_ROOM = 1 << 30
"""Bytes below which a disk is as good as full."""


async def checked(layout: Layout) -> list[dict[str, Any]]:
    """Return what was looked at: name, ok, detail, and whether nothing works without it (required)."""
    return [_root(layout), _permissions(layout), _disk(layout), await _engine(), _pythons(), _uv()]


def _told(name: str, detail: str, *, ok: bool, required: bool = False) -> dict[str, Any]:
    return {"name": name, "ok": ok, "required": required, "detail": detail}


def _root(layout: Layout) -> dict[str, Any]:
    is_there, is_open = layout.root.is_dir(), os.access(layout.root, os.W_OK | os.X_OK)
    detail = f"{layout.root}" if is_there and is_open else f"{layout.root} is no folder that you may write"
    return _told("root", detail, ok=is_there and is_open, required=True)


def _permissions(layout: Layout) -> dict[str, Any]:
    try:
        layout.require_own()
    except EnvironmentDeniedError as error:
        return _told("permissions", str(error), ok=False, required=True)
    return _told("permissions", "nobody else can change what is recorded", ok=True, required=True)


def _disk(layout: Layout) -> dict[str, Any]:
    if not layout.root.is_dir():
        return _told("disk", "there is no root", ok=False, required=True)
    found = shutil.disk_usage(layout.root)
    return _told("disk", f"{size(found.free)} free of {size(found.total)}", ok=found.free >= _ROOM, required=True)


async def _engine() -> dict[str, Any]:
    try:
        return _told("engine", f"{await engine_version()} at {engine_url()}", ok=True)
    except EngineUnavailableError as error:
        return _told("engine", str(error), ok=False)


def _pythons() -> dict[str, Any]:
    found = found_pythons()
    return _told("python", ", ".join(found) or "none on the path", ok=bool(found))


def _uv() -> dict[str, Any]:
    found = shutil.which("uv")
    return _told("uv", found or "not on the path: venv and pip are used", ok=found is not None)
