"""Python that holds what an environment takes in: a module or a file, imported by name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from divebook.agents import Agent
from divebook.environment.environment import Environment
from divebook.errors import SetupError
from divebook.workflow.definition import Workflow
from divebook.workflow.resources import ScheduleDefinition
from divebook.workflow.servers import MCPServerDefinition


def take_in_held(environment: Environment, held: Iterable[Any]) -> None:
    """Let an environment have what others hold, and then single things, which have been made with less ado."""
    for found in held:
        if isinstance(found, Environment):
            environment.take_in(found)
    for found in held:
        if isinstance(found, Agent):
            environment.add_agent(found, replace=True)
        elif isinstance(found, Workflow):
            environment.add_workflow(found, replace=True)
        elif isinstance(found, ScheduleDefinition):
            environment.add_schedule(found, replace=True)
        elif isinstance(found, MCPServerDefinition):
            environment.add_server(found, replace=True)


def import_actions(source: str, what: str = "actions") -> ModuleType:
    """Import a module or Python file, so that its ``@action`` and ``@workflow`` functions are known.

    Errors say `what` it is to the person who named it.
    """
    try:
        if source.endswith(".py"):
            return _import_file(Path(source))
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
        return importlib.import_module(source)
    except Exception as error:  # whatever the user's code raises while it is imported
        raise SetupError(f"{what} {source!r} cannot be imported: {type(error).__name__}: {error}") from error


def _import_file(path: Path) -> ModuleType:
    # A prefix, so that a file called json.py does not take the place of json.
    spec = importlib.util.spec_from_file_location(f"divebook_actions_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not Python")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.absolute()))  # as `python FILE` does
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module
