"""The tools that a template names, installed by whatever the environment has for that: pip, apk, apt-get or dnf."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from divebook.devenv.isolation import CommandManner, Isolation
from divebook.errors import CommandFailedError
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.shell import ShellResult

_PYTHON = {
    *("pytest", "hypothesis", "coverage", "tox", "nox", "mypy", "ruff", "black", "flake8", "pylint", "isort"),
    *("ipython", "ipdb", "pudb", "debugpy", "jupyterlab", "notebook", "pre-commit", "uv", "build", "twine"),
}
"""Tools whose package in the index of Python's is named as they are."""
_PACKAGES = {"node": "nodejs", "python": "python3", "pip": "python3-pip", "gcc": "gcc", "neovim": "neovim"}
"""Packages of systems that are named otherwise than their tool."""
_INSTALLERS = {
    "apk": "apk add --no-cache {}",
    "apt-get": "apt-get -o APT::Sandbox::User=root update -q && apt-get -o APT::Sandbox::User=root install -qy {}",
    "dnf": "dnf install -qy {}",
    "microdnf": "microdnf install -y {}",
}
_TOOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
_ROOT = "0:0"
Run = Callable[..., Awaitable[ShellResult]]


async def install(isolation: Isolation, run: Run) -> list[str]:
    """Have an environment's tools there; return what is to be told of those that are not.

    Raises `CommandFailedError` where an installer fails.
    """
    tools = [tool for names in isolation.configuration.get("tools", {}).values() for tool in names]
    known = [tool for tool in dict.fromkeys(tools) if _TOOL.fullmatch(tool)]
    async with isolation.workspace() as workspace:
        missing = [tool for tool in known if not await _has(run, workspace, tool)]
        kind = isolation.state["isolation_type"]
        if kind == "virtualenv" and (packages := [tool for tool in missing if tool in _PYTHON]):
            await _done(run, workspace, "python -m pip install --quiet " + " ".join(packages))
        elif kind == "docker" and missing:
            await _install_in_image(isolation, run, workspace, missing)
        left = [tool for tool in missing if not await _has(run, workspace, tool)]
    return [f"the tool {tool!r} is not installed: install it by an init command" for tool in left]


async def _has(run: Run, workspace: LocalWorkspace, tool: str) -> bool:
    return not (await run(workspace, f"command -v {tool}")).exit_code


async def _install_in_image(isolation: Isolation, run: Run, workspace: LocalWorkspace, tools: list[str]) -> None:
    """Install tools by the first installer that the image has, which needs its root."""
    for installer, command in _INSTALLERS.items():
        if await _has(run, workspace, installer):
            manner = CommandManner(user=_ROOT)
            async with isolation.workspace(manner) as as_root:
                packages = " ".join(_PACKAGES.get(tool, tool) for tool in tools)
                await _done(run, as_root, command.format(packages), manner=manner)
            return


async def _done(run: Run, workspace: LocalWorkspace, command: str, **options: Any) -> None:
    ended = await run(workspace, command, **options)
    if ended.exit_code:
        told = (ended.stderr.strip() or ended.stdout.strip())[-2000:]
        raise CommandFailedError(f"installing tools, {command!r} ended with {ended.exit_code}: {told}")
